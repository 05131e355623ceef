"""The numbers of every output: name, shape, dtype, statistics and the first values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wtforms import Form

from digits.kinds.predictions import rendering as prediction_rendering
from digits.kinds.predictions.rendering import Prediction

MAX_VALUES = 200
# Of the copies from which statistics are computed.
_BLOCK_VALUES = 1 << 18


class View(prediction_rendering.View):
    """Statistics and values of all outputs."""

    def context(self, prediction: Prediction, options: Form) -> dict[str, Any]:
        return {
            "outputs": [_describe(name, values) for name, values in prediction.outputs.items()],
            "omitted": list(prediction.omitted),
        }


def _describe(name: str, values: NDArray[Any]) -> dict[str, Any]:
    """Return the shape and the statistics of an output; infinite numbers and NaN do not count for the latter."""
    count = sum(block.size for block in _finite_blocks(values))
    mean = sum(block.sum() for block in _finite_blocks(values)) / max(1, count)
    variance = sum(((block - mean) ** 2).sum() for block in _finite_blocks(values)) / max(1, count)
    return {
        "name": name,
        "dtype": values.dtype.name,
        "shape": list(values.shape),
        "count": values.size,
        "not_finite": values.size - count,
        "min": min((float(block.min()) for block in _finite_blocks(values)), default=None),
        "max": max((float(block.max()) for block in _finite_blocks(values)), default=None),
        "mean": float(mean) if count else None,
        "std": math.sqrt(variance) if count else None,
        "values": [
            float(value) if np.isfinite(value) else str(value) for value in values.reshape(-1)[:MAX_VALUES]
        ],
    }


def _finite_blocks(values: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """Yield the finite numbers among ``values`` in blocks, none of which is empty."""
    flat = values.reshape(-1)
    for start in range(0, flat.size, _BLOCK_VALUES):
        block = flat[start : start + _BLOCK_VALUES]
        finite = block[np.isfinite(block)].astype(np.float64)
        if finite.size:
            yield finite
