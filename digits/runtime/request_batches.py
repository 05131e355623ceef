"""Dynamic batching: images that arrive while the model is busy are predicted together in the next batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
from gevent.event import AsyncResult

from digits.core.errors import TooBusy, TookTooLong

MAX_BATCH = 64
MAX_WAITING = 512
WAIT_SECONDS = 30.0
# After a batch, wait this long for clients to send their next requests, so that the following batch is full.
GATHER_SECONDS = 0.005

Item = dict[str, Any]
# Sends a request to the inference server of the model in a folder, and returns the response.
Ask = Callable[[Path, dict[str, Any]], dict[str, Any]]


@dataclass
class _Queue:
    """The images waiting for one snapshot, each with its pending result."""

    waiting: deque[tuple[Item, AsyncResult]] = field(default_factory=deque)
    is_draining: bool = False


class RequestBatches:
    """Batches images from concurrent requests, without waiting for a batch to fill up.

    ``sizes`` is called with the size of each batch.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        max_batch: int = MAX_BATCH,
        max_waiting: int = MAX_WAITING,
        wait_seconds: float = WAIT_SECONDS,
        sizes: Callable[[int], object] = lambda size: None,
    ) -> None:
        self._ask, self._sizes = ask, sizes
        self._max_batch, self._max_waiting, self._wait_seconds = max_batch, max_waiting, wait_seconds
        self._queues: dict[tuple[Path, str], _Queue] = {}

    def predict(self, model_folder: Path, snapshot: str, items: Sequence[Item]) -> list[dict[str, Any]]:
        """Return the prediction for each of the ``items``, in order.

        Raises TooBusy if too many images are waiting, TookTooLong on timeout, and any error of the inference server.
        """
        queue = self._queues.setdefault((model_folder, snapshot), _Queue())
        if queue.waiting and len(queue.waiting) + len(items) > self._max_waiting:
            raise TooBusy(
                f"{len(queue.waiting):,} images are waiting for this model.", "Try again in a second."
            )
        results = [AsyncResult() for _ in items]
        queue.waiting.extend(zip(items, results, strict=True))
        if not queue.is_draining:
            queue.is_draining = True
            gevent.spawn(self._drain, model_folder, snapshot, queue)
        try:
            with gevent.Timeout(self._wait_seconds):
                return [result.get() for result in results]
        except gevent.Timeout as error:
            unanswered = {id(result) for result in results if not result.ready()}
            queue.waiting = deque(entry for entry in queue.waiting if id(entry[1]) not in unanswered)
            raise TookTooLong(
                f"The model did not respond within {self._wait_seconds:g} seconds.",
                "Try again later, or send fewer images per request.",
            ) from error

    def _drain(self, model_folder: Path, snapshot: str, queue: _Queue) -> None:
        """Predict batches until the queue is empty."""
        try:
            count = 1
            while queue.waiting:
                if 1 < count > len(queue.waiting):
                    gevent.sleep(GATHER_SECONDS)
                count = min(self._max_batch, len(queue.waiting))
                self._predict(model_folder, snapshot, [queue.waiting.popleft() for _ in range(count)])
        finally:
            queue.is_draining = False
            self._queues.pop((model_folder, snapshot), None)

    def _predict(self, model_folder: Path, snapshot: str, batch: list[tuple[Item, AsyncResult]]) -> None:
        self._sizes(len(batch))
        request = {"call": "batch", "snapshot": snapshot, "items": [item for item, _ in batch]}
        try:
            answers = self._ask(model_folder, request)["answers"]
            if len(answers) != len(batch):
                raise ValueError(
                    f"the inference server returned {len(answers)} answers for {len(batch)} images"
                )
        except Exception as error:
            for _, result in batch:
                result.set_exception(error)
            return
        for (_, result), answer in zip(batch, answers, strict=True):
            result.set(answer)
