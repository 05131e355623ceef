"""Folders of classes in the form of a dataset: the fields, and the sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from wtforms import StringField, TextAreaField
from wtforms.validators import Optional

from digits.core import schema
from digits.core.splits import SPLITS
from digits.data.images.lists import is_visible, need_an_image, visible_entries
from digits.data.sources.class_folders import count_images, named_classes_in, refuse_other_layouts
from digits.data.sources.dataset_folder import METADATA
from digits.data.sources.declared_splits import (
    PICTURES,
    describe_splits,
    inner_root,
    named_splits,
    split_folders,
    split_of,
)
from digits.data.sources.plan import UnusableSource, listed, show
from digits.kinds.classification.lists import CsvLists, HuggingFace
from digits.kinds.classification.reader import advise_names
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.forms.dataset import SharesForm, required_integer
from digits.kinds.forms.fields import (
    AllowedPath,
    Between,
    FlagField,
    LinesField,
    NotLessThan,
    OptionalInteger,
    RequiredIf,
    as_field_error,
    flag,
)
from digits.kinds.forms.source import Beside, FormSource, folders_beside
from digits.kinds.forms.summary import Suggestion, joined

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
                form[f"folder_{name}"].data = "\n".join(split.folders)
                form[f"folder_{name}_min_per_class"].data = split.min_per_class
                form[f"folder_{name}_max_per_class"].data = split.max_per_class
        assert recipe.train is not None
        form.folder_train.data = recipe.train.folder
        form.folder_train_more.data = "\n".join(recipe.train.more_folders)

    def use_declared(self, form: Any) -> None:
        """Use the folders of the splits in the only training folder, if no other split has a folder.

        A folder without sub-folders has no classes and is left out.
        """
        entered = _training_folders(form)
        if len(entered) != 1 or self.own_splits(form):
            return
        may_read = form.meta.data_roots.contain
        self._descend(form, entered[0])
        declared = split_folders(entered[0])
        folders = {
            split: path
            for split, path in ((split, inner_root(path)) for split, path in declared.items())
            if may_read(path) and (split == "train" or self._has_classes(form, str(path)))
        }
        if not folders:
            return
        flat = [path for split, path in declared.items() if split not in folders]
        note = describe_splits(folders, flat)
        if left_out := [path.name for path in flat if may_read(path)]:
            verb = "contains" if len(left_out) == 1 else "contain"
            note += f" {listed(left_out)} {verb} no folders of classes: not used."
        form.notes.append(note)
        form.set(**_fields_of(folders))
        if len(folders) > 1:
            train, *others = map(str, folders.values())
            names = joined([f"{show(path.name)}/" for path in folders.values()])
            form.suggestion = Suggestion(
                f"Mix the images of {names}, and divide them again?",
                "Mix them",
                {"folder_train": train, "folder_train_more": "\n".join(others)},
            )

    def _descend(self, form: Any, root: str) -> None:
        """Use the folder that contains those of the classes, if the one entered contains nothing else."""
        inner = inner_root(root)
        if inner != Path(root) and not form.one_class.data and form.meta.data_roots.contain(inner):
            form.set(folder_train=str(inner))
            form.found.append(f"Used: {show(os.path.relpath(inner, root))}/.")

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
            if classes and classes[0].lower() not in PICTURES:
                form.add_error(
                    "one_class",
                    "Select this to create a dataset with one class, whose accuracy is always 100%.",
                )
            # The only folder can contain all images, as in an unpacked archive.
            named = named_classes_in(os.path.join(recipe.train.folder, *classes))
            advice = advise_names(named) if named else _advise_tables(recipe.train.folder)
            if not advice:
                need_an_image(*map(Path, recipe.train.folders))
            raise UnusableSource(
                "Each class requires a separate sub-folder, and at least two are required: "
                f"{', '.join(form.folder_train.lines())} has {found}.",
                advice
                or "Put the images of each class into a folder of its own, or label them first: choose “Label images” "
                "on the home page.",
            )
        need_an_image(*map(Path, recipe.train.folders))

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
            split: Beside(path, _fields_of({split: path}))
            for split, path in named_splits(root).items()
            if form.meta.data_roots.contain(path) and self._has_classes(form, str(path))
        }

    def _has_classes(self, form: Any, folder: str) -> bool:
        by_name = form.classes_from_names.data
        return bool(named_classes_in(folder) if by_name else _subfolders(folder, enough=1))


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


FOLDERS, CLOUD = Folders(), Cloud()


def _is_cloud(recipe: CreateClassification) -> bool:
    train = recipe.train
    is_alone = recipe.val is None and recipe.test is None
    return bool(train and train.folder.startswith(S3) and is_alone and not train.more_folders)


def _training_folders(form: Any) -> list[str]:
    return [*form.folder_train.lines(), *(form.folder_train_more.data or "").splitlines()]


def _folder_split(form: Any, split: str, *folders: str) -> FolderSplit:
    """Return the folders of a split with the limits in its fields: by default, those in its fields, too."""
    if not folders:
        entered = _training_folders(form) if split == "train" else form[f"folder_{split}"].lines()
        folders = tuple(dict.fromkeys(entered)) or ("",)
    return FolderSplit(
        folder=folders[0],
        more_folders=list(folders[1:]),
        min_per_class=form[f"folder_{split}_min_per_class"].data or 1,
        max_per_class=form[f"folder_{split}_max_per_class"].data,
    )


def _fields_of(folders: Mapping[str, Path]) -> dict[str, str | bool]:
    """Return the values of the form fields for the folders of the splits."""
    fields: dict[str, str | bool] = {f"folder_{split}": str(path) for split, path in folders.items()}
    return fields | {f"has_{split}_folder": True for split in folders if split != "train"}


def _advise_tables(folder: str) -> str:
    """Return which source reads a table in a folder that may list its images, or nothing if there is no table."""
    names = sorted(entry.name for entry in visible_entries(folder) if entry.is_file())
    names.sort(key=lambda name: split_of(Path(name)) != "train")
    metadata = [name for name in names if name in METADATA]
    tables = [name for name in names if name.lower().endswith((".csv", ".tsv"))]
    if not (metadata or tables):
        return ""
    source = HuggingFace if metadata else CsvLists
    name = show([*metadata, *tables][0])
    return f"{name} may list the images: choose the source “{source.title}” (method={source.method})."


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


def _folders(title: str, **others: Any) -> LinesField:
    return LinesField(f"{title} images", validators=[RequiredIf(**others), AllowedPath("folder")])


def _fewest(default: int | None = 2) -> OptionalInteger:
    return _per_class("Minimum", "min_per_class", default)


def _most(*checks: Any) -> OptionalInteger:
    return _per_class("Maximum", "max_per_class", None, *checks)


def _per_class(limit: str, name: str, default: int | None, *checks: Any) -> OptionalInteger:
    between = Between(schema.limits(FolderSplit, name), "Must be at least {low}, and at most {high}.")
    checks = (Optional(), between, *checks)
    return OptionalInteger(f"{limit} images per class", default=default, validators=checks)


def _share(label: str, name: str) -> OptionalInteger:
    between = Between(schema.limits(CreateClassification, name))
    return OptionalInteger(label, default=None, validators=[Optional(), between])


class FolderFields(SharesForm[CreateClassification]):
    """The fields of `Folders` and of `Cloud`."""

    SHARES = ("folder_pct_val", "folder_pct_test")

    folder_train = _folders("Training")
    folder_train_more = TextAreaField(
        "More folders", default="", validators=[AllowedPath("folder", may_be_empty=True)]
    )
    folder_train_min_per_class = _fewest()
    folder_train_max_per_class = _most(NotLessThan("folder_train_min_per_class"))
    has_val_folder = FlagField("Use a separate validation folder", default=False)
    folder_val = _folders("Validation", has_val_folder=True)
    folder_val_min_per_class = _fewest()
    folder_val_max_per_class = _most(NotLessThan("folder_val_min_per_class"))
    has_test_folder = FlagField("Use a separate test folder", default=False)
    folder_test = _folders("Test", has_test_folder=True)
    folder_test_min_per_class = _fewest()
    folder_test_max_per_class = _most(NotLessThan("folder_test_min_per_class"))
    one_class = flag("Create with one class", CreateClassification, "one_class")
    classes_from_names = flag("Classes from file names", CreateClassification, "classes_from_names")
    pct_val = pct_test = None
    folder_pct_val = required_integer("Validation split (%)", CreateClassification, "pct_val")
    folder_pct_test = required_integer("Test split (%)", CreateClassification, "pct_test")

    s3_bucket = StringField("Bucket", default="", validators=[RequiredIf()])
    s3_path = StringField("Folder", default="")
    # Field names in DIGITS; they default to the values of the folder fields.
    s3_pct_val = _share("Validation split (%)", "pct_val")
    s3_pct_test = _share("Test split (%)", "pct_test")
    s3_train_min_per_class = _fewest(default=None)
    s3_train_max_per_class = _most()

    def validate_fields(self, *arguments: Any, **keywords: Any) -> bool:
        if self.source is CLOUD:
            for name in ("pct_val", "pct_test", "train_min_per_class", "train_max_per_class"):
                if self[f"s3_{name}"].data is not None:
                    self[f"folder_{name}"].data = self[f"s3_{name}"].data
        return super().validate_fields(*arguments, **keywords)

    def validate_folder_train(self, field: LinesField) -> None:
        if not field.errors and not self.addresses:
            FOLDERS.use_declared(self)

    def validate_s3_bucket(self, field: StringField) -> None:
        with as_field_error():
            self.resolve(CLOUD.address(self), "folder")

    validate_folder_pct_val = SharesForm.validate_pct_val
    validate_folder_pct_test = SharesForm.validate_pct_test
