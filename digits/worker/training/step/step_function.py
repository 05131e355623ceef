"""The function that runs training steps on the device, many per call.

A call takes a chunk of batches and loops over them inside the function, because returning to Python after
every step costs a small network a third of its throughput. It returns the metrics of every step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.worker.input.preparation import Chunk, chunk_signature
from digits.worker.network.summaries import Recorded
from digits.worker.training.step.replication import Part, Replica
from digits.worker.training.step.tracing import compiled, stack_rows, trace, xla_warning
from digits.worker.training.step.training_step import Traced, TrainingStep

Rows = NDArray[np.float32]


class StepFunction:
    """Runs ``step``; the constructor traces it, and compiles it with XLA if its configuration requests that.

    ``traced`` is what that reveals about the network. ``warn`` is called if XLA cannot compile the steps, which are
    then run without it. Raises UserFault for mistakes of the network, and whatever its code raises.
    """

    def __init__(self, step: TrainingStep, warn: Callable[[str], None] = lambda message: None) -> None:
        self.step, self._warn = step, warn
        self._row, fault = self._build_row, None
        if len(step.replicas) > 1:
            self._make_variables()
        if step.options.config.compiled:
            try:
                self._row = self._compiled_row()
            except Exception as error:
                fault = error
        self.is_compiled = self._row != self._build_row
        self._is_proven = not self.is_compiled  # False while compiled steps have not run yet
        self._function, self.traced = trace(self._loop, signature(step))  # raises the network's own mistakes
        if fault:
            warn(xla_warning(fault))

    def steps(self, chunk: Chunk, rates: Sequence[float], first_step: int) -> Rows:
        """Train on each batch of ``chunk`` in turn, with the learning rate at the same index of ``rates``.

        Returns the metrics of each step, float32 [steps, names].
        """
        arguments = (*chunk, *settings(rates, first_step))
        try:
            rows = self._function(*arguments).numpy()
        except tf.errors.OpError as error:
            if self._is_proven:
                raise
            # Some programs only fail on the device. The network's own mistakes also fail without XLA.
            self._row, self.is_compiled = self._build_row, False
            self._function, _ = trace(self._loop, signature(self.step))
            rows = self._function(*arguments).numpy()
            self._warn(xla_warning(error))
        self._is_proven = True
        return rows

    def extended_step(
        self, chunk: Chunk, rate: float, step: int
    ) -> tuple[Rows, list[tuple[Recorded, Any]], dict[str, float]]:
        """Run one step on a chunk of one batch.

        Returns its metrics, float32 [1, names]; the network's pictures with their values; and the statistics of the
        updates by name. It is never compiled.
        """
        function, traced = self._extended
        row, values, statistics = function(*chunk, *settings([rate], step))
        pictures = [(item, value.numpy()) for item, value in zip(traced.pictures, values, strict=True)]
        return row.numpy()[None], pictures, {name: float(value) for name, value in statistics.items()}

    def summarize(self, means: Iterable[float]) -> dict[str, float]:
        """The metrics by name, from the ``means`` of the columns `Traced.names`."""
        return self.step.network.summarize(dict(zip(self.traced.names, means, strict=True)))

    def _loop(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        positions: tf.Tensor,
        rates: tf.Tensor,
        first_step: tf.Tensor,
    ) -> tuple[tf.Tensor, Traced]:
        chunk = Chunk(images, labels, positions)

        def row(index: tf.Tensor) -> tuple[tf.Tensor, Traced]:
            return self._row(*chunk.batch(index), rates[index], first_step + tf.cast(index, tf.int64))

        return stack_rows(tf.shape(positions)[0], row)

    def _build_row(self, *given: tf.Tensor) -> tuple[tf.Tensor, Traced]:
        step = self.step.build(*given)
        return step.row, step.traced

    def _compiled_row(self) -> Callable[..., tuple[tf.Tensor, Traced]]:
        """Compile `_build_row`; of a step with several replicas, only the computation of each one."""
        if not self.step.is_divided:
            return compiled(self._build_row, self._batch_signature(self.step.replicas[0]))
        computations = [self._compiled_replica(replica) for replica in self.step.replicas]

        def row(images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, number: tf.Tensor) -> Any:
            parts = self.step.compute(
                images, labels, number, lambda replica, *given: computations[replica.number](*given)
            )
            step = self.step.finish(parts, rate, number)
            return step.row, step.traced

        return row

    def _compiled_replica(self, replica: Replica) -> Callable[..., Part]:
        """Compile `TrainingStep.compute_replica` for the device of ``replica``."""

        def build(*given: tf.Tensor) -> tuple[Any, Part]:
            part = self.step.compute_replica(replica, *given)
            return (part.row, part.gradients), part

        images, labels, _, number = self._batch_signature(replica)
        run = compiled(build, [images, labels, number], replica.device)

        def compute(*given: tf.Tensor) -> Part:
            (row, gradients), part = run(*given)
            return dataclasses.replace(part, row=row, gradients=gradients)

        return compute

    def _make_variables(self) -> None:
        """Build the first replica, so that there are variables that the others can copy."""
        images, labels, _, number = self._batch_signature(self.step.replicas[0])

        def build(*given: tf.Tensor) -> tuple[tf.Tensor, None]:
            return self.step.compute_replica(self.step.replicas[0], *given).row, None

        trace(build, [images, labels, number])

    @cached_property
    def _extended(self) -> tuple[Any, Traced]:
        def build(*given: tf.Tensor) -> tuple[Any, Traced]:
            *chunk, rates, number = given
            step = self.step.build(*Chunk(*chunk).batch(0), rates[0], number, is_extended=True)
            pictures = [tf.convert_to_tensor(item.tensor) for item in step.traced.pictures]
            return (step.row, pictures, step.statistics), step.traced

        return trace(build, signature(self.step))

    def _batch_signature(self, replica: Replica) -> list[tf.TensorSpec]:
        """The types of the arguments of `TrainingStep.build` for the records of ``replica``."""
        images, labels, _, rates, step = signature(self.step)
        config = self.step.options.config
        size = len(replica.share.positions) if replica.share else config.batch_size * config.batches
        return [
            tf.TensorSpec((size, *images.shape[1:]), images.dtype),
            tf.TensorSpec((size, *labels.shape[1:]), labels.dtype),
            tf.TensorSpec([], rates.dtype),
            step,
        ]


def signature(step: TrainingStep) -> list[tf.TensorSpec]:
    """Return the types of a chunk for ``step``, the learning rates of its batches, and the number of the first."""
    return [
        *chunk_signature(step.preparation, step.network.target),
        tf.TensorSpec([None], tf.float32, name="rates"),
        tf.TensorSpec([], tf.int64, name="first_step"),
    ]


def seen(step: TrainingStep, chunk: Chunk, is_compiled: bool) -> tuple[Rows, dict[str, NDArray[Any]]]:
    """Return the network's input in the first step for a chunk of one batch: float32 [N, H, W, C], and the targets."""
    # XLA draws different random numbers: compile this if the steps are compiled.
    prepared = tf.function(step.prepare, autograph=False, jit_compile=is_compiled)
    x, y = prepared(*chunk.batch(0), tf.constant(0, tf.int64))
    return x.numpy(), {name: value.numpy() for name, value in y.items()}


def settings(rates: Sequence[float], first_step: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the tensors of the last two types of `signature`."""
    return tf.constant(rates, tf.float32), tf.constant(first_step, tf.int64)
