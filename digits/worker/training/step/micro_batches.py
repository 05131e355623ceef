"""A step whose records do not fit into memory at once: micro-batches in sequence, whose gradients are averaged.

Statistics over a batch, such as those of batch normalization, are over the records of one micro-batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits.worker.input.targets import Targets
from digits.worker.network.network import Built
from digits.worker.network.variables import make_state
from digits.worker.training.step.label_flow import LabelFlow
from digits.worker.training.step.tracing import stack_rows

# For each loss the gradients of its variables; None where it does not depend on one.
Gradients = list[list[Any]]


@dataclass(frozen=True)
class Part:
    """The result of one micro-batch, or of several combined.

    ``row`` contains the metrics of ``built``, float32 [metrics]; ``gradients`` are those of its objectives.
    """

    row: tf.Tensor
    gradients: Gradients
    built: Built
    label_flow: LabelFlow


# Computes the records x [n, H, W, C] and their targets y, given the number of the micro-batch.
MicroBatch = Callable[[Any, tf.Tensor, Targets], Part]


def mean(batches: int, compute: MicroBatch, x: tf.Tensor, y: Targets, keep_first: bool = False) -> Part:
    """Return the mean over all records, which ``compute`` computes in ``batches`` micro-batches of equal size.

    Of several micro-batches, the network is traced once, inside a loop, so its tensors cannot be used outside;
    with ``keep_first`` it is traced twice, and the tensors of the first micro-batch can be used.
    """
    if batches == 1:
        return compute(0, x, y)
    sums, divided = _Sums(), tf.nest.map_structure(lambda values: _divide(values, batches), (x, y))

    def row(batch: Any) -> tuple[tf.Tensor, Part]:
        part = compute(batch, *tf.nest.map_structure(lambda values: values[batch], divided))
        sums.add(part, 1.0 / batches)
        return part.row, part

    kept = [row(0)] if keep_first else []
    rows, part = stack_rows(tf.constant(batches - len(kept)), lambda index: row(index + len(kept)))
    rows = tf.concat([*(tf.expand_dims(row, 0) for row, _ in kept), rows], 0)
    first_part = kept[0][1] if kept else part
    return dataclasses.replace(
        first_part, row=tf.reduce_mean(rows, 0), gradients=sums.take(first_part.gradients)
    )


def _divide(values: tf.Tensor, batches: int) -> tf.Tensor:
    """Return ``values`` [N, …] as [batches, N / batches, …]. Shapes remain static, on which XLA relies."""
    size = (values.shape[0] or tf.shape(values)[0]) // batches
    return tf.reshape(values, tf.concat([[batches, size], tf.shape(values)[1:]], 0))


class _Sums:
    """Sums of gradients, in one state variable for each loss and variable of the network."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], tf.Variable] = {}

    def add(self, part: Part, share: float) -> None:
        for number, objective in enumerate(part.built.objectives):
            for index, (variable, gradient) in enumerate(
                zip(objective.variables, part.gradients[number], strict=True)
            ):
                if gradient is None:
                    continue
                if (number, index) not in self._sums:
                    self._sums[number, index] = make_state("sum", variable.shape, 0.0, variable.dtype)
                self._sums[number, index].assign_add(share * tf.convert_to_tensor(gradient))

    def take(self, gradients: Gradients) -> Gradients:
        """Return the sums in place of ``gradients``, and reset them to zero."""
        return [
            [self._taken((number, index)) for index in range(len(of_loss))]
            for number, of_loss in enumerate(gradients)
        ]

    def _taken(self, key: tuple[int, int]) -> tf.Tensor | None:
        if key not in self._sums:
            return None
        total = self._sums[key].read_value()
        with tf.control_dependencies([total]):
            self._sums[key].assign(tf.zeros_like(total))
        return total
