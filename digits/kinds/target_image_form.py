"""The form fields of datasets whose source is a folder of images and one of target images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from wtforms import SelectField, StringField
from wtforms.validators import Length, Optional, ValidationError

from digits.core.recipe import MAX_SIDE_PIXELS
from digits.core.remote import is_address
from digits.data import images
from digits.data.data_roots import FileType
from digits.data.databases import find_job
from digits.data.image_lists import walk_images
from digits.data.record_features import Features
from digits.data.record_files import RecordFiles
from digits.data.sources import UnusableSource
from digits.data.tables import Row
from digits.data.target_images import find_folders
from digits.kinds.dataset_form import required_integer
from digits.kinds.form_fields import AllowedFiles, AllowedPath, FlagField, RequiredIf, check_images, choices
from digits.kinds.record_form import METHOD as RECORDS
from digits.kinds.record_form import FeatureField, RecordForm
from digits.kinds.record_source import first_record
from digits.kinds.source_summary import SourceSummary, Suggestion
from digits.kinds.table_form import NO_TABLE, DialectFields
from digits.kinds.target_image_records import TargetImageMapping, TargetImageRecords
from digits.kinds.target_image_source import CreateWithTargetImages, TargetImageFolders
from digits.kinds.target_image_summary import suggest_sources, summarize_target_image_table
from digits.kinds.target_image_tables import TargetImageRows, TargetImageTable, check_columns

AnyTargetRecipe = TypeVar("AnyTargetRecipe", bound=CreateWithTargetImages)

# The fields of the folders of images and targets of each split.
FOLDERS = {
    "train": ("feature_folder", "label_folder"),
    "val": ("validation_feature_folder", "validation_label_folder"),
    "test": ("test_feature_folder", "test_label_folder"),
}
# The value of the field `method` for tables.
TABLE = "csv"


class OptionalPath(AllowedPath):
    """Validate a file or folder like `AllowedPath`; an empty field is valid."""

    def __call__(self, form: Any, field: Any) -> None:
        field.data = (field.data or "").strip()
        if field.data:
            super().__call__(form, field)


class TargetImageForm(RecordForm[AnyTargetRecipe], DialectFields[AnyTargetRecipe], Generic[AnyTargetRecipe]):
    """Base class of the forms that create a dataset of images with target images, in folders, tables or TFRecord files.

    Without a target folder, the image folder may contain both as folders with usual names; those of targets are
    ``TARGET_FOLDERS``, in lowercase. ``TARGET_TYPE`` is the type of the targets, ``TARGET`` the word for one, and
    ``NEEDS_TARGETS`` whether they are required.
    """

    SCANNED: tuple[str, ...] = (
        *("feature_folder", "label_folder", "method"),
        *(*RecordForm.RECORD_FIELDS, "image_feature", "target_feature", "record_shape"),
        *("table_train", "image_folder", "image_column", "target_column", *DialectFields.DIALECT),
    )
    SCANNED_PATHS = ("feature_folder", "table_train", "record_train")
    FILE_FIELDS = (
        *(name for names in FOLDERS.values() for name in names),
        *("has_val_folder", "has_test_folder"),
    )
    SHARES = ("folder_pct_val", "folder_pct_test")
    OWN_SOURCES = ("has_{}_folder", "record_{}")
    TABLE_FIELDS = ("table_train", "image_folder", "image_column", "target_column")
    TARGET_FOLDERS: tuple[str, ...] = ()
    TARGET = "target image"
    NEEDS_TARGETS = True
    TARGET_TYPE: FileType = "folder"

    method = SelectField(
        "Source",
        choices=choices(("folder", "Folders"), (TABLE, "Table"), (RECORDS, "TFRecord")),
        default="folder",
    )
    table_train = StringField(
        "Table", default="", validators=[RequiredIf(NO_TABLE, method=TABLE), AllowedFiles()]
    )
    image_folder = StringField("Image folder", default="", validators=[OptionalPath("folder")])
    image_column = StringField("Image column", default="", validators=[Optional(), Length(max=200)])
    target_column = StringField("Target column", default="", validators=[Optional(), Length(max=200)])
    feature_folder = StringField(
        "Images",
        default="",
        validators=[RequiredIf("Enter a folder.", method="folder"), AllowedPath("folder")],
    )
    target_feature = FeatureField("Target feature")
    label_folder = StringField("Targets", default="", validators=[OptionalPath("folder")])
    pct_val = pct_test = None
    folder_pct_val = required_integer("Validation split (%)", CreateWithTargetImages, "pct_val")
    folder_pct_test = required_integer("Test split (%)", CreateWithTargetImages, "pct_test")
    has_val_folder = FlagField("Use separate validation folders", default=False)
    validation_feature_folder = StringField(
        "Validation images", validators=[RequiredIf(has_val_folder=True), AllowedPath("folder")]
    )
    validation_label_folder = StringField(
        "Validation targets", default="", validators=[OptionalPath("folder")]
    )
    has_test_folder = FlagField("Use separate test folders", default=False)
    test_feature_folder = StringField(
        "Test images", validators=[RequiredIf(has_test_folder=True), AllowedPath("folder")]
    )
    test_label_folder = StringField("Test targets", default="", validators=[OptionalPath("folder")])

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._size_remark = ""

    def keep_size(self) -> None:
        try:
            found = next(item for item in walk_images(Path(self.feature_folder.data or "")) if item.files)
            width, height = images.upright_size(found.root / found.files[0])
        except (StopIteration, UnusableSource, images.UnusableImage, OSError):
            width, height = self.resize_width.data, self.resize_height.data
        size = min(width, MAX_SIDE_PIXELS), min(height, MAX_SIDE_PIXELS)
        self.set(resize_width=size[0], resize_height=size[1])
        self._size_remark = (
            f"Without resize_width and resize_height, images are resized to {size[0]}×{size[1]}."
        )

    def warnings(self) -> list[str]:
        return [*super().warnings(), *filter(None, [self._size_remark])]

    @property
    def reads_table(self) -> bool:
        """Whether the source is a table."""
        return bool(self.method.data == TABLE)

    def validate(self, extra_validators: Any = None) -> bool:
        is_valid = bool(super().validate(extra_validators))
        if self.method.data in (TABLE, RECORDS):
            return is_valid
        splits = (split for split in FOLDERS if split == "train" or self[f"has_{split}_folder"].data)
        return check_images(self, (name for split in splits for name in FOLDERS[split])) and is_valid

    def unused_fields(self) -> Iterable[str]:
        sources = {"folder": self.FILE_FIELDS, TABLE: self.TABLE_FIELDS, RECORDS: self.RECORD_FIELDS}
        return [name for source, names in sources.items() if source != self.method.data for name in names]

    def validate_table_train(self, field: StringField) -> None:
        if not self.reads_table or field.errors or self.delimiter.errors or is_address(field.data):
            return
        try:
            check_columns(self.table_source(field.data), word=self.TARGET, is_required=self.NEEDS_TARGETS)
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None

    def table_source(self, path: str) -> TargetImageTable:
        """Return the source in the fields, with the table at the real path ``path``."""
        return TargetImageTable(
            table=path,
            folder=self.entered("image_folder") or self.default_folder(path),
            image_column=self.entered("image_column"),
            target_column=self.entered("target_column"),
            delimiter=self.dialect().delimiter,
            header=self.dialect().header,
        )

    def scan_table(
        self, describe: Callable[[TargetImageRows, list[Row[str]], SourceSummary], None]
    ) -> Iterator[SourceSummary]:
        """Return summaries of the table in the form; raises DigitsError.

        ``describe`` adds what the kind finds in the usable rows.
        """
        path = self.resolved_files("table_train")
        if self.entered("image_folder"):
            self.image_folder.data = str(self.path_of("image_folder", "folder"))
        return summarize_target_image_table(
            self.table_source(path), describe, word=self.TARGET, is_required=self.NEEDS_TARGETS
        )

    def validate_label_folder(self, field: StringField) -> None:
        self._complete("train", field)

    def validate_validation_label_folder(self, field: StringField) -> None:
        if self.has_val_folder.data:
            self._complete("val", field)

    def validate_test_label_folder(self, field: StringField) -> None:
        if self.has_test_folder.data:
            self._complete("test", field)

    validate_folder_pct_val = DialectFields.validate_pct_val
    validate_folder_pct_test = DialectFields.validate_pct_test

    def check_without_targets(self, split: str, folder: str) -> None:
        """Raise ValidationError if the ``folder`` of the images of a split needs one of targets."""

    def _complete(self, split: str, field: StringField) -> None:
        """Find the folders of images and targets in that of the images, if none is given for the targets."""
        images = self[FOLDERS[split][0]]
        if images.errors or field.errors or not images.data:
            return
        field.data = self.resolve_targets(field.data)
        skips = field.data or is_address(images.data)
        found = None if skips else self.find_sources(Path(images.data))
        if found:
            if split == "train":
                self._use_validation(Path(images.data))
            images.data, field.data = map(str, found)
        elif not field.data:
            self.check_without_targets(split, images.data)
        elif field.data == images.data and self.NEEDS_TARGETS:
            raise ValidationError("This is the image folder. Enter a different one.")

    def _use_validation(self, root: Path) -> None:
        """Use the validation databases of the folder of a generic dataset of DIGITS 4 to 6, unless others are set."""
        job = find_job(root)
        if job and "val" in job.targets and not self.has_val_folder.data:
            self.set(
                has_val_folder=True,
                validation_feature_folder=str(job.images["val"]),
                validation_label_folder=str(job.targets["val"]),
            )

    def resolve_targets(self, path: str) -> str:
        """Return the path to use for the targets in ``path``."""
        return path

    def find_sources(self, root: Path) -> tuple[Path, Path] | None:
        """Return the allowed paths of the images and the targets in ``root``, or None."""
        job = find_job(root)
        databases = (job.images["train"], job.targets["train"]) if job and "train" in job.targets else None
        found = databases or find_folders(root, self.TARGET_FOLDERS)
        return found if found and all(map(self.meta.data_roots.contain, found)) else None

    def scanned_folders(self) -> tuple[TargetImageFolders, Suggestion | None]:
        """Return the folders to summarize, and a suggestion for those fields; raises DigitsError."""
        root = self.path_of("feature_folder", "folder")
        if (self.label_folder.data or "").strip():
            targets = self.resolve_targets(str(self.path_of("label_folder", self.TARGET_TYPE)))
            return TargetImageFolders(images=str(root), targets=targets), None
        found = self.find_sources(root)
        if not found:
            return TargetImageFolders(images=str(root)), None
        return TargetImageFolders(images=str(found[0]), targets=str(found[1])), suggest_sources(root, *found)

    def record_source(self) -> TargetImageRecords:
        return TargetImageRecords(target_feature=self.entered("target_feature"), **self.record_settings())

    def check_records(self) -> None:
        source = self.record_source()
        files = source.find()
        self.map_records(source, files, first_record(files.splits["train"]))

    def map_records(
        self, source: TargetImageRecords, files: RecordFiles, first: Features
    ) -> TargetImageMapping:
        """Return how the records of ``files`` become images with targets; raises UnusableSource."""
        raise NotImplementedError

    def target_image_settings(self) -> dict[str, Any]:
        """Return the arguments of `CreateWithTargetImages` for the fields of this class and of the images."""
        if self.reads_table:
            return {"table": self.table_source(self.table_train.data), **self.image_settings()}
        if self.reads_records:
            return {"records": self.record_source(), **self.image_settings()}
        folders = {split: self._folders(split) for split in ("train", *self.own_splits())}
        return {**folders, **self.image_settings()}

    def fill_source(self, recipe: AnyTargetRecipe) -> None:
        self.set(has_val_folder=recipe.val is not None, has_test_folder=recipe.test is not None)
        records = recipe.records
        if records is not None:
            self.fill_records(records)
            self.set(target_feature=records.target_feature)
        if (table := recipe.table) is not None:
            self.set(
                method=TABLE,
                table_train=table.table,
                image_folder="" if table.folder == self.default_folder(table.table) else table.folder,
                image_column=table.image_column,
                target_column=table.target_column,
            )
            self.fill_dialect(table.dialect)
        for name, folders in recipe.folders():
            images, targets = FOLDERS[name]
            self.set(**{images: folders.images, targets: folders.targets})

    def _folders(self, split: str) -> TargetImageFolders:
        images, targets = FOLDERS[split]
        return TargetImageFolders(images=self[images].data, targets=self[targets].data or "")
