"""The form of a dataset for object detection."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wtforms import IntegerField, StringField
from wtforms.validators import Length, NumberRange, Optional, ValidationError

from digits.core import schema
from digits.core.remote import is_address
from digits.core.splits import SPLITS
from digits.data.images.lists import need_an_image
from digits.data.sources.declared_splits import describe_splits
from digits.data.sources.plan import UnusableSource, listed, show
from digits.data.tables.contents import refuse_run_lengths_in
from digits.data.tables.tables import MAX_HEADER_BYTES
from digits.kinds.detection.class_names import NamesFile, describe_files, find_shared_names
from digits.kinds.detection.formats import box_table, yolo
from digits.kinds.detection.formats.box_table import find_columns, open_boxes
from digits.kinds.detection.formats.format import BoxTable
from digits.kinds.detection.formats.formats import (
    AUTO,
    FORMATS,
    describe,
    find_around,
    find_file,
    find_format,
    is_detected,
)
from digits.kinds.detection.recipe import BoxRecords, CreateDetection
from digits.kinds.detection.records import BOX_FIELD, EDGES, ORDER_WORDS, BoxMapping
from digits.kinds.forms.fields import (
    AllowedFiles,
    AllowedPath,
    Between,
    Binding,
    NamesField,
    NeededWith,
    OptionalInteger,
    RequiredIf,
    TextField,
    as_field_error,
    check_images,
    choices,
    optional_path,
    paths_field,
    select,
    text_field,
)
from digits.kinds.forms.records import (
    FeatureField,
    OldDatasetFields,
    OldDatasets,
    RecordFields,
    Records,
    feature_field,
)
from digits.kinds.forms.source import Beside, FormSource, folders_beside, method_field
from digits.kinds.forms.summary import Suggestion, joined, shown_place
from digits.kinds.forms.tables import DialectFields
from digits.kinds.sources.split_lists import Lists, SplitLists, find_lists, list_fields

BOX_ORDERS = choices(
    ("auto", "Automatic"), *((order, words.capitalize()) for order, words in ORDER_WORDS.items())
)
BOX_UNITS = choices(("auto", "Automatic"), ("relative", "Fractions of the image"), ("pixels", "Pixels"))
MAX_BOX_SIZE = 10_000


def _folder(label: str, name: str) -> TextField:
    return text_field(label, CreateDetection, name, Optional(), AllowedPath("folder"))


def _side(label: str, other: str) -> OptionalInteger:
    limits = Between(schema.limits(CreateDetection, "width"))
    both = NeededWith(other, "Enter both the width and the height, or neither.")
    return OptionalInteger(label, validators=[Optional(), limits, both])


def _size(width: IntegerField, height: IntegerField) -> tuple[int, int] | None:
    return (width.data, height.data) if width.data and height.data else None


class AnnotationFiles(FormSource):
    """Folders of images, and their annotations in one of the `FORMATS`."""

    method = "folder"
    title = "Files"
    path = "train_image_folder"
    settings = BoxTable
    names = ("*_image_folder", "*_label_folder", "*_list", "format", "class_names_file")
    own = ("{}_label_folder", "{}_list")

    def read(self, form: Any) -> dict[str, Any]:
        # Before they are found, the annotations are in the folder of the images.
        labels = form.text_of("train_label_folder") or form.text_of(self.path)
        return {"labels": labels, "table": form.struct(BoxTable), "lists": form.struct(SplitLists)}

    def is_in(self, recipe: CreateDetection) -> bool:
        return bool(recipe.labels)

    def fill(self, form: Any, recipe: CreateDetection) -> None:
        form.fill_struct(recipe.table)
        form.fill_struct(recipe.lists)

    def complete(self, form: Any) -> None:
        images = {split: form.text_of(f"{split}_image_folder") or form.text_of(self.path) for split in SPLITS}
        labels = {split: form.text_of(f"{split}_label_folder") for split in SPLITS}
        form.set_names({split: (Path(images[split]), Path(path)) for split, path in labels.items() if path})

    def find_beside(self, form: Any) -> dict[str, Beside]:
        def find(root: Path) -> dict[str, Beside]:
            with contextlib.suppress(UnusableSource):
                _, sources = form.find_sources(root)
                return {
                    split: Beside(
                        labels if labels.is_file() else images, _source_fields({split: (images, labels)})
                    )
                    for split, (images, labels) in sources.items()
                }
            return {}

        return folders_beside(form, Path(form.text_of(self.path)), find)

    def check(self, form: Any, recipe: CreateDetection) -> None:
        labels = {split: form.text_of(f"{split}_label_folder") for split in SPLITS}
        with_files = (
            split
            for split, path in labels.items()
            if path and not find_format(Path(path), recipe.format).stores_images
        )
        check_images(form, (f"{split}_image_folder" for split in with_files))
        for split, path in labels.items():
            if path and find_format(Path(path), recipe.format) is box_table.FORMAT and os.path.isfile(path):
                try:
                    table = open_boxes(Path(path), recipe.table, MAX_HEADER_BYTES)
                    find_columns(table, recipe.table)
                    table.need_rows()
                except UnusableSource as error:
                    form.add_error(f"{split}_label_folder", error.sentences)


class BoxRecordFiles(Records):
    """TFRecord files with an image and its objects each."""

    names = (BOX_FIELD, *EDGES)

    def read(self, form: Any) -> dict[str, Any]:
        edges = [form.text_of(name) for name in EDGES]
        boxes = [form.text_of(BOX_FIELD)] if form.text_of(BOX_FIELD) else []
        features = edges if all(edges) else boxes
        return {"records": form.struct(BoxRecords, box_features=features)}

    def fill_settings(self, form: Any, source: BoxRecords) -> None:
        super().fill_settings(form, source)
        form.set(**self.mapping.fields(source, "box_features"))

    def complete(self, form: Any) -> None:
        if not self._conflict(form):
            super().complete(form)

    def check(self, form: Any, recipe: CreateDetection) -> None:
        if conflict := self._conflict(form):
            raise conflict
        super().check(form, recipe)

    def _conflict(self, form: Any) -> UnusableSource | None:
        """Return an error if the chosen features are not those of four edges or of boxes."""
        edges = [bool(form.text_of(name)) for name in EDGES]
        if any(edges) and not all(edges):
            return UnusableSource(
                "Some edges have no feature.", "Choose the features of all four edges, or of none."
            )
        if any(edges) and form.text_of(BOX_FIELD):
            return UnusableSource(
                "Both a box feature and edge features are chosen.",
                "Choose either one box feature or four edge features.",
            )
        return None


class DatasetForm(
    DialectFields[CreateDetection], RecordFields[CreateDetection], OldDatasetFields[CreateDetection]
):
    """A dataset for object detection. The names of the fields of folders are those of DIGITS."""

    annotations_help = (
        f"Annotations are {describe()}. By default, those in the folder above are used, such as an export of Label "
        "Studio or CVAT, or a Hugging Face dataset."
    )
    RECIPE = CreateDetection
    SOURCES = (AnnotationFiles(), BoxRecordFiles(BoxRecords, BoxMapping), OldDatasets())

    method = method_field(SOURCES)
    train_image_folder = text_field(
        "Image folder",
        CreateDetection,
        "images",
        RequiredIf("Enter the folder of the images."),
        AllowedPath("folder"),
    )
    train_label_folder = text_field("Annotations", CreateDetection, "labels", AllowedFiles())
    class_names_file = optional_path("Class names", CreateDetection, "class_names", "file")
    format = select(
        "Format",
        choices(
            (AUTO, "Detect automatically"),
            *((each.name, each.words or each.title) for each in FORMATS.values()),
        ),
        CreateDetection,
        "format",
    )
    image_column = feature_field("Image column", BoxTable, "image_column")
    left_column = feature_field("Left column", BoxTable, "left_column")
    top_column = feature_field("Top column", BoxTable, "top_column")
    right_column = feature_field("Right column", BoxTable, "right_column")
    bottom_column = feature_field("Bottom column", BoxTable, "bottom_column")
    width_column = feature_field("Width column", BoxTable, "width_column")
    height_column = feature_field("Height column", BoxTable, "height_column")
    class_column = feature_field("Class column", BoxTable, "class_column")
    custom_classes = NamesField(
        "Classes",
        default="",
        validators=[Optional(), Length(max=4096)],
        binding=Binding(CreateDetection, "classes"),
    )
    val_image_folder = _folder("Validation image folder", "val_images")
    val_label_folder = text_field("Validation annotations", CreateDetection, "val_labels", AllowedFiles())
    test_image_folder = _folder("Test image folder", "test_images")
    test_label_folder = text_field("Test annotations", CreateDetection, "test_labels", AllowedFiles())
    train_list = paths_field("Training list", SplitLists, "train")
    val_list = paths_field("Validation list", SplitLists, "val")
    test_list = paths_field("Test list", SplitLists, "test")
    box_feature = FeatureField("Box feature")
    xmin_feature = FeatureField("Left edges")
    ymin_feature = FeatureField("Top edges")
    xmax_feature = FeatureField("Right edges")
    ymax_feature = FeatureField("Bottom edges")
    box_order = select("Box format", BOX_ORDERS, BoxRecords, "box_order")
    box_units = select("Box coordinates", BOX_UNITS, BoxRecords, "box_units")
    class_feature = feature_field("Classes of objects", BoxRecords, "class_feature")
    record_labels = optional_path("Label map", BoxRecords, "labels", "file")
    padding_image_width = _side("Padding width", "padding_image_height")
    padding_image_height = _side("Padding height", "padding_image_width")
    # Accepted for scripts written for DIGITS; by default, resize_width and resize_height decide.
    resize_image_width = _side("Image width", "resize_image_height")
    resize_image_height = _side("Image height", "resize_image_width")
    val_min_box_size = OptionalInteger(
        "Minimum validation box size",
        validators=[Optional(), NumberRange(0, MAX_BOX_SIZE)],
        binding=Binding(CreateDetection, "val_min_box_size"),
    )

    def process(self, formdata: Any = None, *arguments: Any, **keywords: Any) -> None:
        super().process(formdata, *arguments, **keywords)
        sent = self.meta.wrap_formdata(self, formdata) or {}
        # As in DIGITS, padded images are resized only if the request contains a size.
        self._is_resized = "resize_width" in sent or "resize_height" in sent

    def validate_train_label_folder(self, field: StringField) -> None:
        images = self.train_image_folder
        if not field.data and not images.errors:
            with as_field_error():
                root, sources = self.find_sources(images.data)
            if not sources:
                with as_field_error():
                    refuse_run_lengths_in(Path(images.data))
                    need_an_image(Path(images.data))
                raise ValidationError(
                    f"No annotations found in {show(images.data)}. Enter the folder or the file that contains them, or "
                    "draw the boxes first: choose “Label images” on the home page."
                )
            with as_field_error():
                lists = self.find_lists(root, sources)
            places = {split: labels for split, (_, labels) in sources.items()} | {
                split: paths[0] for split, paths in lists.items()
            }
            notes = self.notes if len(places) > 1 else self.found
            notes.append(_describe_annotations(Path(images.data), sources["train"], places))
            self.set(**_source_fields(sources), **list_fields(lists))
            self.suggestion = self._suggest_mixing(sources, lists)
        self._check_labels(field)

    def validate_val_label_folder(self, field: StringField) -> None:
        self._complete(field, self.val_image_folder, "Enter the annotations of the validation images.")

    def validate_test_label_folder(self, field: StringField) -> None:
        self._complete(field, self.test_image_folder, "Enter the annotations of the test images.")

    def _complete(self, field: StringField, images: StringField, missing: str) -> None:
        """Find the annotations of a split in the folder of its ``images``; raises ValidationError."""
        if images.data and not field.data and not images.errors:
            with as_field_error():
                may_read = self.meta.data_roots.contain
                sources = {} if is_address(images.data) else find_around(Path(images.data), may_read)[1]
            if not ("train" in sources and all(map(self.meta.data_roots.contain, sources["train"]))):
                raise ValidationError(missing)
            images.data, field.data = map(str, sources["train"])
        self._check_labels(field)

    def image_settings(self) -> dict[str, Any]:
        settings = super().image_settings()
        padding = _size(self.padding_image_width, self.padding_image_height)
        size = _size(self.resize_image_width, self.resize_image_height)
        if chosen := size or (None if self._is_resized else padding):
            settings["width"], settings["height"] = chosen
        return {**settings, "padding": padding}

    def fill_source(self, recipe: CreateDetection) -> None:
        super().fill_source(recipe)
        self.set(
            resize_image_width=None,
            resize_image_height=None,
            padding_image_width=recipe.padding and recipe.padding[0],
            padding_image_height=recipe.padding and recipe.padding[1],
        )
        self._is_resized = True

    def _check_labels(self, field: StringField) -> None:
        """Raise ValidationError unless the field contains annotations, or nothing."""
        if not field.data or field.errors:
            return
        with as_field_error():
            path = self.find_labels(Path(field.data))
            field.data = str(path)

    def find_labels(self, path: Path) -> Path:
        """Return the real path of the annotations ``path``: that of the only JSON file for its folder."""
        chosen = FORMATS.get(self.format.data)
        if path.is_dir() and (
            ".json" in chosen.endings and not chosen.is_folder if chosen else not is_detected(path)
        ):
            file = find_file(path)
            return file if file and self.meta.data_roots.contain(file) else path
        return path

    def find_sources(self, folder: Path | str) -> tuple[Path, dict[str, tuple[Path, Path]]]:
        """Return the root of the allowed sources in or around ``folder``, and these: none at a remote address.

        Those of splits that have annotations in the fields are left out.
        """
        may_read = self.meta.data_roots.contain
        root, found = (Path(folder), {}) if is_address(str(folder)) else find_around(Path(folder), may_read)
        sources = {
            split: paths
            for split, paths in found.items()
            if all(map(may_read, paths)) and (split == "train" or not self.text_of(f"{split}_label_folder"))
        }
        return root, sources if "train" in sources else {}

    def find_lists(self, root: Path, sources: dict[str, tuple[Path, Path]]) -> Lists:
        """Return the lists of the splits in ``root`` if all have one of the ``sources`` and none is entered."""
        if len(sources) > 1 or self.own_splits() or self.text_of("train_list"):
            return {}
        images, labels = sources["train"]
        is_stored = find_format(labels, self.format.data).stores_images
        return {} if is_stored else find_lists(root, images, self.meta.data_roots.contain)

    def _suggest_mixing(self, sources: dict[str, tuple[Path, Path]], lists: Lists) -> Suggestion | None:
        """Suggest to divide the images of all splits again."""
        formats = {find_format(path, self.format.data) for _, path in sources.values()}
        fields = _source_fields(sources) if lists else {}
        if len(sources) > 1 and formats == {yolo.FORMAT}:
            shared = os.path.commonpath([path for paths in sources.values() for path in paths])
            fields = {"train_image_folder": shared, "train_label_folder": shared}
        text = "Mix the images of all splits, and divide them again?"
        return Suggestion(text, "Mix them", fields) if fields else None

    def find_names(self, sources: dict[str, tuple[Path, Path]]) -> list[NamesFile]:
        """Return the file with the names of the classes in the YOLO files of the ``sources``: several if these differ.

        Return none if one is entered, or if each split has its own. Raises UnusableSource.
        """
        if self.text_of("class_names_file"):
            return []
        real = [
            (Path(os.path.realpath(images)), Path(os.path.realpath(labels)))
            for images, labels in sources.values()
        ]
        of_yolo = [paths for paths in real if find_format(paths[1], self.format.data) is yolo.FORMAT]
        return find_shared_names(of_yolo, self.meta.data_roots.contain) if of_yolo else []

    def set_names(self, sources: dict[str, tuple[Path, Path]]) -> None:
        """Fill in the file with the names of the classes; if there are several, add an error. Raises UnusableSource."""
        files = self.find_names(sources)
        if len(files) > 1:
            self.add_error("class_names_file", f"{describe_files(files)} Enter the path of one of them.")
            self.suggestion = _suggest_names(files)
        elif files:
            self.set(class_names_file=str(files[0].path))
            self.notes.append(f"The names of the classes are those in {show(files[0].path.name)}.")


def _source_fields(sources: dict[str, tuple[Path, Path]]) -> dict[str, str | bool]:
    """Return the values of the form fields for the images and the annotations of each split."""
    fields: dict[str, str | bool] = {}
    for split, (images, labels) in sources.items():
        fields |= {f"{split}_image_folder": str(images), f"{split}_label_folder": str(labels)}
    return fields


def _describe_annotations(entered: Path, train: tuple[Path, Path], places: dict[str, Path]) -> str:
    """Return a note about what is used: the ``places`` of the splits, or the images and the annotations of one."""
    if len(places) > 1:
        return describe_splits(places)
    images, labels = train
    if labels == entered == images:
        return "The annotations are beside the images."
    if labels.is_relative_to(entered) and images.is_relative_to(entered):
        return f"Annotations: {show(os.path.relpath(labels, entered))}."
    root = os.path.commonpath([images, labels])
    return f"Used: {joined([shown_place(path, root) for path in train])}."


def _suggest_names(files: Sequence[NamesFile]) -> Suggestion:
    """Ask which of several files has the names of the classes."""
    first = files[0]
    root = os.path.commonpath([file.path.parent for file in files])
    places = [f"{show(os.path.relpath(file.path, root))} ({listed(file.names.values())})" for file in files]
    name = show(os.path.relpath(first.path, root))
    return Suggestion(
        f"The classes have different names in {joined(places)}. Use {name}, or enter another one as “Class names”?",
        f"Use {name}",
        {"class_names_file": str(first.path)},
    )
