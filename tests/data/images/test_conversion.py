"""A copy of `digits.data.images.conversion` outside of DIGITS prepares images as the server does."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from digits.data.images import conversion as image_conversion
from digits.data.images import images
from tests.data.images.test_images import png

PREPARE = """
import pathlib, sys
import numpy as np
import image_conversion
for name in sys.argv[1:]:
    for channels in (1, 3):
        for mode in image_conversion.RESIZE_MODES:
            pixels = image_conversion.prepare(name, 14, 9, channels, mode, (40, 25))
            np.save(f"{name}-{channels}-{mode}.npy", pixels)
assert "digits" not in sys.modules
"""


def odd_images() -> dict[str, bytes]:
    """Return files of modes that are easily converted in another way."""
    ramp = np.add.outer(np.arange(20) * 5, np.arange(31) * 5).astype(np.uint8)
    color = Image.fromarray(np.stack([ramp, ramp[::-1], 255 - ramp], axis=2))
    gray, alpha = Image.fromarray(ramp), Image.fromarray(np.ascontiguousarray(ramp[:, ::-1]))
    with_alpha, gray_with_alpha, palette = color.copy(), gray.copy(), color.quantize(7)
    with_alpha.putalpha(alpha)
    gray_with_alpha.putalpha(alpha)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90°
    found = {
        "rgba.png": (with_alpha, {}),
        "la.png": (gray_with_alpha, {}),
        "palette.png": (palette, {"transparency": 2}),
        "transparent_color.png": (color, {"transparency": (50, 145, 205)}),
        "sixteen_bits.png": (Image.fromarray(ramp.astype(np.uint16) * 250), {}),
        "cmyk.tif": (color.convert("CMYK"), {}),
        "cmyk.jpg": (color.convert("CMYK"), {}),
        "turned.jpg": (color, {"exif": exif}),
        "one_bit.png": (gray.convert("1"), {}),
        "ordinary.png": (color, {}),
    }
    files = {}
    for name, (image, settings) in found.items():
        stream = io.BytesIO()
        image.save(stream, {"tif": "TIFF", "jpg": "JPEG"}.get(name[-3:], "PNG"), **settings)
        files[name] = stream.getvalue()
    return files


def test_a_copy_prepares_odd_images_as_the_server_does(tmp_path: Path) -> None:
    shutil.copy(image_conversion.__file__, tmp_path / "image_conversion.py")
    (tmp_path / "prepare.py").write_text(PREPARE)
    files = odd_images()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    subprocess.run([sys.executable, "-E", "-s", "prepare.py", *files], cwd=tmp_path, check=True)
    for name, data in files.items():
        for channels in (1, 3):
            picture = images.pad(images.open_picture(data, channels).image, 40, 25)
            for mode in images.RESIZE_MODES:
                expected = images.as_pixels(images.resize_image(picture, 14, 9, mode))
                given = np.load(tmp_path / f"{name}-{channels}-{mode}.npy")
                assert np.array_equal(given, expected), (name, channels, mode)


def test_the_bits_in_use_are_stretched_or_refused(tmp_path: Path) -> None:
    values = np.arange(0, 4096, 256, np.uint16).reshape(4, 4)
    Image.fromarray(values).save(tmp_path / "gray.png")
    gray = image_conversion.prepare(str(tmp_path / "gray.png"), 4, 4, 1, "squash", None, 12)
    assert gray[..., 0].tolist() == (values >> 4).tolist()
    assert np.array_equal(gray, images.load(tmp_path / "gray.png", 1, bits=12))
    rows = b"".join(b"\0" + row.tobytes() for row in np.stack([values] * 3, axis=2).astype(">u2"))
    header = struct.pack(">IIBBBBB", 4, 4, 16, 2, 0, 0, 0)
    (tmp_path / "color.png").write_bytes(png(header, zlib.compress(rows)))
    with pytest.raises(image_conversion.UnusableImage, match="convert the image to 8 bits"):
        image_conversion.prepare(str(tmp_path / "color.png"), 4, 4, 3, "squash", None, 12)


def test_pixels_without_a_defined_brightness_are_refused() -> None:
    stream = io.BytesIO()
    Image.fromarray(np.full((4, 4), 2, np.float32)).save(stream, "TIFF")
    with pytest.raises(image_conversion.UnusableImage, match="floating-point"):
        image_conversion.prepare(stream, 4, 4, 1, "squash")
