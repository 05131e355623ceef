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


@dataclass(eq=False)
class _Request:
    """The images of a request, of which the first ``taken`` are in batches, and their answers in order."""

    items: Sequence[Item]
    taken: int = 0
    answers: list[dict[str, Any]] = field(default_factory=list)
    result: AsyncResult = field(default_factory=AsyncResult)


@dataclass
class _Queue:
    """The requests for one snapshot with images that are not in a batch yet, and the number of these images."""

    requests: deque[_Request] = field(default_factory=deque)
    waiting: int = 0
    is_draining: bool = False

    def take(self, count: int) -> list[tuple[_Request, Sequence[Item]]]:
        """Remove up to ``count`` images from the queue; return them with their requests."""
        parts = []
        while self.requests and count:
            request = self.requests[0]
            part = request.items[request.taken : request.taken + count]
            request.taken += len(part)
            self.waiting -= len(part)
            count -= len(part)
            if request.taken == len(request.items):
                self.requests.popleft()
            parts.append((request, part))
        return parts

    def drop(self, request: _Request) -> None:
        if request in self.requests:
            self.requests.remove(request)
            self.waiting -= len(request.items) - request.taken


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
        if not items:
            return []  # no batch would complete the request
        queue = self._queues.setdefault((model_folder, snapshot), _Queue())
        if queue.waiting and queue.waiting + len(items) > self._max_waiting:
            raise TooBusy(f"{queue.waiting:,} images are waiting for this model.", "Try again in a second.")
        request = _Request(items)
        queue.requests.append(request)
        queue.waiting += len(items)
        if not queue.is_draining:
            queue.is_draining = True
            gevent.spawn(self._drain, model_folder, snapshot, queue)
        answers: list[dict[str, Any]] | None
        try:
            answers = request.result.get(timeout=self._wait_seconds)
        except gevent.Timeout as error:
            queue.drop(request)
            raise TookTooLong(
                f"The model did not respond within {self._wait_seconds:g} seconds.",
                "Try again later, or send fewer images per request.",
            ) from error
        assert answers is not None
        return answers

    def _drain(self, model_folder: Path, snapshot: str, queue: _Queue) -> None:
        """Predict batches until the queue is empty."""
        try:
            count = 1
            while queue.waiting:
                if 1 < count > queue.waiting:
                    gevent.sleep(GATHER_SECONDS)
                count = min(self._max_batch, queue.waiting)
                self._predict(model_folder, snapshot, queue.take(count))
        finally:
            queue.is_draining = False
            self._queues.pop((model_folder, snapshot), None)

    def _predict(
        self, model_folder: Path, snapshot: str, batch: list[tuple[_Request, Sequence[Item]]]
    ) -> None:
        items = [item for _, part in batch for item in part]
        self._sizes(len(items))
        try:
            answers = self._ask(model_folder, {"call": "batch", "snapshot": snapshot, "items": items})[
                "answers"
            ]
            if len(answers) != len(items):
                raise ValueError(
                    f"the inference server returned {len(answers)} answers for {len(items)} images"
                )
        except Exception as error:
            for request, _ in batch:
                request.result.set_exception(error)
            return
        start = 0
        for request, part in batch:
            request.answers += answers[start : start + len(part)]
            start += len(part)
            if len(request.answers) == len(request.items):
                request.result.set(request.answers)
