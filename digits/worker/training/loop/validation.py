"""Validation: the metrics of the network over all validation records."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.worker.gang.gang import ALONE, Gang
from digits.worker.gang.share import bounds
from digits.worker.input import feeds
from digits.worker.input.preparation import Chunk, Preparation, chunk_signature
from digits.worker.network import tower
from digits.worker.network.network import Network
from digits.worker.network.variables import VariableStore, make_state, plain_name
from digits.worker.randomness.streams import Randomness
from digits.worker.training.loop.timeline import Pace
from digits.worker.training.step import numerics
from digits.worker.training.step.tracing import stack_rows, trace

Rows = NDArray[np.float32]

# Limits of the values of records that are kept for the metrics of a validation, and returned by a call.
MAX_RECORD_VALUES = 50_000_000
MAX_RECORD_VALUES_PER_CALL = 4_000_000


class SavedState:
    """The present values of everything that running a network may modify apart from its weights.

    That is variables that are not trained, such as moving averages, the counters of metrics and of random numbers, and
    the states of the global generators of Python and NumPy. As a context manager, it restores them when the block ends.
    """

    def __init__(self, store: VariableStore, randomness: Randomness) -> None:
        variables = {**store.variables, **store.local, **randomness.state}
        self._values = [(item, item.numpy()) for item in variables.values() if not item.trainable]
        self._store = store
        self._generators = random.getstate(), np.random.get_state()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Restore all values."""
        for variable, value in self._values:
            variable.assign(value)
        python, numpy = self._generators
        random.setstate(python)
        np.random.set_state(numpy)

    def restore_network(self) -> None:
        """Restore the variables that belong to the network, such as moving averages, but no counters."""
        variables = self._store.variables
        for variable, value in self._values:
            if plain_name(variable) in variables:
                variable.assign(value)


class Evaluation:
    """The metrics of the validation network, which the constructor traces.

    ``names`` are those of the metrics, and ``record_width`` is the number of values that the kind's metrics need of
    each record. Raises UserFault for mistakes of the network, and whatever its code raises.
    """

    def __init__(
        self,
        network: Network,
        store: VariableStore,
        prepare: Preparation,
        randomness: Randomness,
        devices: Sequence[str] = ("",),
    ) -> None:
        self._network, self._store, self._prepare = network, store, prepare
        self._randomness, self._devices = randomness, devices
        self._batches = make_state("batches", [], 0, tf.int64)
        signature = chunk_signature(prepare, network.target)
        self._function, (self.names, self.record_width) = trace(self._loop, signature)

    def begin(self, step: int, first: int = 0) -> None:
        """Begin a pass over the records after ``step`` training steps, with the batch ``first``.

        Each pass draws the same random numbers.
        """
        self._network.step.set(step)
        self._batches.assign(first)
        self._randomness.reset()

    def __call__(self, chunk: Chunk) -> tuple[Rows, Rows]:
        """The metrics of each batch of ``chunk``, float32 [batches, names], and values of its records.

        The latter are float32 [records, record_width], for `summarize`.
        """
        rows = self._function(*chunk).numpy()
        metrics, values = np.split(rows, [len(self.names)], axis=1)
        return metrics, values.reshape(np.asarray(chunk.positions).size, self.record_width)

    def summarize(self, means: Iterable[float], values: Rows | None = None) -> dict[str, float]:
        """The metrics by name, from the ``means`` of the columns ``names`` and the ``values`` of all records."""
        return self._network.summarize(dict(zip(self.names, means, strict=True)), values)

    @property
    def metric_names(self) -> list[str]:
        """The names of the metrics that `summarize` returns."""
        return list(self.summarize([0.0] * len(self.names), np.zeros((0, self.record_width), np.float32)))

    def _loop(
        self, images: tf.Tensor, labels: tf.Tensor, positions: tf.Tensor
    ) -> tuple[tf.Tensor, tuple[list[str], int]]:
        # Every device evaluates whole batches, so the metrics do not depend on the number of devices.
        chunk, count = Chunk(images, labels, positions), tf.shape(positions)[0]
        first = self._batches.read_value()

        def turn(number: tf.Tensor) -> tuple[tf.Tensor, tuple[list[str], int]]:
            rows = []
            for place, device in enumerate(self._devices):
                # In the last turn, surplus devices repeat the last batch; their rows are dropped.
                index = tf.minimum(number * len(self._devices) + place, count - 1)
                with tf.device(device if len(self._devices) > 1 else None):
                    row, facts = self._metrics(*chunk.batch(index), first + tf.cast(index, tf.int64))
                rows.append(row)
            return tf.concat(rows, 0), facts

        turns, facts = stack_rows((count + len(self._devices) - 1) // len(self._devices), turn)
        self._batches.assign_add(tf.cast(count, tf.int64))
        return tf.reshape(turns, [tf.shape(turns)[0] * len(self._devices), -1])[:count], facts

    def _metrics(
        self, images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, tuple[list[str], int]]:
        x, y = self._prepare.for_validation(images, labels)
        with self._randomness.draw_for(tower.VALIDATION, number):
            built = self._network.build(self._store, tower.VALIDATION, x, y)
        row, names, values = tf.stack(list(built.metrics.values())), list(built.metrics), built.record_values
        if values is None:
            return row, (names, 0)
        return tf.concat([row, tf.reshape(tf.cast(values, tf.float32), [-1])], 0), (names, values.shape[1])


class Validation:
    """Runs ``evaluation`` over ``records`` in batches of ``batch_size``, up to ``limit`` batches per call.

    ``save_state`` saves what the evaluation may modify. Each worker of ``gang`` evaluates some of the batches.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        records: feeds.Records,
        batch_size: int,
        save_state: Callable[[], SavedState],
        limit: int,
        gang: Gang = ALONE,
    ) -> None:
        self._evaluation, self._records, self._batch_size = evaluation, records, batch_size
        self._save_state, self._pace, self._gang = save_state, Pace(limit), gang

    def run(self, step: int, rate: float, interrupted: Callable[[], bool]) -> dict[str, float] | None:
        """The mean of each metric over all records, each counted once, after ``step`` steps.

        Calls ``interrupted`` between calls of the evaluation; where it returns True for any worker, all side effects
        are undone and the result is None. ``rate`` is the learning rate, for messages. Raises UserFault if an
        operation yields NaN or infinity while numerics are checked.
        """
        saved = self._save_state()
        sizes = feeds.evaluation_sizes(len(self._records), self._batch_size)
        first, last = bounds(len(sizes), self._gang.rank, self._gang.workers)
        self._evaluation.begin(step, first)
        own = self._evaluate_batches(sizes[first:last], first, step, rate, interrupted)
        if any(self._gang.agree(own is None)) or own is None:
            saved.restore()
            return None
        # Restore moving averages and the like; the counters of tf.metrics continue.
        saved.restore_network()
        rows = self._of_all(own[0], first, len(sizes))
        most = MAX_RECORD_VALUES // max(1, self._evaluation.record_width)
        values = self._of_all(own[1], sum(sizes[:first]), min(len(self._records), most))
        # Summed at the end, so that the result does not depend on the number of batches per call.
        means = np.array(sizes) @ rows.astype(np.float64) / len(self._records)
        return self._evaluation.summarize(means.tolist(), values)

    def _evaluate_batches(
        self, sizes: Sequence[int], first: int, step: int, rate: float, interrupted: Callable[[], bool]
    ) -> tuple[Rows, Rows] | None:
        """Return the metrics of the batches of ``sizes``, from batch ``first`` on, and the values of their records.

        Returns None if it was ``interrupted``.
        """
        rows = [np.zeros((0, len(self._evaluation.names)), np.float32)]
        values = [np.zeros((0, self._evaluation.record_width), np.float32)]
        order = feeds.evaluation_order(len(self._records), self._batch_size)
        feed = self._records.feed(itertools.islice(order, first, first + len(sizes)))
        try:
            left = list(sizes).count(self._batch_size)
            while left:
                batches = min(left, self._pace.steps, self._most_batches())
                began = time.monotonic()
                self._evaluate(feed, batches, step, rate, rows, values)
                self._pace.update(batches, time.monotonic() - began)
                left -= batches
                if interrupted():
                    return None
            if sizes and sizes[-1] != self._batch_size:
                self._evaluate(feed, 1, step, rate, rows, values)
        finally:
            feed.close()
        return np.concatenate(rows), np.concatenate(values)

    def _of_all(self, own: Rows, first: int, count: int) -> Rows:
        """Return ``count`` rows of all workers, of which this one has computed those from ``first`` on."""
        if self._gang.workers == 1:
            return own
        whole = np.zeros((count, own.shape[1]), np.float32)
        whole[first : first + len(own)] = own[: max(0, count - first)]
        return self._gang.reduce(whole)

    def _most_batches(self) -> int:
        """Return the number of batches per call that the values of their records permit."""
        return max(1, MAX_RECORD_VALUES_PER_CALL // max(1, self._batch_size * self._evaluation.record_width))

    def _evaluate(
        self, feed: feeds.Feed, batches: int, step: int, rate: float, rows: list[Rows], values: list[Rows]
    ) -> None:
        """Evaluate the next batches, and append their metrics and the values of their records."""
        with numerics.explained(step + 1, rate):
            metrics, of_records = self._evaluation(feed.take(batches))
        rows.append(metrics)
        room = MAX_RECORD_VALUES // max(1, self._evaluation.record_width) - sum(map(len, values))
        values.append(of_records[: max(0, room)])
