"""TensorBoard on the server's own port: one process per viewed job, and a proxy.

A job's id selects that job's process: no host, port or folder comes from a request. The processes listen on
loopback, below a path that only this server knows, and exit when they are idle or the server exits.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import importlib.util
import json
import logging
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
import weakref
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from werkzeug.exceptions import MethodNotAllowed
from werkzeug.wrappers import Request, Response

from digits.core.environment import SYSTEM_VARIABLES, inherited
from digits.core.errors import NotFound, Unavailable
from digits.runtime import tensorboard_process
from digits.runtime.tensorboard_process import PORT_LINE
from digits.web.security.gate import FOREIGN

PROGRAM = Path(tensorboard_process.__file__)
MAX_PROCESSES = 8
IDLE_SECONDS = 15 * 60.0
START_SECONDS = 60.0
# Time that a page waits for the process before it shows a message; scripts wait for the whole start.
PAGE_SECONDS = 0.3
REQUEST_SECONDS = 120.0
STOP_SECONDS = 5.0
CHUNK_BYTES = 64 * 1024

# TensorBoard's page sends long queries as POST; no other route accepts it.
_POSTABLE = re.compile(
    r"(experiment/[^/]+/)?data/plugin/"
    r"(timeseries/timeSeries|scalars/scalars_multirun|hparams/(experiment|session_groups|metric_evals|download_data))"
)
_NOT_FORWARDED = frozenset(
    "host connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade "
    "content-length cookie authorization forwarded x-csrftoken origin referer".split()
)
_NOT_RETURNED = frozenset(
    "connection keep-alive proxy-authenticate te trailer transfer-encoding upgrade set-cookie server date".split()
) | {FOREIGN.lower()}
_FONT = re.compile(r"[\w-]{1,100}\.woff2", re.ASCII)

_log = logging.getLogger(__name__)


class TensorBoards:
    """The TensorBoard processes of this server. All methods are safe to call from any greenlet."""

    def __init__(
        self,
        url_prefix: str = "",
        *,
        max_processes: int = MAX_PROCESSES,
        idle_seconds: float = IDLE_SECONDS,
        start_seconds: float = START_SECONDS,
        page_seconds: float = PAGE_SECONDS,
        program: Path = PROGRAM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url_prefix = url_prefix
        self._max_processes = max_processes
        self._idle_seconds = idle_seconds
        self._start_seconds = start_seconds
        self._page_seconds = page_seconds
        self._program = program
        self._clock = clock
        self._lock = threading.Lock()
        self._processes: dict[str, _Process] = {}
        self._watch: threading.Thread | None = None
        atexit.register(_stop_all_of, weakref.ref(self))

    def url_for(self, job_id: str) -> str:
        """Return the URL of a job's TensorBoard."""
        return f"{self._url_prefix}/tensorboard/{quote(job_id, safe='')}/"

    def proxy(self, job_id: str, logdir: Path, path: str, request: Request) -> Response:
        """Return the response of the job's TensorBoard to ``request`` for ``path``; start one if none is running.

        While it starts, browsers get a page that reloads itself. Raises NotFound if ``logdir`` is not a folder, and
        Unavailable if TensorBoard does not start or respond.
        """
        if request.method not in ("GET", "HEAD") and not (
            request.method == "POST" and _POSTABLE.fullmatch(path)
        ):
            raise MethodNotAllowed(["GET", "HEAD"])
        if logdir.is_symlink() or not logdir.is_dir():
            raise NotFound("This job has no TensorBoard logs yet.")
        process = self._process(job_id, logdir)
        # Also during the start: a process with waiting requests is not idle.
        with process.in_use(self._clock):
            return self._answer(job_id, process, path, request)

    def _answer(self, job_id: str, process: _Process, path: str, request: Request) -> Response:
        is_page = request.method == "GET" and "text/html" in request.headers.get("Accept", "")
        with process.in_use(self._clock):  # however long it takes to start
            has_settled = process.wait(self._page_seconds if is_page else self._start_seconds)
        if not has_settled:
            if is_page:
                return _starting_page()
            raise Unavailable("TensorBoard is still starting. Try again in a moment.")
        if process.port is None:
            self._give_up(job_id, process)
            raise Unavailable("TensorBoard did not start.", process.last_words())
        try:
            return process.forward(path, request, self.url_for(job_id), self._clock)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ConnectionError):
                self._give_up(job_id, process)  # it has ended or is about to; the next request starts another
            raise Unavailable("TensorBoard does not respond. Try again in a moment.") from error

    def stop(self, job_id: str) -> None:
        """Stop the TensorBoard of a job, if one is running."""
        with self._lock:
            process = self._processes.pop(job_id, None)
        if process is not None:
            process.stop()

    def stop_all(self) -> None:
        """Stop all processes."""
        with self._lock:
            processes, self._processes = [*self._processes.values()], {}
        for process in processes:
            process.ask_to_stop()
        for process in processes:
            process.stop()

    def stop_idle(self) -> None:
        """Stop idle processes."""
        latest = self._clock() - self._idle_seconds
        with self._lock:
            idle = [name for name, process in self._processes.items() if process.is_idle_since(latest)]
        for job_id in idle:
            self.stop(job_id)

    def running(self) -> list[str]:
        """The ids of the jobs whose TensorBoard is running or starting."""
        with self._lock:
            return [job_id for job_id, process in self._processes.items() if process.is_alive()]

    def _process(self, job_id: str, logdir: Path) -> _Process:
        surplus: list[_Process] = []
        try:
            with self._lock:
                process = self._processes.get(job_id)
                if process is not None and process.is_alive():
                    process.last_use = self._clock()
                    return process
                surplus = self._take_surplus(job_id)
                process = self._processes[job_id] = _Process(self._program, logdir, self._clock())
                self._start_watch()
                return process
        finally:
            for other in surplus:
                other.stop()

    def _give_up(self, job_id: str, process: _Process) -> None:
        with self._lock:
            if self._processes.get(job_id) is process:
                del self._processes[job_id]
        process.stop()

    def _take_surplus(self, job_id: str) -> list[_Process]:
        """Remove ended processes, and stop the least recently used ones so that one more may start."""
        dead = self._processes.pop(job_id, None)
        by_use = sorted(self._processes, key=lambda name: self._processes[name].last_use)
        surplus = by_use[: max(0, len(by_use) + 1 - self._max_processes)]
        taken = [self._processes.pop(name) for name in surplus]
        return [dead, *taken] if dead is not None else taken

    def _start_watch(self) -> None:
        if self._watch is None or not self._watch.is_alive():
            pause = min(30.0, self._idle_seconds / 4)
            self._watch = threading.Thread(target=_watch, args=(weakref.ref(self), pause), daemon=True)
            self._watch.start()


class _Process:
    """A TensorBoard process. It reads from a pipe of this process, so it cannot outlive it."""

    def __init__(self, program: Path, logdir: Path, now: float) -> None:
        self.port: int | None = None
        self.last_use = now
        self._users = 0
        self._settled = threading.Event()
        self._said: deque[str] = deque(maxlen=20)
        self._prefix = f"/{secrets.token_urlsafe(24)}"
        self._process = subprocess.Popen(
            # -P: this file's folder has modules named like libraries.
            [sys.executable, "-P", str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            start_new_session=True,
            env=inherited(os.environ, SYSTEM_VARIABLES),
        )
        self._tell({"logdir": str(logdir), "path_prefix": self._prefix})
        threading.Thread(target=self._listen, daemon=True).start()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Wait until it responds or has ended; return False if it is still starting."""
        return self._settled.wait(seconds)

    def last_words(self) -> str:
        return "\n".join(self._said)[-2000:]

    def is_idle_since(self, moment: float) -> bool:
        return not self._users and self.last_use <= moment

    @contextlib.contextmanager
    def in_use(self, clock: Callable[[], float]) -> Iterator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self.last_use = clock()

    def forward(self, path: str, request: Request, base: str, clock: Callable[[], float]) -> Response:
        """Return its response to ``request``, streamed; raises OSError or HTTPException if there is none.

        ``base`` is the path by which clients reach it.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
        body = request.get_data() if request.method == "POST" else None
        headers = dict(_kept(request.headers.items(), _NOT_FORWARDED, "x-forwarded-"))
        try:
            connection.request(request.method, self._prefix + _target(path, request), body, headers)
            answer = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        response = Response(
            () if request.method == "HEAD" else self._stream(connection, answer, clock),
            status=answer.status,
            headers=[*self._headers(answer, base), (FOREIGN, "1")],
        )
        response.call_on_close(connection.close)
        return response

    def ask_to_stop(self) -> None:
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Stop it and its child processes, and reap it."""
        self.ask_to_stop()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def _tell(self, settings: dict[str, str]) -> None:
        assert self._process.stdin is not None
        # It may have ended already; then it never reports a port, which is noticed.
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(settings) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        """Read its output until the end, so that it never blocks on a full pipe."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith(PORT_LINE):
                    self.port = int(line.removeprefix(PORT_LINE))
                    self._settled.set()
                else:
                    self._said.append(line.rstrip()[:500])
        self._settled.set()

    def _stream(
        self,
        connection: http.client.HTTPConnection,
        answer: http.client.HTTPResponse,
        clock: Callable[[], float],
    ) -> Iterator[bytes]:
        with self.in_use(clock):
            try:
                while chunk := answer.read(CHUNK_BYTES):
                    yield chunk
            except (OSError, http.client.HTTPException) as error:
                _log.info("TensorBoard interrupted a response: %s", error)
                raise
            finally:
                connection.close()

    def _headers(self, answer: http.client.HTTPResponse, base: str) -> Iterator[tuple[str, str]]:
        for name, value in _kept(answer.getheaders(), _NOT_RETURNED):
            if name.lower() != "location":
                yield name, value
            elif value.startswith(f"{self._prefix}/"):
                yield name, base + value.removeprefix(f"{self._prefix}/")
            elif not value.startswith("/") and "//" not in value:
                yield name, value


def font(name: str) -> bytes | None:
    """Return a font file, which TensorBoard's page requests at the root of the site, whatever its prefix."""
    spec = importlib.util.find_spec("tensorboard")
    if not _FONT.fullmatch(name) or spec is None or spec.origin is None:
        return None
    with (
        contextlib.suppress(OSError, KeyError),
        zipfile.ZipFile(Path(spec.origin).with_name("webfiles.zip")) as files,
    ):
        return files.read(f"font-roboto/{name}")
    return None


def _kept(
    headers: Iterable[tuple[str, str]], dropped: frozenset[str], dropped_start: str = "\0"
) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        if name.lower() not in dropped and not name.lower().startswith(dropped_start):
            yield name, value


def _target(path: str, request: Request) -> str:
    """Return the path and query for TensorBoard, encoded again."""
    query = request.query_string.decode("latin-1")
    encoded = "/" + quote(path, safe="/:@!$&'()*+,;=~-._", errors="surrogateescape")
    return f"{encoded}?{quote(query, safe='%/:?@!$&()*+,;=~-._[]')}" if query else encoded


def _starting_page() -> Response:
    page = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>TensorBoard is starting</title>
<meta http-equiv="refresh" content="1"></head>
<body><p>TensorBoard is starting. This page refreshes automatically.</p></body></html>
"""
    headers = {"Retry-After": "1", "Cache-Control": "no-store"}
    # Not an error status, which browsers would report: this is the normal start.
    return Response(page, status=202, headers=headers, content_type="text/html; charset=utf-8")


def _watch(owner: weakref.ref[TensorBoards], pause: float) -> None:
    """Stop idle processes until there are none left."""
    while True:
        time.sleep(pause)
        boards = owner()
        if boards is None or not boards._processes:
            return
        boards.stop_idle()
        del boards


def _stop_all_of(owner: weakref.ref[TensorBoards]) -> None:
    boards = owner()
    if boards is not None:
        boards.stop_all()
