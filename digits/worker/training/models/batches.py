"""Which batches a trained network accepts: of any number of records, of several, or only those of its training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.worker.training.models.outputs import as_array

# Networks that accept batches of any size predict faster in larger ones than those of the training.
LARGE_BATCH = 256
MAX_BATCH_BYTES = 64 << 20


def large_batch(*shapes: tuple[int, ...]) -> int:
    """Return how many records of the largest of the ``shapes`` to compute together."""
    record_bytes = 4 * max(int(np.prod(shape)) for shape in shapes)
    return max(1, min(LARGE_BATCH, MAX_BATCH_BYTES // record_bytes))


class Batches:
    """Calls ``compute``, a function from tensors [N, …] to a structure of tensors [N, …], with any number of records.

    A batch is computed as it is. If the network fails, or does not return a row for each record, a single record is
    repeated, which suits networks that call ``tf.squeeze(x)``, and finally records are computed in batches of
    ``training_size``, the last of which repeats some. What has failed once is not tried again. N is at least 1.
    """

    def __init__(self, compute: Callable[..., Any], training_size: int) -> None:
        self._compute, self._training_size = compute, training_size
        self._failures = 0

    @property
    def smallest(self) -> int:
        """The number of records that are computed for a single one, as far as is known."""
        return self._size_for(1)

    def _size_for(self, count: int) -> int:
        return (count, max(count, 2), self._training_size)[self._failures]

    def __call__(self, *inputs: Any) -> Any:
        """Return the structure of ``compute`` with arrays [N, …] for ``inputs``, arrays or tensors [N, …].

        An output without a row for each record is returned as it is. Raises the network's error if it accepts no size.
        """
        count = len(inputs[0])
        while True:
            size, is_last = self._size_for(count), self._failures == 2
            try:
                results = [
                    self._compute(*(_part(each, start, size) for each in inputs))
                    for start in range(0, count, size)
                ]
                parts = [list(map(as_array, tf.nest.flatten(result))) for result in results]
            except tf.errors.OpError:
                if is_last:
                    raise
            else:
                if is_last or any(_has_rows(values, size) for values in parts[0]):
                    joined = [_join(arrays, size, count) for arrays in zip(*parts, strict=True)]
                    return tf.nest.pack_sequence_as(results[0], joined)
            self._failures = 1 if self._failures == 0 and count == 1 else 2


def _part(values: Any, start: int, size: int) -> tf.Tensor:
    """Return ``size`` rows from ``start`` on; if there are fewer, they are repeated."""
    rows = values if size >= len(values) else values[start : start + size]
    return tf.convert_to_tensor(rows if len(rows) == size else tf.gather(rows, np.arange(size) % len(rows)))


def _has_rows(values: NDArray[Any], size: int) -> bool:
    return bool(values.ndim) and len(values) == size


def _join(arrays: tuple[NDArray[Any], ...], size: int, count: int) -> NDArray[Any]:
    if not all(_has_rows(values, size) for values in arrays):
        return arrays[0]
    return arrays[0][:count] if len(arrays) == 1 else np.concatenate(arrays)[:count]
