"""Inference server: predictions of a trained network for images, one process per model.

The process listens on a Unix socket, and exits after a period without requests. `digits.worker.serving.calls` defines
the requests.
"""

from __future__ import annotations

import io
import logging
import os
import selectors
import socket
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from digits.core import recipe as recipes
from digits.core.events import EventLog
from digits.core.messages import Channel
from digits.worker.serving.calls import call_of
from digits.worker.serving.predictor import Predictor
from digits.worker.serving.refusal import Refused
from digits.worker.tasks import background
from digits.worker.training.step.device_config import limit_threads

MAX_LOADED_SNAPSHOTS = 4
# Dividing the operations of a smaller network among threads takes more CPU time than it saves, up to as much again.
FLOPS_OF_ONE_THREAD = 100_000_000
# A connection that makes no progress within a message for so long is dropped.
STALLED_SECONDS = 10.0

log = logging.getLogger(__name__)


def run(recipe: recipes.ServeInference, task_folder: Path, events: EventLog) -> None:
    """Run the inference server of ``recipe``; requests are not logged as events."""
    background.hide_gpus()  # a single image is fast on any device
    if recipe.flops is not None and recipe.flops <= FLOPS_OF_ONE_THREAD:
        limit_threads(1)
    serve(Path(recipe.model), recipe.socket, recipe.idle_seconds)


def serve(model_folder: Path, socket_path: str, idle_seconds: float) -> None:
    """Answer requests at ``socket_path`` until there are none for ``idle_seconds``."""
    Path(socket_path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(socket_path)
        finally:
            os.umask(before)
        listener.listen()
        _Listener(listener, Service(model_folder), idle_seconds).run()
    Path(socket_path).unlink(missing_ok=True)


class Service:
    """Answers requests for one model; caches the most recently used snapshots."""

    def __init__(self, model_folder: Path) -> None:
        self._folder = model_folder
        self._loaded: OrderedDict[str, Predictor] = OrderedDict()

    def answer(self, request: Any, attached: Sequence[bytearray]) -> tuple[dict[str, Any], list[bytes]]:
        """Answer a request of any content with a message and its attachments. Never raises an Exception."""
        began = time.perf_counter()
        try:
            call = call_of(request)
            answer, bodies = call.answer(self._predictor(call.snapshot), self._folder, attached)
        except Exception as error:
            refusal = Refused.because(error)
            if refusal.status >= 500:
                log.exception("The request %.200r failed", request)
            return refusal.as_json(), []
        milliseconds = round((time.perf_counter() - began) * 1000, 2)
        return {"ok": True, **answer, "milliseconds": milliseconds}, bodies

    def _predictor(self, snapshot: str) -> Predictor:
        if snapshot not in self._loaded:
            predictor = Predictor(self._folder, snapshot)
            while len(self._loaded) >= MAX_LOADED_SNAPSHOTS:
                self._loaded.popitem(last=False)
            self._loaded[snapshot] = predictor
        self._loaded.move_to_end(snapshot)
        return self._loaded[snapshot]


class _Listener:
    """Answers the messages of any number of connections, one at a time."""

    def __init__(self, listener: socket.socket, service: Service, idle_seconds: float) -> None:
        self._service, self._idle_seconds = service, idle_seconds
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._channels: set[Channel] = set()
        self._selector.register(listener, selectors.EVENT_READ)

    def run(self) -> None:
        while ready := self._selector.select(self._idle_seconds):
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._read(key.fileobj)
        for channel in list(self._channels):
            self._drop(channel)
        self._selector.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(STALLED_SECONDS)
        channel = Channel(connection)
        self._channels.add(channel)
        self._selector.register(channel, selectors.EVENT_READ)

    def _read(self, channel: Any) -> None:
        bodies: list[bytes] = []
        try:
            received = channel.receive()
            if received is None:
                self._drop(channel)
                return
            answer, bodies = self._service.answer(*received)
        except ValueError:
            answer = Refused("The request is not valid JSON.").as_json()
        except OSError:
            self._drop(channel)
            return
        try:
            channel.send(answer, [io.BytesIO(body) for body in bodies])
        except OSError:
            self._drop(channel)

    def _drop(self, channel: Channel) -> None:
        self._selector.unregister(channel)
        self._channels.remove(channel)
        channel.close()
