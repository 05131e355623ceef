"""The recipe of a dataset for object detection."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from digits.core.recipe import CreateDataset, Pixels
from digits.core.schema import Percent, Whole
from digits.data.tables import Dialect, Header
from digits.kinds.record_source import RecordSource
from digits.kinds.table_source import Delimiter

KIND = "image-object-detection"

Format = Literal["auto", "kitti", "voc", "coco", "cvat", "yolo", "csv", "jsonl", "parquet", "detectnet"]
# The numbers of each box in one feature, named as the bounding box formats of Keras.
BoxOrder = Literal["auto", "yxyx", "xyxy", "xywh"]
BoxUnits = Literal["auto", "relative", "pixels"]


class BoxRecords(RecordSource, kw_only=True, frozen=True):
    """TFRecord files with an image and its objects each.

    ``box_features`` are the features of the left, top, right and bottom edges of the objects, as the Object Detection
    API of TensorFlow writes them, or one feature with four numbers for each object in the ``box_order``, as in
    TensorFlow Datasets: ``yxyx`` is top, left, bottom, right; ``xyxy`` left, top, right, bottom; ``xywh`` left, top,
    width, height. ``box_units`` are fractions of the width and height (``relative``), or pixels. ``class_feature``
    contains the classes: texts, or numbers, whose names are in the label map ``labels``. Empty features, and ``auto``,
    are detected in the first record.
    """

    box_features: list[str] = field(default_factory=list)
    box_order: BoxOrder = "auto"
    box_units: BoxUnits = "auto"
    class_feature: str = ""
    labels: str = ""


class BoxTable(Struct, kw_only=True, frozen=True):
    """The columns of CSV files with one box per line, by name; those with empty names are detected.

    See `digits.kinds.detection.box_table` for their usual names, and `digits.data.tables.Dialect` for the others.
    """

    image_column: str = ""
    left_column: str = ""
    top_column: str = ""
    right_column: str = ""
    bottom_column: str = ""
    width_column: str = ""
    height_column: str = ""
    class_column: str = ""
    delimiter: Delimiter = ""
    header: Header = "auto"

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.delimiter, self.header)


class CreateDetection(CreateDataset, kw_only=True):
    """Read annotated images below ``images``, and their objects from ``labels``.

    ``labels`` is a folder of KITTI, Pascal VOC or YOLO files, a COCO file, an XML file of CVAT, or a CSV or JSON Lines
    file of boxes; the ``format`` is detected by default. It can also be a folder, a file, one of several shards or a
    pattern of Parquet files, which contain the images, or the labels database of a DetectNet dataset, whose images are
    the database ``images``. The ``val_`` and ``test_`` sources are separate; without their labels, ``pct_val`` and
    ``pct_test`` percent of the images are taken. ``classes`` are the names of those to use, in their order; by default,
    all. Validation objects with a side shorter than ``val_min_box_size`` pixels are not used; by default, that is
    `DEFAULT_MIN_BOX_SIZE` for KITTI files, else 0. Before images are resized, black pixels are added at the right and
    at the bottom up to the width and height ``padding``, if it is given. Instead of ``images`` and ``labels``,
    ``records`` can be the source. ``table`` describes CSV files.
    """

    kind: str = KIND
    images: str = ""
    labels: str = ""
    records: BoxRecords | None = None
    format: Format = "auto"
    table: BoxTable = BoxTable()
    val_images: str | None = None
    val_labels: str | None = None
    test_images: str | None = None
    test_labels: str | None = None
    pct_val: Percent = 25.0
    pct_test: Percent = 0.0
    classes: list[str] = field(default_factory=list)
    val_min_box_size: Whole | None = None
    padding: tuple[Pixels, Pixels] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless there is exactly one source."""
        if bool(self.labels) == (self.records is not None):
            raise ValueError("a dataset for object detection needs either labels or records")


DEFAULT_MIN_BOX_SIZE = 25

Recipe = CreateDetection
