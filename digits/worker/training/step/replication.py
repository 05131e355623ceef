"""A step whose records are divided among replicas of the network, and into micro-batches that fit into memory.

Every replica, on a device of this worker or of other workers, computes a contiguous share of the records with
variables of its own. `Reduction` averages metrics and gradients, weighted by the numbers of records, so a step updates
the weights as one batch on one device would. Micro-batches are computed in sequence. Statistics over a batch are over
the records of one micro-batch of one replica, unless the workers synchronize them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps_utils

from digits.worker.gang.gang import ALONE, Gang
from digits.worker.gang.share import Share
from digits.worker.input.target_tensors import Targets
from digits.worker.network.network import Built
from digits.worker.network.variables import VariableCopies, VariableStore, make_state
from digits.worker.training.step.device_config import DeviceConfig
from digits.worker.training.step.label_flow import LabelFlow
from digits.worker.training.step.tracing import stack_rows

# For each loss the gradients of its variables; None where it does not depend on one.
Gradients = list[list[Any]]


@dataclass(frozen=True)
class Part:
    """The result of one micro-batch, or of several combined.

    ``row`` contains the metrics of ``built``, float32 [metrics]; ``gradients`` are those of its objectives. ``trained``
    contains the names of the variables that the whole training trains, of which a phase may train only some.
    """

    row: tf.Tensor
    gradients: Gradients
    built: Built
    label_flow: LabelFlow
    trained: Set[str] = frozenset()


# Computes the records x [n, H, W, C] and their targets y, given the number of the micro-batch.
MicroBatch = Callable[[Any, tf.Tensor, Targets], Part]


def mean_of_batches(
    batches: int, compute: MicroBatch, x: tf.Tensor, y: Targets, keep_first: bool = False
) -> Part:
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


@dataclass(frozen=True)
class Replica:
    """The replica ``number`` of this worker, on ``device``, with the variables of ``store``.

    It computes ``share`` of the step, or all records if that is None. ``fraction`` is its part of the records of the
    worker, whose share is ``whole``.
    """

    number: int
    device: str
    store: VariableStore
    share: Share | None
    whole: Share | None
    fraction: float = 1.0

    def refresh(self) -> None:
        """Copy the variables of the training to those of the replica, if it has its own."""
        if isinstance(self.store, VariableCopies):
            self.store.refresh()

    def take(self, values: tf.Tensor) -> tf.Tensor:
        """Return those of ``values``, one for each record that the worker reads, which the replica reads."""
        if self.share is self.whole or self.share is None:
            return values
        known = self.whole.positions.tolist() if self.whole else range(self.share.count)
        rows = [known.index(position) for position in self.share.positions.tolist()]
        # With blended images, the record before the first one may be the last one of the step.
        before, rows = (rows[:1], rows[1:]) if rows[0] > rows[-1] else ([], rows)
        pieces = [values[row : row + 1] for row in before]
        return tf.concat([*pieces, values[rows[0] : rows[-1] + 1]], 0)


def replicas(config: DeviceConfig, whole: Share | None, blends: bool, store: VariableStore) -> list[Replica]:
    """Return the replicas of this worker, which computes ``whole`` of a step, or all records if that is None.

    The first one uses the variables of ``store``, the others copies on their devices.
    """
    size = (whole.last - whole.first) // config.batches if whole else config.batch_size
    devices = config.devices[:size]
    if len(devices) == 1:
        return [Replica(0, "", store, whole, whole)]  # TensorFlow chooses the best place for every operation
    count = config.batch_size * config.batches
    divided = (whole or Share(0, count, count, blends)).divide(len(devices), config.batches)
    return [
        Replica(
            number,
            device,
            store.copies_on(device) if number else store,
            share,
            whole,
            share.fraction / (whole.fraction if whole else 1.0),
        )
        for number, (device, share) in enumerate(zip(devices, divided, strict=True))
    ]


class Reduction:
    """The mean over the ``replicas`` of this worker, and over those of the other workers of ``gang``.

    This worker computes a ``fraction`` of the records of a step.
    """

    def __init__(self, replicas: Sequence[Replica], gang: Gang = ALONE, fraction: float = 1.0) -> None:
        self.gang, self.fraction = gang, fraction
        self._replicas = replicas

    @property
    def is_trivial(self) -> bool:
        """Whether there is only one replica."""
        return len(self._replicas) == self.gang.workers == 1

    def mean(self, values: tf.Tensor) -> tf.Tensor:
        """Return the mean of ``values`` of all workers, weighted by their numbers of records.

        In the gradients of a worker, whose mean is taken later, its gradient is the mean of those of all workers.
        """

        @tf.custom_gradient
        def weighted(own: tf.Tensor) -> Any:
            return self.gang.sum(own * self.fraction), self.mean

        return weighted(values)

    def __call__(self, parts: Sequence[Part], states: Iterable[tf.Variable]) -> Part:
        """Return the mean of the metrics and gradients of all replicas; ``parts`` are those of this worker.

        Those of ``states`` that the step has changed, such as moving averages, get the mean of all replicas too, so
        that the variables of all workers stay equal. If a gradient is infinite for one replica, the mean is for all.
        """
        if self.is_trivial:
            return parts[0]
        changed = _changed(states)
        means = iter(
            self._over_workers(
                [
                    _weighted(values, [replica.fraction for replica in self._replicas])
                    for values in zip(
                        *(
                            _values(part, [replica.store.own(item) for item in changed])
                            for part, replica in zip(parts, self._replicas, strict=True)
                        ),
                        strict=True,
                    )
                ]
            )
        )
        row = next(means)
        gradients = [
            [None if item is None else next(means) for item in of_loss] for of_loss in parts[0].gradients
        ]
        for variable in changed:
            variable.assign(next(means))
        return dataclasses.replace(parts[0], row=row, gradients=gradients)

    def _over_workers(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """Return the means of ``values`` over the workers, exchanged in one message."""
        if self.gang.workers == 1:
            return values
        flat = tf.concat([tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values], 0)
        means = tf.split(self.mean(flat), [tf.size(value) for value in values])
        return [
            tf.cast(tf.reshape(mean, tf.shape(value)), value.dtype)
            for mean, value in zip(means, values, strict=True)
        ]


def _values(part: Part, states: Sequence[tf.Variable]) -> list[tf.Tensor]:
    gradients = (item for of_loss in part.gradients for item in of_loss if item is not None)
    return [tf.convert_to_tensor(value) for value in (part.row, *gradients, *states)]


def _weighted(values: Sequence[tf.Tensor], fractions: Sequence[float]) -> tf.Tensor:
    if len(values) == 1:
        return values[0]
    return tf.add_n(
        [value * tf.cast(part, value.dtype) for value, part in zip(values, fractions, strict=True)]
    )


def _changed(variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Return the ``variables`` of floating-point numbers that the operations of the current graph change."""
    graph = tf.compat.v1.get_default_graph()
    written = {
        handle.name
        for operation in graph.get_operations()
        for handle in auto_control_deps_utils.get_read_write_resource_inputs(operation)[1]
    }
    return [
        item for item in variables if item.dtype.is_floating and graph.capture(item.handle).name in written
    ]
