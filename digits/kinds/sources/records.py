"""Datasets whose source is TFRecord files: their features, and the plan of their records."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from msgspec import Struct, field, structs

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
from digits.data.sources.plan import Progress, SplitPlan, UnusableSource, choose, count_of, listed, show
from digits.data.sources.shares import CreateWithShares
from digits.data.tables.tables import Faults, SourceNotes

PROGRESS_RECORDS = 2000
# The value of fields for records without a target.
NO_TARGET = "-"

AnySplit = TypeVar("AnySplit", bound=SplitPlan)
AnyMapping = TypeVar("AnyMapping", bound="RecordMapping")


class RecordSource(Struct, kw_only=True, frozen=True):
    """TFRecord files: the path of a file, of one of several shards, or of a folder, or a pattern such as ``train-*``.

    A folder can contain files for each split; see `digits.data.records.files`. The image is ``image_feature``; raw
    images have the ``shape`` height, width, channels. Forms fill in empty features from the first record.
    """

    train: str
    val: str = ""
    test: str = ""
    image_feature: str = ""
    shape: list[Positive] = field(default_factory=list)

    def find(self) -> RecordFiles:
        """Return the files of all splits; raises UnusableSource."""
        return find_files(self.train, {"val": self.val, "test": self.test})


class RecordMapping:
    """How the records of ``files`` become images with targets: the settings ``source`` name their features.

    Raises UnusableSource for features that the ``first`` record lacks. ``split`` is the one that is being read.
    """

    # The settings of the source that name features, with their fields in forms.
    FEATURES: ClassVar[dict[str, str]] = {"image_feature": "image_feature"}

    image: ImageFeature
    split = ""

    def __init__(self, recipe: Any, source: Any, files: RecordFiles, first: ExampleFeatures) -> None:
        name = need_feature(first, source.image_feature, "an image")
        metadata = files.shape if name == files.image else ()
        self.image = ImageFeature.of(name, first, tuple(source.shape) or metadata)

    @property
    def picture(self) -> ImageFeature | None:
        """The feature with the image to show; None if the input is an array."""
        return self.image

    def read(self, features: ExampleFeatures) -> Any:
        """Return the target of a record; raises ValueError with a message."""
        raise NotImplementedError

    @classmethod
    def propose(cls, source: Any, files: RecordFiles, first: ExampleFeatures) -> Any:
        """Return the settings with the probable features of the ``first`` record for those that are empty."""
        image = source.image_feature or files.image or guess_image(first)
        return structs.replace(source, image_feature=image)

    @classmethod
    def fields(cls, source: Any, setting: str) -> dict[str, str]:
        """Return the feature in each field of the form for a ``setting``; several are separated by commas."""
        names = getattr(source, setting)
        return {cls.FEATURES[setting]: names if isinstance(names, str) else ", ".join(names)}

    @staticmethod
    def none(recipe: Any) -> dict[str, str]:
        """Return the fields of the form that can be left without a feature, and the words of that choice."""
        return {}

    @classmethod
    def complete(cls, source: Any) -> tuple[Any, RecordFiles, ExampleFeatures]:
        """Return the settings with all features named, their files and the first record; raises UnusableSource."""
        files = source.find()
        first = first_record(files.splits["train"])
        return cls.propose(source, files, first), files, first


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


def need_feature(features: ExampleFeatures, name: str, what: str) -> str:
    """Return ``name``; raises UnusableSource if it is not that of a feature. An empty one was to be ``what``."""
    if not name:
        names = [f"{item.name} ({item.type})" for item in describe_features(features)]
        raise UnusableSource(f"None of the features looks like {what}.", f"Choose one of {listed(names)}.")
    if name not in features:
        raise UnusableSource(
            f"The first record has no feature “{show(name)}”.",
            f"Its features are {listed(sorted(features))}.",
        )
    return name


def _collect(
    recipe: Any,
    files: RecordFiles,
    mapping: RecordMapping,
    values: ValueRange,
    progress: Progress,
    notes: SourceNotes,
) -> SplitPlan:
    """Return the usable records of ``mapping.split``, with what the ``mapping`` reads as targets.

    At most ``max_unusable_percent`` of the records are skipped; these are added to ``notes``. Raises UnusableSource.
    """
    root, split, paths = files.root, mapping.split, files.splits[mapping.split]
    images = TFRecordImages(root, mapping.image)
    plan = SplitPlan(images, source=_describe(paths))
    hint = "Choose another feature, or correct the records."
    faults = Faults(Path(), recipe.max_unusable_percent, split, "record", hint=hint)
    for path in paths:
        below = str(path.relative_to(root))
        if tfrecords.is_compressed(path):
            images.compressed.add(below)
        for frame, features in progress.take(tfrecords.examples(path)):
            if not frame.number % PROGRESS_RECORDS:
                progress.reading(f"Reading {show(path.name)}: {frame.number:,} records")
            name = images.add(below, frame)
            try:
                value = mapping.read(features)
                values.add(features, mapping.image.name)
            except ValueError as error:
                faults.add(frame.number, str(error), show(path.name))
                continue
            plan.targets.append(value)
            plan.files.append(name)
    if not plan.files and not faults.count:
        raise UnusableSource(f"The {split} files contain no records.")
    faults.check(len(plan.files))
    notes.add(faults)
    if split == "train":
        count = count_of(len(plan.files) + faults.count, "training record")
        progress.say(f"{progress.at_least}{count}.")
    return plan


def read_records(
    recipe: Any, kind: type[AnyMapping], progress: Progress, notes: SourceNotes
) -> tuple[AnyMapping, dict[str, SplitPlan]]:
    """Return the mapping of ``recipe.records``, and the splits of the records before they are divided.

    The targets are what the mapping reads. Skipped records are added to ``notes``. Raises UnusableSource.
    """
    # Forms name all features, except those of remote files.
    source, files, first = kind.complete(recipe.records)
    recipe.shares(files.splits)
    progress.say(files.describe())
    if files.ignored:
        progress.say(f"Other splits are ignored: {listed(files.ignored)}.")
    chosen: dict[str, str] = {}
    guessed: dict[str, str] = {}
    for name in kind.FEATURES:
        chosen |= {key: names for key, names in kind.fields(source, name).items() if names}
        open_source = structs.replace(source, **{name: type(getattr(source, name))()})
        guessed |= kind.fields(kind.propose(open_source, files, first), name)
    offered = {"guessed": guessed, "none": kind.none(recipe)}
    progress.show_features(first, chosen={}, **offered)
    mapping = kind(recipe, source, files, first)
    progress.show_features(first, mapping.picture, chosen=chosen, **offered)
    values, splits = ValueRange(), {}
    for split in files.splits:
        mapping.split = split
        splits[split] = _collect(recipe, files, mapping, values, progress, notes)
    for plan in splits.values():
        # The range of numbers is known after all records are read.
        cast(TFRecordImages, plan.images).image = values.scale(mapping.image)
    return mapping, splits


def _describe(paths: list[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0].parent} ({count_of(len(paths), 'file')})"


def divide_records(splits: dict[str, AnySplit], recipe: CreateWithShares) -> dict[str, AnySplit]:
    """Divide the train split; the records keep their order, because compressed files are read in order."""
    places = choose(range(len(splits["train"])), recipe.seed, "divide")
    return recipe.shares(splits).divide(splits, [places], keeps_order=True)
