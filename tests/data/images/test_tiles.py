"""Pictures and statistics of activations and weights."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from digits.data.images import tiles


@given(st.integers(1, 300), st.integers(1, 70), st.integers(1, 70), st.booleans(), st.integers(1, 64))
def test_pictures_have_all_maps_they_claim_and_fit(
    total: int, height: int, width: int, has_color: bool, side: int
) -> None:
    shape = (total, height, width, *([3] if has_color else []))
    picture = tiles.draw_tiles(np.zeros(shape, np.float32), side=side)
    with Image.open(io.BytesIO(picture.png)) as image:
        assert image.size == (picture.width, picture.height)
    assert max(image.size) <= tiles.PICTURE_SIDE
    assert picture.total == total and 1 <= picture.shown <= min(total, tiles.MAX_TILES)
    assert picture.shown == total or total * height * width > tiles.PICTURE_SIDE**2 / 4


def test_maps_are_arranged_row_by_row_on_one_scale() -> None:
    maps = np.array([0, 1, 2, 3], np.float32).reshape(4, 1, 1).repeat(2, 1).repeat(2, 2)
    picture = tiles.draw_tiles(maps, side=2)
    pixels = np.asarray(Image.open(io.BytesIO(picture.png)))
    assert pixels.shape == (5, 5, 3) and (picture.low, picture.high) == (0, 3)
    corners = [pixels[0, 0], pixels[0, 3], pixels[3, 0], pixels[3, 3]]
    assert np.array_equal(corners, tiles.colorize(np.array([0, 1 / 3, 2 / 3, 1])))
    assert np.all(pixels[2] == 255) and np.all(pixels[:, 2] == 255)


def test_a_large_map_is_reduced() -> None:
    picture = tiles.draw_tiles(np.zeros((2, 3000, 10), np.float32))
    assert picture.height <= tiles.PICTURE_SIDE and picture.shown == 2


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=50))
def test_statistics_are_of_the_finite_values(values: list[float]) -> None:
    found = tiles.statistics(np.array(values, np.float32))
    finite = np.array([value for value in values if np.isfinite(value)], np.float64)
    assert (found["count"], found["not_finite"]) == (len(values), len(values) - len(finite))
    if not len(finite):
        assert found["mean"] is None and found["histogram"] is None
        return
    assert found["min"] == finite.min() and found["max"] == finite.max()
    assert found["mean"] == pytest.approx(finite.mean()) and sum(found["histogram"]["counts"]) == len(finite)
    assert np.isfinite(found["std"])
