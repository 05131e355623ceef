"""Gradients of a step whose batch is split: across devices, or into micro-batches in sequence.

Every part is a replica of the network on its share of the records. Gradients and metrics are averaged, weighted
by the numbers of records, so a step updates the weights as one batch on one device would. Statistics over a
batch, such as those of batch normalization, are over the records of one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from digits.worker.failure import UserFault
from digits.worker.network.network import Built, Objective
from digits.worker.network.variables import make_state

# For each loss the gradients of its variables; None where it does not depend on one.
Gradients = list[list[Any]]


@dataclass(frozen=True)
class ReplicaResult:
    """The result of a replica: a ``row`` of metrics, and the gradients for the objectives of ``built``.

    ``statistics`` are those of the updates of a step: see `digits.worker.training.update_statistics`.
    """

    row: tf.Tensor
    gradients: Gradients
    built: Built
    statistics: dict[str, tf.Tensor] = field(default_factory=dict)


# Computes the replica or micro-batch with the given number from its records.
Compute = Callable[[Any, tf.Tensor, Any], ReplicaResult]


def compute(built: Built, scale: tf.Tensor | None = None) -> ReplicaResult:
    """The metrics and gradients of a network; the losses are multiplied by ``scale`` for backpropagation."""
    return ReplicaResult(tf.stack(list(built.metrics.values())), _gradients(built, scale), built)


def on_devices(compute: Compute, devices: Sequence[str], x: tf.Tensor, y: Any) -> ReplicaResult:
    """Split the records across ``devices`` and combine the results."""
    if len(devices) == 1:
        return compute(0, x, y)  # TensorFlow chooses the best place for every operation
    count = tf.shape(x)[0]
    bounds = [count * number // len(devices) for number in range(len(devices) + 1)]
    parts, shares = [], []
    for number, device in enumerate(devices):
        first, last = bounds[number], bounds[number + 1]
        with tf.device(device):
            parts.append(compute(number, x[first:last], _sliced(y, first, last)))
        shares.append(tf.cast(last - first, tf.float32) / tf.cast(count, tf.float32))
    gradients = [
        [_weighted(found, shares) for found in zip(*of_objective, strict=True)]
        for of_objective in zip(*(part.gradients for part in parts), strict=True)
    ]
    row = _weighted([part.row for part in parts], shares)
    return ReplicaResult(row, gradients, parts[0].built)


def in_sequence(
    compute: Compute,
    count: int,
    x: tf.Tensor,
    y: Any,
    keep_first: bool = False,
) -> ReplicaResult:
    """Compute the records in ``count`` micro-batches of equal size, one after the other.

    The network is traced once, inside a loop, so its tensors cannot be used outside; with ``keep_first`` it is
    traced twice, and the tensors of the first micro-batch can be used.
    """
    size = tf.shape(x)[0] // count
    found: list[ReplicaResult] = []
    sums = _Sums()

    def row(number: Any) -> tf.Tensor:
        first = number * size
        part = compute(number, x[first : first + size], _sliced(y, first, first + size))
        found.append(part)
        sums.add(part, 1.0 / count)
        return part.row

    done = [row(0)] if keep_first else []
    others = stack_rows(tf.constant(count - len(done)), lambda number: row(number + len(done)))
    rows = tf.concat([*(tf.expand_dims(row, 0) for row in done), others], 0)
    return ReplicaResult(tf.reduce_mean(rows, 0), sums.take(found[0]), found[0].built)


def stack_rows(count: tf.Tensor, row: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """``row(0)`` … ``row(count - 1)``, computed in sequence, as float32 [count, n]."""

    def body(index: tf.Tensor, rows: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return index + 1, rows.write(index, row(index))

    rows = tf.TensorArray(tf.float32, size=count, element_shape=[None])
    _, rows = tf.while_loop(
        lambda index, _: index < count, body, (tf.constant(0), rows), parallel_iterations=1
    )
    return rows.stack()


def updates(result: ReplicaResult) -> list[list[tuple[tf.Tensor, tf.Variable]]]:
    """For each loss, the pairs of gradients and variables to apply, processed by the network's gradientUpdate.

    Raises UserFault if there are none.
    """
    found = []
    for objective, gradients in zip(result.built.objectives, result.gradients, strict=True):
        pairs = result.built.tower.gradientUpdate(list(zip(gradients, objective.variables, strict=True)))
        found.append([(gradient, variable) for gradient, variable in pairs if gradient is not None])
    if not any(found):
        raise UserFault(
            "The loss does not depend on any variable that can be trained.",
            "Compute the loss from self.inference.",
        )
    return found


class _Sums:
    """Sums of gradients, in one state variable for each loss and variable of the network."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], tf.Variable] = {}

    def add(self, part: ReplicaResult, share: float) -> None:
        for number, objective in enumerate(part.built.objectives):
            for place, (variable, gradient) in enumerate(
                zip(objective.variables, part.gradients[number], strict=True)
            ):
                if gradient is None:
                    continue
                if (number, place) not in self._sums:
                    self._sums[number, place] = make_state("sum", variable.shape, 0.0, variable.dtype)
                self._sums[number, place].assign_add(share * tf.convert_to_tensor(gradient))

    def take(self, part: ReplicaResult) -> Gradients:
        """Return the sums, for the losses and variables of ``part``, and reset them to zero."""
        return [
            [self._taken((number, place)) for place in range(len(gradients))]
            for number, gradients in enumerate(part.gradients)
        ]

    def _taken(self, key: tuple[int, int]) -> tf.Tensor | None:
        if key not in self._sums:
            return None
        total = self._sums[key].read_value()
        with tf.control_dependencies([total]):
            self._sums[key].assign(tf.zeros_like(total))
        return total


def _sliced(values: Any, first: Any, last: Any) -> Any:
    return tf.nest.map_structure(lambda value: value[first:last], values)


def _weighted(values: Sequence[Any], shares: Sequence[tf.Tensor]) -> Any:
    if values[0] is None:
        return None
    return tf.add_n(
        [
            tf.convert_to_tensor(value) * tf.cast(share, value.dtype)
            for value, share in zip(values, shares, strict=True)
        ]
    )


def _gradients(built: Built, scale: tf.Tensor | None) -> Gradients:
    regularization = _regularization_gradients(built)
    found = []
    for objective in built.objectives:
        gradients = []
        for variable, gradient in zip(objective.variables, _loss_gradients(objective, scale), strict=True):
            # The regularization of a variable in several losses counts once.
            extra = regularization.pop(id(variable), None)
            terms = [tf.convert_to_tensor(term) for term in (gradient, extra) if term is not None]
            gradients.append(tf.add_n(terms) if len(terms) > 1 else gradient if extra is None else extra)
        found.append(gradients)
    return found


def _loss_gradients(objective: Objective, scale: tf.Tensor | None) -> list[Any]:
    if not objective.variables:
        return []
    if scale is None:
        return tf.gradients(objective.loss, objective.variables)
    # Scaled gradients do not underflow in half precision.
    loss = tf.cast(objective.loss, tf.float32)
    gradients = tf.gradients(loss, objective.variables, grad_ys=tf.reshape(scale, tf.shape(loss)))
    return [None if gradient is None else tf.convert_to_tensor(gradient) / scale for gradient in gradients]


def _regularization_gradients(built: Built) -> dict[int, tf.Tensor]:
    variables = {id(variable): variable for item in built.objectives for variable in item.variables}
    if built.regularization is None or not variables:
        return {}
    gradients = tf.gradients(built.regularization, list(variables.values()))
    return {key: gradient for key, gradient in zip(variables, gradients, strict=True) if gradient is not None}
