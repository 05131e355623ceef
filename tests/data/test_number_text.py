"""Arrays as JSON, CSV and NumPy files in pieces."""

from __future__ import annotations

import io

import msgspec
import numpy as np
import pytest

from digits.data import number_text


@pytest.mark.parametrize("shape", [(), (0, 3), (3,), (40_000,), (20_000, 2), (3, 20_000), (2, 1, 9_000, 2)])
def test_the_pieces_of_an_array_are_small_and_complete(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32).reshape(shape)
    if values.size:
        values.flat[0] = np.nan
    pieces = list(number_text.json_pieces(values))
    assert b"".join(pieces) == msgspec.json.encode(values.tolist())
    assert max(map(len, pieces)) < 500_000

    pieces = list(number_text.npy_pieces(values))
    assert np.array_equal(np.load(io.BytesIO(b"".join(pieces))), values, equal_nan=True)
    assert max(map(len, pieces)) < 200_000

    rows = b"".join(number_text.csv_pieces("y", values)).decode().splitlines()
    assert rows == [f"y,{' '.join(map(str, place))},{value}" for place, value in np.ndenumerate(values)]


def test_a_transposed_array_is_saved_in_its_own_order() -> None:
    values = np.arange(6).reshape(2, 3).T
    assert np.array_equal(np.load(io.BytesIO(b"".join(number_text.npy_pieces(values)))), values)
