"""Read an input and a target from each record of TFRecord files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from digits.core.recipe import MAX_SIDE_PIXELS
from digits.data.databases.convert import format_of, is_job
from digits.data.images import images
from digits.data.images.images import Geometry, UnusableImage
from digits.data.records import files as record_files
from digits.data.records.features import (
    BYTES,
    INTEGERS,
    ExampleFeatures,
    ImageFeature,
    NumberFeature,
    guess_input,
    guess_target,
    stored_shape,
    values_of,
)
from digits.data.records.files import RecordFiles
from digits.data.records.records import Features
from digits.data.records.tfrecords import TFRecordImages
from digits.data.sources.plan import (
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    show,
)
from digits.data.tables.tables import SourceNotes
from digits.data.targets.target import Target
from digits.kinds.generic.recipe import CreateGeneric
from digits.kinds.sources.records import (
    NO_TARGET,
    RecordReader,
    divide_records,
    first_record,
    need_feature,
    say_files,
)

TARGET = "target/numbers"
DATABASE_ADVICE = (
    "Choose the kind by their labels: classes (/datasets/images/classification/new), numbers "
    "(/datasets/images/regression/new), masks (/datasets/images/segmentation/new) or other images "
    "(/datasets/images/processing/new). For other labels, convert the databases to TFRecord files."
)
MAX_NAMES = 1000
MAX_CHANNELS = 1024


@dataclass(frozen=True)
class Mapping:
    """How the records of ``files`` become inputs and targets.

    ``image`` is the input; ``array`` is set if it consists of numbers. ``shape`` is its height, width and channels.
    """

    files: RecordFiles
    first: ExampleFeatures
    image: ImageFeature
    array: NumberFeature | None
    shape: tuple[int, int, int]
    target: NumberFeature | None

    @property
    def channels(self) -> int:
        """The channels of an image: 1 or 3. Those of an array are a multiple."""
        return 3 if self.shape[2] == 3 else 1

    @property
    def dtype(self) -> str:
        return "float32" if self.array else "uint8"


def find(recipe: CreateGeneric) -> RecordFiles:
    """Return the files of ``recipe``; raises UnusableSource."""
    folder = Path(recipe.train)
    if is_job(folder) or (folder.exists() and format_of(folder)):
        raise UnusableSource(f"{show(recipe.train)} contains LMDB or HDF5 databases. {DATABASE_ADVICE}")
    return record_files.find_files(recipe.train, {"val": recipe.val, "test": recipe.test})


def map_features(recipe: CreateGeneric) -> Mapping:
    """Determine from the first record how the input and the target of ``recipe`` are stored; raises UnusableSource."""
    files = find(recipe)
    first = first_record(files.splits["train"])
    name = need_feature(first, recipe.input_feature, files.image or guess_input(first), "an input")
    target = None
    try:
        if target_name := _target_name(recipe, first, name):
            target = NumberFeature.of(target_name, first, recipe.target_shape)
        if values_of(first, name)[0] == BYTES:
            metadata = files.shape if name == files.image else ()
            image = ImageFeature.of(name, first, tuple(recipe.input_shape) or metadata)
            return Mapping(files, first, image, None, _image_shape(image, first), target)
        array = NumberFeature.of(name, first, recipe.input_shape or _stored_shape(name, first))
    except (ValueError, UnusableImage) as error:
        raise UnusableSource(
            f"The first record cannot be used: {error}.", "Choose another feature or shape."
        ) from None
    shape = _array_shape(array.shape)
    if max(shape[:2]) > MAX_SIDE_PIXELS or shape[2] > MAX_CHANNELS:
        raise UnusableSource(
            f"“{show(name)}” has shape {'×'.join(map(str, shape))}.",
            f"Height and width must be at most {MAX_SIDE_PIXELS:,}, and channels at most {MAX_CHANNELS:,}.",
        )
    return Mapping(files, first, ImageFeature(name), array, shape, target)


def _target_name(recipe: CreateGeneric, first: ExampleFeatures, input_name: str) -> str:
    if recipe.target_feature == NO_TARGET:
        return ""
    if recipe.target_feature:
        return need_feature(first, recipe.target_feature, "", "a target")
    return guess_target(first, input_name)


def _stored_shape(name: str, first: ExampleFeatures) -> tuple[int, ...]:
    """Return the shape in features such as ``height``, if that is the number of values."""
    shape = stored_shape(first)
    return shape if shape and math.prod(shape) == len(values_of(first, name)[1]) else ()


def _image_shape(image: ImageFeature, first: ExampleFeatures) -> tuple[int, int, int]:
    picture = images.open_picture(image.encoded(first), 3)
    width, height = picture.size
    if max(width, height) > MAX_SIDE_PIXELS:
        raise UnusableImage(
            f"{width}×{height} pixels exceeds the limit of {MAX_SIDE_PIXELS:,} pixels per side"
        )
    return height, width, 1 if picture.mode in images.GRAYSCALE else 3


def _array_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the height, width and channels: a vector is one row, and a matrix has one channel."""
    if len(shape) < 2:
        return 1, shape[0] if shape else 1, 1
    return shape[0], shape[1], shape[2] if len(shape) > 2 else 1


@dataclass
class GenericPlan(Plan):
    """A plan whose arrays and targets are read from the records of ``images``."""

    array_feature: NumberFeature | None = None
    shape: tuple[int, int, int] = (1, 1, 1)
    target_feature: NumberFeature | None = None
    resize: bool = False

    def array(self, split: SplitPlan, place: int) -> NDArray[np.float32]:
        assert self.array_feature is not None
        array = self._read(self.array_feature, split, place)
        return array.astype(np.float32).reshape(self.shape)

    def features(self, split: SplitPlan, place: int, geometry: Geometry) -> Features:
        width, height = geometry.size
        if not self.resize and (width, height) != (geometry.width, geometry.height):
            raise UnusableImage(
                f"{width}×{height} pixels, but {geometry.width}×{geometry.height} in the first record"
            )
        if self.target_feature is None:
            return {TARGET: [0.0]}
        return {TARGET: cast(Any, self._read(self.target_feature, split, place).ravel().tolist())}

    def _read(self, feature: NumberFeature, split: SplitPlan, place: int) -> NDArray[Any]:
        features = cast(TFRecordImages, split.images).features(split.files[place])
        try:
            return feature.read(features)
        except ValueError as error:
            raise UnusableImage(str(error)) from error


class _Statistics:
    """The mean and the standard deviation of a target over the training records, and its range."""

    def __init__(self) -> None:
        self.count = 0
        self.low, self.high = np.inf, -np.inf
        self._sum: Any = 0.0
        self._squares: Any = 0.0

    def add(self, value: NDArray[Any]) -> None:
        self.count += 1
        self.low, self.high = min(self.low, value.min()), max(self.high, value.max())
        self._sum = self._sum + value.astype(np.float64)
        self._squares = self._squares + value.astype(np.float64) ** 2

    @property
    def mean(self) -> NDArray[np.float64]:
        return np.atleast_1d(self._sum / self.count)

    @property
    def std(self) -> NDArray[np.float64]:
        variance = np.atleast_1d(self._squares / self.count) - self.mean**2
        deviation: NDArray[np.float64] = np.sqrt(variance.clip(0))
        return deviation


def _show(recipe: CreateGeneric, progress: Progress) -> Mapping:
    """Report the features of the first record, and return the mapping; raises UnusableSource."""
    files = find(recipe)
    first = first_record(files.splits["train"])
    say_files(files, progress)
    guess = files.image or guess_input(first)
    target = guess_target(first, recipe.input_feature or guess)
    offered: dict[str, Any] = {
        "guessed": {"input_feature": guess, "target_feature": target},
        "none": {"target_feature": "None"},
    }
    progress.show_features(first, chosen={}, **offered)
    mapping = map_features(recipe)
    chosen = {"input_feature": mapping.image.name}
    if mapping.target:
        chosen["target_feature"] = mapping.target.name
    image = None if mapping.array else mapping.image
    progress.show_features(first, image, chosen=chosen, **offered)
    return mapping


def _describe_target(target: NumberFeature | None) -> str:
    if target is None:
        return "none"
    shape = "×".join(map(str, target.shape))
    return f"{target.dtype} of shape {shape}" if shape else f"one {target.dtype} number"


def read(recipe: CreateGeneric, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource that names files and records, and OSError."""
    mapping = _show(recipe, progress)
    height, width, channels = mapping.shape
    if (recipe.height, recipe.width, recipe.dtype) != (height, width, mapping.dtype) and not recipe.resize:
        raise UnusableSource(
            f"The first record has changed: its input is {height}×{width} {mapping.dtype}, "
            f"not {recipe.height}×{recipe.width} {recipe.dtype}.",
            "Create the dataset again.",
        )
    statistics = _Statistics()

    def check(features: ExampleFeatures) -> None:
        if mapping.array is not None:
            mapping.array.read(features)
        if mapping.target is not None:
            value = mapping.target.read(features)
            if records.split == "train":
                statistics.add(value)

    files = mapping.files
    recipe.shares(files.splits)
    notes = SourceNotes()
    records = RecordReader(files, mapping.image, check, recipe.max_unusable_percent, notes)
    splits = divide_records(records.splits(progress), recipe)
    inputs, sizes = "numbers" if mapping.array else "images", "×".join(map(str, mapping.shape))
    progress.say(f"Inputs: {inputs}, height × width × channels {sizes}.")
    progress.say(f"Targets: {_describe_target(mapping.target)}.")
    spec = _target_spec(mapping.target, statistics)
    return GenericPlan(
        spec,
        splits,
        warnings=notes.warnings,
        unusable=notes.unusable,
        stacked=channels // recipe.channels if mapping.array else 1,
        dtype=recipe.dtype,
        array_feature=mapping.array,
        shape=mapping.shape,
        target_feature=mapping.target,
        resize=recipe.resize,
    )


def _target_spec(target: NumberFeature | None, statistics: _Statistics) -> Target:
    """Describe the target; integers from 0 count as classes for the number of outputs of a network."""
    if target is None:
        return Target(feature=TARGET, dtype="float32")
    shape = list(target.shape)
    if target.dtype == INTEGERS:
        is_class = not shape and statistics.low >= 0 and statistics.high < MAX_NAMES
        names = [str(number) for number in range(int(statistics.high) + 1)] if is_class else []
        return Target(feature=TARGET, dtype="int64", shape=shape, names=names)
    if len(shape) > 1 or (shape and shape[0] > MAX_NAMES):
        return Target(feature=TARGET, dtype="float32", shape=shape)
    name = show(target.name)
    names = [f"{name} {number}" for number in range(shape[0])] if shape else [name]
    mean, std = statistics.mean.tolist(), statistics.std.tolist()
    return Target(feature=TARGET, dtype="float32", shape=shape or [1], names=names, mean=mean, std=std)
