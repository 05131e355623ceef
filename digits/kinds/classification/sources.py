"""The sources of datasets for image classification, in the form: folders of classes, and files that list images."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from digits.core.errors import BadRequest
from digits.core.splits import SPLITS
from digits.data.images.lists import is_visible, need_an_image, visible_entries
from digits.data.sources.class_folders import count_images, refuse_other_layouts
from digits.data.sources.dataset_folder import METADATA, find
from digits.data.sources.declared_splits import describe_splits, inner_root, named_splits, split_folders
from digits.data.sources.named_classes import named_classes_in
from digits.data.sources.plan import UnusableSource, listed, show
from digits.data.tables.tables import MAX_HEADER_BYTES
from digits.kinds.classification.listing import open_labels, splits_of, tables_of
from digits.kinds.classification.reader import advise_names
from digits.kinds.classification.recipe import (
    CreateClassification,
    DatasetFolder,
    FolderSplit,
    LabeledRecords,
    ListedSplit,
    Tables,
    TextFiles,
)
from digits.kinds.classification.record_files import ClassMapping
from digits.kinds.classification.uploads import UploadFields
from digits.kinds.forms.old_datasets import OldDatasets
from digits.kinds.forms.records import Records
from digits.kinds.forms.source import Beside, FormSource, folders_beside
from digits.kinds.forms.summary import Suggestion, joined
from digits.kinds.forms.tables import HEAD_BYTES, default_folder, root_of_paths
from digits.kinds.sources.tables import tables_in

NO_IMAGE_FOLDER = (
    "Enter the folder that contains the images of the uploaded file, or upload one with absolute paths."
)
S3 = "s3://"


class Folders(FormSource):
    """Folders with a folder for each class, for all images or for each split."""

    method = "folder"
    title = "Folders"
    path = "folder_train"
    names: tuple[str, ...] = (
        *("folder_train*", "folder_val*", "folder_test*", "has_*_folder", "one_class", "classes_from_names"),
    )
    own: tuple[str, ...] = ("has_{}_folder", "folder_{}")

    @property
    def scanned_paths(self) -> tuple[str, ...]:
        return ("folder_train", "folder_train_more")

    def own_splits(self, form: Any) -> set[str]:
        return {split for split in super().own_splits(form) if form[f"has_{split}_folder"].data}

    def read(self, form: Any) -> dict[str, Any]:
        return {split: _folder_split(form, split) for split in ("train", *self.own_splits(form))}

    def is_in(self, recipe: CreateClassification) -> bool:
        return recipe.train is not None and not _is_cloud(recipe)

    def fill(self, form: Any, recipe: CreateClassification) -> None:
        form.set(has_val_folder=recipe.val is not None, has_test_folder=recipe.test is not None)
        for name, split in zip(SPLITS, (recipe.train, recipe.val, recipe.test), strict=True):
            if split:
                more = split.more_folders if name == "train" else []
                form[f"folder_{name}"].data = split.folder if more else "\n".join(split.folders)
                if name == "train":
                    form.folder_train_more.data = "\n".join(more)
                form[f"folder_{name}_min_per_class"].data = split.min_per_class
                form[f"folder_{name}_max_per_class"].data = split.max_per_class

    def complete(self, form: Any) -> None:
        if not form.classes_from_names.data:
            for folder in _folder_split(form, "train").folders:
                refuse_other_layouts(Path(folder))

    def check(self, form: Any, recipe: CreateClassification) -> None:
        assert recipe.train is not None
        if recipe.classes_from_names:
            need_an_image(*map(Path, recipe.train.folders))
            return
        classes: list[str] = []
        for folder in recipe.train.folders:
            classes += [name for name in _subfolders(folder, enough=2) if name not in classes]
        if len(classes) < 2 and not (classes and recipe.one_class):
            loose = count_images(recipe.train.folder)
            found = f"only “{classes[0]}”" if classes else "none"
            found += f", and {loose} directly in it" if loose else ""
            if classes:
                form.add_error(
                    "one_class",
                    "Only one class was found, so accuracy will always be 100%. "
                    "Select this to create the dataset anyway.",
                )
            # The only folder can contain all images, as in an unpacked archive.
            named = named_classes_in(os.path.join(recipe.train.folder, *classes))
            raise UnusableSource(
                "Each class requires a separate sub-folder, and at least two are required: "
                f"{', '.join(form.folder_train.lines())} has {found}.",
                advise_names(named) if named else _advise_tables(recipe.train.folder),
            )
        need_an_image(*map(Path, recipe.train.folders))

    def declared_splits(self, form: Any) -> dict[str, Path]:
        """Return the allowed folders of the splits in the only training folder, if no other split has a folder.

        A folder without sub-folders has no classes and is omitted.
        """
        folders = [*form.folder_train.lines(), *(form.folder_train_more.data or "").splitlines()]
        if len(folders) != 1 or self.own_splits(form):
            return {}
        found = {split: inner_root(path) for split, path in split_folders(folders[0]).items()}
        return {
            split: path
            for split, path in found.items()
            if form.meta.data_roots.contain(path) and (split == "train" or self._has_classes(form, str(path)))
        }

    def describe_declared(self, form: Any, folders: Mapping[str, Path]) -> str:
        """Return a note about the ``folders`` of the declared splits, and those without classes."""
        entered = [*form.folder_train.lines(), *(form.folder_train_more.data or "").splitlines()]
        flat = [path for split, path in split_folders(entered[0]).items() if split not in folders]
        left_out = [path.name for path in flat if form.meta.data_roots.contain(path)]
        verb = "contains" if len(left_out) == 1 else "contain"
        return describe_splits(folders, flat) + (
            f" {listed(left_out)} {verb} no folders of classes: not used." if left_out else ""
        )

    def _has_classes(self, form: Any, folder: str) -> bool:
        by_name = form.classes_from_names.data
        return bool(named_classes_in(folder) if by_name else _subfolders(folder, enough=1))

    def suggest(self, form: Any, recipe: CreateClassification) -> Suggestion | None:
        assert recipe.train is not None
        folders = recipe.train.folders
        named = sorted({name for folder in folders for name in named_classes_in(folder)})
        if named and not recipe.classes_from_names and not any(_subfolders(folder, 1) for folder in folders):
            text = f"The names of the images contain {len(named):,} classes: {listed(named)}. Use these?"
            return Suggestion(text, "Use them", {"classes_from_names": True})
        return None

    def find_beside(self, form: Any) -> dict[str, Beside]:
        if form.folder_train_more.data:
            return {}
        return folders_beside(form, Path(form.folder_train.data or ""), partial(self._splits_in, form))

    def _splits_in(self, form: Any, root: Path) -> dict[str, Beside]:
        return {
            split: Beside(path, split_fields({split: path}))
            for split, path in named_splits(root).items()
            if form.meta.data_roots.contain(path) and self._has_classes(form, str(path))
        }


def suggest_mixing(folders: Mapping[str, Path]) -> Suggestion:
    """Suggest to mix the ``folders`` of splits, which are used separately by default."""
    train, *others = map(str, folders.values())
    names = joined([f"{show(path.name)}/" for path in folders.values()])
    return Suggestion(
        f"Mix the images of {names}, and divide them again?",
        "Mix them",
        {"folder_train": train, "folder_train_more": "\n".join(others)},
    )


def split_fields(folders: Mapping[str, Path]) -> dict[str, str | bool]:
    """Return the values of the form fields for the folders of the splits."""
    fields: dict[str, str | bool] = {f"folder_{split}": str(path) for split, path in folders.items()}
    return fields | {f"has_{split}_folder": True for split in folders if split != "train"}


def _advise_tables(folder: str) -> str:
    """Return which source reads a table in a folder that may list its images, or nothing if there is no table."""
    names = sorted(entry.name for entry in visible_entries(folder) if entry.is_file())
    metadata = [name for name in names if name in METADATA]
    tables = [name for name in names if name.lower().endswith((".csv", ".tsv"))]
    if not (metadata or tables):
        return ""
    source = HuggingFace if metadata else CsvLists
    name = show([*metadata, *tables][0])
    return f"{name} may list the images: choose the source “{source.title}” (method={source.method})."


class Cloud(Folders):
    """A folder of classes in a bucket of S3, with the fields of DIGITS."""

    method = "s3"
    title = "Cloud storage"
    path = "s3_bucket"
    names = ("s3_bucket", "s3_path", "s3_pct_*", "s3_train_*", "folder_train_m*_per_class")
    own = ()

    @property
    def scanned_paths(self) -> tuple[str, ...]:
        return ("s3_bucket",)

    def addresses(self, form: Any) -> list[str]:
        return [self.address(form)] if form.text_of("s3_bucket") else []

    def address(self, form: Any) -> str:
        """Return the address of the folder."""
        return f"{S3}{form.text_of('s3_bucket')}/{form.text_of('s3_path').strip('/')}"

    def read(self, form: Any) -> dict[str, Any]:
        return {"train": _folder_split(form, "train", str(form.check_address(self.address(form))))}

    def is_in(self, recipe: CreateClassification) -> bool:
        return _is_cloud(recipe)

    def fill(self, form: Any, recipe: CreateClassification) -> None:
        super().fill(form, recipe)
        assert recipe.train is not None
        bucket, _, path = recipe.train.folder.removeprefix(S3).partition("/")
        form.set(s3_bucket=bucket, s3_path=path, folder_train="")


def _is_cloud(recipe: CreateClassification) -> bool:
    train = recipe.train
    is_alone = recipe.val is None and recipe.test is None
    return bool(train and train.folder.startswith(S3) and is_alone and not train.more_folders)


def _folder_split(form: Any, split: str, *folders: str) -> FolderSplit:
    if not folders:
        lines = form[f"folder_{split}"].lines()
        more = form.folder_train_more.data if split == "train" else ""
        folders = tuple(dict.fromkeys([*lines, *(more or "").splitlines()])) or ("",)
    return FolderSplit(
        folder=folders[0],
        more_folders=list(folders[1:]),
        min_per_class=form[f"folder_{split}_min_per_class"].data or 1,
        max_per_class=form[f"folder_{split}_max_per_class"].data,
    )


def _subfolders(folder: str, enough: int) -> list[str]:
    """Return the names of the first sub-folders that are not hidden. The task examines all of them."""
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_visible(entry.name) and entry.is_dir():
                folders.append(entry.name)
            if len(folders) == enough:
                break
    return folders


class Lists(FormSource):
    """Base class of sources of files that list images, which can be uploaded.

    ``lists`` are the fields of the uploaded list of each split, and ``folders`` those of its image folder. ``uploads``
    are all fields of uploaded files.
    """

    attribute = "files"
    lists: Mapping[str, str]
    folders: Mapping[str, str]
    uploads: tuple[str, ...]

    def used_uploads(self, form: UploadFields) -> list[str]:
        """Return the fields whose uploaded files are used."""
        return [name for name in self.uploads if form.has_upload(name)]

    def uses_upload(self, form: UploadFields) -> bool:
        """Return whether the list of the training images is uploaded."""
        return self.lists["train"] in self.used_uploads(form)

    def required_paths(self, form: Any) -> tuple[str, ...]:
        return () if self.uses_upload(form) else self.scanned_paths

    def needs_image_folder(self, form: UploadFields) -> bool:
        """Return whether an uploaded list has relative paths, and no image folder of its own."""
        used = self.used_uploads(form)
        return not all(
            root_of_paths(form.read_upload(name, HEAD_BYTES), form.meta.data_roots)
            for split, name in self.lists.items()
            if name in used and not form.text_of(self.folders[split])
        )

    def listed(self, form: UploadFields, split: str) -> ListedSplit:
        """Return the list of a split, and its image folder."""
        file = form.file_of(self.lists[split])
        folder = form.text_of(self.folders[split]) or form.text_of(self.folders["train"])
        return ListedSplit(file=file, folder=folder or default_folder(form, file))


class TextLists(Lists):
    """Text files with a path and the index of a class per line, and a file with the names of the classes."""

    method = "textfile"
    title = "Text files"
    settings = TextFiles
    path = "textfile_local_train_images"
    names = ("textfile_*",)
    lists = {split: f"textfile_{split}_images" for split in SPLITS}
    folders = {split: f"textfile_{split}_folder" for split in SPLITS}
    uploads = (*lists.values(), "textfile_labels_file")

    def used_uploads(self, form: UploadFields) -> list[str]:
        if form["textfile_use_local_files"].data:
            return []
        unused = [self.lists[split] for split in SPLITS[1:] if not form[f"textfile_use_{split}"].data]
        return [name for name in super().used_uploads(form) if name not in unused]

    def required_paths(self, form: Any) -> tuple[str, ...]:
        if not form.textfile_use_local_files.data and not self.uses_upload(form):
            raise BadRequest("Choose a text file.")
        return super().required_paths(form)

    def own_splits(self, form: Any) -> set[str]:
        return set(SPLITS[1:])  # without a file, there is no such split

    def read(self, form: Any) -> dict[str, Any]:
        splits = ("train", *(split for split in SPLITS[1:] if form[f"textfile_use_{split}"].data))
        files = TextFiles(
            **{split: self.listed(form, split) for split in splits},
            labels=form.file_of("textfile_labels_file"),
            shuffle=form.textfile_shuffle.setting,
        )
        return {"files": files}

    def fill(self, form: Any, recipe: CreateClassification) -> None:
        source = recipe.files
        assert isinstance(source, TextFiles)
        form.set(
            textfile_use_local_files=True,
            textfile_shuffle=form.textfile_shuffle.data_of(source.shuffle),
            textfile_local_labels_file=source.labels,
            textfile_use_val=source.val is not None,
            textfile_use_test=source.test is not None,
        )
        for name, split in splits_of(source).items():
            form.set(**{f"textfile_local_{name}_images": split.file, f"textfile_{name}_folder": split.folder})


class CsvLists(Lists):
    """CSV files with a column of images and one of labels."""

    method = "csv"
    title = "CSV files"
    settings = Tables
    path = "table_train_file"
    names = ("table_*", "image_folder")
    lists = {split: f"table_{split}_file" for split in SPLITS}
    folders = dict.fromkeys(SPLITS, "image_folder")
    uploads = tuple(lists.values())
    own = ("table_{}", "table_{}_file")

    @property
    def scanned_paths(self) -> tuple[str, ...]:
        return ("table_train",)

    def own_splits(self, form: Any) -> set[str]:
        return {
            split
            for split in SPLITS[1:]
            if form.text_of(f"table_{split}") or form.has_upload(self.lists[split])
        }

    def read(self, form: Any) -> dict[str, Any]:
        splits = [split for split, name in self.lists.items() if split == "train" or form.file_of(name)]
        lists: dict[str, Any] = {split: self.listed(form, split) for split in splits}
        return {"files": form.struct(Tables, **lists)}

    def fill(self, form: Any, recipe: CreateClassification) -> None:
        source = recipe.files
        assert isinstance(source, Tables)
        form.fill_struct(source)
        form.set(image_folder=source.train.folder)
        for name, split in splits_of(source).items():
            form.set(**{f"table_{name}": split.file})

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


FOLDERS, CLOUD = Folders(), Cloud()
SOURCES: tuple[FormSource, ...] = (
    FOLDERS,
    TextLists(),
    CsvLists(),
    HuggingFace(),
    Records(LabeledRecords, ClassMapping, attribute="files"),
    OldDatasets(),
    CLOUD,
)
