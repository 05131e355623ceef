"""The target of image classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from digits.data.targets.target import DatasetFit, Feature, Features, Read, Target


class ClassIndex(Target, frozen=True, kw_only=True):
    """The index of a class, int64 scalar, 0 to ``len(names) - 1``."""

    feature: Feature = "image/class/label"
    dtype: Literal["int64"] = "int64"
    classes: bool = True

    edited_by = ("relabel",)
    noun = "class"

    @classmethod
    def of(cls, names: list[str]) -> Self:
        """Return the target for the classes ``names``."""
        return cls(names=names)

    def __post_init__(self) -> None:
        """Raise ValueError without classes."""
        super().__post_init__()
        if not self.names:
            raise ValueError("target: class indexes are int64 and have names")

    @property
    def labels(self) -> list[str]:
        return self.names

    def encode(self, value: Any, width: int, height: int) -> Features:
        return {self.feature: [value], "image/class/text": [self.names[value].encode()]}

    def edit(self, read: Read, changes: Mapping[int, float]) -> Any:
        """Return the last index of ``changes``; the record may be damaged."""
        return list(changes)[-1]

    def moved(self, value: int, places: Sequence[int]) -> int:
        return places[value]

    def _fit_names(self, other: Target) -> DatasetFit:
        return self._fit_classes(other)

    def describe(self, value: Any) -> str:
        return self.names[int(value)] if 0 <= value < len(self.names) else "unknown class"

    def describe_outputs(self, predicted: NDArray[Any]) -> str:
        """Return the most likely class with its probability."""
        return f"{self.names[predicted.argmax()]} ({100 * predicted.max():.0f}%)"

    def describe_both(self, value: Any, predicted: NDArray[Any]) -> str:
        return f"{self.describe(value)}, predicted {self.describe_outputs(predicted)}"

    def _describe_list(self, predicted: list[tuple[str, float]]) -> str:
        name, percent = predicted[0]
        return f"{name} {percent:.0f}%"

    def mistakes(self, values: NDArray[Any], predicted: NDArray[Any]) -> NDArray[np.bool_]:
        wrong: NDArray[np.bool_] = predicted.argmax(axis=1) != values
        return wrong

    def is_right(self, predicted: Any, label: str) -> bool | None:
        return bool(predicted[0][0] == label) if isinstance(predicted, list) else None
