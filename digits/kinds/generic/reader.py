"""Read an input and a target from each record of TFRecord files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from digits.core.recipe import MAX_SIDE_PIXELS
from digits.data.images import images
from digits.data.images.images import Geometry, UnusableImage
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
from digits.data.sources.plan import Plan, Progress, SplitPlan, UnusableSource, show
from digits.data.tables.tables import SourceNotes
from digits.data.targets.target import Target
from digits.kinds.generic.recipe import CreateGeneric
from digits.kinds.sources.records import NO_TARGET, RecordMapping, divide_records, need_feature, read_records

TARGET = "target/numbers"
MAX_NAMES = 1000
MAX_CHANNELS = 1024


class GenericMapping(RecordMapping):
    """How the records of ``files`` become inputs and targets.

    ``image`` is the input; ``array`` is set if it consists of numbers. ``shape`` is its height, width and channels.
    ``statistics`` are those of the targets that were read for training.
    """

    FEATURES = {name: name for name in ("input_feature", "target_feature")}

    def __init__(
        self, recipe: CreateGeneric, source: CreateGeneric, files: RecordFiles, first: ExampleFeatures
    ) -> None:
        name = need_feature(first, source.input_feature, "an input")
        self.array: NumberFeature | None = None
        self.target: NumberFeature | None = None
        self.statistics = _Statistics()
        try:
            if source.target_feature not in ("", NO_TARGET):
                target = need_feature(first, source.target_feature, "a target")
                self.target = NumberFeature.of(target, first, source.target_shape)
            if values_of(first, name)[0] == BYTES:
                metadata = files.shape if name == files.image else ()
                self.image = ImageFeature.of(name, first, tuple(source.input_shape) or metadata)
                self.shape = _image_shape(self.image, first)
                return
            self.image = ImageFeature(name)
            self.array = NumberFeature.of(name, first, source.input_shape or _stored_shape(name, first))
        except (ValueError, UnusableImage) as error:
            raise UnusableSource(
                f"The first record cannot be used: {error}.", "Choose another feature or shape."
            ) from None
        self.shape = _array_shape(self.array.shape)
        if max(self.shape[:2]) > MAX_SIDE_PIXELS or self.shape[2] > MAX_CHANNELS:
            raise UnusableSource(
                f"“{show(name)}” has shape {'×'.join(map(str, self.shape))}.",
                f"Height and width must be at most {MAX_SIDE_PIXELS:,}, and channels at most {MAX_CHANNELS:,}.",
            )

    @property
    def channels(self) -> int:
        """The channels of an image: 1 or 3. Those of an array are a multiple."""
        return 3 if self.shape[2] == 3 else 1

    @property
    def dtype(self) -> Literal["uint8", "float32"]:
        return "float32" if self.array else "uint8"

    @property
    def picture(self) -> ImageFeature | None:
        return None if self.array else self.image

    def read(self, features: ExampleFeatures) -> None:
        """Raise ValueError with a message for a record without a usable input or target."""
        if self.array is not None:
            self.array.read(features)
        if self.target is not None:
            value = self.target.read(features)
            if self.split == "train":
                self.statistics.add(value)

    @classmethod
    def propose(cls, source: CreateGeneric, files: RecordFiles, first: ExampleFeatures) -> CreateGeneric:
        name = source.input_feature or files.image or guess_input(first)
        target = source.target_feature or guess_target(first, name)
        return structs.replace(source, input_feature=name, target_feature=target)

    @staticmethod
    def none(recipe: CreateGeneric) -> dict[str, str]:
        return {"target_feature": "None"}


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


def _describe_target(target: NumberFeature | None) -> str:
    if target is None:
        return "none"
    shape = "×".join(map(str, target.shape))
    return f"{target.dtype} of shape {shape}" if shape else f"one {target.dtype} number"


def read(recipe: CreateGeneric, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource that names files and records, and OSError."""
    notes = SourceNotes()
    mapping, records = read_records(recipe, GenericMapping, progress, notes)
    height, width, channels = mapping.shape
    if (recipe.height, recipe.width, recipe.dtype) != (height, width, mapping.dtype) and not recipe.resize:
        raise UnusableSource(
            f"The first record has changed: its input is {height}×{width} {mapping.dtype}, "
            f"not {recipe.height}×{recipe.width} {recipe.dtype}.",
            "Create the dataset again.",
        )
    splits = divide_records(records, recipe)
    inputs, sizes = "numbers" if mapping.array else "images", "×".join(map(str, mapping.shape))
    progress.say(f"Inputs: {inputs}, height × width × channels {sizes}.")
    progress.say(f"Targets: {_describe_target(mapping.target)}.")
    spec = _target_spec(mapping.target, mapping.statistics)
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
