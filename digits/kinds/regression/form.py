"""The form of a dataset for regression."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from wtforms import SelectField, StringField
from wtforms.validators import Length, Optional

from digits.data.data_roots import FileType
from digits.kinds.form_fields import AllowedFiles, AllowedPath, RequiredIf, choices
from digits.kinds.record_form import METHOD as RECORDS
from digits.kinds.record_form import RecordForm
from digits.kinds.record_source import first_record
from digits.kinds.regression.databases import find, is_database, open_images
from digits.kinds.regression.overview import DatabaseOverview, Overview, RecordOverview
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
        *("target_columns", "val_image_folder", "method"),
        *(*RecordForm.RECORD_FIELDS, "image_feature", "record_shape"),
    )
    DATABASE_FIELDS: ClassVar[dict[str, FileType]] = {
        "image_folder": "folder",
        "table_val": "any",
        "val_image_folder": "folder",
    }
    SCANNED_PATHS = ("table_train", "record_train")
    OWN_SOURCES = ("table_{}", "record_{}")
    FILE_FIELDS = (*TableForm.TABLE_SCANNED, "val_image_folder")

    method = SelectField("Source", choices=choices(("csv", "Table"), (RECORDS, "TFRecord")), default="csv")
    table_train = StringField("Table", validators=[RequiredIf(NO_TABLE, method="csv"), AllowedFiles()])
    val_image_folder = StringField(
        "Validation image folder", default="", validators=[Optional(), AllowedPath("folder")]
    )
    target_columns = StringField("Target columns", default="", validators=[Optional(), Length(max=2000)])

    def check_source(self, path: str) -> None:
        if not is_database(Path(path)):
            super().check_source(path)
            return
        for images in open_images(find(self._databases(Path(path)))).values():
            images.close()

    def check_table(self, table: SplitTable) -> None:
        check_header(table, self._columns())

    def _databases(self, table: Path) -> list[tuple[str, str, str]]:
        """Return the folder of a generic dataset, or the databases in the fields; see `find`."""
        sources = [("train", str(table), self.text_of("image_folder"))]
        if self.text_of("table_val"):
            sources.append(("val", self.text_of("table_val"), self.text_of("val_image_folder")))
        return sources

    def check_records(self) -> None:
        source = self.record_source()
        files = source.find()
        NumberMapping(source, files, first_record(files.splits["train"]))

    def scan_source(self) -> Iterator[SourceSummary]:
        if self.reads_records:
            return self.scan_records(guess, RecordOverview)
        path = Path(self.resolved_files("table_train"))
        if is_database(path):
            for name, file_type in self.DATABASE_FIELDS.items():
                if self.text_of(name):
                    self[name].data = str(self.path_of(name, file_type))
            return DatabaseOverview(self._databases(path)).summaries()
        overview = Overview(self._columns())
        return self.scan_table(overview.open, overview.describe)

    def _columns(self) -> Columns:
        return Columns(self.text_of("image_column"), tuple(self.names_in("target_columns")), self.dialect())

    def record_source(self) -> NumberRecords:
        return NumberRecords(target_features=self.names_in("target_columns"), **self.record_settings())

    def recipe(self) -> CreateRegression:
        if not self.reads_records:
            settings = self.table_settings()
            if self.table_val.data and self.val_image_folder.data:
                settings["val_folder"] = self.val_image_folder.data
            return CreateRegression(target_columns=self.names_in("target_columns"), **settings)
        return CreateRegression(records=self.record_source(), **self.image_settings())

    def fill_source(self, recipe: CreateRegression) -> None:
        if recipe.records is None:
            super().fill_source(recipe)
            self.set(target_columns=", ".join(recipe.target_columns))
            if self.image_folder.data and recipe.val_folder != recipe.folder:
                self.set(val_image_folder=recipe.val_folder or "")
            return
        self.fill_records(recipe.records)
        self.set(target_columns=", ".join(recipe.records.target_features))
