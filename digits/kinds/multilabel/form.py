"""The form of a dataset for multi-label classification."""

from __future__ import annotations

from collections.abc import Iterator

from wtforms import StringField
from wtforms.validators import Length, Optional

from digits.kinds.form_fields import choices, select
from digits.kinds.multilabel.overview import Overview
from digits.kinds.multilabel.reader import Columns, check_columns
from digits.kinds.multilabel.recipe import CreateMultilabel
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_form import TableForm
from digits.kinds.table_source import SplitTable

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


class DatasetForm(TableForm[CreateMultilabel]):
    """A dataset for multi-label classification, from a table of images and their labels."""

    SCANNED = (
        *TableForm.TABLE_SCANNED,
        *("label_columns", "layout", "separator"),
    )

    label_columns = StringField("Label columns", default="", validators=[Optional(), Length(max=20_000)])
    layout = select("Layout", LAYOUTS, CreateMultilabel, "layout")
    separator = select("Label separator", SEPARATORS, CreateMultilabel, "separator")

    def check_table(self, table: SplitTable) -> None:
        check_columns(table, self._columns())

    def scan_source(self) -> Iterator[SourceSummary]:
        overview = Overview(self._columns())
        return self.scan_table(overview.open, overview.describe)

    def recipe(self) -> CreateMultilabel:
        return CreateMultilabel(
            label_columns=self.names_in("label_columns"),
            layout=self.layout.data,
            separator=self.separator.data,
            **self.table_settings(),
        )

    def fill_source(self, recipe: CreateMultilabel) -> None:
        super().fill_source(recipe)
        self.set(
            label_columns=", ".join(recipe.label_columns), layout=recipe.layout, separator=recipe.separator
        )

    def _columns(self) -> Columns:
        return Columns(
            self.text_of("image_column"),
            tuple(self.names_in("label_columns")),
            self.layout.data or "auto",
            self.separator.data or "auto",
            self.dialect(),
        )
