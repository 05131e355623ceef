"""Latent vectors, and the pixels and grids of generated images."""

from __future__ import annotations

import numpy as np
import pytest

from digits.data.models.latent import GAP, UnusableVector, draw_grid, draw_vectors, to_pixels


def test_the_seed_determines_the_vectors() -> None:
    vectors = draw_vectors(3, 4, 100, 7)
    assert vectors.shape == (12, 100) and vectors.dtype == np.float32
    assert np.array_equal(vectors, draw_vectors(3, 4, 100, 7))
    assert not np.array_equal(vectors, draw_vectors(3, 4, 100, 8))
    assert abs(vectors.mean()) < 0.2 and abs(vectors.std() - 1) < 0.2


def test_given_vectors_come_first() -> None:
    vectors = draw_vectors(2, 2, 3, 0, given=[[1, 2, 3], [4, 5, 6]])
    assert vectors[:2].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert np.array_equal(vectors[2:], draw_vectors(2, 2, 3, 0)[2:])
    with pytest.raises(UnusableVector, match="A vector has 2 numbers; the network requires 3"):
        draw_vectors(2, 2, 3, 0, given=[[1, 2]])


def test_interpolation_keeps_the_length_of_the_vectors() -> None:
    vectors = draw_vectors(1, 5, 2, 0, given=[[2, 0], [0, 2]], interpolate=True)
    assert vectors[0] == pytest.approx([2, 0]) and vectors[-1] == pytest.approx([0, 2], abs=1e-6)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([2] * 5)
    assert vectors[2] == pytest.approx([2**0.5] * 2)
    opposite = draw_vectors(1, 3, 2, 0, given=[[1, 0], [-1, 0]], interpolate=True)
    assert np.isfinite(opposite).all()


def test_chained_rows_start_where_the_previous_one_ends() -> None:
    vectors = draw_vectors(2, 3, 2, 0, given=[[2, 0], [0, 2], [-2, 0]], interpolate=True, chained=True)
    assert vectors.shape == (6, 2)
    assert vectors[0] == pytest.approx([2, 0]) and vectors[5] == pytest.approx([-2, 0], abs=1e-6)
    assert vectors[2] == pytest.approx(vectors[3])
    labels = draw_vectors(2, 3, 4, 0, interpolate=True, chained=True, classes=3)[:, 1:]
    assert labels[[0, 2, 3, 5]].argmax(axis=1).tolist() == [0, 1, 1, 2]


def test_vectors_end_with_a_class() -> None:
    vectors = draw_vectors(2, 4, 8, 0, classes=3)
    assert vectors[:, 5:].argmax(axis=1).tolist() == [0, 1, 2, 0] * 2
    assert vectors[:, 5:].sum(axis=1).tolist() == [1] * 8
    assert draw_vectors(2, 2, 8, 0, classes=3, label=2)[:, 7].tolist() == [1] * 4
    rows = draw_vectors(2, 4, 8, 0, classes=3, interpolate=True)
    assert rows[:, 5:].argmax(axis=1).tolist() == [0] * 4 + [1] * 4
    given = draw_vectors(1, 2, 4, 0, given=[[1, 2], [1, 2, 1, 0]], classes=2)
    assert given.tolist() == [[1, 2, 1, 0], [1, 2, 1, 0]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([0.0, 128.4, 300.0]), [0, 128, 255]),
        (np.array([-1.0, 0.0, 1.0]), [0, 128, 255]),
        (np.array([0.0, 0.5, 1.0]), [0, 128, 255]),
        (np.array([0, 128, 255], np.int32), [0, 128, 255]),
        (np.array([16128, 16256, 16384], np.int32), [0, 128, 255]),
        (np.array([np.nan, 100.0, np.inf]), [0, 100, 255]),
    ],
)
def test_outputs_become_pixels(values: np.ndarray, expected: list[int]) -> None:
    assert to_pixels(values).tolist() == expected


def test_a_grid_has_its_images_in_rows() -> None:
    images = np.stack([np.full((4, 6, 3), level, np.uint8) for level in (10, 20, 30)])
    grid = draw_grid(images, 2)
    assert grid.size == (2 * 6 + GAP, 2 * 4 + GAP)
    assert grid.getpixel((6 + GAP, 0)) == (20, 20, 20, 255)
    assert grid.getpixel((0, 4 + GAP)) == (30, 30, 30, 255)
    assert grid.getpixel((6, 0))[3] == 0 and grid.getpixel((6 + GAP, 4 + GAP))[3] == 0
