"""How large the gradients and the updates of a step are, compared with the weights."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from digits.core.events import MAX_METRIC_NAME
from digits.worker.network.variables import MODEL_SCOPE, plain, plain_name

GRADIENT_NORM = "gradient_norm"
UPDATE_RATIO = "update_ratio/"
# More curves cannot be told apart, and all metrics share the number of points in memory.
MAX_LAYERS = 24

Updates = Sequence[Sequence[tuple[tf.Tensor, tf.Variable]]]


class UpdateStatistics:
    """The statistics of the ``updates`` of a step, pairs of gradients and variables.

    Create it in the graph before the updates, and call `measure` after them.
    """

    def __init__(self, updates: Updates) -> None:
        pairs = [pair for variables in updates for pair in variables]
        self._norm = tf.linalg.global_norm([gradient for gradient, _ in pairs])
        self._layers = _layers([plain(variable) for _, variable in pairs])
        self._before = {
            name: [variable.read_value() for variable in variables]
            for name, variables in self._layers.items()
        }

    def measure(self) -> dict[str, tf.Tensor]:
        """Return float32 scalars by the name of the metric.

        That is the norm of all gradients, and for each layer the norm of the change of its weights divided by the
        norm of the weights.
        """
        statistics = {GRADIENT_NORM: tf.cast(self._norm, tf.float32)}
        for name, before in self._before.items():
            after = [variable.read_value() for variable in self._layers[name]]
            changes = [new - old for new, old in zip(after, before, strict=True)]
            ratio = tf.math.divide_no_nan(tf.linalg.global_norm(changes), tf.linalg.global_norm(before))
            statistics[f"{UPDATE_RATIO}{name}"] = tf.cast(ratio, tf.float32)
        return statistics


def _layers(variables: Sequence[tf.Variable]) -> dict[str, list[tf.Variable]]:
    """Return the weights of each layer by its name, without biases; of many layers, an evenly spaced selection."""
    layers: dict[str, list[tf.Variable]] = {}
    for variable in variables:
        name = plain_name(variable).removeprefix(f"{MODEL_SCOPE}/")
        known = layers.setdefault(name.rpartition("/")[0] or name, [])
        if variable.shape.rank >= 2 and all(variable is not other for other in known):
            known.append(variable)
    names = [name for name, own in layers.items() if own]
    if len(names) > MAX_LAYERS:
        names = [names[index * (len(names) - 1) // (MAX_LAYERS - 1)] for index in range(MAX_LAYERS)]
    return {name[len(UPDATE_RATIO) - MAX_METRIC_NAME :]: layers[name] for name in names}
