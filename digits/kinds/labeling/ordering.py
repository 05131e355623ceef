"""In which order people label images: at first different ones, then those about which a model is uncertain.

Images of the validation and the test split come in random order among them, so that they remain a fair sample.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.core.splits import Split
from digits.data.arrays import write_array
from digits.kinds.labeling.images import ListedImage

ORDER_FILE = "order.npy"
# Different images, before a first model; then as many at a time from the most uncertain ones.
BATCH = 20
# The candidates for a batch are this many times its size.
CANDIDATES = 5
# Beyond, images are sorted by their uncertainty alone.
MOST_DIVERSE = 2000
_ROUNDS = 10
# Before a first model, that many batches are chosen from that many images by the features of a network.
_FEATURE_BATCHES = 3
FEATURE_CANDIDATES = 1000
# The most uncertain ones are chosen in larger batches by them; see Labeling in benchmarks/RESULTS.md.
_UNCERTAIN_BATCH = 50
# The weight of the looks beside them: to a network for photos, handwritten digits look much alike.
_LOOKS_WEIGHT = 0.5
# Added to uncertainties as weights, which may all be 0.
_LEAST_WEIGHT = 1e-3

Order = NDArray[np.int32]
# Returns the features of the images with some numbers, float32 [numbers, values], or None.
ComputeFeatures = Callable[[NDArray[np.int64]], NDArray[np.float32] | None]


def diverse_order(
    images: list[ListedImage], looks: NDArray[np.int8], seed: int, features: ComputeFeatures
) -> Order:
    """Return the numbers of the ``images`` that can be labeled: at first different ones, then at random.

    ``looks`` are int8 [images, features], see `digits.data.images.statistics.shapes`. Without ``features``, only a
    batch is chosen by them, because further ones would be no better than chance.
    """
    random = np.random.default_rng(seed)
    train = random.permutation(_of(images, "train"))
    vectors, batches = looks[train].astype(np.float32), 1
    found = features(train[:FEATURE_CANDIDATES]) if len(train) > BATCH else None
    if found is not None:
        vectors, batches = _joined(found, vectors), _FEATURE_BATCHES
    left, first = np.arange(len(vectors)), []
    for _ in range(batches):
        places = _spread(vectors[left], BATCH, random)
        first.append(left[places])
        left = np.delete(left, places)
    chosen = np.concatenate(first)
    return _with_held_out(images, np.concatenate([train[chosen], np.delete(train, chosen)]), random)


def uncertain_order(
    images: list[ListedImage],
    looks: NDArray[np.int8],
    uncertainty: NDArray[np.float32],
    seed: int,
    features: ComputeFeatures,
) -> Order:
    """Return the numbers of the ``images`` that can be labeled, those of the highest ``uncertainty`` [images] first.

    Batches are spread over the images that look different, with ``features`` more widely. Of a set of near-duplicates,
    only one comes early.
    """
    random = np.random.default_rng(seed)
    train = _of(images, "train")
    train = train[np.argsort(-uncertainty[train], kind="stable")]
    _, firsts = np.unique([images[number].set for number in train], return_index=True)
    is_first = np.zeros(len(train), np.bool_)
    is_first[firsts] = True
    train, doubles = train[is_first], train[~is_first]
    chosen: list[NDArray[np.int64]] = []
    found = features(train[:FEATURE_CANDIDATES]) if len(train) > BATCH else None
    if found is not None:
        candidates, train = np.split(train, [len(found)])
        vectors = _joined(found, looks[candidates].astype(np.float32))
        while len(candidates):
            places = _spread(vectors, _UNCERTAIN_BATCH, random, uncertainty[candidates])
            places.sort()
            chosen.append(candidates[places])
            candidates, vectors = np.delete(candidates, places), np.delete(vectors, places, axis=0)
    while len(train) and sum(map(len, chosen)) < MOST_DIVERSE:
        candidates = train[: CANDIDATES * BATCH]
        places = np.sort(_spread(looks[candidates].astype(np.float32), BATCH, random))
        chosen.append(candidates[places])
        train = np.delete(train, places)
    return _with_held_out(images, np.concatenate([*chosen, train, doubles]), random)


def write_order(folder: Path, order: Order) -> None:
    """Write an order into ``folder``; raises OSError."""
    write_array(folder / ORDER_FILE, order)


def _of(images: list[ListedImage], *splits: Split) -> NDArray[np.int64]:
    usable = [number for number, image in enumerate(images) if image.split in splits and not image.reason]
    return np.array(usable, np.int64)


def _with_held_out(images: list[ListedImage], train: NDArray[np.int64], random: np.random.Generator) -> Order:
    """Distribute the validation and test images evenly among the training images, which keep their order."""
    held_out = random.permutation(_of(images, "val", "test"))
    places = [(np.arange(len(part)) + 0.5) / max(1, len(part)) for part in (train, held_out)]
    every = np.concatenate([train, held_out])
    return every[np.argsort(np.concatenate(places), kind="stable")].astype(np.int32)


def _spread(
    vectors: NDArray[np.float32],
    count: int,
    random: np.random.Generator,
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.int64]:
    """Return the places of ``count`` of the ``vectors``: those nearest to the centers of k-means (Lloyd, 1982).

    The centers are nearer to vectors with higher ``weights``.
    """
    if len(vectors) <= count:
        return np.arange(len(vectors))
    sample = vectors[:MOST_DIVERSE]
    shares = np.ones(len(sample), np.float32) if weights is None else weights[:MOST_DIVERSE] + _LEAST_WEIGHT
    centers = sample[random.choice(len(sample), count, replace=False)]
    for _ in range(_ROUNDS):
        nearest = _distances(sample, centers).argmin(axis=1)
        for number in range(count):
            members = nearest == number
            if members.any():
                centers[number] = shares[members] @ sample[members] / shares[members].sum()
    distances = _distances(sample, centers)
    chosen: list[int] = []
    for number in range(count):
        order = np.argsort(distances[:, number], kind="stable")
        chosen.append(next(int(place) for place in order if place not in chosen))
    return np.array(chosen)


def _joined(features: NDArray[np.float32], looks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors of the ``features`` of the first images and their ``looks``."""
    return np.hstack([_scaled(features), _LOOKS_WEIGHT * _scaled(looks[: len(features)])])


def _scaled(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the ``vectors`` around 0, with a mean square length of 1."""
    centered: NDArray[np.float32] = vectors - vectors.mean(axis=0)
    return centered / max(1e-6, float(np.sqrt(np.mean(np.sum(centered**2, axis=1)))))


def _distances(vectors: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the squared distances, [vectors, centers], apart from a term that is the same in each row."""
    result: NDArray[np.float32] = (centers**2).sum(axis=1) - 2 * vectors @ centers.T
    return result
