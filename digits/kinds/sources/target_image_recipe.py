"""The recipes of datasets whose images have a target image each, such as a mask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

from msgspec import UNSET, Struct, UnsetType, structs

from digits.core.schema import Percent
from digits.data.databases.convert import IMAGE, TARGET, Labels, OldDataset
from digits.data.sources.shares import CreateWithShares, need_one_source
from digits.kinds.sources.records import RecordSource
from digits.kinds.sources.split_lists import SplitLists
from digits.kinds.sources.tables import TableSettings


class TargetImageFolders(Struct, kw_only=True, frozen=True):
    """The folders of the ``images`` and of the ``targets`` with the same names.

    Without the latter, or if both are the same, images are their own targets; for kinds that need targets, the same
    folder contains both. For some kinds, ``targets`` can also be a file. With ``pairs``, a CSV file of the paths of an
    image and of its target per line, names do not matter, and other images are not used.
    """

    images: str
    targets: str = ""
    pairs: str | UnsetType = UNSET

    @property
    def has_targets(self) -> bool:
        """Whether the targets are other images."""
        return self.targets not in ("", self.images)

    def each(self) -> Iterator[tuple[Path, Path | None]]:
        """Yield the folder of the images, then that of the targets if there is one, each with the other one."""
        images, targets = Path(self.images), Path(self.targets) if self.has_targets else None
        yield images, targets
        if targets:
            yield targets, images


class TargetImageRecords(RecordSource, kw_only=True, frozen=True):
    """TFRecord files with an image and the target image ``target_feature`` each; "-": images are their own targets."""

    target_feature: str = ""


class TargetImageTable(TableSettings, kw_only=True, frozen=True):
    """A table of `digits.kinds.sources.tables.tables_at` with an image and a target image in each row.

    Both are paths below ``folder``, or images in Parquet files. Empty columns are detected; with "-", images are
    their own targets.
    """

    table: str
    folder: str
    image_column: str = ""
    target_column: str = ""


class CreateWithTargetImages(CreateWithShares, kw_only=True):
    """Read images and target images from the folders ``train``, from ``records``, a ``database``, or a ``table``.

    ``val`` and ``test`` are separate folders, and ``lists`` divide the images of ``train``. Records and rows of a class
    that ``needs_targets`` must have target images; ``target_word`` is the word for one.
    """

    needs_targets: ClassVar[bool] = True
    target_word: ClassVar[str] = "target image"
    database_labels: ClassVar[Labels] = "image"

    train: TargetImageFolders | None = None
    val: TargetImageFolders | None = None
    test: TargetImageFolders | None = None
    lists: SplitLists = SplitLists()
    pct_val: Percent = 10.0
    records: TargetImageRecords | None = None
    database: OldDataset | None = None
    table: TargetImageTable | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless there is exactly one source."""
        need_one_source("a dataset with target images", self, "train", "records", "table", "database")

    def with_records(self, paths: dict[str, Any]) -> Self:
        """Return the recipe with the TFRecord files of the converted ``database``."""
        records = TargetImageRecords(**paths, image_feature=IMAGE, target_feature=TARGET)
        return structs.replace(self, database=None, records=records)

    def folders(self) -> dict[str, TargetImageFolders]:
        """Return the folders of the splits that have some, train first."""
        splits = {"train": self.train, "val": self.val, "test": self.test}
        return {name: folders for name, folders in splits.items() if folders is not None}
