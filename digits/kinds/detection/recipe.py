"""The recipe of a dataset for object detection."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import field, structs

from digits.core.recipe import Pixels
from digits.core.schema import Whole
from digits.data.databases.convert import CLASSES, DONT_CARE, EDGES, IMAGE, Labels, OldDataset
from digits.data.sources.shares import CreateWithShares, need_one_source
from digits.kinds.detection.formats.format import BoxTable
from digits.kinds.detection.formats.formats import AUTO, FORMATS
from digits.kinds.detection.formats.kitti import CLASSES as KITTI_CLASSES
from digits.kinds.sources.records import RecordSource
from digits.kinds.sources.split_lists import SplitLists

# The numbers of each box in one feature, named as the bounding box formats of Keras.
BoxOrder = Literal["auto", "yxyx", "xyxy", "xywh"]
BoxUnits = Literal["auto", "relative", "pixels"]


class BoxRecords(RecordSource, kw_only=True, frozen=True):
    """TFRecord files with an image and its objects each.

    ``box_features`` are the features of the left, top, right and bottom edges of the objects, as the Object Detection
    API of TensorFlow writes them, or one feature with four numbers for each object in the ``box_order``, as in
    TensorFlow Datasets: ``yxyx`` is top, left, bottom, right; ``xyxy`` left, top, right, bottom; ``xywh`` left, top,
    width, height. ``box_units`` are fractions of the width and height (``relative``), or pixels. ``class_feature``
    contains the classes: texts, or numbers, whose names are in the label map ``labels``. Forms fill in empty features,
    and those that are ``auto``, from the first record.
    """

    box_features: list[str] = field(default_factory=list)
    box_order: BoxOrder = "auto"
    box_units: BoxUnits = "auto"
    class_feature: str = ""
    labels: str = ""


class CreateDetection(CreateWithShares, kw_only=True):
    """Read annotated images below ``images``, and their objects from ``labels``.

    ``labels`` is a folder or a file in a ``format`` of `digits.kinds.detection.formats.formats.FORMATS`, which is
    detected by default. It can also be one of several shards or a pattern of Parquet files, which contain the
    images. The ``val_`` and ``test_`` sources are separate. ``classes`` are the names of those to use, in their
    order; by default, all. Validation objects with a side shorter than ``val_min_box_size`` pixels are not used; by
    default, the format decides. If ``padding`` (width, height) is given, black pixels are added on the right and at
    the bottom up to this size before images are resized. Instead of ``images`` and ``labels``, ``records`` or a
    ``database`` can be the source. ``table`` describes CSV files. ``class_names`` is a file with the names of the
    classes of YOLO files; by default, one beside or above the labels is used. ``lists`` divide the images of
    ``labels``.
    """

    database_labels: ClassVar[Labels] = "boxes"

    kind: str = "image-object-detection"
    images: str = ""
    labels: str = ""
    records: BoxRecords | None = None
    database: OldDataset | None = None
    format: str = AUTO
    table: BoxTable = BoxTable()
    class_names: str = ""
    lists: SplitLists = SplitLists()
    val_images: str | None = None
    val_labels: str | None = None
    test_images: str | None = None
    test_labels: str | None = None
    classes: list[str] = field(default_factory=list)
    val_min_box_size: Whole | None = None
    padding: tuple[Pixels, Pixels] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless there is exactly one source, in a known format."""
        if self.format not in (AUTO, *FORMATS):
            raise ValueError(f"the format of annotations “{self.format}” is unknown")
        need_one_source("a dataset for object detection", self, "labels", "records", "database")

    @property
    def database_classes(self) -> list[str]:
        """The names of the classes in databases by number, by default those of KITTI in DIGITS."""
        return self.classes or [DONT_CARE, *KITTI_CLASSES]

    def with_records(self, paths: dict[str, Any]) -> CreateDetection:
        """Return the recipe with the TFRecord files of the converted ``database``."""
        boxes = BoxRecords(
            **paths, image_feature=IMAGE, box_features=[*EDGES], box_units="pixels", class_feature=CLASSES
        )
        return structs.replace(self, database=None, records=boxes)


Recipe = CreateDetection
