"""The recipe of a dataset for regression."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field, structs

from digits.data.databases.convert import IMAGE, LABEL, Labels, OldDataset
from digits.data.sources.shares import need_one_source
from digits.kinds.sources.records import RecordSource
from digits.kinds.sources.tables import CreateFromTable

MAX_TARGETS = 100
LARGEST_NUMBER = 1e30  # the squares of errors must fit into float32


class NumberRecords(RecordSource, kw_only=True, frozen=True):
    """TFRecord files with an image and numbers each: those of ``target_features``."""

    target_features: list[str] = field(default_factory=list)


class CreateRegression(CreateFromTable, kw_only=True):
    """Read a table of images and numbers: those of ``target_columns``, by default all other columns.

    Instead of a table, ``records`` or a ``database`` can be the source.
    """

    database_labels: ClassVar[Labels] = "numbers"

    kind: str = "image-regression"
    table: str = ""
    folder: str = ""
    target_columns: list[str] = field(default_factory=list)
    records: NumberRecords | None = None
    database: OldDataset | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless there is exactly one source."""
        need_one_source("a dataset for regression", self, "table", "records", "database")

    def with_records(self, paths: dict[str, Any]) -> CreateRegression:
        """Return the recipe with the TFRecord files of the converted ``database``."""
        records = NumberRecords(**paths, image_feature=IMAGE, target_features=[LABEL])
        return structs.replace(self, database=None, records=records)


Recipe = CreateRegression
