"""The activations of a layer of a trained network for the records of a dataset, as one vector for each record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.manifest import Manifest
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.network.layer_table import LayerOutput
from digits.worker.network.network import operations_behind
from digits.worker.training.models.batch_prediction import check_fit, in_batches
from digits.worker.training.models.batches import Batches, large_batch
from digits.worker.training.models.trained import Trained


class Features(NamedTuple):
    """The activations for the records at ``places``, float32 [N, dimensions].

    ``predicted`` are the predicted classes, int32 [N]; empty if the targets are not classes.
    """

    places: NDArray[np.int64]
    values: NDArray[np.float32]
    predicted: NDArray[np.int32]


class LayerFeatures:
    """Computes the output of a ``layer`` of ``trained``, by default the last one before the output of the network.

    Outputs with several positions, such as maps [N, H, W, C], are averaged over them. ``manifest`` is that of the
    records. Raises UserFault if they do not fit the model, and for an unknown layer.
    """

    def __init__(self, trained: Trained, manifest: Manifest, layer: str = "") -> None:
        check_fit(trained, manifest)
        self._trained = trained
        self.layer = layer or last_before_output(trained.layers, trained.traced.built.output)
        output = trained.layer(self.layer).output
        if not output.shape.rank:
            raise UserFault(
                f"The layer “{self.layer}” has no output for each record.", "Choose another layer."
            )
        # Without the batch axis.
        self.shape: list[int | None] = output.shape.as_list()[1:]
        signature = [tf.TensorSpec((None, *manifest.shape), manifest.dtype)]
        function = tf.function(self._compute, autograph=False, input_signature=signature)
        self._batches = Batches(function, trained.batch_size)

    def read(self, records: feeds.Records, places: NDArray[np.int64]) -> Iterator[Features]:
        """Yield the features of the records at ``places``, in order; raises UserFault."""
        size = max(self._trained.batch_size, large_batch(self._trained.manifest.shape))
        for part, (values, predicted) in in_batches(records, places, size, lambda x, _: self._batches(x)):
            self._check(values, len(part))
            yield Features(part, values, predicted)

    def _compute(self, pixels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        trained = self._trained
        output, layers = trained.build_layers(pixels)
        predicted = tf.zeros([tf.shape(pixels)[0], 0], tf.int32)
        if trained.manifest.target.labels:
            predicted = tf.argmax(trained.targets.predict(output), axis=-1, output_type=tf.int32)
        return _vectors(layers[self.layer]), predicted

    def _check(self, values: NDArray[np.float32], size: int) -> None:
        if len(values) != size:
            raise UserFault(
                f"The layer “{self.layer}” returns {len(values):,} outputs for {size:,} records.",
                "Choose a layer with one output for each record.",
            )
        if not np.all(np.isfinite(values)):
            raise UserFault(
                f"The layer “{self.layer}” returns NaN or infinity.", "Choose another snapshot or layer."
            )


def _vectors(output: tf.Tensor) -> tf.Tensor:
    """Convert the output of a layer [N, …, C] to float32 [N, C], the mean over the axes between."""
    values = tf.cast(output, tf.float32)
    if values.shape.rank == 1:
        return values[:, None]
    return tf.reduce_mean(values, axis=list(range(1, values.shape.rank - 1)))


def last_before_output(layers: Mapping[str, LayerOutput], outputs: Any) -> str:
    """Return the name of the last layer on which the one that computes the output depends.

    The layer that computes the output is the last one with weights. If it is the only layer, it is returned. Raises
    UserFault for a network without layers.
    """
    numeric = [
        item for item in tf.nest.flatten(outputs) if isinstance(item, tf.Tensor) and item.dtype.is_floating
    ]
    reached = {operation.name for operation in operations_behind(numeric[:1])}
    names = [name for name, layer in layers.items() if layer.output.op.name in reached] or list(layers)
    if not names:
        raise UserFault("The network has no layers whose activations could be mapped.")
    last = next((name for name in reversed(names) if layers[name].weights), names[-1])
    before = {operation.name for operation in operations_behind([layers[last].output])}
    return next(
        (name for name in reversed(names) if name != last and layers[name].output.op.name in before), last
    )
