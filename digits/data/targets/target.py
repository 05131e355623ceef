"""Targets: the values that a network learns to predict for an image, and that it reads as ``Tower.y``.

Each form of target is a subclass of `Target` in a module of this package; `digits.data.targets.forms` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from digits.core.schema import Count
from digits.data.targets.palette import IGNORED_COLOR, IGNORED_NAME, Color, css_color, distinct_colors

if TYPE_CHECKING:
    from digits.data.images.conversion import Geometry, Size

MAX_NUMBERS_SHOWN = 6
MAX_NAMES_SHOWN = 3
# The numbers of a prediction in a few words.
MAX_NUMBERS_IN_SHORT = 3

# The features of a record by name, as in a ``tf.train.Example``.
Features = Mapping[str, Sequence[bytes] | Sequence[int] | Sequence[float]]
# Returns the target of a record.
Read = Callable[[], Any]

Feature = Annotated[str, Meta(pattern=r"^(?a:[\w/.-]{1,100})\Z")]
Dtype = Literal["float32", "int64"]
Spatial = Literal["", "mask", "image", "boxes"]
Channel = Annotated[int, Meta(ge=0, le=255)]


class UnfitDataset(ValueError):
    """The records do not fit the model; the text is the reason, a clause for users."""


@dataclass(frozen=True)
class DatasetFit:
    """How the records of a dataset map to those that a model was trained on.

    ``target`` is that of the mapped records: the names are the model's. Where targets contain classes, ``places[i]`` is
    the model's index of class i of the dataset, -1 if the model lacks it. Otherwise, ``places[i]`` is the dataset's
    index of number or label i of the model. ``lacking`` are the names in the dataset that the model lacks.
    """

    target: Target
    places: list[int]
    lacking: list[str]

    @property
    def maps_names(self) -> bool:
        """Whether the names of the dataset and the model differ, at least in their order."""
        return bool(self.lacking) or self.places != list(range(len(self.target.names)))

    @property
    def has_unknown_records(self) -> bool:
        """Whether records can have a class that the model lacks as their only one."""
        return bool(self.lacking and self.target.labels)


class Target(Struct, frozen=True, kw_only=True):
    """The target of a record: an array of ``dtype`` and ``shape``, stored as the record's ``feature``.

    ``names`` are those of the classes, of the numbers, or of the labels; ``mean`` and ``std`` those of each number
    over the train split. ``colors`` are those of the classes, if the source has its own: red, green and blue, 0 to
    255.

    ``classes``, ``multi_hot`` and ``spatial`` identify the subclass in files, and networks may read them. This class
    is for any other array, and for no target; it also holds what a file contains until
    `digits.data.targets.forms.form_of` returns the subclass.
    """

    feature: Feature
    dtype: Dtype
    shape: Annotated[list[Count], Meta(max_length=4)] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    classes: bool = False
    multi_hot: bool = False
    mean: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)
    spatial: Spatial = ""
    colors: list[tuple[Channel, Channel, Channel]] = field(default_factory=list)

    # Whether the target has positions in the image: it is resized, augmented and drawn with it.
    in_image: ClassVar[bool] = False
    # The lists of `digits.kinds.versions.versions.Edits` that can change the target, and the meaning of the index in an
    # edit.
    edited_by: ClassVar[tuple[str, ...]] = ()
    noun: ClassVar[str] = "target"

    def __post_init__(self) -> None:
        """Raise ValueError if the parts contradict each other."""
        if self.classes + self.multi_hot + bool(self.spatial) > 1:
            raise ValueError("target: it has several forms")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, len(self.names)):
            raise ValueError("target: mean and std do not match the names")

    # What it contains

    @property
    def most_objects(self) -> int:
        """The maximum number of objects and regions to ignore in an image; 0 for targets without objects."""
        return 0

    @property
    def decoded_dtype(self) -> str:
        """The dtype of the target in memory."""
        return self.dtype

    @property
    def stored_shape(self) -> list[int]:
        """The shape of the feature of a record."""
        return self.shape

    @property
    def outputs(self) -> int:
        """The number of outputs of a network for this target: ``Tower.nclasses``."""
        return len(self.names)

    @property
    def labels(self) -> list[str]:
        """The names of the classes if a record has exactly one; empty for other targets."""
        return []

    @property
    def contained_names(self) -> list[str]:
        """The names of the classes if a record can have several, as labels, pixels or objects; else empty."""
        return []

    def contained(self, value: Any) -> NDArray[np.int64]:
        """Return which of `contained_names` a target contains, their indexes in ascending order."""
        return np.zeros(0, np.int64)

    def count(self, value: Any) -> NDArray[np.int64]:
        """Return how often each of `contained_names` counts for a record: once if the target contains it."""
        counts = np.zeros(len(self.contained_names), np.int64)
        counts[self.contained(value)] = 1
        return counts

    def grouping(self, value: Any) -> Any:
        """Return the numbers by which a record is grouped, one for each of ``names``."""
        return value

    def measured(self, value: Any) -> NDArray[np.float64]:
        """Return the numbers that ``mean`` and ``std`` describe, float64 [names]."""
        return np.ravel(value).astype(np.float64)

    def with_statistics(self, values: NDArray[Any]) -> Self:
        """Return the target with the mean and the standard deviation of ``values``, [training records, names]."""
        # In float64: a mean of many float32 zeros and ones is not exact.
        mean, std = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
        return replace(self, mean=mean.tolist(), std=std.tolist())

    # Storing and resizing

    def decode(self, values: Sequence[Any]) -> Any:
        """Return the target that a feature contains: a number, or an array as it is decoded for training.

        Raises ValueError, TypeError, IndexError, OSError or SyntaxError if it contains none.
        """
        return np.array(values, self.dtype).reshape(self.shape)[()]

    def encode(self, value: Any, width: int, height: int) -> Features:
        """Return the features of a record with this target, whose image has ``width`` × ``height`` pixels."""
        return {self.feature: value if self.shape else [value]}

    def sized(self, width: int, height: int) -> Self:
        """Return the target of images of another size."""
        return self

    def resize(self, value: Any, geometry: Geometry) -> Any:
        """Return the target of an image after it is resized."""
        return value

    # Editing and adapting

    def edit(self, read: Read, changes: Mapping[int, float]) -> Any:
        """Return the target that ``read`` returns with new values at the indexes of ``changes``."""
        return [changes.get(index, value) for index, value in enumerate(read().tolist())]

    def renamed(self, names: list[str]) -> Self:
        """Return the target with other ``names``, whose statistics are not known."""
        shape = [len(names)] if len(self.shape) == 1 else self.shape
        return replace(self, names=names, shape=shape, mean=[], std=[])

    def moved(self, value: Any, places: Sequence[int]) -> Any:
        """Return the target ``value`` of other names, which are at ``places`` in ``names``."""
        moved = np.zeros(len(self.names), np.float32)
        moved[list(places)] = value
        return moved if self.names else value

    def fit(self, other: Target) -> DatasetFit:
        """Return how records with the target ``other`` map to this one, that of a model; raises UnfitDataset."""
        if self._form() != other._form():
            raise UnfitDataset("its targets have a different type")
        return self._fit_names(other)

    def _form(self) -> tuple[object, ...]:
        """Return the properties of targets that no mapping changes."""
        shape = len(self.shape) if self.names or self.in_image else self.shape
        return type(self), self.feature, self.dtype, shape

    def _fit_names(self, other: Target) -> DatasetFit:
        missing = [name for name in self.names if name not in other.names]
        if missing:
            raise UnfitDataset(f"it lacks the {self.noun}s {_listed(missing)}")
        expected = ([len(self.names)], [len(other.names)])
        if self.names != other.names and (self.shape, other.shape) != expected:
            raise UnfitDataset("its targets have a different shape")
        lacking = [name for name in other.names if name not in self.names]
        return DatasetFit(self, [other.names.index(name) for name in self.names], lacking)

    def _fit_classes(self, other: Target) -> DatasetFit:
        """Return how classes map by their names; one that the model lacks becomes -1. Raises UnfitDataset."""
        indexes = [self.names.index(name) if name in self.names else -1 for name in other.names]
        if all(index < 0 for index in indexes):
            raise UnfitDataset(f"it has none of the model's classes ({_listed(self.names)})")
        return DatasetFit(self, indexes, [name for name in other.names if name not in self.names])

    # Words

    def describe(self, value: Any) -> str:
        """Describe a target: the class name, the label names, or the numbers with their names."""
        numbers = np.ravel(value).tolist()
        if len(numbers) == len(self.names):
            return ", ".join(f"{name} {number:.6g}" for name, number in zip(self.names, numbers, strict=True))
        first = ", ".join(f"{number:.6g}" for number in numbers[:MAX_NUMBERS_SHOWN])
        return f"{first}, … ({len(numbers):,} numbers)" if len(numbers) > MAX_NUMBERS_SHOWN else first

    def paint(self, pixels: NDArray[np.uint8], value: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the ``pixels`` [height, width, 1 or 3] of an image with its target on them, if it is in the image."""
        return pixels

    def describe_stored(self, read: Read) -> str:
        """Describe the target that ``read`` returns, if that is necessary."""
        return self.describe(read())

    def describe_outputs(self, predicted: NDArray[Any]) -> str:
        """Describe the outputs of a model for a record, float32 [outputs]."""
        return self.describe(predicted)

    def describe_both(self, value: Any, predicted: NDArray[Any]) -> str:
        """Describe the target of a record, and the outputs of a model for it."""
        return f"{self.describe(value)}; predicted {self.describe_outputs(predicted)}"

    def describe_prediction(self, predicted: Any) -> str:
        """Describe a prediction, as returned by the kind's `Targets.describe`, in a few words; empty if it is drawn."""
        if self.in_image:
            return ""
        if isinstance(predicted, dict):
            floats = [value for value in predicted.values() if isinstance(value, float)]
            numbers = predicted.get("values", floats)
            return ", ".join(f"{value:.3g}" for value in numbers[:MAX_NUMBERS_IN_SHORT])
        return self._describe_list(predicted)

    def _describe_list(self, predicted: list[tuple[str, float]]) -> str:
        """Describe a prediction that is a list of names and numbers."""
        return ", ".join(f"{name} {value:.3g}" for name, value in predicted[:MAX_NUMBERS_IN_SHORT])

    def is_right(self, predicted: Any, label: str) -> bool | None:
        """Return whether a prediction is the class ``label``; None if it is not a class."""
        return None

    def mistakes(self, values: NDArray[Any], predicted: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which records are predicted wrongly, bool [records]; all of them if nothing is right or wrong.

        ``values`` are the targets and ``predicted`` the outputs of a model, each with the records first.
        """
        return np.ones(len(values), np.bool_)

    # Pictures

    @property
    def palette(self) -> list[Color]:
        """The colors of the classes: those of the source, or else distinct ones; black for a background."""
        return list(self.colors) or distinct_colors(self.names)

    def legend(self, *, has_ignored: bool = False) -> list[tuple[str, str]]:
        """Return the names and the CSS colors of the classes of targets in the image; one in black is not drawn.

        With ``has_ignored``, regions to ignore are the last.
        """
        if not self.in_image:
            return []
        colors = [css_color(color) if any(color) else "" for color in self.palette]
        classes = list(zip(self.names, colors, strict=False))
        return [*classes, (IGNORED_NAME, IGNORED_COLOR)] if has_ignored else classes

    def drawings(self, url: str, thumbnail: str, read: Read, size: Size) -> dict[str, Any]:
        """Return what is drawn on the image of a record, or beside it; see the macro ``drawn``.

        ``url`` is that of the stored target as a picture, ``thumbnail`` that of a small one. ``read`` returns the
        target, for images of a ``size`` (width, height).
        """
        return {}

    def compare(
        self, truth: Any, predicted: Any, url: str, size: Size, threshold: float
    ) -> dict[str, Any] | None:
        """Return how to draw what is right and wrong in a prediction in one picture; None if there is no such picture.

        ``truth`` are the boxes of the record, and ``threshold`` is the score from which on detections are shown. The
        other arguments are those of `draw_prediction`.
        """
        return None

    def draw_prediction(self, predicted: Any, url: str, size: Size) -> dict[str, Any] | None:
        """Return how to draw a prediction, as returned by the kind's `Targets.describe`; see the macro ``drawn``.

        ``url`` is that of the image, ``size`` its width and height. None for a target that is not in the image.
        """
        return None


class NumberStatistics:
    """The mean and the standard deviation of the numbers of targets over records, as in a `Target`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._count = 0
        self._mean, self._squares = np.zeros(len(target.names)), np.zeros(len(target.names))

    def add(self, value: Any) -> None:
        """Add the target of a record."""
        numbers = self._target.measured(value)
        self._count += 1
        change = numbers - self._mean
        self._mean += change / self._count
        self._squares += change * (numbers - self._mean)

    def described(self) -> Target:
        """Return the target with its statistics."""
        std = np.sqrt(self._squares / max(1, self._count))
        return replace(self._target, mean=self._mean.tolist(), std=std.tolist())


def _listed(names: list[str]) -> str:
    """Return the first few of ``names``, and the number of further ones."""
    more = len(names) - MAX_NAMES_SHOWN
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
