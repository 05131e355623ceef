"""The form of a dataset for object detection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from wtforms import IntegerField, SelectField, StringField
from wtforms.validators import Length, NumberRange, Optional, ValidationError

from digits.core.errors import DigitsError
from digits.core.remote import is_address
from digits.core.splits import SPLITS
from digits.data.sources import UnusableSource, show
from digits.kinds.coco import find_file
from digits.kinds.detection import box_table, coco
from digits.kinds.detection.box_table import COLUMNS, find_columns, open_boxes
from digits.kinds.detection.format import BoxTable
from digits.kinds.detection.formats import AUTO, FORMATS, describe, find_format, find_sources, is_detected
from digits.kinds.detection.overview import (
    AnnotationOverview,
    RecordOverview,
    source_fields,
    suggest_annotations,
)
from digits.kinds.detection.recipe import BoxRecords, CreateDetection
from digits.kinds.detection.records import BOX_FIELD, EDGES, ORDER_WORDS, BoxLayout, BoxMapping, guess
from digits.kinds.form_fields import AllowedPath, RequiredIf, check_images, choices, select, whole
from digits.kinds.record_form import METHOD as RECORDS
from digits.kinds.record_form import FeatureField, RecordForm
from digits.kinds.record_source import first_record
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_form import DialectFields
from digits.kinds.table_summary import MAX_BYTES

BOX_ORDERS = choices(
    ("auto", "Automatic"), *((order, words.capitalize()) for order, words in ORDER_WORDS.items())
)
BOX_UNITS = choices(("auto", "Automatic"), ("relative", "Fractions of the image"), ("pixels", "Pixels"))
MAX_BOX_SIZE = 10_000


def _folder(label: str) -> StringField:
    return StringField(label, validators=[Optional(), AllowedPath("folder")])


def _size(width: IntegerField, height: IntegerField) -> tuple[int, int] | None:
    return (width.data, height.data) if width.data and height.data else None


class DatasetForm(RecordForm[CreateDetection], DialectFields[CreateDetection]):
    """A dataset for object detection. The names of the fields of folders are those of DIGITS."""

    annotations_help = (
        f"Annotations are {describe()}. By default, those in the folder above are used, such as an export of Label "
        "Studio or CVAT, a Hugging Face dataset, or a DIGITS job."
    )
    RECORD_FIELDS = (*RecordForm.RECORD_FIELDS, "record_labels")
    SCANNED = (
        *("train_image_folder", "train_label_folder", "format", "custom_classes", "method"),
        *(*RECORD_FIELDS, "image_feature", "record_shape", BOX_FIELD, *EDGES),
        *("box_order", "box_units", "class_feature", *COLUMNS, *DialectFields.DIALECT),
    )
    SCANNED_PATHS = ("train_image_folder", "record_train")
    OWN_SOURCES = ("{}_label_folder", "record_{}")
    FILE_FIELDS = (
        *("train_image_folder", "train_label_folder", "val_image_folder"),
        *("val_label_folder", "test_image_folder", "test_label_folder"),
        *(*COLUMNS, *DialectFields.DIALECT),
    )

    method = SelectField(
        "Source", choices=choices(("folder", "Files"), (RECORDS, "TFRecord")), default="folder"
    )
    train_image_folder = StringField(
        "Image folder",
        validators=[RequiredIf("Enter the folder of the images.", method="folder"), AllowedPath("folder")],
    )
    train_label_folder = StringField("Annotations")
    format = select(
        "Format",
        choices(
            (AUTO, "Detect automatically"),
            *((each.name, each.words or each.title) for each in FORMATS.values()),
        ),
        CreateDetection,
        "format",
    )
    image_column = FeatureField("Image column")
    left_column = FeatureField("Left column")
    top_column = FeatureField("Top column")
    right_column = FeatureField("Right column")
    bottom_column = FeatureField("Bottom column")
    width_column = FeatureField("Width column")
    height_column = FeatureField("Height column")
    class_column = FeatureField("Class column")
    custom_classes = StringField("Classes", default="", validators=[Optional(), Length(max=4096)])
    val_image_folder = _folder("Validation image folder")
    val_label_folder = StringField("Validation annotations")
    test_image_folder = _folder("Test image folder")
    test_label_folder = StringField("Test annotations")
    box_feature = FeatureField("Box feature")
    xmin_feature = FeatureField("Left edges")
    ymin_feature = FeatureField("Top edges")
    xmax_feature = FeatureField("Right edges")
    ymax_feature = FeatureField("Bottom edges")
    box_order = select("Box format", BOX_ORDERS, BoxRecords, "box_order")
    box_units = select("Box coordinates", BOX_UNITS, BoxRecords, "box_units")
    class_feature = FeatureField("Classes of objects")
    record_labels = StringField("Label map", default="", validators=[Optional(), AllowedPath("file")])
    padding_image_width = whole("Padding width", CreateDetection, "width")
    padding_image_height = whole("Padding height", CreateDetection, "height")
    # Accepted for scripts written for DIGITS; by default, resize_width and resize_height decide.
    resize_image_width = whole("Image width", CreateDetection, "width")
    resize_image_height = whole("Image height", CreateDetection, "height")
    val_min_box_size = IntegerField(
        "Minimum validation box size", validators=[Optional(), NumberRange(0, MAX_BOX_SIZE)]
    )

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._layout: BoxLayout | None = None

    def process(self, formdata: Any = None, *arguments: Any, **keywords: Any) -> None:
        super().process(formdata, *arguments, **keywords)
        sent = self.meta.wrap_formdata(self, formdata) or {}
        # As in DIGITS, padded images are resized only if the request contains a size.
        self._is_resized = "resize_width" in sent or "resize_height" in sent

    def validate(self, extra_validators: Any = None) -> bool:
        is_valid = bool(super().validate(extra_validators))
        return check_images(self, self._image_fields()) and is_valid

    def _image_fields(self) -> Iterator[str]:
        """Yield the fields of folders that must contain image files."""
        for split in () if self.reads_records else SPLITS:
            labels = self[f"{split}_label_folder"]
            if not labels.data or labels.errors or is_address(labels.data):
                continue
            if not find_format(Path(labels.data), self.format.data).stores_images:
                yield f"{split}_image_folder"

    def validate_train_label_folder(self, field: StringField) -> None:
        images = self.train_image_folder
        if self.reads_records:
            return
        if not field.data and not images.errors:
            try:
                found = {} if is_address(images.data) else self._find_sources(Path(images.data))
            except UnusableSource as error:
                raise ValidationError(error.sentences) from None
            if not found:
                raise ValidationError(
                    f"No annotations found in {show(images.data)}. Enter a folder or a file."
                )
            self.set(**source_fields(found))
        self._check_labels(field)

    def validate_val_label_folder(self, field: StringField) -> None:
        if self.val_image_folder.data and not field.data:
            raise ValidationError("Enter the annotations of the validation images.")
        self._check_labels(field)

    def validate_test_label_folder(self, field: StringField) -> None:
        if self.test_image_folder.data and not field.data:
            raise ValidationError("Enter the annotations of the test images.")
        self._check_labels(field)

    def validate_resize_image_width(self, field: IntegerField) -> None:
        self._need_other(field, self.resize_image_height)

    def validate_resize_image_height(self, field: IntegerField) -> None:
        self._need_other(field, self.resize_image_width)

    def validate_padding_image_width(self, field: IntegerField) -> None:
        self._need_other(field, self.padding_image_height)

    def validate_padding_image_height(self, field: IntegerField) -> None:
        self._need_other(field, self.padding_image_width)

    def _need_other(self, field: IntegerField, other: IntegerField) -> None:
        if field.data is not None and other.data is None and not other.process_errors:
            raise ValidationError("Enter both the width and the height, or neither.")

    def image_settings(self) -> dict[str, Any]:
        settings = super().image_settings()
        padding = _size(self.padding_image_width, self.padding_image_height)
        size = _size(self.resize_image_width, self.resize_image_height)
        if chosen := size or (None if self._is_resized else padding):
            settings["width"], settings["height"] = chosen
        return {**settings, "padding": padding}

    def check_records(self) -> None:
        edges = [bool(self.entered(name)) for name in EDGES]
        if any(edges) and not all(edges):
            raise UnusableSource(
                "Some edges have no feature.", "Choose the features of all four edges, or of none."
            )
        if any(edges) and self.entered(BOX_FIELD):
            raise UnusableSource(
                "Both a box feature and edge features are chosen.",
                "Choose either one box feature or four edge features.",
            )
        source = self.record_source()
        files = source.find()
        self._layout = BoxMapping(source, files, first_record(files.splits["train"])).boxes

    def record_source(self) -> BoxRecords:
        edges = [self.entered(name) for name in EDGES]
        boxes = [self.entered(BOX_FIELD)] if self.entered(BOX_FIELD) else []
        return BoxRecords(
            box_features=edges if all(edges) else boxes,
            box_order=self.box_order.data or "auto",
            box_units=self.box_units.data or "auto",
            class_feature=self.entered("class_feature"),
            labels=self.entered("record_labels"),
            **self.record_settings(),
        )

    def _detected_source(self) -> BoxRecords:
        """Return the source with the order and the units of the boxes, which remote files reveal only in the task."""
        source = self.record_source()
        found = self._layout
        return replace(source, box_order=found.order, box_units=found.units) if found else source

    def scan_source(self) -> Iterator[SourceSummary]:
        if self.reads_records:
            return self.scan_records(guess, partial(RecordOverview, classes=self._classes()))
        images = self.path_of("train_image_folder", "folder")
        format_name: str = self.format.data or AUTO
        classes = self._classes()
        if (self.train_label_folder.data or "").strip():
            labels = self._labels_path("train_label_folder")
            return AnnotationOverview(images, labels, format_name, classes, table=self._table()).summaries()
        return self._scan_folder(images, format_name, classes)

    def _scan_folder(self, root: Path, format_name: str, classes: list[str]) -> Iterator[SourceSummary]:
        """Summarize the annotations that are found in ``root``."""
        try:
            found = self._find_sources(root)
        except UnusableSource as error:
            yield SourceSummary.unusable(error)
            return
        if not found:
            yield SourceSummary(problems=["Enter the annotations for these images."])
            return
        suggestion = suggest_annotations(root, found)
        yield from AnnotationOverview(
            *found["train"], format_name, classes, suggestion, self._table()
        ).summaries()

    def recipe(self) -> CreateDetection:
        if self.reads_records:
            return CreateDetection(
                records=self._detected_source(),
                classes=self._classes(),
                val_min_box_size=self.val_min_box_size.data,
                **self.image_settings(),
            )
        return CreateDetection(
            images=self.train_image_folder.data,
            labels=self.train_label_folder.data,
            format=self.format.data,
            table=self._table(),
            val_images=self.val_image_folder.data or None,
            val_labels=self.val_label_folder.data or None,
            test_images=self.test_image_folder.data or None,
            test_labels=self.test_label_folder.data or None,
            classes=self._classes(),
            val_min_box_size=self.val_min_box_size.data,
            **self.image_settings(),
        )

    def fill_source(self, recipe: CreateDetection) -> None:
        self.set(
            train_image_folder=recipe.images,
            train_label_folder=recipe.labels,
            format=recipe.format,
            val_image_folder=recipe.val_images or "",
            val_label_folder=recipe.val_labels or "",
            test_image_folder=recipe.test_images or "",
            test_label_folder=recipe.test_labels or "",
            **{field: getattr(recipe.table, field) for field in COLUMNS},
            custom_classes=", ".join(recipe.classes),
            val_min_box_size=recipe.val_min_box_size,
            resize_image_width=None,
            resize_image_height=None,
            padding_image_width=recipe.padding and recipe.padding[0],
            padding_image_height=recipe.padding and recipe.padding[1],
        )
        self.fill_dialect(recipe.table.dialect)
        self._is_resized = True
        records = recipe.records
        if records is not None:
            self.fill_records(records)
            self.set(class_feature=records.class_feature, record_labels=records.labels)
            self.set(box_order=records.box_order, box_units=records.box_units)
            fields = (BOX_FIELD,) if len(records.box_features) == 1 else EDGES
            self.set(**dict(zip(fields, records.box_features, strict=False)))

    def _check_labels(self, field: StringField) -> None:
        """Raise ValidationError unless the field contains an allowed folder or file of annotations, or nothing."""
        if not field.data or field.errors:
            return
        try:
            if is_address(field.data):
                field.data = self.resolve(field.data, "any")
                return
            path = self._labels_path(field.name)
            field.data = str(path)
            if find_format(path, self.format.data) is box_table.FORMAT and path.is_file():
                table = open_boxes(path, self._table(), MAX_BYTES)
                find_columns(table, self._table())
                table.need_rows()
        except UnusableSource as error:
            raise ValidationError(error.sentences) from None
        except DigitsError as error:
            raise ValidationError(error.message) from None

    def _labels_path(self, name: str) -> Path:
        """Return the real path of annotations, that of a COCO file for its folder; raises DigitsError."""
        path = Path(self.resolved_files(name))
        if path.is_dir() and self.format.data in (AUTO, coco.FORMAT.name) and not is_detected(path):
            file = find_file(path)
            return file if file and self.meta.data_roots.contain(file) else path
        return path

    def _table(self) -> BoxTable:
        dialect = self.dialect()
        return BoxTable(
            **{field: self.entered(field) for field in COLUMNS},
            delimiter=dialect.delimiter,
            header=dialect.header,
        )

    def _find_sources(self, root: Path) -> dict[str, tuple[Path, Path]]:
        """Return the allowed sources in ``root``, without those of splits that have annotations in the fields."""
        found = {
            split: paths
            for split, paths in find_sources(root).items()
            if all(map(self.meta.data_roots.contain, paths))
            and (split == "train" or not self.entered(f"{split}_label_folder"))
        }
        return found if "train" in found else {}

    def _classes(self) -> list[str]:
        names = (name.strip() for name in (self.custom_classes.data or "").split(","))
        return list(dict.fromkeys(name for name in names if name))
