"""The inference graph of a network, from images to output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits.core.events import Layer as LayerRow
from digits.worker.network import layer_table, tower
from digits.worker.network.network import Built, Network
from digits.worker.network.variables import VariableStore


@dataclass(frozen=True)
class Inference:
    """A traced inference network. ``function`` maps float32 [N, H, W, C] to its output.

    ``build`` builds it again, in the current graph, for images [N, H, W, C] of that graph.
    """

    function: Any
    built: Built
    build: Callable[[tf.Tensor], Built]

    @property
    def layers(self) -> list[LayerRow]:
        """The layer table of the network."""
        return layer_table.layers(self.function.graph, self.built)


def trace(network: Network, store: VariableStore, shape: tuple[int | None, ...] | None = None) -> Inference:
    """Build the inference network and create its variables if necessary.

    ``shape`` is that of the input if it differs from the images: the generator of a GAN takes random vectors. There
    are no targets; a network that requires them gets zeros.
    """
    shape = shape or network.shape
    try:
        return _trace(network, store, shape, tower.INFERENCE, lambda x: None)
    except Exception:
        if not network.may_depend_on("y"):
            raise
        # If missing labels are not the cause, this raises the same error again.
        return _trace(network, store, shape, tower.INFERENCE, _zeros(network))


def trace_for_display(network: Network, store: VariableStore) -> tuple[Inference, Exception | None]:
    """Build a network for display: for inference or, if that fails, for validation.

    Also returns the error of the inference network, or None.
    """
    try:
        return trace(network, store), None
    except Exception as fault:
        if not network.may_depend_on("is_inference"):
            raise
        return _trace(network, store, network.shape, tower.VALIDATION, _zeros(network)), fault


def _zeros(network: Network) -> Callable[[tf.Tensor], tf.Tensor]:
    target = network.target
    return lambda x: tf.zeros(
        tf.concat([tf.shape(x)[:1], tf.constant(target.shape, tf.int32)], 0), target.dtype
    )


def _trace(
    network: Network,
    store: VariableStore,
    shape: tuple[int | None, ...],
    stage: str,
    labels: Callable[[tf.Tensor], tf.Tensor | None],
) -> Inference:
    def build(x: tf.Tensor) -> Built:
        return network.build(store, stage, x, labels(x))

    built: list[Built] = []

    def infer(x: tf.Tensor) -> Any:
        built.append(build(x))
        return built[-1].output

    signature = [tf.TensorSpec((None, *shape), tf.float32, name="x")]
    function = tf.function(infer, autograph=False, input_signature=signature).get_concrete_function()
    return Inference(function, built[-1], build)
