"""Images that a model predicts from."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data.manifest import Manifest
from digits.data.targets.boxes import Boxes
from digits.worker.failure import UserFault
from digits.worker.input import image_input
from tests.datasets import manifest_of
from tests.worker.lazily import display, preparation


def manifest_of_boxes(**properties: Any) -> Manifest:
    size = {"width": 25, "height": 20}
    return manifest_of(Boxes.of(["thing"], 1), **{"kind": "image-object-detection", **size, **properties})


@pytest.mark.parametrize(("size", "height"), [((30, 20), 10), ((30, 80), 20)])
def test_images_are_padded_like_those_of_the_dataset(size: tuple[int, int], height: int) -> None:
    manifest = manifest_of_boxes(padding=(50, 40))
    file = io.BytesIO()
    Image.new("L", size, 200).save(file, "PNG")
    pixels, geometry = image_input.read(file.getvalue(), manifest)
    assert pixels[: height - 1, :14].min() == 200 and not pixels[:, 16:].any()
    assert not pixels[height + 1 :].any() and geometry.size == size
    box = geometry.restore_boxes(np.array([[0, 0, 15, height]], np.float32))
    np.testing.assert_allclose(box, [[0, 0, *size]], rtol=1e-5)


@pytest.mark.parametrize(
    "properties", [{"channels": 4, "mean_pixel": [0.0] * 4}, {"dtype": "float32", "encoding": "raw"}]
)
def test_models_of_other_arrays_do_not_predict_from_images(properties: dict[str, Any]) -> None:
    with pytest.raises(UserFault, match="does not predict from single images"):
        image_input.read(b"", manifest_of_boxes(**properties))


def test_an_image_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(UserFault, match="The image cannot be read: "):
        image_input.read(b"GIF89a", manifest_of_boxes())


def test_arrays_of_numbers_are_displayed_in_their_range(tensorflow: None) -> None:
    prepare = preparation.Preparation(np.zeros(1, np.float32), None, (1, 3, 1), image_dtype="float32")
    shown = display.as_pixels(np.array([-500, 0, 500], np.float32).reshape(1, 1, 3, 1), prepare)
    assert shown.ravel().tolist() == [0, 128, 255]
