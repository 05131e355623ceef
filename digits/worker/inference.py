"""The inference graph of a network: images in, output out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits.worker import layer_table, tower
from digits.worker.network import Built, Network
from digits.worker.variables import VariableStore


@dataclass(frozen=True)
class Inference:
    """A traced inference network. ``function`` maps float32 [N, H, W, C] to its output."""

    function: Any
    built: Built

    @property
    def layers(self) -> list[dict[str, Any]]:
        """The table of its layers."""
        return layer_table.layers(self.function.graph, self.built)


def trace(network: Network, store: VariableStore) -> Inference:
    """Build the inference network; its variables are made, if they were not."""
    built: list[Built] = []

    def infer(x: tf.Tensor) -> Any:
        built.append(network.build(store, tower.INFERENCE, x, None))
        return built[-1].output

    signature = [tf.TensorSpec((None, *network.shape), tf.float32, name="x")]
    function = tf.function(infer, autograph=False, input_signature=signature).get_concrete_function()
    return Inference(function, built[-1])
