"""Asks inference workers: one process per model, started when it is first asked and kept warm."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from digits.core.errors import BadRequest, DigitsError, Unavailable, explain
from digits.core.files import make_folder
from digits.core.recipe import ServeInference
from digits.core.task import Handle
from digits.runtime import task_output
from digits.runtime.executor import Executor, is_alive

START_SECONDS = 60.0
ANSWER_SECONDS = 60.0
IDLE_SECONDS = 600.0
MAX_WORKERS = 4
MAX_ANSWER_BYTES = 64 * 1024 * 1024
TASK = "infer"


@dataclass
class _Worker:
    """A started worker, its connection, and the lock of whoever is asking it.

    The socket is alone in a folder, which is removed once the connection is there.
    """

    folder: Path
    socket_path: Path
    handle: Handle
    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: socket.socket | None = None
    asked_at: float = field(default_factory=time.monotonic)


class InferenceWorkers:
    """The inference workers of this server. The least recently asked one makes room for a new one."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._workers: dict[str, _Worker] = {}
        self._starting = threading.Lock()

    def ask(self, model_folder: Path, request: dict[str, Any]) -> dict[str, Any]:
        """The answer of the model's worker. Raises BadRequest or Unavailable with its words."""
        try:
            answer = self._ask(model_folder, request)
        except (OSError, ValueError):
            # The worker may have ended by itself, idle; a new one gets a second chance.
            self.stop(model_folder.name)
            try:
                answer = self._ask(model_folder, request)
            except (OSError, ValueError) as error:
                self.stop(model_folder.name)
                known = explain(error) if isinstance(error, OSError) else None
                if known is not None:
                    raise known from error
                raise Unavailable(f"The inference worker gave no answer: {error}") from error
        if answer.get("ok"):
            return answer
        kind = BadRequest if answer.get("status", 500) < 500 else DigitsError
        trace = answer.get("trace")
        raise kind(
            str(answer.get("message", "Inference failed.")),
            str(answer.get("hint", "")),
            [frame for frame in trace if isinstance(frame, dict)] if isinstance(trace, list) else (),
        )

    def stop(self, model_id: str) -> None:
        """End the model's worker, if it has one."""
        worker = self._workers.pop(model_id, None)
        if worker is None:
            return
        if worker.connection:
            worker.connection.close()
        _remove_socket(worker)
        self._executor.stop(worker.handle)

    def stop_all(self) -> None:
        for model_id in list(self._workers):
            self.stop(model_id)

    def _ask(self, model_folder: Path, request: dict[str, Any]) -> dict[str, Any]:
        worker = self._worker(model_folder)
        with worker.lock:
            worker.asked_at = time.monotonic()
            connection = worker.connection or self._connect(worker)
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_read_line(connection))
        if not isinstance(answer, dict):
            raise ValueError("its answer is not understood")
        return answer

    def _worker(self, model_folder: Path) -> _Worker:
        with self._starting:
            worker = self._workers.get(model_folder.name)
            if worker is None or not is_alive(worker.handle):
                self.stop(model_folder.name)
                self._make_room()
                worker = self._start(model_folder)
                self._workers[model_folder.name] = worker
            return worker

    def _start(self, model_folder: Path) -> _Worker:
        folder = model_folder / TASK
        make_folder(folder)
        # The path of a Unix socket is limited to some hundred bytes; the jobs folder's may be longer.
        socket_path = Path(tempfile.mkdtemp(prefix="digits-")) / "socket"
        try:
            ServeInference(model=str(model_folder), socket=str(socket_path), idle_seconds=IDLE_SECONDS).save(
                folder
            )
            # Single images are answered in milliseconds on the CPU; the GPUs are for training.
            handle = self._executor.start(folder, {"CUDA_VISIBLE_DEVICES": ""})
        except BaseException:
            shutil.rmtree(socket_path.parent, ignore_errors=True)
            raise
        return _Worker(folder, socket_path, handle)

    def _make_room(self) -> None:
        while len(self._workers) >= MAX_WORKERS:
            self.stop(min(self._workers, key=lambda model_id: self._workers[model_id].asked_at))

    def _connect(self, worker: _Worker) -> socket.socket:
        deadline = time.monotonic() + START_SECONDS
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(ANSWER_SECONDS)
            try:
                connection.connect(str(worker.socket_path))
            except OSError:
                connection.close()
            else:
                worker.connection = connection
                _remove_socket(worker)  # so that a server that is killed leaves none behind
                return connection
            # Not how it ended: that may still be written of the worker before, in the same folder.
            if not is_alive(worker.handle):
                _remove_socket(worker)
                said = "\n".join(task_output.last_lines(worker.folder, 10))
                raise Unavailable("The inference worker could not be started.", said)
            if time.monotonic() > deadline:
                raise Unavailable(f"The inference worker did not start within {START_SECONDS:.0f} seconds.")
            time.sleep(0.01)


def _remove_socket(worker: _Worker) -> None:
    shutil.rmtree(worker.socket_path.parent, ignore_errors=True)


def _read_line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        data = connection.recv(65536)
        if not data:
            raise OSError("it closed the connection")
        received += data
        if len(received) > MAX_ANSWER_BYTES:
            raise ValueError("its answer is too long")
    return bytes(received)
