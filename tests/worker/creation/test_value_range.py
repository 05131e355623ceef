"""The pixels of 16-bit and floating-point images in a dataset and in predictions, and images of many pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.worker.creation import shards
from digits.worker.input import image_input
from tests.kinds.dataset_forms import Created, Forms

SIZE = {
    "resize_width": 10,
    "resize_height": 10,
    "resize_channels": 1,
    "folder_pct_val": 0,
    "folder_pct_test": 0,
}


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def wide(value: int) -> np.ndarray:
    return np.full((10, 10), value, np.uint16)


def create(data: Path) -> Created:
    return Forms("image-classification", data).create(folder_train=data, **SIZE)


def values(made: Created) -> list[int]:
    return sorted({int(value) for record in made.records() for value in np.unique(record.as_array())})


def test_12_of_16_bits_are_stretched_in_the_dataset_and_in_predictions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in range(6):
        save(data / "bone" / f"{number}.png", wide(100 * number))
        save(data / "lung" / f"{number}.tif", wide(4095 - 100 * number))
    summary = Forms("image-classification", data).summary(folder_train=data)
    assert "16-bit images use 12 bits: they will be stretched." in summary.facts
    made = create(data)
    assert "16-bit images use 12 bits: stretched to the full range of brightness." in made.remarks
    assert made.manifest.bits == 12 and sum(made.counts.values()) == 12
    assert values(made) == sorted({value >> 4 for n in range(6) for value in (100 * n, 4095 - 100 * n)})
    save(tmp_path / "dark.png", wide(400))  # this image alone uses 10 bits
    pixels, _ = image_input.read(tmp_path / "dark.png", made.manifest)
    assert np.unique(pixels).tolist() == [400 >> 4]


def test_the_range_is_that_of_the_brightest_image_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SAMPLED_FOR_BITS", 1)
    data = tmp_path / "data"
    for number, label in enumerate(("a", "b")):
        for n in range(30):
            save(data / label / f"{n}.png", wide(200))
        save(data / label / "wider.png", wide((1000, 16000)[number]))
    (data / "a" / "broken.png").write_bytes(b"no image")
    made = create(data)
    assert made.manifest.bits == 14 and made.manifest.skipped == 1 and sum(made.counts.values()) == 62
    assert values(made) == [200 >> 6, 1000 >> 6, 16000 >> 6]
    skipped = (made.folder / "skipped.csv").read_text().splitlines()
    assert len(skipped) == 2 and "a/broken.png" in skipped[1]


@pytest.mark.parametrize("largest", [65535, 255])
def test_full_and_8_bit_ranges_in_16_bit_files(tmp_path: Path, largest: int) -> None:
    data = tmp_path / "data"
    for label, value in (("a", largest // 2), ("b", largest)):
        for n in range(3):
            save(data / label / f"{n}.tif", wide(value))
    made = create(data)
    assert values(made) == [127, 255] and made.manifest.bits == (16 if largest > 255 else 8)
    assert any("16-bit images" in remark for remark in made.remarks) == (largest == 255)


def test_images_of_8_bits_are_not_stretched(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for label, value in (("a", 3), ("b", 20)):
        for n in range(3):
            save(data / label / f"{n}.png", wide(value).astype(np.uint8))
    made = create(data)
    assert values(made) == [3, 20] and made.manifest.bits == 16


def test_floating_point_pixels_are_scaled_or_refused_with_their_range(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for label, value in (("a", 0.2), ("b", 1.0)):
        for n in range(30):
            save(data / label / f"{n}.tif", np.full((10, 10), value, np.float32))
    save(data / "a" / "odd.tif", np.full((10, 10), 250, np.float32))
    made = create(data)
    assert "60 images have floating-point pixels from 0 to 1: scaled to 0 to 255." in made.remarks
    assert values(made) == [51, 255]
    reason = "floating-point pixels are supported from 0 to 1 only, but range from 250 to 250"
    assert reason in (made.folder / "skipped.csv").read_text()


def test_target_images_share_the_range_of_the_images(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for n in range(4):
        save(data / "in" / f"{n}.png", wide(1000))
        save(data / "out" / f"{n}.png", wide(4000))
    fields = {name: value for name, value in SIZE.items() if name.startswith("resize")}
    forms = Forms("image-processing", data)
    made = forms.create(feature_folder=data / "in", label_folder=data / "out", folder_pct_val=0, **fields)
    assert made.manifest.bits == 12 and values(made) == [1000 >> 4]
    record = made.records()[0]
    assert np.unique(record.target(made.manifest.target)).tolist() == [4000 >> 4]


def test_a_huge_photo_is_used_and_its_geometry_is_that_of_the_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number, label in enumerate(("cup", "plate")):
        for n in range(3):
            save(data / label / f"{n}.jpg", wide(100 * number + n).astype(np.uint8))
        huge = np.zeros((6400, 8000), np.uint8)
        huge[:, 4000:] = 200
        save(data / label / "huge.jpg", huge)
    made = create(data)
    assert made.manifest.skipped == 0 and sum(made.counts.values()) == 8
    sizes = {record.source_size for record in made.records()}
    assert (8000, 6400) in sizes
    pixels, geometry = image_input.read(data / "cup" / "huge.jpg", made.manifest)
    assert geometry.size == (8000, 6400)
    row = pixels[0, :, 0].tolist()
    assert row[:4] == [0] * 4 and row[4] < 100 < row[5] and row[6:] == [200] * 4
    moved = geometry.move_boxes(np.array([[4000, 0, 8000, 6400]], np.float32))
    assert moved.tolist() == [[5, 0, 10, 10]]
