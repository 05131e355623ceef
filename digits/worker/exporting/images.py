"""Select the inputs that verify and calibrate an export."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.core.splits import Split
from digits.data.models.export import IMPORTED_IN_INT8
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.training.models.trained import Trained

RANDOM = "random"
# The maximum size of the selected images in memory, in bytes.
MAX_BYTES = 512 << 20


def verification_images(
    model: Trained, dataset: Path, count: int, batch: int
) -> tuple[NDArray[np.float32], str]:
    """Return about ``count`` inputs, float32 [images, ...], and their source. Their number is a multiple of ``batch``.

    The inputs are evenly spaced validation images; training images if there is no validation split; random pixels for
    imported models, which have no records; or random vectors for networks that generate images.
    """
    splits = model.manifest.splits
    if model.traced.latent or not splits:
        return _random(model, _batches(model, count, batch)), RANDOM
    split: Split = "val" if "val" in splits and splits["val"].count else "train"
    return _records(model, dataset, split, _batches(model, min(count, splits[split].count), batch)), split


def calibration_images(model: Trained, dataset: Path, count: int, batch: int) -> NDArray[np.float32]:
    """Return about ``count`` training images, float32 [images, ...]. Their number is a multiple of ``batch``.

    Raises UserFault if the model was imported and has no training images.
    """
    count = _batches(model, count, batch)
    if not model.traced.latent and not model.manifest.splits:
        raise UserFault(IMPORTED_IN_INT8.message, IMPORTED_IN_INT8.hint)
    return _random(model, count) if model.traced.latent else _records(model, dataset, "train", count)


def _batches(model: Trained, count: int, batch: int) -> int:
    """Round ``count`` up to a multiple of ``batch``, limited by `MAX_BYTES`."""
    most = MAX_BYTES // (4 * math.prod(model.input_shape))
    return batch * max(1, math.ceil(min(count, most) / batch))


def _random(model: Trained, count: int) -> NDArray[np.float32]:
    """Return normally distributed vectors for generators, otherwise random pixels from 0 to 255."""
    random, shape = np.random.default_rng(0), (count, *model.input_shape)
    values = random.normal(size=shape) if model.traced.latent else random.integers(0, 256, shape)
    return values.astype(np.float32)


def _records(model: Trained, dataset: Path, split: Split, count: int) -> NDArray[np.float32]:
    with contextlib.closing(feeds.Records(dataset, model.manifest, split, budget_bytes=0)) as records:
        places = np.linspace(0, len(records) - 1, min(count, len(records))).astype(np.int64)
        values: NDArray[np.float32] = records.read(np.resize(places, count)).images.numpy().astype(np.float32)
        return values
