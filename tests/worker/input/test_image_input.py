"""Images that a model predicts from."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from digits.data.manifest import Manifest
from digits.data.targets.boxes import Boxes
from digits.worker.input import image_input


@pytest.mark.parametrize(("size", "height"), [((30, 20), 10), ((30, 80), 20)])
def test_images_are_padded_like_those_of_the_dataset(size: tuple[int, int], height: int) -> None:
    manifest = Manifest(
        kind="image-object-detection",
        width=25,
        height=20,
        channels=1,
        encoding="png",
        resize_mode="squash",
        padding=(50, 40),
        target=Boxes.of(["thing"], 1),
        splits={},
        mean_pixel=[0.0],
    )
    file = io.BytesIO()
    Image.new("L", size, 200).save(file, "PNG")
    pixels, geometry = image_input.read(file.getvalue(), manifest)
    assert pixels[: height - 1, :14].min() == 200 and not pixels[:, 16:].any()
    assert not pixels[height + 1 :].any() and geometry.size == size
    box = geometry.restore_boxes(np.array([[0, 0, 15, height]], np.float32))
    np.testing.assert_allclose(box, [[0, 0, *size]], rtol=1e-5)
