"""Latent vectors for generating images, and grids of generated images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from digits.data.images.images import Pixels, as_image

# Pixels between the images of a grid.
GAP = 2

Vectors = NDArray[np.float32]


class UnusableVector(ValueError):
    """A latent vector does not have the size that the network requires."""


def draw_vectors(
    rows: int,
    columns: int,
    size: int,
    seed: int,
    *,
    given: Sequence[Sequence[float]] = (),
    interpolate: bool = False,
    chained: bool = False,
    classes: int = 0,
    label: int | None = None,
) -> Vectors:
    """Return the latent vectors of a grid of images, float32 [rows * columns, size], row by row.

    The ``given`` vectors are used first, and followed by vectors from a normal distribution. With ``interpolate``, each
    row leads from one vector to another; if the rows are ``chained``, the next row starts where it ends. If the network
    generates images of ``classes``, the last numbers of a vector are a one-hot class: ``label``, or by default, the
    classes in turn, one for each column, or with ``interpolate``, for each row or, if they are ``chained``, for each of
    their ends. Given vectors may lack it. Raises UnusableVector.
    """
    noise = size - classes
    for vector in given:
        if len(vector) not in (size, noise):
            sizes = " or ".join(map(str, sorted({size, noise})))
            raise UnusableVector(f"A vector has {len(vector):,} numbers; the network requires {sizes}.")
    chained = interpolate and chained
    count = rows + 1 if chained else 2 * rows if interpolate else rows * columns
    used = list(given)[:count]
    drawn = np.random.default_rng(seed).standard_normal((count, noise)).astype(np.float32)
    labels = np.arange(rows + chained) if interpolate else np.tile(np.arange(columns), rows)
    labels = labels % max(1, classes) if label is None else np.full_like(labels, label)
    one_hot = np.eye(max(1, classes), dtype=np.float32)[
        labels.repeat(2) if interpolate and not chained else labels
    ]
    vectors = np.concatenate([drawn, one_hot[:, :classes]], axis=1)
    for index, vector in enumerate(used):
        vectors[index, : len(vector)] = vector
    if not interpolate:
        return vectors
    firsts, lasts = (vectors[:-1], vectors[1:]) if chained else (vectors[::2], vectors[1::2])
    return np.concatenate(
        [_lead(first, last, columns, noise) for first, last in zip(firsts, lasts, strict=True)]
    )


def _lead(first: Vectors, last: Vectors, steps: int, noise: int) -> Vectors:
    """Return vectors from ``first`` to ``last``: spherical in the first ``noise`` numbers, else linear.

    Shoemake, 1985, “Animating Rotation with Quaternion Curves”. Images of vectors on a straight line would be less
    typical in the middle, because these vectors are shorter.
    """
    t = np.linspace(0, 1, steps, dtype=np.float32)[:, None]
    line = (1 - t) * first + t * last
    one, other = first[:noise].astype(np.float64), last[:noise].astype(np.float64)
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    angle = np.arccos(np.clip(one @ other / lengths, -1, 1)) if lengths else 0.0
    if np.sin(angle) > 1e-6:
        line[:, :noise] = (np.sin((1 - t) * angle) * one + np.sin(t * angle) * other) / np.sin(angle)
    return line


def to_pixels(images: NDArray[np.generic]) -> Pixels:
    """Convert generated images to uint8, 0 to 255.

    As in DIGITS, integers wrap around, so that one of its networks may return 16128 to 16384. Numbers of at most 1 are
    from -1 to 1 if any is negative, else from 0 to 1; others are from 0 to 255.
    """
    if images.dtype.kind in "iu":
        low = int(images.min()) if images.size else 0
        return (images.astype(np.int64) - 256 * max(0, low // 256)).clip(0, 255).astype(np.uint8)
    values = np.nan_to_num(images.astype(np.float32))
    if values.max(initial=0) <= 1:
        values = 127.5 * (values + 1) if values.min(initial=0) < 0 else 255 * values
    return np.rint(values).clip(0, 255).astype(np.uint8)


def draw_grid(images: NDArray[np.uint8], columns: int) -> Image.Image:
    """Return the ``images`` [N, H, W, C] in a grid with transparent gaps."""
    count, height, width, _ = images.shape
    rows = -(-count // columns)
    size = columns * (width + GAP) - GAP, rows * (height + GAP) - GAP
    grid = Image.new("RGBA", size)
    for index, pixels in enumerate(images):
        row, column = divmod(index, columns)
        grid.paste(as_image(pixels), (column * (width + GAP), row * (height + GAP)))
    return grid
