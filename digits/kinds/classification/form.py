"""The form of a dataset for image classification."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from flask_wtf.file import FileField
from wtforms import HiddenField, SelectField, StringField, TextAreaField
from wtforms.validators import AnyOf, Length, Optional, StopValidation, ValidationError

from digits.core import schema
from digits.core.errors import BadRequest, DigitsError
from digits.core.files import open_plain, write_bytes
from digits.core.remote import is_address
from digits.core.splits import SPLITS
from digits.data.dataset_folder import find
from digits.data.image_lists import need_an_image
from digits.data.sources import UnusableSource, show
from digits.data.tables import MAX_HEADER_BYTES
from digits.kinds.classification.database_form import METHOD as DATABASES
from digits.kinds.classification.database_form import DatabaseFields
from digits.kinds.classification.dataset_folder import need_images
from digits.kinds.classification.listing import OpenTable
from digits.kinds.classification.overview import (
    FolderOverview,
    summarize_dataset_folder,
    summarize_tables,
    summarize_text_files,
)
from digits.kinds.classification.recipe import (
    CreateClassification,
    Databases,
    DatasetFolder,
    FolderSplit,
    LabeledRecords,
    ListedSplit,
    Tables,
    TextFiles,
)
from digits.kinds.classification.record_files import LabelMapping, guess
from digits.kinds.classification.record_form import RecordFields
from digits.kinds.dataset_form import required_integer
from digits.kinds.form_fields import (
    AllowedFiles,
    AllowedPath,
    Between,
    FlagField,
    LinesField,
    NotLessThan,
    OnlyIf,
    OptionalInteger,
    RequiredIf,
    choices,
)
from digits.kinds.jobs import DatasetJob
from digits.kinds.record_form import METHOD as RECORDS
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_form import HEAD_BYTES, DialectFields, root_of_paths

# The folder of a job that contains its uploaded files.
UPLOADS = "uploads"
NO_IMAGE_FOLDER = (
    "Enter the folder that contains the images of the uploaded file, or upload one with absolute paths."
)
METHODS = ("folder", "textfile", "csv", "huggingface", RECORDS, DATABASES, "s3")


def _count(label: str, name: str, *checks: Any) -> OptionalInteger:
    limits = schema.limits(FolderSplit, name)
    between = Between(limits, "Must be at least {low}, and at most {high}.")
    return OptionalInteger(label, default=limits.default, validators=[Optional(), between, *checks])


def _optional_path(label: str, file_type: Any, **others: Any) -> StringField:
    return StringField(label, default="", validators=[OnlyIf(**others), Optional(), AllowedPath(file_type)])


class _NeedFolder:
    """Ignore an empty field, unless the images of an uploaded list are not found without it."""

    field_flags: dict[str, Any] = {}

    def __call__(self, form: Any, field: StringField) -> None:
        if not form.text_of(field.name):
            raise StopValidation(NO_IMAGE_FOLDER if form.needs_image_folder() else "")


def _image_folder(label: str, **others: Any) -> StringField:
    return StringField(label, default="", validators=[OnlyIf(**others), _NeedFolder(), AllowedPath("folder")])


def _column(label: str) -> StringField:
    return StringField(label, default="", validators=[Optional(), Length(max=200)])


def _optional_percent(label: str, name: str) -> OptionalInteger:
    return OptionalInteger(
        label, default=None, validators=[Optional(), Between(schema.limits(CreateClassification, name))]
    )


def _optional_count(label: str, name: str) -> OptionalInteger:
    between = Between(schema.limits(FolderSplit, name), "Must be at least {low}, and at most {high}.")
    return OptionalInteger(label, default=None, validators=[Optional(), between])


class DatasetForm(RecordFields, DatabaseFields, DialectFields[CreateClassification]):
    """A dataset for image classification: from folders of classes, files that list images, or files with records."""

    SCANNED = (
        *("folder_train", "textfile_local_train_images", "table_train", "dataset_folder", "s3_bucket"),
        *("s3_path", "method"),
        *("folder_train_more", "folder_train_min_per_class", "has_val_folder", "has_test_folder"),
        *("textfile_use_local_files", "textfile_train_folder", "textfile_local_labels_file"),
        *("textfile_train_images", "textfile_labels_file", "table_train_file"),
        *("image_folder", "image_column", "label_column", *DialectFields.DIALECT),
        *RecordFields.RECORD_SCANNED,
        *DatabaseFields.DATABASE_SCANNED,
    )
    SCANNED_PATHS = (*SCANNED[:5], "record_train", "database_train")
    SHARES = ("folder_pct_val", "folder_pct_test")
    OWN_SOURCES = ("has_{}_folder", "table_{}", "table_{}_file", "record_{}", "database_{}")

    method = SelectField(
        "Source",
        choices=choices(
            ("folder", "Folders"),
            ("textfile", "Text files"),
            ("csv", "CSV files"),
            ("huggingface", "Hugging Face"),
            (RECORDS, "TFRecord"),
            (DATABASES, "LMDB, HDF5"),
            ("s3", "Cloud storage"),
        ),
        default="folder",
        validators=[AnyOf(METHODS, "Choose one of the sources.")],
    )
    # The dataset whose uploaded files are used, in clones.
    uploads_of = HiddenField(default="")

    folder_train = LinesField(
        "Training images", validators=[RequiredIf(method="folder"), AllowedPath("folder")]
    )
    folder_train_more = TextAreaField(
        "More folders", default="", validators=[OnlyIf(method="folder"), Optional(), AllowedPath("folder")]
    )
    one_class = FlagField("Create with one class", default=False)
    pct_val = pct_test = None
    folder_pct_val = required_integer("Validation split (%)", CreateClassification, "pct_val")
    folder_pct_test = required_integer("Test split (%)", CreateClassification, "pct_test")
    folder_train_min_per_class = _count("Minimum images per class", "min_per_class")
    folder_train_max_per_class = _count(
        "Maximum images per class", "max_per_class", NotLessThan("folder_train_min_per_class")
    )

    has_val_folder = FlagField("Use a separate validation folder", default=False)
    folder_val = LinesField(
        "Validation images",
        validators=[RequiredIf(method="folder", has_val_folder=True), AllowedPath("folder")],
    )
    folder_val_min_per_class = _count("Minimum images per class", "min_per_class")
    folder_val_max_per_class = _count(
        "Maximum images per class", "max_per_class", NotLessThan("folder_val_min_per_class")
    )

    has_test_folder = FlagField("Use a separate test folder", default=False)
    folder_test = LinesField(
        "Test images", validators=[RequiredIf(method="folder", has_test_folder=True), AllowedPath("folder")]
    )
    folder_test_min_per_class = _count("Minimum images per class", "min_per_class")
    folder_test_max_per_class = _count(
        "Maximum images per class", "max_per_class", NotLessThan("folder_test_min_per_class")
    )

    textfile_use_local_files = FlagField("The files are on the server", default=False)
    textfile_train_images = FileField("Training images")
    textfile_local_train_images = StringField(
        "Training images",
        validators=[RequiredIf(method="textfile", textfile_use_local_files=True), AllowedPath("file")],
    )
    textfile_train_folder = _image_folder("Image folder", method="textfile")
    textfile_use_val = FlagField("Use a validation file", default=True)
    textfile_val_images = FileField("Validation images")
    textfile_local_val_images = StringField(
        "Validation images",
        validators=[
            RequiredIf(method="textfile", textfile_use_local_files=True, textfile_use_val=True),
            AllowedPath("file"),
        ],
    )
    textfile_val_folder = _optional_path("Validation image folder", "folder", method="textfile")
    textfile_use_test = FlagField("Use a test file", default=False)
    textfile_test_images = FileField("Test images")
    textfile_local_test_images = StringField(
        "Test images",
        validators=[
            RequiredIf(method="textfile", textfile_use_local_files=True, textfile_use_test=True),
            AllowedPath("file"),
        ],
    )
    textfile_test_folder = _optional_path("Test image folder", "folder", method="textfile")
    textfile_shuffle = SelectField(
        "Order of the records", choices=choices(("1", "Shuffled"), ("0", "As in the files")), default="1"
    )
    textfile_labels_file = FileField("Labels")
    textfile_local_labels_file = StringField(
        "Labels",
        validators=[RequiredIf(method="textfile", textfile_use_local_files=True), AllowedPath("file")],
    )

    table_train = _optional_path("CSV file", "file", method="csv")
    table_train_file = FileField("Upload the CSV file")
    image_folder = _image_folder("Image folder", method="csv")
    image_column = _column("Image column")
    label_column = _column("Label column")
    table_val = _optional_path("Validation table", "file", method="csv")
    table_val_file = FileField("Upload the validation table")
    table_test = _optional_path("Test table", "file", method="csv")
    table_test_file = FileField("Upload the test table")

    dataset_folder = StringField(
        "Dataset folder", default="", validators=[RequiredIf(method="huggingface"), AllowedFiles()]
    )

    s3_bucket = StringField("Bucket", default="", validators=[RequiredIf(method="s3")])
    s3_path = StringField("Folder", default="", validators=[OnlyIf(method="s3")])
    # Field names in DIGITS; they default to the values of the folder fields.
    s3_pct_val = _optional_percent("Validation split (%)", "pct_val")
    s3_pct_test = _optional_percent("Test split (%)", "pct_test")
    s3_train_min_per_class = _optional_count("Minimum images per class", "min_per_class")
    s3_train_max_per_class = _optional_count("Maximum images per class", "max_per_class")

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._saved: dict[str, Path] = {}
        self._offer_one_class = False

    @property
    def opens_files(self) -> bool:
        return self.method.data not in ("folder", "s3")

    def validate(self, extra_validators: Any = None) -> bool:
        self._use_names_of_digits()
        return bool(super().validate(extra_validators))

    def validate_folder_train(self, field: StringField) -> None:
        if field.errors or self.method.data != "folder":
            return
        folders = [*field.lines(), *_lines(self.folder_train_more.data)]
        classes: list[str] = []
        for folder in folders:
            if os.path.isdir(folder) and self.meta.data_roots.contain(Path(folder)):
                classes += [name for name in _subfolders(folder, enough=2) if name not in classes]
        if len(classes) < 2 and not (classes and self.one_class.data):
            found = f"only “{classes[0]}”" if classes else "none"
            if classes:
                self._offer_one_class = True
            raise ValidationError(
                "Each class requires a separate sub-folder, and at least two are required: "
                f"{', '.join(field.lines())} has {found}."
            )
        try:
            need_an_image(*map(Path, folders))
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def validate_one_class(self, field: FlagField) -> None:
        # Validated after the folders.
        if self._offer_one_class:
            raise ValidationError(
                "Only one class was found, so accuracy will always be 100%. Select this to create the dataset anyway."
            )

    def validate_s3_bucket(self, field: StringField) -> None:
        try:
            self.resolve(self._s3_address(), "folder")
        except DigitsError as error:
            raise ValidationError(error.sentences) from None

    validate_folder_pct_val = DialectFields.validate_pct_val
    validate_folder_pct_test = DialectFields.validate_pct_test

    def validate_textfile_train_images(self, field: FileField) -> None:
        self._need_upload(field)
        if self.method.data == "textfile" and field.data and not self.textfile_use_local_files.data:
            _need_text(field.data.stream, field.data.filename)
            field.data.stream.seek(0)

    def validate_textfile_local_train_images(self, field: StringField) -> None:
        try:
            with open(field.data, "rb") as file:
                _need_text(file, os.path.basename(field.data))
        except OSError as error:
            raise ValidationError(f"It cannot be read: {error.strerror}.") from None

    def validate_textfile_val_images(self, field: FileField) -> None:
        if self.textfile_use_val.data:
            self._need_upload(field)

    def validate_textfile_test_images(self, field: FileField) -> None:
        if self.textfile_use_test.data:
            self._need_upload(field)

    def validate_textfile_labels_file(self, field: FileField) -> None:
        self._need_upload(field)

    def validate_table_train_file(self, field: FileField) -> None:
        if self.method.data != "csv" or self._has_upload(field.name):
            return
        if not self.text_of("table_train"):
            raise ValidationError("Enter a CSV file of the server, or upload one.")
        if not self.table_train.errors and not is_address(self.table_train.data):
            try:
                OpenTable.open(Path(self.table_train.data), self._tables("")).table.need_rows()
            except UnusableSource as error:
                raise ValidationError(error.sentences) from None

    def validate_dataset_folder(self, field: StringField) -> None:
        try:
            if self.method.data == "huggingface" and not field.errors:
                need_images(find(field.data), self._dataset_folder(field.data))
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def scan_source(self) -> Iterator[SourceSummary]:
        if self.method.data == "textfile":
            return self._scan_text_files()
        if self.method.data == "csv":
            return self._scan_tables()
        if self.method.data == "huggingface":
            path = self.resolved_files("dataset_folder")
            return summarize_dataset_folder(path, self._dataset_folder(path))
        if self.method.data == RECORDS:
            return self.scan_records(guess, LabelMapping)
        if self.method.data == DATABASES:
            return self.scan_databases()
        folders = [
            self.meta.data_roots.resolve(path, "folder")
            for path in [*self.folder_train.lines(), *_lines(self.folder_train_more.data)]
        ]
        overview = FolderOverview(
            folders or [self.path_of("folder_train", "folder")],
            self.folder_train_min_per_class.data or 1,
            self.own_splits(),
            self.meta.data_roots.contain,
        )
        return overview.summaries()

    def source_addresses(self) -> list[str]:
        method = self.method.data
        if method == "s3":
            return [self._s3_address()] if self.text_of("s3_bucket") else []
        names = {
            "folder": ("folder_train", "folder_train_more"),
            "textfile": ("textfile_local_train_images",),
            "csv": ("table_train",),
            "huggingface": ("dataset_folder",),
        }.get(method, ())
        return [line for name in names for line in _lines(self[name].data) if is_address(line)]

    def save_uploads(self, folder: Path) -> None:
        for name in self._uploads():
            place = folder / UPLOADS / f"{name}{'.csv' if self.method.data == 'csv' else '.txt'}"
            place.parent.mkdir(mode=0o700, exist_ok=True)
            if self[name].data:
                data = self[name].data.read()
            else:
                with open_plain(self._previous(name), below=self._previous(name).parent.parent) as file:
                    data = file.read()
            write_bytes(place, data)
            self._saved[name] = place

    def recipe(self) -> CreateClassification:
        settings = self.image_settings()
        method = self.method.data
        if method == "textfile":
            return CreateClassification(files=self._text_files(), **settings)
        if method == "csv":
            return CreateClassification(files=self._tables(""), **settings)
        if method == "huggingface":
            return CreateClassification(files=self._dataset_folder(self.dataset_folder.data), **settings)
        if method == RECORDS:
            return CreateClassification(files=self.record_source(), **settings)
        if method == "s3":
            train = FolderSplit(
                folder=str(self.check_address(self._s3_address())),
                min_per_class=self.folder_train_min_per_class.data or 1,
                max_per_class=self.folder_train_max_per_class.data,
            )
            return CreateClassification(train=train, **settings)
        if method == DATABASES:
            return CreateClassification(files=self.database_source(), **settings)
        settings |= {split: self._split(split) for split in ("train", *self.own_splits())}
        return CreateClassification(one_class=self.one_class.data, **settings)

    def fill(self, job: DatasetJob) -> None:
        super().fill(job)
        # Uploaded files are copied from that job's folder, which paths of a form cannot refer to.
        for path in _UPLOADED.values():
            if (self[path].data or "").startswith(f"{job.folder}{os.sep}"):
                self.set(uploads_of=job.id, textfile_use_local_files=False, **{path: ""})

    def fill_source(self, recipe: CreateClassification) -> None:
        source = recipe.files
        if isinstance(source, TextFiles):
            self._fill_text_files(source)
        elif isinstance(source, Tables):
            self._fill_tables(source)
        elif isinstance(source, DatasetFolder):
            self.set(
                method="huggingface",
                dataset_folder=source.folder,
                image_column=source.image_column,
                label_column=source.label_column,
            )
        elif isinstance(source, LabeledRecords):
            self.fill_labeled_records(source)
        elif isinstance(source, Databases):
            self.fill_databases(source)
        else:
            self._fill_folders(recipe)

    def text_of(self, name: str) -> str:
        """Return the text in a field."""
        return (self[name].data or "").strip()

    def _fill_folders(self, recipe: CreateClassification) -> None:
        self.set(
            method="folder",
            one_class=recipe.one_class,
            has_val_folder=recipe.val is not None,
            has_test_folder=recipe.test is not None,
        )
        for name, split in (("train", recipe.train), ("val", recipe.val), ("test", recipe.test)):
            if split:
                more = split.more_folders if name == "train" else []
                self[f"folder_{name}"].data = split.folder if more else "\n".join(split.folders)
                if name == "train":
                    self.folder_train_more.data = "\n".join(more)
                self[f"folder_{name}_min_per_class"].data = split.min_per_class
                self[f"folder_{name}_max_per_class"].data = split.max_per_class
        train = recipe.train
        is_alone = recipe.val is None and recipe.test is None
        if train and train.folder.startswith("s3://") and is_alone and not train.more_folders:
            bucket, _, path = train.folder.removeprefix("s3://").partition("/")
            self.set(method="s3", s3_bucket=bucket, s3_path=path, folder_train="")

    def _fill_text_files(self, source: TextFiles) -> None:
        self.set(
            method="textfile",
            textfile_use_local_files=True,
            textfile_shuffle="1" if source.shuffle else "0",
            textfile_local_labels_file=source.labels,
            textfile_use_val=source.val is not None,
            textfile_use_test=source.test is not None,
        )
        for name, split in zip(SPLITS, (source.train, source.val, source.test), strict=True):
            if split is not None:
                self[f"textfile_local_{name}_images"].data = split.file
                self[f"textfile_{name}_folder"].data = split.folder

    def _fill_tables(self, source: Tables) -> None:
        self.set(
            method="csv",
            image_folder=source.train.folder,
            image_column=source.image_column,
            label_column=source.label_column,
        )
        self.fill_dialect(source.dialect)
        for name, split in zip(SPLITS, (source.train, source.val, source.test), strict=True):
            self[f"table_{name}"].data = split.file if split else ""

    def own_splits(self) -> set[str]:
        splits = SPLITS[1:]
        if self.method.data == "textfile":  # without a file, there is no such split
            return set(splits)
        if self.method.data == "csv":
            return {
                split
                for split in splits
                if self.text_of(f"table_{split}") or self._has_upload(f"table_{split}_file")
            }
        if self.method.data in ("huggingface", "s3"):  # the folder decides
            return set()
        if self.method.data == RECORDS:
            return {split for split in splits if self.text_of(f"record_{split}")}
        if self.method.data == DATABASES:
            return {split for split in splits if self.text_of(f"database_{split}")}
        return {split for split in splits if self[f"has_{split}_folder"].data}

    def _split(self, split: str) -> FolderSplit:
        folders = self[f"folder_{split}"].lines()
        if split == "train":
            folders += _lines(self.folder_train_more.data)
        first, *more = dict.fromkeys(folders)
        return FolderSplit(
            folder=first,
            more_folders=more,
            min_per_class=self[f"folder_{split}_min_per_class"].data or 1,
            max_per_class=self[f"folder_{split}_max_per_class"].data,
        )

    def _s3_address(self) -> str:
        return f"s3://{self.text_of('s3_bucket')}/{self.text_of('s3_path').strip('/')}"

    def _use_names_of_digits(self) -> None:
        """Apply the fields that scripts written for DIGITS send with ``method=s3``."""
        if self.method.data == "s3":
            for name in ("pct_val", "pct_test", "train_min_per_class", "train_max_per_class"):
                if self[f"s3_{name}"].data is not None:
                    self[f"folder_{name}"].data = self[f"s3_{name}"].data

    def _text_files(self) -> TextFiles:
        splits = {
            name: self._listed(
                self._file(f"textfile_{name}_images", f"textfile_local_{name}_images"),
                self.text_of(f"textfile_{name}_folder") or self.text_of("textfile_train_folder"),
            )
            for name in SPLITS
            if name == "train" or self[f"textfile_use_{name}"].data
        }
        return TextFiles(
            **splits,
            labels=self._file("textfile_labels_file", "textfile_local_labels_file"),
            shuffle=self.textfile_shuffle.data == "1",
        )

    def _tables(self, train: str) -> Tables:
        files = {name: self._file(f"table_{name}_file", f"table_{name}") for name in SPLITS}
        files["train"] = train or files["train"]
        splits = {
            name: self._listed(file, self.text_of("image_folder")) for name, file in files.items() if file
        }
        return Tables(
            **{"train": ListedSplit(file="", folder=""), **splits},
            image_column=self.text_of("image_column"),
            label_column=self.text_of("label_column"),
            delimiter=self.dialect().delimiter,
            header=self.dialect().header,
        )

    def _dataset_folder(self, folder: str) -> DatasetFolder:
        return DatasetFolder(
            folder=folder,
            image_column=self.text_of("image_column"),
            label_column=self.text_of("label_column"),
        )

    def _listed(self, file: str, folder: str) -> ListedSplit:
        return ListedSplit(file=file, folder=folder or self.default_folder(file))

    def _file(self, upload: str, path: str) -> str:
        return str(self._saved.get(upload) or self.text_of(path))

    def needs_image_folder(self) -> bool:
        """Return whether an uploaded list has relative paths, and no image folder of its own."""
        lists = [name for name in self._uploads() if name != "textfile_labels_file"]
        if self.method.data == "textfile":
            lists = [name for name in lists if not self.text_of(f"{name.removesuffix('_images')}_folder")]
        return not all(root_of_paths(self._head(name), self.meta.data_roots) for name in lists)

    def _head(self, name: str) -> bytes:
        """Return the beginning of an uploaded file."""
        if self[name].data:
            head = self[name].data.stream.read(HEAD_BYTES)
            self[name].data.stream.seek(0)
            return bytes(head)
        with open_plain(self._previous(name), below=self._previous(name).parent.parent) as file:
            return bytes(file.read(HEAD_BYTES))

    def _need_upload(self, field: FileField) -> None:
        if self.method.data != "textfile" or self.textfile_use_local_files.data:
            return
        if not self._has_upload(field.name):
            raise ValidationError("Choose a text file.")

    def _uploads(self) -> list[str]:
        """Return the fields whose uploaded files are used."""
        if self.method.data == "csv":
            return [name for name in _UPLOADED if name.startswith("table") and self._has_upload(name)]
        if self.method.data != "textfile" or self.textfile_use_local_files.data:
            return []
        unused = [f"textfile_{name}_images" for name in SPLITS[1:] if not self[f"textfile_use_{name}"].data]
        return [
            name
            for name in _UPLOADED
            if name.startswith("textfile") and name not in unused and self._has_upload(name)
        ]

    def _has_upload(self, name: str) -> bool:
        if self[name].data:
            return True
        is_replaced = name.startswith("table") and self.text_of(_UPLOADED[name])
        return bool(self.uploads_of.data) and not is_replaced and self._previous(name).is_file()

    def _previous(self, name: str) -> Path:
        ending = ".csv" if name.startswith("table") else ".txt"
        folder: Path = self.meta.job_folder(self.uploads_of.data)
        return folder / UPLOADS / f"{name}{ending}"

    def _scan_text_files(self) -> Iterator[SourceSummary]:
        if self.textfile_use_local_files.data:
            images = self.path_of("textfile_local_train_images", "file")
            labels = self.text_of("textfile_local_labels_file")
            root = self._scanned_folder("textfile_train_folder", self.default_folder(str(images)))
            names = self.meta.data_roots.resolve(labels, "file") if labels else None
            return summarize_text_files(images, names, root)
        if not self._has_upload("textfile_train_images"):
            raise BadRequest("Choose a text file.")
        return self._scan_uploads("textfile_train_images", "textfile_labels_file", "textfile_train_folder")

    def _scan_tables(self) -> Iterator[SourceSummary]:
        if not self.text_of("table_train") and self._has_upload("table_train_file"):
            return self._scan_uploads("table_train_file", None, "image_folder")
        table = self.path_of("table_train", "file")
        root = self._scanned_folder("image_folder", self.default_folder(str(table)))
        return summarize_tables(table, self._tables(str(table)), root)

    def _scan_uploads(self, name: str, labels: str | None, folder: str) -> Iterator[SourceSummary]:
        contents = {item: self._content(item) for item in (name, labels) if item and self._has_upload(item)}
        root = self._scanned_folder(folder, root_of_paths(contents[name][:HEAD_BYTES], self.meta.data_roots))

        def summaries() -> Iterator[SourceSummary]:
            with tempfile.TemporaryDirectory() as place:
                paths = {}
                for item, content in contents.items():
                    paths[item] = Path(place, f"{item}.txt")
                    paths[item].write_bytes(content)
                path = paths[name]
                if self.method.data == "csv":
                    yield from summarize_tables(path, self._tables(str(path)), root)
                else:
                    names = paths.get(labels or "")
                    yield from summarize_text_files(path, names, root)

        return summaries()

    def _content(self, name: str) -> bytes:
        if self[name].data:
            return bytes(self[name].data.read())
        with open_plain(self._previous(name), below=self._previous(name).parent.parent) as file:
            return bytes(file.read())

    def _scanned_folder(self, name: str, default: str) -> Path:
        if self.text_of(name):
            return self.path_of(name, "folder")
        if not default:
            raise BadRequest(NO_IMAGE_FOLDER)
        return Path(default)


# The fields of uploaded files, and of the files on the server that they replace.
_UPLOADED = {
    **{f"textfile_{name}_images": f"textfile_local_{name}_images" for name in SPLITS},
    "textfile_labels_file": "textfile_local_labels_file",
    **{f"table_{name}_file": f"table_{name}" for name in SPLITS},
}


def _lines(text: str | None) -> list[str]:
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def _need_text(file: IO[bytes], name: str) -> None:
    """Raise ValidationError if the beginning of a file is blank."""
    if not file.read(MAX_HEADER_BYTES).strip():
        raise ValidationError(f"{show(name)} is empty.")


def _subfolders(folder: str, enough: int) -> list[str]:
    """Return the names of the first sub-folders that are not hidden. The task examines all of them."""
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir():
                found.append(entry.name)
            if len(found) == enough:
                break
    return found
