"""Datasets whose source is TFRecord files: their features, and the plan of their records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct, field

from digits.core.schema import Positive
from digits.data.records import tfrecords
from digits.data.records.features import (
    ExampleFeatures,
    ImageFeature,
    ValueRange,
    describe_features,
    guess_image,
)
from digits.data.records.files import RecordFiles, find_files
from digits.data.records.tfrecords import TFRecordImages
from digits.data.sources.plan import (
    Progress,
    SplitPlan,
    UnusableSource,
    choose,
    count_of,
    listed,
    show,
)
from digits.data.sources.shares import CreateWithShares
from digits.data.tables.tables import Faults, SourceNotes

PROGRESS_RECORDS = 2000
# The value of fields for records without a target.
NO_TARGET = "-"

Value = TypeVar("Value")
AnySplit = TypeVar("AnySplit", bound=SplitPlan)
AnyMapping = TypeVar("AnyMapping", bound="RecordMapping")


class RecordSource(Struct, kw_only=True, frozen=True):
    """TFRecord files: the path of a file, of one of several shards, or of a folder, or a pattern such as ``train-*``.

    A folder can contain files for each split; see `digits.data.records.files`. The image is ``image_feature``; raw
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

    def map_image(self, files: RecordFiles, first: ExampleFeatures) -> ImageFeature:
        """Find out how the ``first`` record stores its image; raises UnusableSource."""
        name = need_feature(first, self.image_feature, files.image or guess_image(first), "an image")
        metadata = files.shape if name == files.image else ()
        return ImageFeature.of(name, first, tuple(self.shape) or metadata)


class RecordMapping:
    """How the records of ``files`` become images with targets, with the settings ``recipe.records``.

    Features that the settings do not name are guessed from the ``first`` record. ``chosen`` contains the features in
    use, by the fields of the form; several of a field are separated by commas. Raises UnusableSource.
    """

    image: ImageFeature
    chosen: dict[str, str]

    def __init__(self, recipe: Any, files: RecordFiles, first: ExampleFeatures) -> None:
        self.image = recipe.records.map_image(files, first)
        self.chosen = {"image_feature": self.image.name}

    def read(self, features: ExampleFeatures) -> Any:
        """Return the target of a record; raises ValueError with a message."""
        raise NotImplementedError

    @staticmethod
    def none(recipe: Any) -> dict[str, str]:
        """Return the fields of the form that can be left without a feature, and the words of that choice."""
        return {}

    @staticmethod
    def guess(recipe: Any, files: RecordFiles, first: ExampleFeatures) -> dict[str, str]:
        """Return the feature that each field of the form has by default, or an empty string."""
        return {"image_feature": files.image or guess_image(first)}


def first_record(paths: list[Path]) -> ExampleFeatures:
    """Return the features of the first record of some files; raises UnusableSource."""
    for path in paths:
        record = tfrecords.first_example(path)
        if record is not None:
            return record
    names = listed(path.name for path in paths)
    raise UnusableSource(
        f"{names} {'is' if len(paths) == 1 else 'are'} empty.", "Choose files that contain records."
    )


def need_feature(features: ExampleFeatures, name: str, guess: str, what: str) -> str:
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


class RecordReader(Generic[Value]):
    """Reads the records of all splits of ``files`` in order, with the image and a value of each.

    ``read`` returns the value; it raises ValueError with a message for a record that has none. At most
    ``max_unusable_percent`` of the records of a split are skipped; these are added to ``notes``.
    """

    def __init__(
        self,
        files: RecordFiles,
        image: ImageFeature,
        read: Callable[[ExampleFeatures], Value],
        max_unusable_percent: float,
        notes: SourceNotes,
    ) -> None:
        self._files, self._image, self._read, self._notes = files, image, read, notes
        self._max_unusable_percent = max_unusable_percent
        # The split whose records are being read.
        self.split = ""
        self._range = ValueRange()

    def splits(self, progress: Progress) -> dict[str, SplitPlan]:
        """Return the usable records of each split, train first, with their values as targets.

        Raises UnusableSource that names records if too many are unusable.
        """
        plans = {split: self._collect(split, progress) for split in self._files.splits}
        for plan in plans.values():
            # The range of numbers is known after all records are read.
            cast(TFRecordImages, plan.images).image = self._range.scale(self._image)
        return plans

    def _collect(self, split: str, progress: Progress) -> SplitPlan:
        self.split = split
        root = self._files.root
        paths = self._files.splits[split]
        images = TFRecordImages(root, self._image)
        plan = SplitPlan(images, source=_describe(paths))
        faults = Faults(
            Path(),
            self._max_unusable_percent,
            split,
            "record",
            hint="Choose another feature, or correct the records.",
        )
        for path in paths:
            below = str(path.relative_to(root))
            if tfrecords.is_compressed(path):
                images.compressed.add(below)
            for frame, features in progress.take(tfrecords.examples(path)):
                if not frame.number % PROGRESS_RECORDS:
                    progress.reading(f"Reading {show(path.name)}: {frame.number:,} records")
                name = images.add(below, frame)
                try:
                    value = self._read(features)
                    self._range.add(features, self._image.name)
                except ValueError as error:
                    faults.add(frame.number, str(error), show(path.name))
                    continue
                plan.targets.append(value)
                plan.files.append(name)
        if not plan.files and not faults.count:
            raise UnusableSource(f"The {split} files contain no records.")
        faults.check(len(plan.files))
        self._notes.add(faults)
        if split == "train":
            count = count_of(len(plan.files) + faults.count, "training record")
            progress.say(f"{progress.at_least}{count}.")
        return plan


def read_records(
    recipe: Any, mapping: type[AnyMapping], progress: Progress, notes: SourceNotes
) -> tuple[AnyMapping, dict[str, SplitPlan]]:
    """Return the ``mapping`` of ``recipe.records``, and the splits of the records before they are divided.

    The targets are what the mapping reads. Skipped records are added to ``notes``. Raises UnusableSource.
    """
    files = recipe.records.find()
    recipe.shares(files.splits)
    first = first_record(files.splits["train"])
    say_files(files, progress)
    offered = {"guessed": mapping.guess(recipe, files, first), "none": mapping.none(recipe)}
    progress.show_features(first, chosen={}, **offered)
    mapped = mapping(recipe, files, first)
    progress.show_features(first, mapped.image, chosen=mapped.chosen, **offered)
    reader = RecordReader(files, mapped.image, mapped.read, recipe.max_unusable_percent, notes)
    return mapped, reader.splits(progress)


def say_files(files: RecordFiles, progress: Progress) -> None:
    """Report the files of each split, and those that are ignored."""
    progress.say(files.describe())
    if files.ignored:
        progress.say(f"Other splits are ignored: {listed(files.ignored)}.")


def _describe(paths: list[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0].parent} ({count_of(len(paths), 'file')})"


def divide_records(splits: dict[str, AnySplit], recipe: CreateWithShares) -> dict[str, AnySplit]:
    """Divide the train split; the records keep their order, because compressed files are read in order."""
    places = choose(range(len(splits["train"])), recipe.seed, "divide")
    return recipe.shares(splits).divide(splits, [places], keeps_order=True)
