"""Statistics of images: gray values, exact and perceptual hashes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from digits.data.images import images
from digits.data.images.statistics import MODES, describe, low_frequencies, perceptual_hashes
from digits.data.records.records import Record
from digits.data.targets.class_index import ClassIndex

TARGET = ClassIndex.of(["a", "b"])


def picture(seed: int, side: int = 64) -> Image.Image:
    """Return a smooth random image, like a photo."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 6), np.uint8)
    return Image.fromarray(noise).resize((side, side), Image.Resampling.BICUBIC)


def record_of(image: Image.Image, label: int = 0, encoding: str = "png") -> Record:
    data = images.encode_image(image, encoding)
    name = {"png": "png", "jpg": "jpeg", "none": "raw"}[encoding]
    features = {"image/class/label": [label]}
    return Record(
        data, name, image.height, image.width, len(image.getbands()), features, b"x", (640, 480), "CMYK"
    )


def small(image: Image.Image) -> NDArray[np.float32]:
    return np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR), np.float32)


def test_gray_values_are_described() -> None:
    half = Image.new("L", (10, 10), 0)
    half.paste(200, (0, 0, 10, 5))
    white = Image.new("RGB", (10, 10), "white")
    rows, _ = describe([record_of(half), record_of(white)], 2, TARGET)
    assert rows["brightness"].tolist() == [100, 255]
    assert rows["contrast"].tolist() == [100, 0]
    assert (rows["low"].tolist(), rows["high"].tolist()) == ([0, 255], [200, 255])
    assert (rows["width"].tolist(), rows["height"].tolist()) == ([640, 640], [480, 480])
    assert [MODES[mode] for mode in rows["mode"]] == ["CMYK", "CMYK"]


def test_the_exact_hash_depends_on_the_pixels_only() -> None:
    image = picture(1)
    rows, _ = describe([record_of(image), record_of(image, 1, "none"), record_of(picture(2))], 3, TARGET)
    assert rows["pixels_hash"][0] == rows["pixels_hash"][1] != rows["pixels_hash"][2]
    assert rows["target_hash"][0] == rows["target_hash"][2] != rows["target_hash"][1]


def test_the_perceptual_hash_survives_scaling_and_compression() -> None:
    originals = [picture(seed, 128) for seed in range(20)]
    scaled = [image.resize((96, 96), Image.Resampling.BILINEAR) for image in originals]
    compressed = [images.as_image(images.load(images.encode_image(image, "jpg"), 1)) for image in originals]
    hashes, of_scaled, of_compressed, of_mirrored = (
        perceptual_hashes(low_frequencies(np.stack([small(image) for image in group])))
        for group in (originals, scaled, compressed, list(map(ImageOps.mirror, originals)))
    )
    assert len(set(hashes.tolist())) == 20
    assert np.count_nonzero(hashes == of_scaled) > 10
    assert np.count_nonzero(hashes == of_compressed) > 10
    assert not np.any(hashes == of_mirrored)


def test_the_perceptual_hash_is_the_one_of_imagehash() -> None:
    # imagehash.phash(image, hash_size=8, highfreq_factor=4) of this 32×32 image
    ramp = (np.arange(32 * 32, dtype=np.float32).reshape(1, 32, 32) * 37) % 251
    frequencies = np.zeros((32, 32))
    for row in range(32):
        for column in range(32):
            x = np.cos(np.pi * row * (2 * np.arange(32) + 1) / 64)
            y = np.cos(np.pi * column * (2 * np.arange(32) + 1) / 64)
            frequencies[row, column] = 4 * x @ ramp[0] @ y
    low = frequencies[:8, :8]
    bits = "".join("1" if value > np.median(low) else "0" for value in low.ravel())
    assert int(perceptual_hashes(low_frequencies(ramp))[0]) == int(bits, 2)
