"""The recipe of a dataset for multi-label classification."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from digits.data.sources.shares import need_one_source
from digits.kinds.sources.records import RecordSource
from digits.kinds.sources.tables import CreateFromTable

MAX_LABELS = 1000

Layout = Literal["auto", "list", "columns"]
Separator = Literal["auto", "space", "comma", "semicolon", "bar"]


class LabelRecords(RecordSource, kw_only=True, frozen=True):
    """TFRecord files with an image and any number of labels each, in ``label_features``.

    With the ``layout`` ``list``, one feature lists the labels: texts, or the numbers of classes, from 0; with
    ``columns``, each feature contains 0 or 1, or one such number for each class. ``labels`` is a file with the names of
    the classes.
    """

    label_features: list[str] = field(default_factory=list)
    layout: Layout = "auto"
    labels: str = ""


class CreateMultilabel(CreateFromTable, kw_only=True):
    """Read a table of images and their labels, from ``label_columns``, by default all other columns.

    With the ``layout`` ``list``, one column lists the labels of an image, with a ``separator`` between them; with
    ``columns``, there is a column of zeros and ones for each label. Both are detected by default.

    Instead of a table, ``records`` can be the source.
    """

    kind: str = "image-multilabel"
    table: str = ""
    folder: str = ""
    label_columns: list[str] = field(default_factory=list)
    layout: Layout = "auto"
    separator: Separator = "auto"
    records: LabelRecords | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless there is exactly one source."""
        need_one_source("a multi-label dataset", self, "table", "records")


Recipe = CreateMultilabel
