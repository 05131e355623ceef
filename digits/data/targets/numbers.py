"""The target of regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from digits.data.targets.target import Feature, Target


class Numbers(Target, frozen=True, kw_only=True):
    """One number for each of ``names``, float32 [len(names)]."""

    feature: Feature = "target/numbers"
    dtype: Literal["float32"] = "float32"

    edited_by = ("set_numbers",)
    noun = "number"

    @classmethod
    def of(cls, names: list[str], mean: Sequence[float] = (), std: Sequence[float] = ()) -> Self:
        """Return the target for ``names``, with the ``mean`` and ``std`` of each number over the train split."""
        return cls(shape=[len(names)], names=names, mean=list(mean), std=list(std))

    def describe_outputs(self, predicted: NDArray[Any]) -> str:
        """Describe the outputs of a model for a record, float32 [outputs]; those below 1,000 with four digits."""
        numbers = np.ravel(predicted).tolist()
        return self.describe([float(f"{number:.4g}") if abs(number) < 1000 else number for number in numbers])
