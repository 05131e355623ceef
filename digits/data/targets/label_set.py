"""The target of multi-label classification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from digits.data.targets.target import Feature, Target

# Labels with a lower probability are not predicted.
_MIN_PERCENT = 50


class LabelSet(Target, frozen=True, kw_only=True):
    """1 for each label of the record and 0 for the others, float32 [len(names)]."""

    feature: Feature = "target/labels"
    dtype: Literal["float32"] = "float32"
    multi_hot: bool = True

    edited_by = ("add_labels", "remove_labels")
    noun = "label"

    @classmethod
    def of(cls, labels: list[str], mean: Sequence[float] = (), std: Sequence[float] = ()) -> Self:
        """Return the target for ``labels``; ``mean`` is the share of the training images that have each label."""
        return cls(shape=[len(labels)], names=labels, mean=list(mean), std=list(std))

    def __post_init__(self) -> None:
        """Raise ValueError for another shape."""
        super().__post_init__()
        if self.shape != [len(self.names)]:
            raise ValueError("target: labels are float32, one number for each name")

    def mistakes(self, values: NDArray[Any], predicted: NDArray[Any]) -> NDArray[np.bool_]:
        wrong: NDArray[np.bool_] = ((100 * predicted >= _MIN_PERCENT) != (values > 0.5)).any(axis=1)
        return wrong

    @property
    def contained_names(self) -> list[str]:
        return self.names

    def contained(self, value: Any) -> NDArray[np.int64]:
        return np.flatnonzero(value)

    def describe(self, value: Any) -> str:
        numbers = np.ravel(value).tolist()
        if not set(numbers) <= {0, 1}:
            return super().describe(value)
        return (
            ", ".join(name for name, number in zip(self.names, numbers, strict=False) if number)
            or "no labels"
        )

    def describe_outputs(self, predicted: NDArray[Any]) -> str:
        """Return the labels whose probability is at least 50%."""
        return self.describe(predicted >= _MIN_PERCENT / 100)

    def _describe_list(self, predicted: list[tuple[str, float]]) -> str:
        likely = [f"{name} {percent:.0f}%" for name, percent in predicted if percent >= _MIN_PERCENT]
        return ", ".join(likely) or "no label"
