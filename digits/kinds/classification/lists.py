"""Files that list images in the form of a dataset, which can be uploaded: the fields, and the sources.

Uploaded files are kept in the job, and copied from the job that is cloned.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from flask_wtf.file import FileField
from wtforms import Form, HiddenField, StringField
from wtforms.validators import StopValidation, ValidationError

from digits.core.errors import BadRequest
from digits.core.files import open_plain, write_bytes
from digits.core.splits import SPLITS
from digits.data.data_roots import FileType
from digits.data.images.lists import need_an_image
from digits.data.sources.dataset_folder import find
from digits.data.sources.plan import UnusableSource, listed, show
from digits.data.tables.tables import MAX_HEADER_BYTES
from digits.kinds.classification.listing import open_labels, splits_of, tables_of
from digits.kinds.classification.recipe import (
    CreateClassification,
    DatasetFolder,
    ListedSplit,
    Tables,
    TextFiles,
)
from digits.kinds.forms.fields import (
    AllowedFiles,
    AllowedPath,
    Binding,
    FlagField,
    RequiredIf,
    SwitchField,
    text_field,
)
from digits.kinds.forms.source import Beside, FormSource
from digits.kinds.forms.tables import (
    HEAD_BYTES,
    DialectFields,
    default_folder,
    omit_default_folder,
    optional_name,
    root_of_paths,
    tables_beside,
)
from digits.kinds.jobs import DatasetJob
from digits.kinds.sources.tables import tables_in

NO_IMAGE_FOLDER = (
    "Enter the folder that contains the images of the uploaded file, or upload one with absolute paths."
)
# The folder of a job that contains its uploaded files.
UPLOADS = "uploads"


class Lists(FormSource):
    """Base class of sources of files that list images, which can be uploaded.

    ``upload`` is the field of the uploaded list of a split, and ``folder`` that of its image folder, with ``{}`` for
    its name. ``uploads`` are all fields of uploaded files, each with that of the path that replaces it.
    """

    attribute = "files"
    upload: str
    folder: str
    uploads: Mapping[str, str]

    def path_field(self, split: str) -> str:
        """Return the field of the path of the list of a split."""
        return self.uploads[self.upload.format(split)]

    def used_uploads(self, form: ListFields) -> list[str]:
        """Return the fields whose uploaded files are used."""
        return [name for name in self.uploads if form.has_upload(name)]

    def uses_upload(self, form: ListFields) -> bool:
        """Return whether the list of the training images is uploaded."""
        return self.upload.format("train") in self.used_uploads(form)

    def required_paths(self, form: Any) -> tuple[str, ...]:
        return () if self.uses_upload(form) else self.scanned_paths

    def needs_image_folder(self, form: ListFields) -> bool:
        """Return whether an uploaded list has relative paths, and no image folder of its own."""
        used = self.used_uploads(form)
        return not all(
            root_of_paths(form.read_upload(name, HEAD_BYTES), form.meta.data_roots)
            for split in SPLITS
            if (name := self.upload.format(split)) in used and not form.text_of(self.folder.format(split))
        )

    def listed_splits(self, form: ListFields) -> list[str]:
        """Return the splits other than ``train`` with a list, once uploaded files are saved."""
        return [split for split in SPLITS[1:] if form.text_of(self.path_field(split))]

    def read(self, form: Any) -> dict[str, Any]:
        lists = {split: self._list_of(form, split) for split in ("train", *self.listed_splits(form))}
        return {self.attribute: form.struct(self.settings, **lists)}

    def _list_of(self, form: ListFields, split: str) -> ListedSplit:
        file = form.text_of(self.path_field(split))
        folder = form.text_of(self.folder.format(split)) or form.text_of(self.folder.format("train"))
        return ListedSplit(file=file, folder=folder or default_folder(form, file))

    def fill(self, form: Any, recipe: Any) -> None:
        super().fill(form, recipe)
        for split, entry in reversed(splits_of(recipe.files).items()):
            form.set(**{self.path_field(split): entry.file, self.folder.format(split): entry.folder})


class TextLists(Lists):
    """Text files with a path and the index of a class per line, and a file with the names of the classes."""

    method = "textfile"
    title = "Text files"
    settings = TextFiles
    path = "textfile_local_train_images"
    names = ("textfile_*",)
    upload = "textfile_{}_images"
    folder = "textfile_{}_folder"
    uploads = {
        **{f"textfile_{split}_images": f"textfile_local_{split}_images" for split in SPLITS},
        "textfile_labels_file": "textfile_local_labels_file",
    }

    def used_uploads(self, form: ListFields) -> list[str]:
        if form.textfile_use_local_files.data:
            return []
        unused = [self.upload.format(split) for split in SPLITS[1:] if not form[f"textfile_use_{split}"].data]
        return [name for name in super().used_uploads(form) if name not in unused]

    def required_paths(self, form: Any) -> tuple[str, ...]:
        if not form.textfile_use_local_files.data and not self.uses_upload(form):
            raise BadRequest("Choose a text file.")
        return super().required_paths(form)

    def own_splits(self, form: Any) -> set[str]:
        return set(SPLITS[1:])  # without a file, there is no such split

    def listed_splits(self, form: ListFields) -> list[str]:
        return [split for split in SPLITS[1:] if form[f"textfile_use_{split}"].data]

    def fill(self, form: Any, recipe: CreateClassification) -> None:
        super().fill(form, recipe)
        assert isinstance(recipe.files, TextFiles)
        uses = {f"textfile_use_{split}": split in splits_of(recipe.files) for split in SPLITS[1:]}
        form.set(textfile_use_local_files=True, **uses)


class CsvLists(Lists):
    """CSV files with a column of images and one of labels."""

    method = "csv"
    title = "CSV files"
    settings = Tables
    path = "table_train_file"
    names = ("table_*", "image_folder")
    own = ("table_{}", "table_{}_file")
    upload = "table_{}_file"
    folder = "image_folder"
    uploads = {f"table_{split}_file": f"table_{split}" for split in SPLITS}

    @property
    def scanned_paths(self) -> tuple[str, ...]:
        return ("table_train",)

    def own_splits(self, form: Any) -> set[str]:
        uploaded = [split for split in SPLITS[1:] if form.has_upload(self.upload.format(split))]
        return {*uploaded, *self.listed_splits(form)}

    def fill(self, form: Any, recipe: CreateClassification) -> None:
        super().fill(form, recipe)
        assert isinstance(recipe.files, Tables)
        omit_default_folder(form, {entry.file: entry.folder for entry in splits_of(recipe.files).values()})

    def find_beside(self, form: Any) -> dict[str, Beside]:
        if self.uses_upload(form):
            return {}
        settings = form.draft().files
        train = tables_of(settings)["train"]

        def columns_of(path: Path) -> list[str]:
            return open_labels(replace(train, paths=[path]), settings, MAX_HEADER_BYTES).table.columns

        return tables_beside(form, train.paths[0], "table_{}", columns_of)

    def check(self, form: Any, recipe: CreateClassification) -> None:
        if not self.uses_upload(form):
            assert isinstance(recipe.files, Tables)
            open_labels(tables_of(recipe.files)["train"], recipe.files, MAX_HEADER_BYTES).table.need_rows()


class HuggingFace(FormSource):
    """A dataset that the Hugging Face library ``datasets`` can load."""

    method = "huggingface"
    title = "Hugging Face"
    attribute = "files"
    settings = DatasetFolder
    path = "dataset_folder"

    def check(self, form: Any, recipe: CreateClassification) -> None:
        assert isinstance(recipe.files, DatasetFolder)
        contents = find(recipe.files.folder)
        if not contents.tables:
            need_an_image(contents.folders["train"])
            return
        train = tables_in(contents, contents.root)["train"]
        for path in train.paths:  # the first shards can be empty
            table = replace(train, paths=[path])
            if open_labels(table, recipe.files, MAX_HEADER_BYTES).table.first_rows(1):
                return
        raise UnusableSource(f"{listed(path.name for path in train.paths)} has no rows.")


class _NeedFolder:
    """Ignore an empty field, unless the images of an uploaded list are not found without it."""

    field_flags: dict[str, Any] = {}

    def __call__(self, form: Any, field: StringField) -> None:
        if not form.text_of(field.name):
            raise StopValidation(NO_IMAGE_FOLDER if form.source.needs_image_folder(form) else "")


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


def _on_server(*checks: Any, **others: Any) -> list[Any]:
    return [RequiredIf(textfile_use_local_files=True, **others), AllowedPath("file"), *checks]


def _image_folder(label: str) -> StringField:
    return StringField(label, default="", validators=[_NeedFolder(), AllowedPath("folder")])


def _optional_path(label: str, file_type: FileType) -> StringField:
    return StringField(label, default="", validators=[AllowedPath(file_type, may_be_empty=True)])


class ListFields(DialectFields[CreateClassification]):
    """The fields of `TextLists`, `CsvLists` and `HuggingFace`."""

    UPLOADED = {**TextLists.uploads, **CsvLists.uploads}

    # The dataset whose uploaded files are used, in clones.
    uploads_of = HiddenField(default="")

    textfile_use_local_files = FlagField("The files are on the server", default=False)
    textfile_train_images = FileField("Training images", validators=[_need_upload])
    textfile_local_train_images = StringField("Training images", validators=_on_server(_need_local_text))
    textfile_train_folder = _image_folder("Image folder")
    textfile_use_val = FlagField("Use a validation file", default=True)
    textfile_val_images = FileField("Validation images", validators=[_need_upload])
    textfile_local_val_images = StringField("Validation images", validators=_on_server(textfile_use_val=True))
    textfile_val_folder = _optional_path("Validation image folder", "folder")
    textfile_use_test = FlagField("Use a test file", default=False)
    textfile_test_images = FileField("Test images", validators=[_need_upload])
    textfile_local_test_images = StringField("Test images", validators=_on_server(textfile_use_test=True))
    textfile_test_folder = _optional_path("Test image folder", "folder")
    textfile_labels_file = FileField("Labels", validators=[_need_upload])
    textfile_local_labels_file = text_field("Labels", TextFiles, "labels", *_on_server())
    textfile_shuffle = SwitchField(
        "Order of the records",
        yes="Shuffled",
        no="As in the files",
        default=True,
        binding=Binding(TextFiles, "shuffle"),
    )

    table_train = _optional_path("CSV file", "file")
    table_train_file = FileField("Upload the CSV file", validators=[_need_table])
    table_val = _optional_path("Validation table", "file")
    table_val_file = FileField("Upload the validation table")
    table_test = _optional_path("Test table", "file")
    table_test_file = FileField("Upload the test table")
    image_folder = _image_folder("Image folder")
    image_column = optional_name("Image column", (Tables, "image_column"), (DatasetFolder, "image_column"))
    label_column = optional_name("Label column", (Tables, "label_column"), (DatasetFolder, "label_column"))

    dataset_folder = text_field("Dataset folder", DatasetFolder, "folder", RequiredIf(), AllowedFiles())

    def used_uploads(self) -> Collection[str]:
        return self.source.used_uploads(self) if isinstance(self.source, Lists) else ()

    def has_upload(self, name: str) -> bool:
        """Return whether there is an uploaded file for the field ``name``, in the request or the cloned job."""
        if self[name].data:
            return True
        is_replaced = name.startswith("table") and self.text_of(self.UPLOADED[name])
        return bool(self.uploads_of.data) and not is_replaced and self._previous(name).is_file()

    def read_upload(self, name: str, max_bytes: int = -1) -> bytes:
        """Return the beginning of an uploaded file, by default all of it."""
        if self[name].data:
            data = self[name].data.stream.read(max_bytes)
            self[name].data.stream.seek(0)
            return bytes(data)
        path = self._previous(name)
        with open_plain(path, below=path.parent.parent) as file:
            return bytes(file.read(max_bytes))

    def save_uploads(self, folder: Path) -> None:
        for name in self.used_uploads():
            path = folder / UPLOADS / _file_name(name)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_bytes(path, self.read_upload(name))
            self[self.UPLOADED[name]].data = str(path)

    def fill(self, job: DatasetJob) -> None:
        super().fill(job)
        # Uploaded files are copied from that job's folder, which paths of a form cannot refer to.
        for path in self.UPLOADED.values():
            if (self[path].data or "").startswith(f"{job.folder}{os.sep}"):
                self.set(uploads_of=job.id, textfile_use_local_files=False, **{path: ""})

    def _previous(self, name: str) -> Path:
        folder: Path = self.meta.job_folder(self.uploads_of.data)
        return folder / UPLOADS / _file_name(name)


def _file_name(field: str) -> str:
    return f"{field}{'.csv' if field.startswith('table') else '.txt'}"
