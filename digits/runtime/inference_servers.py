"""Inference servers: one process per model, started by the first request for it and kept warm."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

from digits.core.errors import BadRequest, DigitsError, Unavailable, explain
from digits.core.files import make_folder, remove_tree
from digits.core.job import DeviceRequest
from digits.core.messages import Channel
from digits.core.recipe import ServeInference
from digits.runtime.executors.pools import MAX_INFERENCE_SERVERS as MAX_SERVERS
from digits.runtime.task_runner import TaskRun, TaskRunner

POOL = "inference"
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0
IDLE_SECONDS = 600.0
TASK_FOLDER = "inference"
_CONNECT_SECONDS = 0.01
_LAST_LINES = 10


@dataclass(eq=False)
class _Server:
    """A running inference server, the channel to it once connected, and the lock of the request that uses it.

    The socket is the only file in its folder, which is removed once connected.
    """

    run: TaskRun
    socket_path: Path
    lock: threading.Lock = field(default_factory=threading.Lock)
    channel: Channel | None = None
    asked_at: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        if self.channel:
            self.channel.close()
        self.remove_socket()

    def remove_socket(self) -> None:
        remove_tree(self.socket_path.parent, ignore_errors=True)


class InferenceServers:
    """The inference servers of all models. A new one replaces the least recently used one.

    ``flops`` returns the operations of the network of the model with an id for one image, or None.
    """

    def __init__(
        self, runner: TaskRunner, flops: Callable[[str], int | None] = lambda model_id: None
    ) -> None:
        self._runner, self._flops = runner, flops
        self._servers: dict[str, _Server] = {}
        self._starting = threading.Lock()

    def ask(self, model_folder: Path, request: dict[str, Any]) -> dict[str, Any]:
        """Return the response of the model's inference server; raises its error as BadRequest or Unavailable."""
        return self.exchange(model_folder, request)[0]

    def exchange(
        self, model_folder: Path, request: dict[str, Any], attached: Sequence[IO[bytes]] = ()
    ) -> tuple[dict[str, Any], list[bytearray]]:
        """Like `ask`, with the files ``attached`` to the request; also return the attachments of the response."""
        try:
            answer, received = self._exchange(model_folder, request, attached)
        except (OSError, ValueError):
            # It exits after a period without requests; start another one.
            self.stop(model_folder.name)
            try:
                answer, received = self._exchange(model_folder, request, attached)
            except (OSError, ValueError) as error:
                self.stop(model_folder.name)
                known = explain(error) if isinstance(error, OSError) else None
                if known is not None:
                    raise known from error
                raise Unavailable(f"The inference server did not answer: {error}") from error
        if answer.get("ok"):
            return answer, received
        kind = BadRequest if answer.get("status", 500) < 500 else DigitsError
        trace = answer.get("trace")
        raise kind(
            str(answer.get("message", "Inference failed.")),
            str(answer.get("hint", "")),
            [frame for frame in trace if isinstance(frame, dict)] if isinstance(trace, list) else (),
        )

    def stop(self, model_id: str) -> None:
        """Stop the inference server of the model, if there is one."""
        server = self._servers.pop(model_id, None)
        if server is not None:
            server.close()
            self._runner.stop(server.run)

    def stop_all(self) -> None:
        for model_id in list(self._servers):
            self.stop(model_id)

    def _exchange(
        self, model_folder: Path, request: dict[str, Any], attached: Sequence[IO[bytes]]
    ) -> tuple[dict[str, Any], list[bytearray]]:
        server = self._server(model_folder)
        with server.lock:
            server.asked_at = time.monotonic()
            channel = server.channel or self._connect(server)
            channel.send(request, attached)
            received = channel.receive()
        if received is None:
            raise OSError("it closed the connection")
        answer, bodies = received
        if not isinstance(answer, dict):
            raise ValueError("its answer is invalid")
        return answer, bodies

    def _server(self, model_folder: Path) -> _Server:
        with self._starting:
            server = self._servers.get(model_folder.name)
            # The connection also shows that a server has ended.
            if server is None or (server.channel is None and self._has_ended(server.run)):
                self.stop(model_folder.name)
                self._make_room()
                server = self._servers[model_folder.name] = self._start(model_folder)
            return server

    def _has_ended(self, run: TaskRun) -> bool:
        # Do not wait for the next poll.
        return run.has_ended or (
            run.handle is not None and not self._runner.executor_of(run).is_alive(run.handle)
        )

    def _start(self, model_folder: Path) -> _Server:
        folder = model_folder / TASK_FOLDER
        # The path of a Unix socket is limited to about 100 bytes; the jobs folder may have a longer path.
        socket_path = Path(tempfile.mkdtemp(prefix="digits-")) / "socket"

        def prepare(devices: Sequence[str]) -> None:
            make_folder(folder)
            # An earlier one may still be exiting and hold the lock on the event log.
            if not self._runner.clear(folder):
                raise Unavailable("The previous inference server of this model did not exit.")
            recipe = ServeInference(
                model=str(model_folder),
                socket=str(socket_path),
                idle_seconds=IDLE_SECONDS,
                flops=self._flops(model_folder.name),
            )
            recipe.save(folder)

        run = TaskRun(
            folder=folder,
            # Single images take milliseconds on the CPU; the GPUs are for training.
            request=DeviceRequest(POOL),
            prepare=prepare,
            follow=lambda run: None,
            queue_seconds=START_SECONDS,
        )
        return _Server(self._runner.submit(run), socket_path)

    def _make_room(self) -> None:
        while len(self._servers) >= MAX_SERVERS:
            self.stop(min(self._servers, key=lambda model_id: self._servers[model_id].asked_at))

    def _connect(self, server: _Server) -> Channel:
        deadline = time.monotonic() + START_SECONDS
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(ANSWER_SECONDS)
            try:
                connection.connect(str(server.socket_path))
            except OSError:
                connection.close()
            else:
                server.channel = Channel(connection)
                server.remove_socket()  # so that a killed server leaves none behind
                server.run.poll_seconds = 1.0
                return server.channel
            if self._has_ended(server.run) or time.monotonic() > deadline:
                server.remove_socket()
                self._raise_failure(server.run)
            self._runner.pause(_CONNECT_SECONDS)

    def _raise_failure(self, run: TaskRun) -> NoReturn:
        """Raise the reason why ``run`` did not start."""
        if run.error:
            raise run.error
        if run.timed_out:
            raise Unavailable(
                f"Too many inference servers are running: this one waited {START_SECONDS:.0f} seconds for its turn.",
                "Try again when they have finished.",
            )
        if not self._has_ended(run):
            raise Unavailable(f"The inference server did not start within {START_SECONDS:.0f} seconds.")
        raise Unavailable(
            "The inference server could not be started.", "\n".join(self._runner.last_lines(run, _LAST_LINES))
        )
