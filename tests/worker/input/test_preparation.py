"""The preparation of images for the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits.core.recipe import Augment
from tests.worker.lazily import preparation, tf


def test_crops_are_random_in_training_and_central_in_validation(in_child: Any) -> None:
    central, padded, random, same = in_child(_windows)
    image = np.arange(25.0).reshape(5, 5)
    assert np.array_equal(central[0, :, :, 0], image[1:4, 1:4] - 1)
    assert padded.shape == (1, 7, 7, 1) and padded[0, 0].sum() == 0
    corners = {(int(window[0, 0, 0]) + 1) for window in random}
    assert len(corners) > 3
    for window in random:
        top, left = divmod(int(window[0, 0, 0]) + 1, 5)
        assert np.array_equal(window[:, :, 0], image[top : top + 3, left : left + 3] - 1)
    assert same


def _windows() -> Any:
    from digits.worker.input.preparation import Preparation

    def at_random(preparation: Preparation, images: tf.Tensor) -> np.ndarray:
        labels = tf.zeros([len(images)], tf.int64)
        return preparation.for_training(images, labels, tf.constant([1, 2]))[0].numpy()

    images = tf.constant(np.arange(25, dtype=np.uint8).reshape(1, 5, 5, 1))
    mean = np.ones((5, 5, 1), np.float32)
    three = Preparation(mean, 3, (5, 5, 1))
    many = tf.repeat(images, 20, axis=0)
    random, again = at_random(three, many), at_random(three, many)
    seven = Preparation(mean, 7, (5, 5, 1))
    return (three(images).numpy(), at_random(seven, images), random, np.array_equal(random, again))


def test_preprocessing_steps_run_in_order(in_child: Any) -> None:
    plain, evaluated, trained, targets = in_child(_prepared)
    mean = np.full((6, 6, 1), 100.0)
    mean[0] = 50
    # Validation: mean subtraction, center crop, standardization; nothing random.
    central = (plain - mean)[:, 1:5, 1:5]
    assert np.allclose(evaluated, _white(central), atol=1e-5)
    # Training: flip, subtract the mean at the new positions, then crop.
    flipped = plain[:, ::-1] - mean
    for image, one, other in zip(trained, flipped, plain - mean, strict=True):
        windows = [
            _white(source[None, top : top + 4, left : left + 4])[0]
            for source in (one, other)
            for top in range(3)
            for left in range(3)
        ]
        assert any(np.allclose(image, window, atol=1e-4) for window in windows)
    assert targets["y"].tolist() == [0, 1, 2, 0, 1, 2]
    assert np.allclose(targets["weights"], [0.5, 1, 2, 0.5, 1, 2])


def _white(images: np.ndarray) -> np.ndarray:
    centered = images - images.mean((1, 2, 3), keepdims=True)
    return centered / centered.std((1, 2, 3), keepdims=True)


def _prepared() -> Any:
    images = np.random.default_rng(1).integers(0, 256, (6, 6, 6, 1), np.uint8)
    mean = np.full((6, 6, 1), 100, np.float32)
    mean[0] = 50
    chosen = Augment(flip="flipud", whitening=True)
    weights = np.array([0.5, 1, 2], np.float32)
    prepare = preparation.Preparation(mean, 4, (6, 6, 1), chosen, weights)
    labels = tf.constant([0, 1, 2, 0, 1, 2], tf.int64)
    trained, targets = prepare.for_training(tf.constant(images), labels, tf.constant([3, 4]))
    numbers = {name: value.numpy() for name, value in targets.items()}
    return images.astype(float), prepare(tf.constant(images)).numpy(), trained.numpy(), numbers


def test_padding_is_zero_after_mean_subtraction(in_child: Any) -> None:
    batch = in_child(_padded)
    assert set(np.unique(batch)) == {0, 150}
    rows = (batch == 0).all((2, 3)).sum(1)
    assert set(rows.tolist()) == {0, 1, 2}


def _padded() -> Any:
    prepare = preparation.Preparation(np.full(1, 50, np.float32), None, (5, 5, 1), Augment(pad_crop=2))
    images = tf.fill([80, 5, 5, 1], tf.constant(200, tf.uint8))
    return prepare.for_training(images, tf.zeros([80], tf.int64), tf.constant([3, 4]))[0].numpy()


def test_blended_images_have_both_labels(in_child: Any) -> None:
    targets = in_child(_blended_targets)
    assert targets["others"].tolist() == [2, 0, 1]
    assert np.allclose(targets["other_weights"], [3, 1, 2])
    assert ((targets["share"] > 0) & (targets["share"] < 1)).all()


def _blended_targets() -> Any:
    weights = np.array([1, 2, 3], np.float32)
    prepare = preparation.Preparation(np.zeros(1, np.float32), None, (5, 5, 1), Augment(mixup=1.0), weights)
    images, labels = tf.zeros([3, 5, 5, 1], tf.uint8), tf.constant([0, 1, 2], tf.int64)
    _, targets = prepare.for_training(images, labels, tf.constant([3, 4]))
    return {name: value.numpy() for name, value in targets.items()}


@pytest.mark.parametrize("shape", [(4, 2, 3), (2, 3, 3), (3, 3, 1)], ids=["by 8", "by 2", "odd"])
def test_images_are_gathered_as_bytes(in_child: Any, shape: tuple[int, int, int]) -> None:
    images = np.random.default_rng(1).integers(0, 256, (300, *shape), np.uint8)
    positions = [299, 0, 7, 7]
    found = in_child(_gathered, images, positions)
    assert found.dtype == np.uint8 and np.array_equal(found, images[positions])


def _gathered(images: np.ndarray, positions: list[int]) -> np.ndarray:
    signature = [tf.TensorSpec((None, *images.shape[1:]), tf.uint8), tf.TensorSpec([None], tf.int64)]
    return tf.function(preparation.gather_records, autograph=False, input_signature=signature)(
        images, positions
    ).numpy()


def test_gpus_support_gathering_images(in_child: Any) -> None:
    kinds = in_child(_gathered_by_gpus)
    assert {"DT_INT64", "DT_HALF", "DT_FLOAT"} <= kinds


def _gathered_by_gpus() -> set[str]:
    from tensorflow.core.framework import types_pb2
    from tensorflow.python.framework import kernels

    found = kernels.get_registered_kernels_for_op("GatherV2").kernel
    constraints = [item for kernel in found if kernel.device_type == "GPU" for item in kernel.constraint]
    return {
        types_pb2.DataType.Name(kind)
        for item in constraints
        if item.name == "Tparams"
        for kind in item.allowed_values.list.type
    }
