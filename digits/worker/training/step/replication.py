"""A step whose batch is split: across devices, or into micro-batches in sequence.

Every part is a replica of the network on its share of the records. Gradients and metrics are averaged, weighted
by the numbers of records, so a step updates the weights as one batch on one device would. Statistics over a
batch, such as those of batch normalization, are over the records of one replica.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
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
    """The result of one replica, or of several combined.

    ``row`` contains the metrics of ``built``, float32 [metrics]; ``gradients`` are those of its objectives.
    """

    row: tf.Tensor
    gradients: Gradients
    built: Built
    label_flow: LabelFlow


# Computes the records x [n, H, W, C] and their targets y, given the numbers of the micro-batch and of the device.
Replica = Callable[[Any, int, tf.Tensor, Targets], Part]


@dataclass(frozen=True)
class Replication:
    """Computes each step in ``batches`` micro-batches of equal size, one after the other, each across ``devices``."""

    devices: Sequence[str]
    batches: int

    def mean(self, replica: Replica, x: tf.Tensor, y: Targets, keep_first: bool = False) -> Part:
        """Return the mean over all records of a step.

        Of several micro-batches, the network is traced once, inside a loop, so its tensors cannot be used outside;
        with ``keep_first`` it is traced twice, and the tensors of the first micro-batch can be used.
        """
        if self.batches == 1:
            return self._on_devices(replica, 0, x, y)
        size = tf.shape(x)[0] // self.batches
        sums = _Sums()

        def row(batch: Any) -> tuple[tf.Tensor, Part]:
            first = batch * size
            part = self._on_devices(replica, batch, *_sliced((x, y), first, first + size))
            sums.add(part, 1.0 / self.batches)
            return part.row, part

        kept = [row(0)] if keep_first else []
        rows, part = stack_rows(tf.constant(self.batches - len(kept)), lambda index: row(index + len(kept)))
        rows = tf.concat([*(tf.expand_dims(row, 0) for row, _ in kept), rows], 0)
        first_part = kept[0][1] if kept else part
        return dataclasses.replace(
            first_part, row=tf.reduce_mean(rows, 0), gradients=sums.take(first_part.gradients)
        )

    def _on_devices(self, replica: Replica, batch: Any, x: tf.Tensor, y: Targets) -> Part:
        """Split the records across the devices and combine the results."""
        if len(self.devices) == 1:
            return replica(batch, 0, x, y)  # TensorFlow chooses the best place for every operation
        count = tf.shape(x)[0]
        bounds = [count * number // len(self.devices) for number in range(len(self.devices) + 1)]
        parts, shares = [], []
        for number, device in enumerate(self.devices):
            first, last = bounds[number], bounds[number + 1]
            with tf.device(device):
                parts.append(replica(batch, number, *_sliced((x, y), first, last)))
            shares.append(tf.cast(last - first, tf.float32) / tf.cast(count, tf.float32))
        return _combined(parts, shares)


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


def _sliced(values: Any, first: Any, last: Any) -> Any:
    return tf.nest.map_structure(lambda value: value[first:last], values)


def _combined(parts: Sequence[Part], shares: Sequence[tf.Tensor]) -> Part:
    """Return the mean of the metrics and gradients of ``parts``, weighted by their ``shares`` of the records."""
    gradients = [
        [_weighted(values, shares) for values in zip(*of_objective, strict=True)]
        for of_objective in zip(*(part.gradients for part in parts), strict=True)
    ]
    row = _weighted([part.row for part in parts], shares)
    return dataclasses.replace(parts[0], row=row, gradients=gradients)


def _weighted(values: Sequence[Any], shares: Sequence[tf.Tensor]) -> Any:
    if values[0] is None:
        return None
    return tf.add_n(
        [
            tf.convert_to_tensor(value) * tf.cast(share, value.dtype)
            for value, share in zip(values, shares, strict=True)
        ]
    )
