"""The recipe of a dataset of ready-made TFRecord files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import field

from digits.core.schema import Positive
from digits.data.databases.convert import format_of, is_job
from digits.data.records.files import RecordFiles, find_files
from digits.data.sources.plan import UnusableSource, show
from digits.data.sources.shares import CreateWithShares

DATABASE_ADVICE = (
    "Choose the kind by their labels: classes (/datasets/images/classification/new), numbers "
    "(/datasets/images/regression/new), masks (/datasets/images/segmentation/new) or other images "
    "(/datasets/images/processing/new). For other labels, convert the databases to TFRecord files."
)


class CreateGeneric(CreateWithShares, kw_only=True):
    """Read an input and optionally a target from each record of TFRecord files.

    ``train``, ``val`` and ``test`` are paths of files, folders or patterns: see `digits.data.records.files`.

    ``input_feature`` is an image, or numbers of the shape ``input_shape``; ``target_feature`` are numbers of the shape
    ``target_shape``, or "-" for no target. Forms fill in empty ones from the first record. Inputs are float32 arrays of
    ``shape`` (height, width, channels), or else images, which must all have the same size, unless they are resized
    because of ``resize``.
    """

    kind: str = "generic"
    train: str
    val: str = ""
    test: str = ""
    input_feature: str = ""
    input_shape: list[Positive] = field(default_factory=list)
    target_feature: str = ""
    target_shape: list[Positive] = field(default_factory=list)
    dtype: Literal["uint8", "float32"] = "uint8"
    shape: list[Positive] = field(default_factory=list)
    resize: bool = False

    @property
    def records(self) -> CreateGeneric:
        """The settings of the files, which are those of the recipe itself."""
        return self

    def find(self) -> RecordFiles:
        """Return the files of all splits; raises UnusableSource."""
        folder = Path(self.train)
        if is_job(folder) or (folder.exists() and format_of(folder)):
            raise UnusableSource(f"{show(self.train)} contains LMDB or HDF5 databases. {DATABASE_ADVICE}")
        return find_files(self.train, {"val": self.val, "test": self.test})


Recipe = CreateGeneric
