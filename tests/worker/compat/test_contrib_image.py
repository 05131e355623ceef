"""Image transforms, dense warps and resampling of TensorFlow 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

IMAGE = np.arange(12, dtype=np.float32).reshape(3, 4)


def _evaluated(expression: str) -> Any:
    import tensorflow as tf

    from digits.worker.compat import compat_module

    def value() -> Any:
        return eval(expression, {"image": compat_module.tensorflow().contrib.image, "np": np, **_NAMES})

    _NAMES.update(
        tf=tf, x=tf.constant(IMAGE), resampler=compat_module.tensorflow().contrib.resampler.resampler
    )
    return tf.function(value, autograph=False)().numpy()


_NAMES: dict[str, Any] = {}


def test_images_of_any_rank_are_rotated_counterclockwise(in_child: Any) -> None:
    square = "x[:, :3]"
    turned = np.rot90(IMAGE[:, :3])
    assert in_child(_evaluated, f"image.rotate({square}, np.pi / 2)") == pytest.approx(turned)
    batch = in_child(_evaluated, f"image.rotate(tf.stack([{square}] * 2)[..., None], [np.pi / 2, 0.0])")
    assert batch[0, :, :, 0] == pytest.approx(turned)
    assert batch[1, :, :, 0] == pytest.approx(IMAGE[:, :3])


def test_an_image_is_translated(in_child: Any) -> None:
    moved = in_child(_evaluated, "image.translate(x, [1, 2])")
    assert moved[2].tolist() == [0, 0, 1, 2]
    assert not moved[:2].any()


def test_transforms_are_composed(in_child: Any) -> None:
    moves = "image.translations_to_projective_transforms"
    both = f"image.compose_transforms({moves}([1.0, 0.0]), {moves}([0.0, 2.0]))"
    assert in_child(_evaluated, both) == pytest.approx(np.array([[1, 0, -1, 0, 1, -2, 0, 0]]))
    turn = "image.angles_to_projective_transforms([0.3, 0.1], 5, 7)"
    again = f"image.matrices_to_flat_transforms(image.flat_transforms_to_matrices({turn}))"
    assert in_child(_evaluated, again) == pytest.approx(in_child(_evaluated, turn))


def test_a_flow_warps_an_image(in_child: Any) -> None:
    flow = "tf.constant([-0.5, 1.0]) * tf.ones([1, 3, 4, 2])"  # half a pixel down, one to the left
    warped = in_child(_evaluated, f"image.dense_image_warp(x[None, :, :, None], {flow})")[0, :, :, 0]
    assert warped.tolist() == [[2, 2, 3, 4], [6, 6, 7, 8], [8, 8, 9, 10]]


def test_resampling_interpolates_and_pads(in_child: Any) -> None:
    places = "tf.constant([[[0.5, 0.0], [3.0, 2.0], [3.5, 2.0], [-2.0, 0.0], [1.25, 1.5]]])"
    values = in_child(_evaluated, f"resampler(x[None, :, :, None], {places})")
    assert values[0, :, 0] == pytest.approx([0.5, 11, 5.5, 0, 7.25])
