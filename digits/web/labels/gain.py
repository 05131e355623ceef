"""What labeling gained: the quality of models over the number of labeled images, and the time that an image takes."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from digits.core.model_job import ModelJob
from digits.data.models import evaluation as evaluations
from digits.data.models.evaluation import Evaluation
from digits.kinds.jobs import DatasetJob

# Of a normal distribution, for intervals of 95%.
_DEVIATIONS = 1.96
# With fewer images, a median says nothing.
_FEWEST = 5


class Gain(NamedTuple):
    """The best model of a dataset from ``labeled`` images, by its evaluation on those for testing, or for validation.

    ``value`` is that of the metric of the kind, with its interval.
    """

    labeled: int
    model: ModelJob
    evaluation: Evaluation
    value: float
    low: float
    high: float


class Pace(NamedTuple):
    """The median of the seconds per image, its interval of 95%, and the number of images."""

    seconds: float
    low: float
    high: float
    images: int


def best_of(labeled: int, dataset: DatasetJob, models: Iterable[ModelJob]) -> Gain | None:
    """Return the best of the ``models`` of a dataset from ``labeled`` images; None without one. It reads files."""
    name, manifest = dataset.data_kind.metric, dataset.manifest()
    sign = -1 if dataset.data_kind.lower_is_better(name) else 1
    found = []
    for model in models:
        for result in evaluations.load_all(model.folder):
            if manifest and result.content_hash == manifest.content_hash and name in result.metrics:
                value, interval = result.metrics[name], result.intervals.get(name)
                low, high = (interval.low, interval.high) if interval else (value, value)
                found.append(Gain(labeled, model, result, value, low, high))
    return max(found, key=lambda gain: (gain.evaluation.split == "test", sign * gain.value), default=None)


def pace(seconds: array[float]) -> Pace | None:
    """Return the median of ``seconds``; None for too few. The interval is that of the order statistics."""
    count = len(seconds)
    if count < _FEWEST:
        return None
    ordered = np.sort(np.frombuffer(seconds, np.float32))
    half = _DEVIATIONS * math.sqrt(count) / 2
    low, high = max(0, math.floor(count / 2 - half)), min(count - 1, math.ceil(count / 2 + half))
    return Pace(float(np.median(ordered)), float(ordered[low]), float(ordered[high]), count)
