"""The workers that share a training, as one object that all of its parts use.

Every worker runs the same program and calls the same functions in the same order. What depends on the time, on signals
or on the disk may differ between workers, so they agree on it.
"""

from __future__ import annotations

import contextlib
import logging
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.worker.failure import PartnerLost, UserFault
from digits.worker.gang.rendezvous import Rendezvous
from digits.worker.gang.ring import OutOfStep, Ring, connect

log = logging.getLogger(__name__)


class Gang:
    """The worker ``rank`` of several ``workers``; the first one leads. Without a ``ring``, it works alone.

    Its methods wait for the other workers, for ``waited`` seconds up to now. If one is lost, they raise an error that
    `explained` explains.
    """

    def __init__(self, ring: Ring | None = None) -> None:
        self._ring = ring
        self.rank, self.workers, self.neighbors = (
            (ring.rank, ring.workers, ring.neighbors) if ring else (0, 1, 1)
        )
        self.waited = 0.0
        self._loss: OSError | None = None

    @property
    def is_lead(self) -> bool:
        """Whether this worker reports events and saves the training."""
        return self.rank == 0

    def sum(self, values: tf.Tensor) -> tf.Tensor:
        """Return the sum of ``values`` of all workers in a graph or eagerly."""
        if self._ring is None:
            return values
        with tf.device("/device:CPU:0"):
            total = tf.numpy_function(self.reduce, [values], values.dtype)
        return tf.ensure_shape(total, values.shape)

    def reduce(self, values: NDArray[Any], combine: Any = np.add) -> NDArray[Any]:
        """Combine ``values`` of all workers, which have the same shape and dtype."""
        if self._ring is None:
            return values
        began = time.monotonic()
        try:
            return self._ring.reduce(values, combine)
        except OSError as error:
            self._loss = error
            raise
        finally:
            self.waited += time.monotonic() - began

    def agree(self, *values: float) -> list[float]:
        """Return the largest of each of the ``values`` of all workers."""
        return self.reduce(np.array(values, np.float64), np.maximum).tolist()

    def of_lead(self, value: NDArray[Any]) -> NDArray[Any]:
        """Return the ``value`` of the first worker."""
        data = np.ascontiguousarray(value).reshape(-1)
        sum_ = self.reduce((data if self.is_lead else np.zeros_like(data)).view(np.uint8))
        return sum_.view(data.dtype).reshape(value.shape)

    def words_of_lead(self, data: bytes) -> bytes:
        """Return the ``data`` of the first worker, whatever its length is."""
        size = int(self.of_lead(np.array([len(data)]))[0])
        return self.of_lead(np.frombuffer(data.ljust(size)[:size], np.uint8)).tobytes()

    def take_from_lead(self, variables: Mapping[str, tf.Variable]) -> None:
        """Give ``variables``, which all workers have, the values of the first worker."""
        for variable in _numbers(variables).values() if self._ring else ():
            variable.assign(self.of_lead(variable.numpy()))

    def average(self, variables: Mapping[str, tf.Variable], share: float) -> None:
        """Give ``variables`` their mean over all workers, of which this one has a ``share`` from 0 to 1.

        Integers get the values of the first worker.
        """
        floats = {name: item for name, item in variables.items() if item.dtype.is_floating}
        self.take_from_lead({name: item for name, item in variables.items() if name not in floats})
        values = [item.numpy().astype(np.float32) for item in floats.values()]
        total = self.reduce(np.concatenate([value.reshape(-1) for value in values]) * np.float32(share))
        ends = np.cumsum([value.size for value in values])
        for variable, value, mean in zip(floats.values(), values, np.split(total, ends[:-1]), strict=True):
            variable.assign(tf.cast(mean.reshape(value.shape), variable.dtype))

    def check_equal(self, variables: Mapping[str, tf.Variable]) -> None:
        """Raise UserFault if the values of ``variables`` differ between workers."""
        if self._ring is None:
            return
        checksum = 0
        for name, variable in sorted(_numbers(variables).items()):
            checksum = zlib.crc32(name.encode(), checksum)
            checksum = zlib.crc32(np.ascontiguousarray(variable.numpy()).data, checksum)
        largest, smallest = self.agree(checksum, -checksum)
        if largest != -smallest:
            raise _diverged("their weights differ")

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Convert errors inside to PartnerLost if a worker was lost."""
        try:
            yield
        except Exception:
            if self._loss is None:
                raise
            if isinstance(self._loss, OutOfStep):
                raise _diverged(str(self._loss)) from None
            log.warning("A worker was lost: %s", self._loss)
            raise PartnerLost(
                f"One of the {self.workers} workers ended unexpectedly, and the others cannot continue without it.",
                "Look for its error in the output of the task, then resume the training.",
            ) from None


ALONE = Gang()


def join(meeting: Rendezvous) -> Gang:
    """Connect the workers of ``meeting``. Raises PartnerLost if one of them does not come."""
    if meeting.workers == 1:
        return ALONE
    gang = Gang(connect(meeting))
    with gang.explained():
        gang.agree(0.0)  # all are connected
    if gang.is_lead:
        meeting.leave()
    log.info("%d workers are connected", gang.workers)
    return gang


def _diverged(why: str) -> UserFault:
    return UserFault(
        f"The workers have diverged: {why}.",
        "Resume the training from the snapshot before. If that happens again, train with one worker: the network may "
        "draw random numbers of its own, or a machine computes wrongly.",
    )


def _numbers(variables: Mapping[str, tf.Variable]) -> dict[str, tf.Variable]:
    return {name: item for name, item in variables.items() if item.dtype != tf.string}
