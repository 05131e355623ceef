"""Find images that look the same, such as a photo in two sizes, without mistaking images of one kind for each other.

How close two copies are depends on the images: photos have little in common, while all digits 1 look alike. Two images
are near duplicates if they are much closer to each other than either is to its neighbors in the dataset.

Candidates come from tables of perceptual hashes sorted from different bits on, in which similar hashes are often
neighbors, as in locality-sensitive hashing. Time and memory grow as O(n log n).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

# Images that differ this little look the same in any dataset; distances are those of shapes of length 1.
SAME_DISTANCE = 0.04
# Others are near duplicates if their distance is below this share of the distance to their neighbors, or a larger share
# where images have little in common: there, their neighbors are as far away as any image, at a distance of about 1.
NEIGHBOR_SHARE = 0.15
DISTINCT_SHARE = 0.3
# The rank of the neighbor whose distance serves as the reference, as a fraction of the dataset, and its minimum:
# a photo may have a few copies.
NEIGHBOR_FRACTION = 0.01
MIN_NEIGHBORS = 5
# The distance to neighbors in a dataset that is too small to measure it, as in MNIST.
USUAL_DISTANCE = 0.6

_SAMPLE = 1000
_BITS = 64
_ROTATION = 8
_WINDOW = 8
_MAX_DIFFERENT_BITS = 12
_CHUNK = 1 << 16

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


def find_sets(hashes: NDArray[np.uint64], shapes: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return the number of the first image of the set of near duplicates to which each image belongs, int64 [images].

    An image without near duplicates is the only one in its set. ``hashes`` and ``shapes`` are those of
    `digits.data.images.statistics`, of different images.
    """
    sets = np.arange(len(hashes))
    if len(hashes) < 2:
        return sets
    limits = _limits(shapes)
    for first, second in _candidates(hashes):
        distance = np.linalg.norm(_unit(shapes[first]) - _unit(shapes[second]), axis=1)
        is_near = distance < np.minimum(limits[first], limits[second])
        _join(sets, first[is_near], second[is_near])
    return np.array([_root(sets, index) for index in range(len(sets))])


def _limits(shapes: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the distance below which another image is a near duplicate of each."""
    count = len(shapes)
    sample = _unit(shapes[np.random.default_rng(0).permutation(count)[:_SAMPLE]])
    rank = max(MIN_NEIGHBORS, int(NEIGHBOR_FRACTION * len(sample)))
    neighbor = np.full(count, USUAL_DISTANCE, np.float32)
    if len(sample) > rank + 1:
        for start in range(0, count, 4096):
            products = _unit(shapes[start : start + 4096]) @ sample.T
            nearest = -np.partition(-products, rank, axis=1)[:, rank]
            neighbor[start : start + 4096] = np.sqrt(np.maximum(0, 2 - 2 * nearest))
    limits: NDArray[np.float32] = neighbor * np.maximum(NEIGHBOR_SHARE, DISTINCT_SHARE * neighbor**2)
    limits.clip(min=SAME_DISTANCE, out=limits)
    return limits


def _candidates(hashes: NDArray[np.uint64]) -> Iterator[Pairs]:
    """Yield pairs of images with similar hashes, in chunks; a pair may come several times."""
    for rotation in range(0, _BITS, _ROTATION):
        rotated = hashes << np.uint64(rotation) | hashes >> np.uint64((_BITS - rotation) % _BITS)
        order = np.argsort(rotated, kind="stable")
        table = rotated[order]
        for step in range(1, min(_WINDOW, len(order) - 1) + 1):
            different = np.bitwise_count(table[step:] ^ table[:-step])
            near = np.flatnonzero(different <= _MAX_DIFFERENT_BITS)
            for start in range(0, len(near), _CHUNK):
                places = near[start : start + _CHUNK]
                yield order[places], order[places + step]


def _unit(shapes: NDArray[np.int8]) -> NDArray[np.float32]:
    rows = shapes.astype(np.float32)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    return rows


def _join(sets: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
    """Unite the sets of the images of each pair: a union-find structure whose roots are the first images."""
    for pair in zip(first.tolist(), second.tolist(), strict=True):
        one, other = (_root(sets, place) for place in pair)
        sets[max(one, other)] = min(one, other)


def _root(sets: NDArray[np.int64], place: int) -> int:
    while sets[place] != place:
        sets[place] = sets[sets[place]]
        place = int(sets[place])
    return place
