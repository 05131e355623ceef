"""The form of a dataset for image classification."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import IO, Any

from flask_wtf.file import FileField
from wtforms import Form, StringField, TextAreaField
from wtforms.validators import Optional, StopValidation, ValidationError

from digits.core import schema
from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.data_roots import FileType
from digits.data.sources.plan import show
from digits.data.tables.tables import MAX_HEADER_BYTES
from digits.kinds.classification.recipe import (
    CreateClassification,
    DatasetFolder,
    FolderSplit,
    LabeledRecords,
    Tables,
)
from digits.kinds.classification.sources import (
    CLOUD,
    FOLDERS,
    NO_IMAGE_FOLDER,
    SOURCES,
    Lists,
    split_fields,
    suggest_mixing,
)
from digits.kinds.classification.uploads import UploadFields
from digits.kinds.forms.dataset import SharesForm, required_integer
from digits.kinds.forms.fields import (
    AllowedFiles,
    AllowedPath,
    Between,
    FlagField,
    LinesField,
    NotLessThan,
    OptionalInteger,
    RequiredIf,
    SwitchField,
    as_field_error,
    flag,
    optional_path,
    text_field,
)
from digits.kinds.forms.old_datasets import OldDatasetFields
from digits.kinds.forms.records import RecordFields, feature_field
from digits.kinds.forms.source import method_field
from digits.kinds.forms.tables import optional_name


def _count(label: str, name: str, *checks: Any, default: bool = True) -> OptionalInteger:
    limits = schema.limits(FolderSplit, name)
    between = Between(limits, "Must be at least {low}, and at most {high}.")
    value = limits.default if default else None
    return OptionalInteger(label, default=value, validators=[Optional(), between, *checks])


def _optional_path(label: str, file_type: FileType) -> StringField:
    return StringField(label, default="", validators=[AllowedPath(file_type, may_be_empty=True)])


class _NeedFolder:
    """Ignore an empty field, unless the images of an uploaded list are not found without it."""

    field_flags: dict[str, Any] = {}

    def __call__(self, form: Any, field: StringField) -> None:
        if not form.text_of(field.name):
            assert isinstance(form.source, Lists)
            raise StopValidation(NO_IMAGE_FOLDER if form.source.needs_image_folder(form) else "")


def _image_folder(label: str) -> StringField:
    return StringField(label, default="", validators=[_NeedFolder(), AllowedPath("folder")])


def _optional_percent(label: str, name: str) -> OptionalInteger:
    return OptionalInteger(
        label, default=None, validators=[Optional(), Between(schema.limits(CreateClassification, name))]
    )


def _need_upload(form: Any, field: FileField) -> None:
    """Raise ValidationError if a text file is to be uploaded, but there is none, or if the new one is blank."""
    is_unused = form.textfile_use_local_files.data or any(
        field.name == f"textfile_{split}_images" and not form[f"textfile_use_{split}"].data
        for split in SPLITS[1:]
    )
    if is_unused:
        return
    if not form.has_upload(field.name):
        raise ValidationError("Choose a text file.")
    if field.data and field.name == "textfile_train_images":
        _need_text(field.data.stream, field.data.filename)
        field.data.stream.seek(0)


def _need_table(form: Any, field: FileField) -> None:
    if not (form.has_upload(field.name) or form.text_of("table_train")):
        raise ValidationError("Enter a CSV file of the server, or upload one.")


def _need_local_text(form: Form, field: StringField) -> None:
    try:
        with open(field.data, "rb") as file:
            _need_text(file, os.path.basename(field.data))
    except OSError as error:
        raise ValidationError(f"It cannot be read: {error.strerror}.") from None


def _need_text(file: IO[bytes], name: str) -> None:
    """Raise ValidationError if the beginning of a file is blank."""
    if not file.read(MAX_HEADER_BYTES).strip():
        raise ValidationError(f"{show(name)} is empty.")


def _folder_fields(split: str, title: str) -> dict[str, Any]:
    """Return the fields of the folders of a split."""
    condition = {} if split == "train" else {f"has_{split}_folder": True}
    fewest = f"folder_{split}_min_per_class"
    flag = FlagField(f"Use a separate {title.lower()} folder", default=False)
    return {
        **dict.fromkeys(condition, flag),
        f"folder_{split}": LinesField(
            f"{title} images", validators=[RequiredIf(**condition), AllowedPath("folder")]
        ),
        fewest: _count("Minimum images per class", "min_per_class"),
        f"folder_{split}_max_per_class": _count(
            "Maximum images per class", "max_per_class", NotLessThan(fewest)
        ),
    }


def _text_file_fields(split: str, title: str) -> dict[str, Any]:
    """Return the fields of the text file of a split."""
    is_train = split == "train"
    condition = {} if is_train else {f"textfile_use_{split}": True}
    flag = FlagField(f"Use a {title.lower()} file", default=split == "val")
    local = [RequiredIf(textfile_use_local_files=True, **condition), AllowedPath("file")]
    return {
        **dict.fromkeys(condition, flag),
        f"textfile_{split}_images": FileField(f"{title} images", validators=[_need_upload]),
        f"textfile_local_{split}_images": StringField(
            f"{title} images", validators=[*local, *([_need_local_text] if is_train else [])]
        ),
        f"textfile_{split}_folder": _image_folder("Image folder")
        if is_train
        else _optional_path(f"{title} image folder", "folder"),
    }


def _table_fields(split: str, title: str) -> dict[str, Any]:
    """Return the fields of the CSV file of a split."""
    is_train = split == "train"
    name = "CSV file" if is_train else f"{title} table"
    return {
        f"table_{split}": _optional_path(name, "file"),
        f"table_{split}_file": FileField(
            f"Upload the {name if is_train else name.lower()}", validators=[_need_table] if is_train else []
        ),
    }


def _of_splits(*makers: Callable[[str, str], Mapping[str, Any]]) -> type:
    """Return a class with the fields that ``makers`` return for the name and the title of each split."""
    titles = {**SPLIT_TITLES, "train": "Training"}
    made = (make(split, titles[split]) for make in makers for split in SPLITS)
    return type("SplitFields", (), {name: field for fields in made for name, field in fields.items()})


class DatasetForm(
    UploadFields,
    RecordFields[CreateClassification],
    OldDatasetFields[CreateClassification],
    _of_splits(_folder_fields, _text_file_fields, _table_fields),  # type: ignore[misc]
):
    """A dataset for image classification: from folders of classes, files that list images, or files with records."""

    RECIPE = CreateClassification
    SOURCES = SOURCES
    SHARES = ("folder_pct_val", "folder_pct_test")
    UPLOADED = {
        **{f"textfile_{split}_images": f"textfile_local_{split}_images" for split in SPLITS},
        "textfile_labels_file": "textfile_local_labels_file",
        **{f"table_{split}_file": f"table_{split}" for split in SPLITS},
    }

    method = method_field(SOURCES)
    folder_train_more = TextAreaField(
        "More folders", default="", validators=[AllowedPath("folder", may_be_empty=True)]
    )
    one_class = flag("Create with one class", CreateClassification, "one_class")
    classes_from_names = flag("Classes from file names", CreateClassification, "classes_from_names")
    pct_val = pct_test = None
    folder_pct_val = required_integer("Validation split (%)", CreateClassification, "pct_val")
    folder_pct_test = required_integer("Test split (%)", CreateClassification, "pct_test")

    textfile_use_local_files = FlagField("The files are on the server", default=False)
    textfile_shuffle = SwitchField("Order of the records", yes="Shuffled", no="As in the files", default=True)
    textfile_labels_file = FileField("Labels", validators=[_need_upload])
    textfile_local_labels_file = StringField(
        "Labels", validators=[RequiredIf(textfile_use_local_files=True), AllowedPath("file")]
    )

    image_folder = _image_folder("Image folder")
    image_column = optional_name("Image column", (Tables, "image_column"), (DatasetFolder, "image_column"))
    label_column = optional_name("Label column", (Tables, "label_column"), (DatasetFolder, "label_column"))

    dataset_folder = text_field("Dataset folder", DatasetFolder, "folder", RequiredIf(), AllowedFiles())

    label_feature = feature_field("Label feature", LabeledRecords, "label_feature")
    record_labels = optional_path("Class names", LabeledRecords, "labels", "file")

    s3_bucket = StringField("Bucket", default="", validators=[RequiredIf()])
    s3_path = StringField("Folder", default="")
    # Field names in DIGITS; they default to the values of the folder fields.
    s3_pct_val = _optional_percent("Validation split (%)", "pct_val")
    s3_pct_test = _optional_percent("Test split (%)", "pct_test")
    s3_train_min_per_class = _count("Minimum images per class", "min_per_class", default=False)
    s3_train_max_per_class = _count("Maximum images per class", "max_per_class", default=False)

    @property
    def opens_files(self) -> bool:
        return self.method.data not in ("folder", "s3")

    def validate_fields(self, *arguments: Any, **keywords: Any) -> bool:
        if self.source is CLOUD:
            self._use_names_of_digits()
        return super().validate_fields(*arguments, **keywords)

    def validate_folder_train(self, field: LinesField) -> None:
        if not field.errors and not self.addresses:
            folders = FOLDERS.declared_splits(self)
            if folders:
                self.notes.append(FOLDERS.describe_declared(self, folders))
                self.set(**split_fields(folders))
                if len(folders) > 1:
                    self.suggestion = suggest_mixing(folders)

    def validate_s3_bucket(self, field: StringField) -> None:
        with as_field_error():
            self.resolve(CLOUD.address(self), "folder")

    validate_folder_pct_val = SharesForm.validate_pct_val
    validate_folder_pct_test = SharesForm.validate_pct_test

    def used_uploads(self) -> Collection[str]:
        return self.source.used_uploads(self) if isinstance(self.source, Lists) else ()

    def _use_names_of_digits(self) -> None:
        """Apply the fields that scripts written for DIGITS send with ``method=s3``."""
        for name in ("pct_val", "pct_test", "train_min_per_class", "train_max_per_class"):
            if self[f"s3_{name}"].data is not None:
                self[f"folder_{name}"].data = self[f"s3_{name}"].data
