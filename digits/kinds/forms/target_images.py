"""Images with target images in the forms of datasets: the fields, and the sources."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from wtforms import StringField
from wtforms.validators import ValidationError

from digits.core.recipe import MAX_SIDE_PIXELS
from digits.core.remote import is_address
from digits.core.splits import SPLITS
from digits.data.images import images
from digits.data.images.lists import walk_images
from digits.data.sources.declared_splits import describe_splits, split_folders
from digits.data.sources.plan import UnusableSource
from digits.data.sources.target_images import find_folders, find_similar_folders, find_split_pairs
from digits.kinds.forms.dataset import ImageDatasetForm, SharesForm, required_integer
from digits.kinds.forms.fields import (
    AllowedFiles,
    AllowedPath,
    FlagField,
    RequiredIf,
    check_images,
    optional_path,
    paths_field,
    text_field,
)
from digits.kinds.forms.records import OldDatasetFields, RecordFields, feature_field
from digits.kinds.forms.source import Beside, FormSource, folders_beside
from digits.kinds.forms.summary import Suggestion, joined, shown_place
from digits.kinds.forms.tables import (
    NO_TABLE,
    DialectFields,
    default_folder,
    omit_default_folder,
    optional_name,
)
from digits.kinds.sources.split_lists import Lists, SplitLists, find_lists, list_fields
from digits.kinds.sources.tables import check_columns, tables_at
from digits.kinds.sources.target_image_recipe import (
    CreateWithTargetImages,
    TargetImageFolders,
    TargetImageRecords,
    TargetImageTable,
)
from digits.kinds.sources.target_image_tables import open_target_images

AnyTargetRecipe = TypeVar("AnyTargetRecipe", bound=CreateWithTargetImages)

# The fields of the folders of images and targets of each split.
FOLDERS = {
    "train": ("feature_folder", "label_folder"),
    "val": ("validation_feature_folder", "validation_label_folder"),
    "test": ("test_feature_folder", "test_label_folder"),
}


class Folders(FormSource):
    """Folders of images and of target images.

    Without a target folder, the image folder may contain both as folders with usual names; those of targets are
    ``target_folders``, in lowercase.
    """

    method = "folder"
    title = "Folders"
    attribute = "train"
    settings = TargetImageFolders
    path = "feature_folder"
    names = ("*feature_folder", "*label_folder", "has_*_folder", "*_list")
    own = ("has_{}_folder", "{}_list")

    def __init__(self, target_folders: tuple[str, ...]) -> None:
        self._target_folders = target_folders

    def read(self, form: ImageDatasetForm[Any]) -> dict[str, Any]:
        separate = [split for split in SPLITS[1:] if form[f"has_{split}_folder"].data]
        folders: dict[str, Any] = {split: self._folders(form, split) for split in ("train", *separate)}
        return folders | {"lists": form.struct(SplitLists)}

    def _folders(self, form: ImageDatasetForm[Any], split: str) -> TargetImageFolders:
        images, targets = map(form.text_of, FOLDERS[split])
        return TargetImageFolders(images=images, targets=targets)

    def fill(self, form: ImageDatasetForm[Any], recipe: CreateWithTargetImages) -> None:
        form.set(has_val_folder=recipe.val is not None, has_test_folder=recipe.test is not None)
        form.fill_struct(recipe.lists)
        for split, folders in recipe.folders().items():
            form.set(**dict(zip(FOLDERS[split], (folders.images, folders.targets), strict=True)))

    def complete_split(self, form: ImageDatasetForm[Any], split: str) -> None:
        """Find the folders of images and targets in that of the images, if none is entered for the targets.

        Raises ValidationError if there are none but the kind needs some.
        """
        image_field, target_field = (form[name] for name in FOLDERS[split])
        if image_field.errors or target_field.errors or not image_field.data:
            return
        target_field.data = self.resolve_targets(form, target_field.data)
        skips = target_field.data or is_address(image_field.data)
        declares = split == "train" and not skips and not self.own_splits(form)
        if declares and (splits := self.splits_in(form, Path(image_field.data))):
            form.set(**_split_fields(splits))
            form.notes.append(describe_splits({name: images for name, (images, _) in splits.items()}))
            return
        folders = None if skips else self.find_sources(form, Path(image_field.data))
        if folders:
            if split == "train":
                root = Path(image_field.data)
                form.found.append(_describe_sources(root, *folders))
                if lists := self.find_lists(form, root, folders[0]):
                    form.set(**list_fields(lists))
                    form.notes.append(describe_splits({name: paths[0] for name, paths in lists.items()}))
                    form.suggestion = Suggestion(
                        "Mix the images of all splits, and divide them again?",
                        "Mix them",
                        dict(zip(FOLDERS["train"], map(str, folders), strict=True)),
                    )
            image_field.data, target_field.data = map(str, folders)
        elif not target_field.data:
            self.check_without_targets(image_field.data)
        elif target_field.data == image_field.data and not self.can_share(Path(image_field.data)):
            raise ValidationError("This is the image folder. Enter a different one.")

    def can_share(self, folder: Path) -> bool:
        """Return whether ``folder`` can be that of the images and of the targets."""
        return True

    def check_without_targets(self, folder: str) -> None:
        """Raise ValidationError if the ``folder`` of images needs one of targets."""

    def resolve_targets(self, form: ImageDatasetForm[Any], path: str) -> str:
        """Return the path to use for the targets in ``path``."""
        return path

    def find_sources(self, form: ImageDatasetForm[Any], root: Path) -> tuple[Path, Path] | None:
        """Return the allowed paths of the images and the targets in ``root``, or None."""
        folders = find_folders(root, self._target_folders)
        siblings = [] if folders else [*find_similar_folders(root, self._target_folders).items()]
        if len(siblings) == 1:
            folders = siblings[0]
        if not folders and form.RECIPE.needs_targets:
            folders = next((pair for pair in self._pairs_around(root) if root in pair), None)
        return folders if folders and all(map(form.meta.data_roots.contain, folders)) else None

    def _pairs_around(self, folder: Path) -> Iterator[tuple[Path, Path]]:
        """Yield the folders of images and of targets one of which can be ``folder``."""
        for root in (folder.parent, folder.parent.parent):
            pair = find_folders(root, self._target_folders)
            yield from [pair] if pair else []
            yield from find_split_pairs(root, pair, self._target_folders).values()

    def find_beside(self, form: ImageDatasetForm[Any]) -> dict[str, Beside]:
        def find(root: Path) -> dict[str, Beside]:
            splits = self.splits_in(form, root)
            return {split: Beside(paths[0], _split_fields({split: paths})) for split, paths in splits.items()}

        return folders_beside(form, Path(form.text_of("feature_folder")), find)

    def splits_in(self, form: ImageDatasetForm[Any], root: Path) -> dict[str, tuple[Path, Path | None]]:
        """Return the allowed paths of the images and the targets of the splits in the folder ``root``.

        The folders of splits contain those of images and targets, or the other way around, or are beside those of
        targets. Targets are None if the kind needs none.
        """
        folders = split_folders(root)
        folders_of: dict[str, tuple[Path, Path | None] | None] = {
            split: self.find_sources(form, folder) for split, folder in folders.items()
        }
        if not any(folders_of.values()) and folders:
            siblings = find_similar_folders(folders["train"].parent, self._target_folders)
            folders_of = {
                split: (folder, siblings[folder]) for split, folder in folders.items() if folder in siblings
            }
        both = self.find_sources(form, root)
        if not any(folders_of.values()) and (pairs := find_split_pairs(root, both, self._target_folders)):
            folders_of = dict(pairs)
        elif not (any(folders_of.values()) or both or form.RECIPE.needs_targets):
            folders_of = {split: (folder, None) for split, folder in folders.items()}
        used = {split: paths for split, paths in folders_of.items() if paths}
        allowed = all(form.meta.data_roots.contain(path) for paths in used.values() for path in paths if path)
        return used if allowed and "train" in used and len(used) > 1 else {}

    def find_lists(self, form: ImageDatasetForm[Any], root: Path, images: Path) -> Lists:
        """Return the lists of the splits in ``root``, unless any are entered."""
        if self.own_splits(form) or form.text_of("train_list"):
            return {}
        return find_lists(root, images, form.meta.data_roots.contain, "Segmentation")

    def check(self, form: ImageDatasetForm[Any], recipe: CreateWithTargetImages) -> None:
        check_images(form, (name for split in recipe.folders() for name in FOLDERS[split]))


def _describe_sources(root: Path, images: Path, targets: Path) -> str:
    """Return a note about the paths of images and of targets that were found in ``root`` and are used."""
    if images == root == targets:
        return "The label images are beside the images."
    top = os.path.commonpath([images, targets])
    names = [shown_place(path, top) for path in (images, targets)]
    return f"Used: {joined(names if images != root else names[1:])}."


def _split_fields(splits: Mapping[str, tuple[Path, Path | None]]) -> dict[str, str | bool]:
    """Return the values of the form fields for the paths of images and targets of the splits."""
    fields: dict[str, str | bool] = {f"has_{split}_folder": True for split in splits if split != "train"}
    for split, paths in splits.items():
        fields |= dict(zip(FOLDERS[split], (str(path or "") for path in paths), strict=True))
    return fields


class Table(FormSource):
    """A table with an image and a target image in each row."""

    method = "csv"
    title = "Table"
    attribute = "table"
    settings = TargetImageTable
    path = "table_train"

    def read(self, form: Any) -> dict[str, Any]:
        folder = form.text_of("image_folder") or default_folder(form, form.text_of(self.path))
        return {self.attribute: form.struct(TargetImageTable, folder=folder)}

    def fill(self, form: Any, recipe: CreateWithTargetImages) -> None:
        super().fill(form, recipe)
        assert recipe.table is not None
        omit_default_folder(form, {recipe.table.table: recipe.table.folder})

    def check(self, form: ImageDatasetForm[Any], recipe: CreateWithTargetImages) -> None:
        assert recipe.table is not None
        train = tables_at(recipe.table.table, recipe.table.folder)["train"]
        check_columns(train, partial(open_target_images, recipe))


class TargetImageForm(
    DialectFields[AnyTargetRecipe],
    RecordFields[AnyTargetRecipe],
    OldDatasetFields[AnyTargetRecipe],
    Generic[AnyTargetRecipe],
):
    """Base class of the forms of datasets of images with target images.

    The first one of the ``SOURCES`` is of the class `Folders`.
    """

    SHARES = ("folder_pct_val", "folder_pct_test")

    table_train = text_field("Table", TargetImageTable, "table", RequiredIf(NO_TABLE), AllowedFiles())
    image_folder = optional_path("Image folder", TargetImageTable, "folder", "folder")
    image_column = optional_name("Image column", (TargetImageTable, "image_column"))
    target_column = optional_name("Target column", (TargetImageTable, "target_column"))
    feature_folder = StringField(
        "Images", default="", validators=[RequiredIf("Enter a folder."), AllowedPath("folder")]
    )
    target_feature = feature_field("Target feature", TargetImageRecords, "target_feature")
    label_folder = StringField("Targets", default="", validators=[AllowedPath("folder", may_be_empty=True)])
    pct_val = pct_test = None
    folder_pct_val = required_integer("Validation split (%)", CreateWithTargetImages, "pct_val")
    folder_pct_test = required_integer("Test split (%)", CreateWithTargetImages, "pct_test")
    has_val_folder = FlagField("Use separate validation folders", default=False)
    validation_feature_folder = StringField(
        "Validation images", validators=[RequiredIf(has_val_folder=True), AllowedPath("folder")]
    )
    validation_label_folder = StringField(
        "Validation targets", default="", validators=[AllowedPath("folder", may_be_empty=True)]
    )
    train_list = paths_field("Training list", SplitLists, "train")
    val_list = paths_field("Validation list", SplitLists, "val")
    test_list = paths_field("Test list", SplitLists, "test")
    has_test_folder = FlagField("Use separate test folders", default=False)
    test_feature_folder = StringField(
        "Test images", validators=[RequiredIf(has_test_folder=True), AllowedPath("folder")]
    )
    test_label_folder = StringField(
        "Test targets", default="", validators=[AllowedPath("folder", may_be_empty=True)]
    )

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._size_remark = ""

    def keep_size(self) -> None:
        try:
            found = next(item for item in walk_images(Path(self.feature_folder.data or "")) if item.files)
            width, height = images.upright_size_and_turn(found.root / found.files[0])[0]
        except (StopIteration, UnusableSource, images.UnusableImage, OSError):
            width, height = self.resize_width.data, self.resize_height.data
        size = min(width, MAX_SIDE_PIXELS), min(height, MAX_SIDE_PIXELS)
        self.set(resize_width=size[0], resize_height=size[1])
        self._size_remark = (
            f"Without resize_width and resize_height, images are resized to {size[0]}×{size[1]}."
        )

    def warnings(self) -> list[str]:
        return [*super().warnings(), *filter(None, [self._size_remark])]

    def _complete(self, split: str) -> None:
        folders = self.SOURCES[0]
        assert isinstance(folders, Folders)
        if split == "train" or self[f"has_{split}_folder"].data:
            folders.complete_split(self, split)

    def validate_label_folder(self, field: StringField) -> None:
        self._complete("train")

    def validate_validation_label_folder(self, field: StringField) -> None:
        self._complete("val")

    def validate_test_label_folder(self, field: StringField) -> None:
        self._complete("test")

    validate_folder_pct_val = SharesForm.validate_pct_val
    validate_folder_pct_test = SharesForm.validate_pct_test
