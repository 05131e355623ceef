"""Datasets whose source is TFRecord files: their features, and the plan of their records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct, field

from digits.core.schema import Positive
from digits.data import tfrecords
from digits.data.record_features import Features, ImageFeature, ValueRange, describe_features, guess_image
from digits.data.record_files import RecordFiles, find_files
from digits.data.shares import CreateWithShares
from digits.data.sources import (
    Progress,
    SplitPlan,
    Unusable,
    UnusableSource,
    choose,
    count_of,
    listed,
    show,
)
from digits.data.tables import Faults
from digits.data.tfrecords import RecordImages

PROGRESS_RECORDS = 2000
# The value of fields for records without a target.
NO_TARGET = "-"

Value = TypeVar("Value")
AnySplit = TypeVar("AnySplit", bound=SplitPlan)


class RecordSource(Struct, kw_only=True, frozen=True):
    """TFRecord files: the path of a file, of one of several shards, or of a folder, or a pattern such as ``train-*``.

    A folder can contain files for each split; see `digits.data.record_files`. The image is ``image_feature``; raw
    images have the ``shape`` height, width, channels. Empty features are detected.
    """

    train: str
    val: str = ""
    test: str = ""
    image_feature: str = ""
    shape: list[Positive] = field(default_factory=list)

    def find(self) -> RecordFiles:
        """Return the files of all splits; raises UnusableSource."""
        return find_files(self.train, {"val": self.val, "test": self.test})

    def map_image(self, files: RecordFiles, first: Features) -> ImageFeature:
        """Find out how the ``first`` record stores its image; raises UnusableSource."""
        name = need_feature(first, self.image_feature, files.image or guess_image(first), "an image")
        metadata = files.shape if name == files.image else ()
        return ImageFeature.of(name, first, tuple(self.shape) or metadata)


def first_record(paths: list[Path]) -> Features:
    """Return the features of the first record of some files; raises UnusableSource."""
    for path in paths:
        found = tfrecords.first_example(path)
        if found is not None:
            return found
    names = listed(path.name for path in paths)
    raise UnusableSource(
        f"{names} {'is' if len(paths) == 1 else 'are'} empty.", "Choose files that contain records."
    )


def need_feature(features: Features, name: str, guess: str, what: str) -> str:
    """Return the feature ``name``, or by default the ``guess``; raises UnusableSource if there is none."""
    if name and name not in features:
        raise UnusableSource(
            f"The first record has no feature “{show(name)}”.",
            f"Its features are {listed(sorted(features))}.",
        )
    if not (name or guess):
        names = [f"{item.name} ({item.type})" for item in describe_features(features)]
        raise UnusableSource(f"None of the features looks like {what}.", f"Choose one of {listed(names)}.")
    return name or guess


class RecordSplits(Generic[Value]):
    """Reads the records of all splits of ``files`` in order, with the image and a value of each.

    ``read`` returns the value; it raises ValueError with a message for a record that has none. At most
    ``max_unusable_percent`` of the records of a split are skipped; these are added to ``unusable``.
    """

    def __init__(
        self,
        files: RecordFiles,
        image: ImageFeature,
        read: Callable[[Features], Value],
        max_unusable_percent: float,
    ) -> None:
        self._files, self._image, self._read = files, image, read
        self._max_unusable_percent = max_unusable_percent
        self.unusable: list[Unusable] = []
        self._range = ValueRange()
        self._images: dict[str, RecordImages] = {}

    def collect(self, split: str, progress: Progress) -> tuple[list[str], list[Value]]:
        """Return the names and the values of the usable records of ``split``.

        Raises UnusableSource that names records if too many are unusable.
        """
        root = self._files.root
        images = self._images[split] = RecordImages(root, self._image)
        names: list[str] = []
        values: list[Value] = []
        paths = self._files.splits[split]
        faults = Faults(
            Path(),
            self._max_unusable_percent,
            split,
            "record",
            hint="Choose another feature, correct the records, or raise the limit of unusable images.",
        )
        for path in paths:
            below = str(path.relative_to(root))
            if tfrecords.is_compressed(path):
                images.compressed.add(below)
            for frame, features in tfrecords.examples(path):
                if not frame.number % PROGRESS_RECORDS:
                    progress.reading(f"Reading {show(path.name)}: {frame.number:,} records")
                name = images.add(below, frame)
                try:
                    value = self._read(features)
                    self._range.add(features, self._image.name)
                except ValueError as error:
                    faults.add(frame.number, str(error), show(path.name))
                    continue
                values.append(value)
                names.append(name)
        if not names and not faults.count:
            raise UnusableSource(f"The {split} files contain no records.")
        faults.check(len(names))
        self.unusable += faults.unusable
        return names, values

    def images(self, split: str) -> RecordImages:
        """Return the images of a split, after all splits were collected: the range of numbers is then known."""
        found = self._images[split]
        found.image = self._range.scale(self._image)
        return found

    def describe(self, split: str) -> str:
        """Return the files of a split, for pages."""
        paths = self._files.splits[split]
        return str(paths[0]) if len(paths) == 1 else f"{paths[0].parent} ({count_of(len(paths), 'file')})"


def divide_records(splits: dict[str, AnySplit], recipe: CreateWithShares) -> dict[str, AnySplit]:
    """Divide the train split; the records keep their order, because compressed files are read in order."""
    places = choose(range(len(splits["train"])), recipe.seed, "divide")
    return recipe.shares(splits).divide(splits, [places], keeps_order=True)
