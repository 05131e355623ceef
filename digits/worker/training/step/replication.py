"""A step whose records are divided among replicas of the network: on the devices of this worker and of other workers.

Every replica computes a contiguous share of the records with variables of its own. `Reduction` averages metrics and
gradients, weighted by the numbers of records, so a step updates the weights as one batch on one device would.
Statistics over a batch are over the records of one replica, unless the workers synchronize them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps_utils

from digits.worker.gang.gang import ALONE, Gang
from digits.worker.gang.share import Share
from digits.worker.network.variables import VariableCopies, VariableStore
from digits.worker.training.step.device_config import DeviceConfig
from digits.worker.training.step.micro_batches import Part


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
