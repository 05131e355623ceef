"""Histograms of the outputs of a network's layers over a batch, for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from digits.worker.input.preparation import Preparation
from digits.worker.network import layer_table
from digits.worker.network.network import Built
from digits.worker.network.variables import VariableStore
from digits.worker.randomness.streams import Randomness
from digits.worker.training.loop.tensorboard_log import spread


class Activations:
    """The layers of the network that ``build`` builds, for the images of one batch, uint8 [N, H, W, C].

    The histograms are computed on the device, because the activations of a large network would fill the memory.
    """

    def __init__(
        self,
        build: Callable[[tf.Tensor], Built],
        store: VariableStore,
        prepare: Preparation,
        randomness: Randomness,
        images: tf.Tensor,
    ) -> None:
        self._build, self._store, self._prepare = build, store, prepare
        self._randomness, self._images = randomness, images
        self._names: list[str] = []
        self._function = tf.function(self._spreads, autograph=False)

    def spreads(self) -> dict[str, NDArray[Any]]:
        """The result of `digits.worker.training.loop.tensorboard_log.spread` for each layer, by tag."""
        self._randomness.reset()
        values = self._function(self._images)
        return {f"activations/{name}": value.numpy() for name, value in zip(self._names, values, strict=True)}

    def _spreads(self, images: tf.Tensor) -> list[tf.Tensor]:
        with self._randomness.draw_for("activations", tf.constant(0, tf.int64)):
            built = self._build(self._prepare(images))
        graph = tf.compat.v1.get_default_graph()
        outputs = layer_table.activations(graph, built, self._store.variables.values())
        self._names = list(outputs)
        return [spread(output) for output in outputs.values()]
