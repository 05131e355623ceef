"""Confidence intervals of metrics. Runs in the worker only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from digits.data.models.evaluation import Interval

RESAMPLES = 200
# The 2.5th percentile requires at least this many resamples.
MIN_RESAMPLES = 40
# For all resamples together; large splits, whose intervals are narrow, may not reach the minimum.
MAX_SECONDS = 5.0
# The 97.5th percentile of the standard normal distribution.
_Z = 1.959964


def wilson(share: float, count: int) -> Interval:
    """Return the 95% interval of a ``share`` of ``count`` records (Wilson, 1927); ``count`` must be positive."""
    square = _Z * _Z
    center = (share + square / (2 * count)) / (1 + square / count)
    margin = _Z / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    return Interval(max(0.0, center - margin), min(1.0, center + margin), "Wilson")


def bootstrap(
    records: int, metrics: Callable[[NDArray[np.intp]], Mapping[str, float]]
) -> dict[str, Interval]:
    """Return the 95% percentile interval of each metric (Efron, 1979).

    ``metrics`` returns them for the records with the given places, int [records], drawn with replacement from
    ``records``. Empty if they cannot be computed often enough in `MAX_SECONDS`.
    """
    random = np.random.default_rng(0)
    ends = time.monotonic() + MAX_SECONDS
    drawn: list[Mapping[str, float]] = []
    while len(drawn) < RESAMPLES and time.monotonic() < ends:
        drawn.append(metrics(random.integers(0, records, records)))
    if len(drawn) < MIN_RESAMPLES:
        return {}
    intervals = {}
    for name in drawn[0]:
        values = [each[name] for each in drawn if math.isfinite(each.get(name, math.nan))]
        if len(values) >= MIN_RESAMPLES:
            low, high = np.percentile(values, [2.5, 97.5]).tolist()
            intervals[name] = Interval(low, high, "bootstrap")
    return intervals
