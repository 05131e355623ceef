"""The sum over the workers that share a training: one message per step with all that they have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps_utils

from digits.worker.gang.gang import Gang
from digits.worker.training.step.replication import Part


@dataclass(frozen=True)
class Reduction:
    """Averages the results of the workers of ``gang``; this one computes a ``fraction`` of the records of a step."""

    gang: Gang
    fraction: float

    def mean(self, values: tf.Tensor) -> tf.Tensor:
        """Return the mean of ``values`` of all workers, weighted by their numbers of records.

        In the gradients of a worker, whose mean is taken later, its gradient is the mean of those of all workers.
        """

        @tf.custom_gradient
        def weighted(own: tf.Tensor) -> Any:
            return self.gang.sum(own * self.fraction), self.mean

        return weighted(values)

    def __call__(self, part: Part, states: Iterable[tf.Variable]) -> Part:
        """Return the mean of the metrics and gradients of all workers, weighted by their numbers of records.

        Those of ``states`` that the step has changed, such as moving averages, get the mean of all workers too, so that
        the variables of all workers stay equal. If a gradient is infinite for one worker, the mean is for all of them.
        """
        changed = _changed(states)
        values = [part.row, *(item for of_loss in part.gradients for item in of_loss if item is not None)]
        values = [tf.convert_to_tensor(value) for value in (*values, *changed)]
        flat = tf.concat([tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values], 0)
        total = self.mean(flat)
        means = iter(
            tf.cast(tf.reshape(mean, tf.shape(value)), value.dtype)
            for mean, value in zip(tf.split(total, [tf.size(value) for value in values]), values, strict=True)
        )
        row = next(means)
        gradients = [
            [None if item is None else next(means) for item in of_loss] for of_loss in part.gradients
        ]
        for variable in changed:
            variable.assign(next(means))
        return dataclasses.replace(part, row=row, gradients=gradients)


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
