"""Pictures and statistics of arrays: the activations and weights of a layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.data.images import images

BINS = 20
# The width and height of a picture of tiles in pixels, at most.
PICTURE_SIDE = 1200
# Smaller maps are enlarged to this side, unless the picture would become too large.
TILE_SIDE = 48
MAX_TILES = 1024
_GAP = 1
# Colors of viridis (Smith and van der Walt, 2015) at equal distances; neighbors are interpolated.
_VIRIDIS = np.frombuffer(
    bytes.fromhex("440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6dcd59 b4de2c fde725"), np.uint8
).reshape(-1, 3)


@dataclass(frozen=True)
class TilePicture:
    """A PNG file with the first ``shown`` of ``total`` maps, the ``low`` and ``high`` value of its colors."""

    png: bytes
    width: int
    height: int
    shown: int
    total: int
    low: float
    high: float


def colorize(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the colors, uint8 [..., 3], of ``values`` from 0 to 1 on the scale viridis, dark to bright."""
    places = np.linspace(0, 1, len(_VIRIDIS))
    table = np.stack([np.interp(np.linspace(0, 1, 256), places, channel) for channel in _VIRIDIS.T], -1)
    colors: NDArray[np.uint8] = np.rint(table).astype(np.uint8)[
        (np.clip(values, 0, 1) * 255).astype(np.uint8)
    ]
    return colors


def draw_tiles(
    maps: NDArray[Any], limits: tuple[float, float] | None = None, side: int = TILE_SIDE
) -> TilePicture:
    """Draw maps, [maps, H, W] in false colors or [maps, H, W, 3] in color, as a grid that is nearly square.

    All maps share one scale, from the minimum to the maximum of all of them, or that of the ``limits``. Maps beyond
    `MAX_TILES`, or for which there is no room, are left out. Maps smaller than ``side`` pixels are enlarged if there is
    room. NaN and -infinity are drawn as the minimum.
    """
    total, height, width = maps.shape[:3]
    low, high = limits or value_range(maps)
    step = _reduction(max(height, width))
    maps = maps[:MAX_TILES, ::step, ::step]
    height, width = maps.shape[1:3]
    per_row = max(1, (PICTURE_SIDE + _GAP) // (width + _GAP))
    per_column = max(1, (PICTURE_SIDE + _GAP) // (height + _GAP))
    shown = min(len(maps), per_row * per_column)
    columns = min(per_row, max(1, math.ceil(math.sqrt(shown * height / width))))
    columns = max(columns, math.ceil(shown / per_column))
    rows = math.ceil(shown / columns)
    scaled = np.nan_to_num(
        (maps[:shown].astype(np.float32) - low) / ((high - low) or 1.0), nan=0, posinf=1, neginf=0
    )
    if maps.ndim == 4:
        tiles = (np.clip(scaled, 0, 1) * 255).astype(np.uint8)
    else:
        tiles = colorize(scaled)
    room = min(PICTURE_SIDE // (columns * (width + _GAP)), PICTURE_SIDE // (rows * (height + _GAP)))
    factor = max(1, min(math.ceil(side / max(height, width)), room))
    tiles = tiles.repeat(factor, 1).repeat(factor, 2)
    grid = images.arrange(tiles, columns, _GAP)
    return TilePicture(images.encode(grid, "png"), grid.shape[1], grid.shape[0], shown, total, low, high)


def _reduction(side: int) -> int:
    """Return the subsampling step at which a map fits the picture."""
    return max(1, math.ceil(side / PICTURE_SIDE))


def value_range(values: NDArray[Any]) -> tuple[float, float]:
    """Return the minimum and maximum of the finite ``values``; zeros if there are none."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def statistics(values: NDArray[Any]) -> dict[str, Any]:
    """Return ``min``, ``max``, ``mean``, ``std`` and a histogram of the finite ``values``, and how many are not finite.

    ``histogram`` has `BINS` bins: ``counts`` and their ``low`` and ``high`` end. The numbers are None for no values.
    """
    finite = values[np.isfinite(values)].astype(np.float64)
    facts: dict[str, Any] = {"count": int(values.size), "not_finite": int(values.size - finite.size)}
    if not finite.size:
        return facts | dict.fromkeys(("min", "max", "mean", "std", "histogram"))
    low, high = float(finite.min()), float(finite.max())
    # `np.histogram` refuses ranges that are too narrow for float64.
    largest = max(abs(low), abs(high))
    margin = 0.0 if high - low > 1e-12 * largest else max(0.5, 1e-6 * largest)
    counts = np.histogram(finite, BINS, (low - margin, high + margin))[0]
    return facts | {
        "min": low,
        "max": high,
        "mean": float(finite.mean()),
        "std": float(finite.std()),
        "histogram": {"counts": counts.tolist(), "low": low, "high": high},
    }
