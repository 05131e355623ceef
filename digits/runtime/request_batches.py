"""Dynamic batching: requests of clients that arrive while the model is busy are answered together in the next batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import SEEK_END
from pathlib import Path
from typing import IO, Any

import gevent
from gevent.event import AsyncResult, Event

from digits.core.errors import BadRequest, DigitsError, TooBusy, TookTooLong
from digits.runtime.offload import ONE_ITERATION_SECONDS

MAX_BATCH = 64
# A batch also ends before its bodies exceed this size, unless it is a single request.
MAX_BATCH_BYTES = 32_000_000
MAX_WAITING = 512
MAX_WAITING_BYTES = 1_000_000_000
WAIT_SECONDS = 30.0
# After a batch, wait as long as it took, within these limits, until half of the clients have sent their next requests:
# one half is answered and received here while the other half is predicted.
GATHER_SECONDS = (0.005, 0.02)

# Sends a request with attachments to the inference server of the model in a folder; returns its response.
Exchange = Callable[[Path, dict[str, Any], Sequence[IO[bytes]]], tuple[dict[str, Any], list[bytearray]]]


@dataclass(eq=False)
class ClientRequest:
    """A request in a ``format`` with the files of its body, which it owns, and whose length in bytes is ``size``.

    The ``name`` of the model and ``json_bytes`` are those of `digits.worker.serving.protocols.ClientRequest`.
    """

    format: str
    name: str
    files: Sequence[IO[bytes]]
    json_bytes: int | None = None
    size: int = field(init=False)
    until: float = field(init=False, default=0.0)
    result: AsyncResult = field(init=False, default_factory=AsyncResult)

    def __post_init__(self) -> None:
        self.size = sum(file.seek(0, SEEK_END) for file in self.files)

    def described(self) -> dict[str, Any]:
        """Return the request without its files, for the inference server."""
        return {
            "format": self.format,
            "name": self.name,
            "json_bytes": self.json_bytes,
            "attached": len(self.files),
            "seconds": self.until - time.monotonic(),
        }

    def close(self) -> None:
        for file in self.files:
            file.close()


@dataclass(frozen=True)
class Answer:
    """The body of a response, its headers, and the number of images."""

    body: bytearray
    headers: dict[str, str]
    images: int


class _Queue:
    """The requests for one snapshot that are not in a batch yet, and the length of their bodies in bytes."""

    def __init__(self) -> None:
        self.requests: deque[ClientRequest] = deque()
        self.bytes = 0
        self.is_draining = False
        self._wanted = 0
        self._has_wanted = Event()

    def add(self, request: ClientRequest) -> None:
        self.requests.append(request)
        self.bytes += request.size
        if len(self.requests) >= self._wanted:
            self._has_wanted.set()

    def wait_for(self, count: int, seconds: float) -> None:
        """Wait until there are ``count`` requests, at most for ``seconds``."""
        if len(self.requests) < count:
            self._wanted = count
            self._has_wanted.clear()
            self._has_wanted.wait(seconds)

    def take(self, count: int, max_bytes: int) -> list[ClientRequest]:
        """Remove the first request and up to ``count`` - 1 others, as long as their bodies fit in ``max_bytes``."""
        batch: list[ClientRequest] = []
        room = max_bytes
        while self.requests and len(batch) < count and (not batch or self.requests[0].size <= room):
            batch.append(self.requests.popleft())
            room -= batch[-1].size
        self.bytes -= sum(request.size for request in batch)
        return batch

    def drop(self, request: ClientRequest) -> None:
        """Remove and close a request that is still in the queue."""
        if request in self.requests:
            self.requests.remove(request)
            self.bytes -= request.size
            request.close()


class RequestBatches:
    """Batches concurrent requests by number and size, without waiting for a batch to fill up.

    ``sizes`` is called with the number of images of each batch that the model predicted together.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        max_batch: int = MAX_BATCH,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        max_waiting: int = MAX_WAITING,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        wait_seconds: float = WAIT_SECONDS,
        sizes: Callable[[int], object] = lambda size: None,
    ) -> None:
        self._exchange, self._sizes = exchange, sizes
        self._max_batch, self._max_batch_bytes = max_batch, max_batch_bytes
        self._max_waiting, self._max_waiting_bytes = max_waiting, max_waiting_bytes
        self._wait_seconds = wait_seconds
        self._queues: dict[tuple[Path, str], _Queue] = {}

    def predict(self, model_folder: Path, snapshot: str, request: ClientRequest) -> Answer:
        """Return the answer to ``request``, and close its files.

        Raises TooBusy if too many requests are waiting, TookTooLong on timeout, and any error of the inference server.
        """
        queue = self._queues.setdefault((model_folder, snapshot), _Queue())
        waiting = len(queue.requests)
        if waiting >= self._max_waiting or (waiting and queue.bytes + request.size > self._max_waiting_bytes):
            request.close()
            raise TooBusy(f"{waiting:,} requests are waiting for this model.", "Try again in a second.")
        request.until = time.monotonic() + self._wait_seconds
        queue.add(request)
        if not queue.is_draining:
            queue.is_draining = True
            gevent.spawn(self._drain, model_folder, snapshot, queue)
        try:
            answer: Answer = request.result.get(timeout=self._wait_seconds)
        except gevent.Timeout as error:
            queue.drop(request)
            raise TookTooLong(
                f"The model did not respond within {self._wait_seconds:g} seconds.",
                "Try again later, or send fewer images per request.",
            ) from error
        return answer

    def _drain(self, model_folder: Path, snapshot: str, queue: _Queue) -> None:
        """Predict batches until the queue is empty."""
        try:
            clients = 0
            gevent.sleep(ONE_ITERATION_SECONDS)  # until the requests that have arrived are read
            while batch := queue.take(self._max_batch, self._max_batch_bytes):
                began = time.monotonic()
                self._predict(model_folder, snapshot, batch)
                # Others are between two requests: forget them gradually.
                clients = max(len(batch) + len(queue.requests), clients // 2)
                shortest, longest = GATHER_SECONDS
                seconds = min(max(shortest, time.monotonic() - began), longest)
                queue.wait_for(min(clients // 2, self._max_batch), seconds)
        finally:
            queue.is_draining = False
            self._queues.pop((model_folder, snapshot), None)

    def _predict(self, model_folder: Path, snapshot: str, batch: list[ClientRequest]) -> None:
        call = {"call": "serve", "snapshot": snapshot, "requests": [request.described() for request in batch]}
        try:
            message, bodies = self._exchange(
                model_folder, call, [file for request in batch for file in request.files]
            )
            answers = message["answers"]
            if not len(answers) == len(bodies) == len(batch):
                raise ValueError(
                    f"the inference server returned {len(answers)} answers for {len(batch)} requests"
                )
        except Exception as error:
            for request in batch:
                request.result.set_exception(error)
            return
        finally:
            for request in batch:
                request.close()
        for size in message.get("batches", ()):
            self._sizes(size)
        for request, answer, body in zip(batch, answers, bodies, strict=True):
            if answer["status"] == 200:
                request.result.set(Answer(body, answer["headers"], answer["images"]))
            else:
                kind = _ERRORS.get(answer["status"], DigitsError)
                request.result.set_exception(kind(answer["message"], answer["hint"]))


_ERRORS: dict[int, type[DigitsError]] = {400: BadRequest, 504: TookTooLong}
