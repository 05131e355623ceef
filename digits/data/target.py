"""Targets: the values that a network learns to predict for an image, and that it reads as ``Tower.y``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, field
from numpy.typing import NDArray

from digits.core.schema import Count

# The index of pixels without a class: the borders of objects, and the padding around an image.
IGNORED = 255
# The class of rows of boxes without an object: empty ones, and regions that are neither objects nor background.
NO_BOX = -1
IGNORED_BOX = -2
MAX_PIXEL_CLASSES = 255
# An object is dropped if less than this fraction of its box remains in a cropped or augmented image.
SMALLEST_VISIBLE_SHARE = 0.25
MAX_NUMBERS_SHOWN = 6

Spatial = Literal["", "mask", "image", "boxes"]
Channel = Annotated[int, Meta(ge=0, le=255)]


class TargetSpec(Struct, frozen=True, kw_only=True):
    """The target of a record: an array of ``dtype`` and ``shape``, stored as the record's ``feature``.

    ``names`` are those of the classes, of the numbers, or of the labels. A target with ``classes`` holds class
    indexes, 0 to ``len(names) - 1``; one that is ``multi_hot`` holds 1 for each label of the record, and 0 for the
    others. ``mean`` and ``std`` are those of each number over the train split.

    A ``spatial`` target moves with the image when it is resized and augmented:

    - ``mask``: the class of each pixel, int64 [height, width], 0 to ``len(names) - 1`` or `IGNORED`. Stored as a
      grayscale PNG.
    - ``image``: an image of the same size, float32 [height, width, channels], 0 to 255. Stored as a PNG.
    - ``boxes``: the objects of the image, float32 [most objects, 5]. A row contains the left, top, right and bottom
      edge in pixels, and the index of the class. The class of a region to ignore is `IGNORED_BOX`: detections in it
      are neither right nor wrong. Empty rows are `NO_BOX`.

    ``colors`` are those of the classes, if the source has its own: red, green and blue, 0 to 255.
    """

    feature: Annotated[str, Meta(pattern=r"^(?a:[\w/.-]{1,100})\Z")]
    dtype: Literal["float32", "int64"]
    shape: Annotated[list[Count], Meta(max_length=4)] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    classes: bool = False
    multi_hot: bool = False
    mean: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)
    spatial: Spatial = ""
    colors: list[tuple[Channel, Channel, Channel]] = field(default_factory=list)

    @property
    def is_picture(self) -> bool:
        """Whether the target is stored as a PNG file, and decoded to uint8."""
        return self.spatial in ("mask", "image")

    @property
    def decoded_dtype(self) -> str:
        """The dtype of the target in memory: uint8 for one that is stored as a PNG file."""
        return "uint8" if self.is_picture else self.dtype

    @property
    def is_numbers(self) -> bool:
        """Whether the target is one number for each of ``names``."""
        is_vector = self.dtype == "float32" and self.shape == [len(self.names)]
        return is_vector and bool(self.names) and not (self.multi_hot or self.spatial)

    @property
    def outputs(self) -> int:
        """The number of outputs of a network for this target: ``Tower.nclasses``."""
        return len(self.names)

    @property
    def lists_classes(self) -> bool:
        """Whether a record can contain several classes: labels, the classes of pixels, or those of objects."""
        return self.multi_hot or self.spatial in ("mask", "boxes")

    def contained(self, value: Any) -> NDArray[np.int64]:
        """Return the classes that a target contains, int64 in ascending order, if it `lists_classes`."""
        if self.multi_hot:
            return np.flatnonzero(value)
        found = value.ravel() if self.spatial == "mask" else value.reshape(-1, 5)[:, 4]
        present: NDArray[np.int64] = np.unique(found[(found >= 0) & (found < len(self.names))]).astype(
            np.int64
        )
        return present

    @property
    def labels(self) -> list[str]:
        """The names of the classes; empty for other targets."""
        return self.names if self.classes else []

    def describe(self, value: Any) -> str:
        """Describe a target: the class name, the label names, or the numbers with their names."""
        if self.spatial:
            return self._describe_spatial(np.asarray(value))
        if self.classes:
            return self.names[int(value)] if 0 <= value < len(self.names) else "unknown class"
        numbers = np.ravel(value).tolist()
        if self.multi_hot and set(numbers) <= {0, 1}:
            found = (name for name, number in zip(self.names, numbers, strict=False) if number)
            return ", ".join(found) or "no labels"
        if len(numbers) == len(self.names):
            return ", ".join(f"{name} {number:.6g}" for name, number in zip(self.names, numbers, strict=True))
        shown = ", ".join(f"{number:.6g}" for number in numbers[:MAX_NUMBERS_SHOWN])
        more = len(numbers) - MAX_NUMBERS_SHOWN
        return f"{shown}, … ({len(numbers):,} numbers)" if more > 0 else shown

    def _describe_spatial(self, value: NDArray[Any]) -> str:
        """The classes of a mask, smallest area first; the number of objects of each class; nothing for an image."""
        if self.spatial == "image":
            return ""
        found = value.ravel() if self.spatial == "mask" else value.reshape(-1, 5)[:, 4]
        indexes, counts = np.unique(
            found[(found >= 0) & (found < len(self.names))].astype(int), return_counts=True
        )
        if (
            self.spatial == "mask"
        ):  # the smallest first: a caption has little space, and most pixels are background
            return ", ".join(self.names[index] for index in indexes[np.argsort(counts)]) or "no classes"
        objects = (f"{count} {self.names[index]}" for index, count in zip(indexes, counts, strict=True))
        return ", ".join(objects) or "no objects"

    def __post_init__(self) -> None:
        """Raise ValueError if the parts contradict each other."""
        if self.spatial:
            self._check_spatial()
        if self.classes and (self.dtype != "int64" or not self.names):
            raise ValueError("target: class indexes are int64 and have names")
        if self.multi_hot and (self.dtype != "float32" or self.shape != [len(self.names)]):
            raise ValueError("target: labels are float32, one number for each name")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, len(self.names)):
            raise ValueError("target: mean and std do not match the names")

    def _check_spatial(self) -> None:
        rank, dtype = {"mask": (2, "int64"), "image": (3, "float32"), "boxes": (2, "float32")}[self.spatial]
        if self.classes or self.multi_hot or len(self.shape) != rank or self.dtype != dtype:
            raise ValueError(f"target: {self.spatial} are {dtype} of rank {rank}")
        if self.spatial == "mask" and not 0 < len(self.names) <= MAX_PIXEL_CLASSES:
            raise ValueError(f"target: a mask has 1 to {MAX_PIXEL_CLASSES} classes")
        if self.spatial == "boxes" and (self.shape[1] != 5 or not self.names):
            raise ValueError("target: boxes have 5 numbers each, and names of classes")


class TargetStatistics:
    """The mean and the standard deviation of the numbers of targets over records, as in a `TargetSpec`.

    For a mask, they are those of the share of each class in its pixels that have one.
    """

    def __init__(self, spec: TargetSpec) -> None:
        self._spec = spec
        self._count = 0
        self._mean, self._squares = np.zeros(len(spec.names)), np.zeros(len(spec.names))

    def add(self, value: Any) -> None:
        """Add the target of a record."""
        numbers = self._shares(value) if self._spec.spatial == "mask" else np.ravel(value).astype(np.float64)
        self._count += 1
        change = numbers - self._mean
        self._mean += change / self._count
        self._squares += change * (numbers - self._mean)

    def _shares(self, mask: NDArray[Any]) -> NDArray[np.float64]:
        counts = np.bincount(mask.ravel(), minlength=IGNORED + 1)[: len(self._spec.names)]
        shares: NDArray[np.float64] = counts / max(1, counts.sum())
        return shares

    @property
    def mean(self) -> list[float]:
        found: list[float] = self._mean.tolist()
        return found

    @property
    def std(self) -> list[float]:
        found: list[float] = np.sqrt(self._squares / max(1, self._count)).tolist()
        return found


def class_index(labels: list[str]) -> TargetSpec:
    """The target of image classification: the index of a class, int64 scalar."""
    return TargetSpec(feature="image/class/label", dtype="int64", names=labels, classes=True)


def numbers(names: list[str], mean: list[float], std: list[float]) -> TargetSpec:
    """The target of regression: one number for each of ``names``, float32 [len(names)]."""
    return TargetSpec(
        feature="target/numbers", dtype="float32", shape=[len(names)], names=names, mean=mean, std=std
    )


def label_set(labels: list[str], mean: list[float], std: list[float]) -> TargetSpec:
    """The target of multi-label classification: zeros and ones, float32 [len(labels)]."""
    return TargetSpec(
        feature="target/labels",
        dtype="float32",
        shape=[len(labels)],
        names=labels,
        multi_hot=True,
        mean=mean,
        std=std,
    )


def mask(
    classes: list[str],
    height: int,
    width: int,
    colors: list[tuple[int, int, int]] | None = None,
    *,
    mean: list[float] | None = None,
    std: list[float] | None = None,
) -> TargetSpec:
    """The target of semantic segmentation: the class of each pixel, int64 [height, width].

    ``mean`` and ``std`` are those of the share of each class in the pixels of a training image.
    """
    return TargetSpec(
        feature="image/segmentation/class/encoded",
        dtype="int64",
        shape=[height, width],
        names=classes,
        spatial="mask",
        colors=colors or [],
        mean=mean or [],
        std=std or [],
    )


def target_image(height: int, width: int, channels: int) -> TargetSpec:
    """The target of image-to-image networks: an image, float32 [height, width, channels]."""
    return TargetSpec(
        feature="target/encoded", dtype="float32", shape=[height, width, channels], spatial="image"
    )


def boxes(classes: list[str], most: int) -> TargetSpec:
    """The target of object detection: at most ``most`` objects and regions to ignore, float32 [most, 5]."""
    return TargetSpec(
        feature="target/boxes", dtype="float32", shape=[max(1, most), 5], names=classes, spatial="boxes"
    )
