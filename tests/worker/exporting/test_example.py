"""The example program of an export."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from digits.data.images import conversion as image_conversion
from tests.worker.exporting.test_standard_exports import build
from tests.worker.lazily import conversion, example, exported

IDENTITY = (
    (
        "return 255.0 * (x + tf.cast(difference, x.dtype))",
        "return digits.nhwc_to_nchw(self.x + 0.0 * difference)",
    ),
)


def test_images_with_the_channels_first_are_saved(in_child: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (32, 32, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    in_child(write_export, tmp_path)
    shutil.copy(image_conversion.__file__, tmp_path / "image_conversion.py")
    subprocess.run([sys.executable, "-E", "-s", "example.py", "image.png"], cwd=tmp_path, check=True)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "output.png")), pixels)


def write_export(folder: Path) -> None:
    """Export a network that returns its input as [N, C, H, W]. Call it with `in_child`."""
    found = build("dncnn", folder, changes=IDENTITY)
    conversion.write_litert(exported.Exported(found), found, folder / "model.tflite", "float32")
    (folder / "example.py").write_text(example.example(found, "litert", 1, False))
