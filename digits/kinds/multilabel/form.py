"""The form of a dataset for multi-label classification."""

from __future__ import annotations

from collections.abc import Iterator

from wtforms import SelectField, StringField
from wtforms.validators import Length, Optional

from digits.kinds.form_fields import AllowedFiles, AllowedPath, RequiredIf, choices, select
from digits.kinds.multilabel.overview import Overview, RecordOverview
from digits.kinds.multilabel.reader import Columns, check_columns
from digits.kinds.multilabel.recipe import CreateMultilabel, LabelRecords
from digits.kinds.multilabel.records import LabelMapping, guess
from digits.kinds.record_form import METHOD as RECORDS
from digits.kinds.record_form import RecordForm
from digits.kinds.record_source import first_record
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_form import NO_TABLE, TableForm
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


class DatasetForm(TableForm[CreateMultilabel], RecordForm[CreateMultilabel]):
    """A dataset for multi-label classification, from a table of images and their labels, or from TFRecord files."""

    RECORD_FIELDS = (*RecordForm.RECORD_FIELDS, "record_labels")
    SCANNED = (
        *TableForm.TABLE_SCANNED,
        *("label_columns", "layout", "separator", "method"),
        *(*RECORD_FIELDS, "image_feature", "record_shape"),
    )
    SCANNED_PATHS = ("table_train", "record_train")
    OWN_SOURCES = ("table_{}", "record_{}")
    FILE_FIELDS = TableForm.TABLE_SCANNED

    method = SelectField("Source", choices=choices(("csv", "Table"), (RECORDS, "TFRecord")), default="csv")
    table_train = StringField("Table", validators=[RequiredIf(NO_TABLE, method="csv"), AllowedFiles()])
    record_labels = StringField("Class names", default="", validators=[Optional(), AllowedPath("file")])

    label_columns = StringField("Label columns", default="", validators=[Optional(), Length(max=20_000)])
    layout = select("Layout", LAYOUTS, CreateMultilabel, "layout")
    separator = select("Label separator", SEPARATORS, CreateMultilabel, "separator")

    def check_table(self, table: SplitTable) -> None:
        check_columns(table, self._columns())

    def check_records(self) -> None:
        source = self.record_source()
        files = source.find()
        LabelMapping(source, files, first_record(files.splits["train"]))

    def scan_source(self) -> Iterator[SourceSummary]:
        if self.reads_records:
            return self.scan_records(guess, RecordOverview)
        overview = Overview(self._columns())
        return self.scan_table(overview.open, overview.describe)

    def record_source(self) -> LabelRecords:
        return LabelRecords(
            label_features=self.names_in("label_columns"),
            layout=self.layout.data or "auto",
            labels=self.entered("record_labels"),
            **self.record_settings(),
        )

    def recipe(self) -> CreateMultilabel:
        if self.reads_records:
            return CreateMultilabel(records=self.record_source(), **self.image_settings())
        return CreateMultilabel(
            label_columns=self.names_in("label_columns"),
            layout=self.layout.data,
            separator=self.separator.data,
            **self.table_settings(),
        )

    def fill_source(self, recipe: CreateMultilabel) -> None:
        if recipe.records is not None:
            self._fill_records(recipe.records)
            return
        super().fill_source(recipe)
        self.set(
            label_columns=", ".join(recipe.label_columns), layout=recipe.layout, separator=recipe.separator
        )

    def _fill_records(self, source: LabelRecords) -> None:
        self.fill_records(source)
        self.set(
            label_columns=", ".join(source.label_features), layout=source.layout, record_labels=source.labels
        )

    def _columns(self) -> Columns:
        return Columns(
            self.text_of("image_column"),
            tuple(self.names_in("label_columns")),
            self.layout.data or "auto",
            self.separator.data or "auto",
            self.dialect(),
        )
