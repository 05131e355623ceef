"""Fused batch normalization, compared with that of Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.worker.lazily import batch_norm, tf


def _both(shape: tuple[int, ...], training: bool, settings: dict[str, Any]) -> list[Any]:
    """Compare Keras' layer and ours: output, gradients and moving averages, and whether each is fused."""
    import keras

    batch_norm.install()
    kind = keras.layers.BatchNormalization
    x = tf.constant(np.random.default_rng(0).normal(3, 2, shape), tf.float32)
    return [_values(call, kind, settings, x, training) for call in (kind.call.__wrapped__, kind.call)]


def _values(
    call: Any, kind: type, settings: dict[str, Any], x: Any, training: bool
) -> tuple[list[Any], bool]:
    layer = kind(momentum=0.7, epsilon=1e-3, **settings)
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(0.5 + np.arange(weight.shape[0]) / 10)

    def compute() -> Any:
        y = call(layer, x, training=training)
        weights = [weight.value for weight in layer.trainable_weights]
        return y, tf.gradients(tf.reduce_sum(y**3), [x, *weights])

    function = tf.function(compute, autograph=False).get_concrete_function()
    y, gradients = function()
    values = [y, *gradients, *(weight.value for weight in layer.weights)]
    operations = {operation.type for operation in function.graph.get_operations()}
    return [value.numpy() for value in values], "FusedBatchNormV3" in operations


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("settings", [{}, {"scale": False}, {"center": False}, {"axis": 3}])
def test_the_fused_layer_matches_keras(in_child: Any, training: bool, settings: dict[str, Any]) -> None:
    (theirs, before), (ours, is_fused) = in_child(_both, (5, 4, 3, 6), training, settings)
    assert is_fused and not before
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("shape", "settings"), [((5, 6), {}), ((2, 3, 4, 5, 6), {}), ((5, 4, 3, 6), {"axis": 1})]
)
def test_unsupported_shapes_fall_back_to_keras(
    in_child: Any, shape: tuple[int, ...], settings: dict[str, Any]
) -> None:
    (theirs, _), (ours, is_fused) = in_child(_both, shape, True, settings)
    assert not is_fused
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def _both_after(convolution: str, arguments: tuple[int, ...], settings: dict[str, Any]) -> list[Any]:
    """Compare a layer with constant statistics behind a convolution, as `_both` does."""
    import keras

    batch_norm.install()
    chance = np.random.default_rng(0)
    x = tf.constant(chance.normal(3, 2, (4, 9, 9, 3)), tf.float32)
    before = getattr(keras.layers, convolution)(*arguments, padding="same", **settings)
    layer = keras.layers.BatchNormalization(trainable=False)
    layer.build(before(x).shape)
    weights = [*before.weights, *layer.weights]
    for weight in weights:
        weight.assign(chance.uniform(0.2, 1, weight.shape))

    def values(call: Any) -> tuple[list[Any], bool]:
        def compute() -> Any:
            y = call(layer, before(x), training=True)
            learned = [weight.value for weight in (*before.weights, layer.gamma, layer.beta)]
            return y, *tf.gradients(tf.reduce_sum(y**2), learned)

        function = tf.function(compute, autograph=False).get_concrete_function()
        operations = {operation.type for operation in function.graph.get_operations()}
        return [value.numpy() for value in function()], "FusedBatchNormV3" in operations

    return [values(call) for call in (type(layer).call.__wrapped__, type(layer).call)]


@pytest.mark.parametrize(
    ("convolution", "arguments", "settings", "is_folded"),
    [
        ("Conv2D", (6, 3, 2), {}, True),
        ("Conv2D", (6, 1), {"use_bias": False}, True),
        ("DepthwiseConv2D", (3,), {"depth_multiplier": 2}, True),
        ("Conv2D", (6, 3), {"activation": "relu"}, False),
        ("Conv2D", (6, 3), {"dilation_rate": 2}, False),
        ("Conv2DTranspose", (6, 3), {}, False),
    ],
)
def test_constant_statistics_become_a_part_of_the_convolution(
    in_child: Any, convolution: str, arguments: tuple[int, ...], settings: dict[str, Any], is_folded: bool
) -> None:
    (theirs, _), (ours, is_fused) = in_child(_both_after, convolution, arguments, settings)
    assert is_fused != is_folded
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())
