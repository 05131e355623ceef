"""The form of a dataset for regression."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from wtforms import IntegerField, SelectField, StringField
from wtforms.validators import Length, Optional

from digits.kinds.dataset_form import check_shares
from digits.kinds.form_fields import AllowedFiles, RequiredIf, choices
from digits.kinds.record_form import METHOD as RECORDS
from digits.kinds.record_form import RecordForm
from digits.kinds.record_source import first_record
from digits.kinds.record_summary import summarize_source
from digits.kinds.regression.databases import is_database, open_images
from digits.kinds.regression.overview import Overview, RecordOverview, summarize_databases
from digits.kinds.regression.reader import Columns, check_header
from digits.kinds.regression.recipe import CreateRegression, NumberRecords
from digits.kinds.regression.records import NumberMapping, guess
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_form import NO_TABLE, TableForm
from digits.kinds.table_source import SplitTable


class DatasetForm(TableForm[CreateRegression], RecordForm[CreateRegression]):
    """A dataset for regression, from a table of images and numbers, databases of DIGITS, or TFRecord files."""

    SCANNED = (
        *TableForm.TABLE_SCANNED,
        *("target_columns", "method", *RecordForm.RECORD_FIELDS, "image_feature", "record_shape"),
    )
    SCANNED_PATHS = ("table_train", "record_train")
    FILE_FIELDS = TableForm.TABLE_SCANNED

    method = SelectField("Source", choices=choices(("csv", "Table"), (RECORDS, "TFRecord")), default="csv")
    table_train = StringField("Table", validators=[RequiredIf(NO_TABLE, method="csv"), AllowedFiles()])
    target_columns = StringField("Target columns", default="", validators=[Optional(), Length(max=2000)])

    def check_source(self, path: str) -> None:
        if not is_database(Path(path)):
            super().check_source(path)
            return
        for images in open_images(Path(path)).values():
            images.close()

    def check_table(self, table: SplitTable) -> None:
        check_header(table, self._columns())

    def check_records(self) -> None:
        source = self.record_source()
        files = source.find()
        NumberMapping(source, files, first_record(files.splits["train"]))

    def validate_pct_test(self, field: IntegerField) -> None:
        own = {name: self[f"table_{name}"].data or self[f"record_{name}"].data for name in ("val", "test")}
        check_shares(0 if own["val"] else self.pct_val.data, 0 if own["test"] else field.data)

    def scan_source(self) -> Iterator[SourceSummary]:
        if self.reads_records:
            self.resolved_source()
            source = self.record_source()
            return summarize_source(source, partial(guess, source), partial(RecordOverview, source))
        path = Path(self.resolved_files("table_train"))
        if is_database(path):
            return summarize_databases(path)
        overview = Overview(self._columns())
        return self.scan_table(overview.open, overview.describe)

    def _columns(self) -> Columns:
        return Columns(self.text_of("image_column"), tuple(self.names_in("target_columns")), self.dialect())

    def record_source(self) -> NumberRecords:
        return NumberRecords(target_features=self.names_in("target_columns"), **self.record_settings())

    def recipe(self) -> CreateRegression:
        if not self.reads_records:
            return CreateRegression(target_columns=self.names_in("target_columns"), **self.table_settings())
        source = self.record_source()
        return CreateRegression(
            records=source,
            pct_val=0 if source.val else self.pct_val.data,
            pct_test=0 if source.test else self.pct_test.data,
            **self.image_settings(),
        )

    def fill_source(self, recipe: CreateRegression) -> None:
        if recipe.records is None:
            super().fill_source(recipe)
            self.set(target_columns=", ".join(recipe.target_columns))
            return
        self.fill_records(recipe.records)
        self.set(target_columns=", ".join(recipe.records.target_features))
        if not recipe.records.val:
            self.pct_val.data = round(recipe.pct_val)
        if not recipe.records.test:
            self.pct_test.data = round(recipe.pct_test)
