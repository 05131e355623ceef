"""Keras models of networks that preprocess their images or call TensorFlow functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.recipe import Augment
from tests.worker.exporting.test_standard_exports import build
from tests.worker.lazily import functional_models, keras_functions, keras_model, tf, verification


@pytest.mark.parametrize(
    ("crop", "whitening"),
    [
        pytest.param(25, False, marks=pytest.mark.nightly),
        (37, False),
        pytest.param(None, True, marks=pytest.mark.nightly),
        (25, True),
    ],
    ids=str,
)
def test_the_preprocessing_is_part_of_the_model(
    in_child: Any, tmp_path: Path, crop: int | None, whitening: bool
) -> None:
    assert in_child(difference_of_preprocessing, tmp_path, crop, whitening) < 1e-5


def difference_of_preprocessing(folder: Path, crop: int | None, whitening: bool) -> float:
    """Return the relative difference between a network and its Keras model. Call it with `in_child`."""
    found = build("multilabel", folder, crop, Augment(whitening=whitening))
    file = folder / "model.keras"
    keras_model.write_keras(found, file)
    images = np.random.default_rng(0).integers(0, 256, (2, *found.input_shape)).astype(np.float32)
    difference = verification.verify(found, file, "keras", images, 1).difference
    assert difference is not None
    return difference


def calls() -> dict[str, Callable[[Any], Any]]:
    """Return calls of TensorFlow functions with a tensor [2, 4, 6, 8] of numbers from 0.1 to 0.9."""
    row = np.linspace(1, 2, 8)
    unary = (
        "nn.relu nn.relu6 nn.elu nn.selu nn.silu nn.softplus nn.softsign nn.sigmoid tanh exp math.log sqrt math.rsqrt "
        "square abs negative stop_gradient identity nn.leaky_relu nn.gelu nn.softmax nn.log_softmax reduce_sum "
        "reduce_mean reduce_max reduce_min transpose nn.local_response_normalization"
    )
    binary = "add subtract multiply divide truediv maximum minimum pow"

    def named(name: str) -> Any:
        found: Any = tf
        for part in name.split("."):
            found = getattr(found, part)
        return found

    return {
        **{name: lambda x, name=name: named(name)(x) for name in unary.split()},  # type: ignore[misc]
        **{name: lambda x, name=name: named(name)(x, 0.5 * x) for name in binary.split()},  # type: ignore[misc]
        "list - x": lambda x: row.tolist() - x,
        "x / list": lambda x: x / row.tolist(),
        "array * x": lambda x: row.astype(np.float32) * x,
        "tensor + x": lambda x: tf.constant(row, tf.float32) + x,
        "x - variable": lambda x: x - tf.Variable(row, dtype=tf.float32),
        "reduce over axes": lambda x: tf.reduce_mean(x, [1, 2], keepdims=True),
        "concat": lambda x: tf.concat([x, 2 * x], axis=3),
        "stack": lambda x: tf.stack([x, -x], axis=2),
        "split evenly": lambda x: tf.split(x, 2, axis=3)[1],
        "split by sizes": lambda x: tf.split(x, [1, 3, 4], axis=3)[1],
        "reshape": lambda x: tf.reshape(x, [-1, 24, 8]),
        "reshape by shape": lambda x: tf.reshape(x, [tf.shape(x)[0], -1, tf.shape(x)[3]]),
        "transpose": lambda x: tf.transpose(x, [0, 3, 1, 2]),
        "expand, squeeze": lambda x: tf.squeeze(tf.expand_dims(x, 2), [2]),
        "pad": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 3], [0, 0]]),
        "pad by reflection": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 3], [0, 0]], "REFLECT"),
        "repeat": lambda x: tf.repeat(x, 3, axis=3),
        "reverse": lambda x: tf.reverse(x, [-1]),
        "gather in a batch": lambda x: tf.gather(
            tf.reshape(x, [-1, 24, 8]), tf.cast(x[:, 0, :, 0] * 20, tf.int32), batch_dims=1
        ),
        "unstack": lambda x: tf.unstack(x, axis=3)[5],
        "any": lambda x: tf.reduce_any(x > 0.5, 1),
        "product": lambda x: tf.reduce_prod(x, axis=-1),
        "comparison": lambda x: tf.where(x > 0.5, x, 0.0),
        "top_k": lambda x: tf.math.top_k(x, 3)[0],
        "max_pool": lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"),
        "ensure_shape": lambda x: tf.ensure_shape(x, [None, 4, 6, 8]),
        "cast": lambda x: tf.cast(x * 10, tf.int32),
        "clip": lambda x: tf.clip_by_value(x, 0.2, 0.6),
        "matmul": lambda x: tf.matmul(x, tf.transpose(x, [0, 1, 3, 2])),
        "add_n": lambda x: tf.add_n([x, x, x]),
        "local response": lambda x: tf.nn.lrn(x, depth_radius=2, bias=2, alpha=0.3, beta=0.75),
        "resize": lambda x: tf.image.resize(x, [7, 5]),
        "resize to a shape": lambda x: tf.image.resize(x, 2 * np.array(x.shape[1:3]), method="nearest"),
    }


def test_tensorflow_functions_compute_the_same_in_keras(in_child: Any) -> None:
    differing = {name: words for name, words in in_child(compare_calls).items() if words}
    assert not differing


def compare_calls() -> dict[str, str]:
    """Return what is wrong with each call: nothing for an equal result. Call it with `in_child`."""
    import keras

    functional_models.install()
    x = np.random.default_rng(0).uniform(0.1, 0.9, (2, 4, 6, 8)).astype(np.float32)
    inputs = keras.Input((4, 6, 8))
    found = {}
    for name, call in calls().items():
        expected = call(tf.constant(x)).numpy()
        try:
            with keras_functions.enabled():
                model = keras.Model(inputs, call(inputs))
            copy = keras.Model.from_config(model.get_config())
            given = copy(x).numpy()
        except Exception as error:  # of any kind: they are compared
            found[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        is_same = given.shape == expected.shape and given.dtype == expected.dtype
        found[name] = (
            "" if is_same and np.allclose(given, expected, atol=1e-5) else f"{expected} {given}"[:300]
        )
    return found
