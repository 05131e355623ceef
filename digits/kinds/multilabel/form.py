"""The form of a dataset for multi-label classification."""

from __future__ import annotations

from wtforms.validators import Length, Optional

from digits.kinds.forms.fields import Binding, NamesField, choices, optional_path, select
from digits.kinds.forms.records import RecordFields, Records
from digits.kinds.forms.source import method_field
from digits.kinds.forms.tables import TableFields, Tables
from digits.kinds.multilabel.reader import open_labels
from digits.kinds.multilabel.recipe import CreateMultilabel, LabelRecords
from digits.kinds.multilabel.records import LabelSetMapping

LAYOUTS = choices(
    ("auto", "Detect automatically"),
    ("list", "One column lists the labels"),
    ("columns", "A column of 0 and 1 for each label"),
)
SEPARATORS = choices(
    ("auto", "Detect automatically"),
    ("space", "Space"),
    ("comma", "Comma"),
    ("semicolon", "Semicolon"),
    ("bar", "Vertical bar (|)"),
)


class DatasetForm(TableFields[CreateMultilabel], RecordFields[CreateMultilabel]):
    """A dataset for multi-label classification, from a table of images and their labels, or from TFRecord files."""

    RECIPE = CreateMultilabel
    SOURCES = (
        Tables(open_labels, *("label_columns", "layout", "separator")),
        Records(LabelRecords, LabelSetMapping),
    )

    method = method_field(SOURCES)
    record_labels = optional_path("Class names", LabelRecords, "labels", "file")
    label_columns = NamesField(
        "Label columns",
        default="",
        validators=[Optional(), Length(max=20_000)],
        binding=(Binding(CreateMultilabel, "label_columns"), Binding(LabelRecords, "label_features")),
    )
    layout = select("Layout", LAYOUTS, CreateMultilabel, "layout", also=LabelRecords)
    separator = select("Label separator", SEPARATORS, CreateMultilabel, "separator")
