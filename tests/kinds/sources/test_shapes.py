"""Forms of objects: their pixels are those of the reference, also on turned and scaled images, and bad ones are refused."""

from __future__ import annotations

import base64
import zlib
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pycocotools import mask as coco_masks

from digits.kinds.sources.shapes import (
    Form,
    Placement,
    Rectangle,
    Rings,
    RunLengths,
    from_bitmap,
    from_brush,
    from_coco,
    from_rows,
)

WIDTH, HEIGHT = 23, 17
coordinates = st.floats(-30, 45, allow_nan=False, width=32)
rings = st.lists(st.tuples(coordinates, coordinates), min_size=3, max_size=8)
regions = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).random((HEIGHT, WIDTH)) < 0.3
)
# Upright images of the same file, by EXIF orientation.
TURNED = {
    1: lambda mask: mask,
    2: lambda mask: mask[:, ::-1],
    3: lambda mask: mask[::-1, ::-1],
    4: lambda mask: mask[::-1],
    5: lambda mask: mask.T,
    6: lambda mask: np.rot90(mask, -1),
    7: lambda mask: mask[::-1, ::-1].T,
    8: lambda mask: np.rot90(mask),
}


def drawn(form: Form, width: int = WIDTH, height: int = HEIGHT) -> NDArray[np.uint8]:
    pixels = np.zeros((height, width), np.uint8)
    raster = form.raster((width, height))
    raster.draw(pixels, 1)
    assert raster.area == pixels.sum()
    return pixels


@given(outlines=st.lists(rings, min_size=1, max_size=3))
def test_polygons_have_the_pixels_of_the_reference(outlines: list[Any]) -> None:
    form = Rings.of(*outlines)
    try:
        form.bounds.window((WIDTH, HEIGHT))
    except ValueError:
        return
    flat = [np.ravel(np.array(ring, np.float64)).tolist() for ring in outlines]
    lengths = coco_masks.merge(coco_masks.frPyObjects(flat, HEIGHT, WIDTH))
    raster = form.raster((WIDTH, HEIGHT))
    assert raster.area == int(coco_masks.area(lengths))
    again = RunLengths(Rectangle(0, 0, WIDTH, HEIGHT), HEIGHT, WIDTH, lengths["counts"])
    if raster.area:
        assert drawn(form).tolist() == drawn(again).tolist()


@given(region=regions, turn=st.sampled_from(sorted(TURNED)), factor=st.sampled_from([1, 2, 3]))
def test_masks_are_turned_and_scaled_with_the_image(region: Any, turn: int, factor: int) -> None:
    if not region.any():
        return
    form = RunLengths.of(region).moved(Placement(factor, factor, WIDTH * factor, HEIGHT * factor, turn))
    expected = TURNED[turn](region).repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = expected.shape
    assert drawn(form, width, height).tolist() == expected.astype(int).tolist()
    rows, columns = np.flatnonzero(expected.any(axis=1)), np.flatnonzero(expected.any(axis=0))
    edges = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    assert astuple(form.bounds) == pytest.approx(edges)


def test_masks_in_a_part_of_the_image_are_cut_off_at_its_edge() -> None:
    form = from_rows([0, 12], 4, 3, Rectangle(-2, 15, 2, 18))
    expected = np.zeros((HEIGHT, WIDTH), np.uint8)
    expected[15:, :2] = 1
    assert drawn(form).tolist() == expected.tolist()


@given(region=regions)
def test_compressed_and_plain_run_lengths_are_the_same(region: Any) -> None:
    compressed = coco_masks.encode(np.asfortranarray(region, np.uint8))["counts"].decode()
    changes = np.flatnonzero(np.diff(np.concatenate([[0], region.T.ravel().astype(int), [0]])))
    plain = np.diff(np.concatenate([[0], changes, [region.size]])).tolist()
    for counts in (compressed, plain, list(map(str, plain))):
        form = from_coco({"size": [HEIGHT, WIDTH], "counts": counts})
        assert isinstance(form, RunLengths)
        if region.any():
            assert drawn(form).tolist() == region.astype(int).tolist()


@given(
    counts=st.one_of(
        st.text(max_size=20), st.text("0Oo5P`\n", max_size=12), st.lists(st.integers(), max_size=5)
    )
)
def test_any_run_lengths_are_all_pixels_or_refused(counts: Any) -> None:
    try:
        form = from_coco({"size": [3, 4], "counts": counts})
    except ValueError as error:
        assert str(error)
        return
    assert isinstance(form, RunLengths)
    bounds = form.bounds
    if not bounds.fault():
        assert drawn(form, 4, 3).shape == (3, 4)


anything = st.one_of(
    st.none(),
    st.integers(),
    st.text(max_size=30),
    st.lists(st.integers(-1, 256), max_size=60),
    st.binary(max_size=60),
)


@given(codes=anything, data=st.binary(max_size=60))
def test_any_brush_and_bitmap_is_a_mask_or_refused(codes: Any, data: bytes) -> None:
    header = [*(48).to_bytes(4, "big"), 57]
    packed = base64.b64encode(zlib.compress(data)).decode()
    for read in (
        lambda: from_brush(codes, 4, 3),
        lambda: from_brush([*header, *data], 4, 3),
        lambda: from_bitmap(codes),
        lambda: from_bitmap(packed, is_packed=True),
        lambda: from_bitmap(base64.b64encode(data).decode()),
    ):
        try:
            mask = read()
        except ValueError as error:
            assert str(error).startswith("its ")
        else:
            assert mask.dtype == np.bool_ and mask.ndim == 2
