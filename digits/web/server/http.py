"""An HTTP and websocket server on gevent, with limits that protect it from slow and malicious clients.

gevent's server waits forever for incomplete requests, and a websocket client that does not read makes its message
queue grow without limit.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import io
import logging
import re
import resource
import signal
import socket
import time
import weakref
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore
from gevent.pool import Pool
from gevent.pywsgi import LoggingLogAdapter, WSGIHandler, WSGIServer

from digits.runtime.offload import begin_turn, end_long_turn
from digits.web.loop_watch import LoopWatch
from digits.web.security.environ import WEBSOCKET
from digits.web.security.peers import CONNECTION, Peer
from digits.web.security.rate_limit import network_of
from digits.web.security.refusal_log import RefusalLog
from digits.web.server.connections import Connection, Connections, State

IDLE_SECONDS = 15.0
HEADER_SECONDS = 10.0
BODY_SECONDS = 30.0
SEND_SECONDS = 20.0
# A response to a request whose body was not read is lost if the client sends more after the connection was closed.
LINGER_SECONDS = 2.0
# Clients slower than this, after the seconds above, are disconnected. The time limit grows with the bytes
# transferred, so that uploads of any size work, including those split into several requests.
SLOWEST_BYTES_PER_SECOND = 16 * 1024
UNACKNOWLEDGED_SECONDS = 20.0
STOP_SECONDS = 5.0
WATCH_SECONDS = 0.2
# How long a websocket may stay open without a Socket.IO client.
ABANDONED_SECONDS = 5.0
# Greenlets that block the event loop for longer are logged.
STALL_SECONDS = 0.25
MAX_CONNECTIONS = 1000
MAX_CONNECTIONS_PER_ADDRESS = 250
# Connections beyond the limit, for those that were cut and are about to close.
SPARE_CONNECTIONS = 50
MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * 1024
MAX_QUEUED_MESSAGES = 256
# Copying longer bodies would take longer than another system call.
MAX_JOINED_BYTES = 64 * 1024

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# HTTP/0.9 has no version.
_REQUEST_LINE = re.compile(_TOKEN.decode() + r" [\x21-\x7e\x80-\xff]+( HTTP/[0-9]\.[0-9])?\r\n")
_HEADER_LINE = re.compile(_TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n")
_LENGTH = re.compile(r"[0-9]{1,18}")

_log = logging.getLogger(__name__)


class Server:
    """An HTTP server with time and connection limits.

    ``listener`` is a listening socket, or (host, port). ``socketio`` is the
    Flask-SocketIO object whose slow clients are dropped. There are at most
    ``max_connections``, and ``max_connections_per_address`` from one address (None for
    no limit, for a server behind a proxy).
    """

    def __init__(
        self,
        app: Any,
        listener: Any,
        *,
        socketio: Any = None,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int | None = MAX_CONNECTIONS_PER_ADDRESS,
        idle_seconds: float = IDLE_SECONDS,
        header_seconds: float = HEADER_SECONDS,
        body_seconds: float = BODY_SECONDS,
        max_queued_messages: int = MAX_QUEUED_MESSAGES,
        slowest_bytes_per_second: float = SLOWEST_BYTES_PER_SECOND,
        abandoned_seconds: float = ABANDONED_SECONDS,
    ) -> None:
        _refuse_gevent_websocket()
        self.idle_seconds = idle_seconds
        self.header_seconds = header_seconds
        self.body_seconds = body_seconds
        self.slowest_bytes_per_second = slowest_bytes_per_second
        self.connections = Connections(max_connections, max_connections_per_address)
        self.refusals = RefusalLog(_log)
        # Connections between two requests.
        self.waiting: set[_Reader] = set()
        # Open websockets, and those upgraded from a polling session.
        self.websockets: weakref.WeakSet[WebSocket] = weakref.WeakSet()
        self.websocket_of: weakref.WeakValueDictionary[str, WebSocket] = weakref.WeakValueDictionary()
        self._socketio = socketio
        self._max_queued_messages = max_queued_messages
        self._abandoned_seconds = abandoned_seconds
        self._watch: Any = None
        self._loop_watch = LoopWatch(_log_stall, STALL_SECONDS)
        self._wsgi = _WSGIServer(
            listener,
            self._loop_watch.wrap(app),
            spawn=Pool(max_connections + SPARE_CONNECTIONS),
            handler_class=_Handler,
            log=LoggingLogAdapter(_log, logging.DEBUG),
            error_log=LoggingLogAdapter(_log, logging.INFO),
        )
        self._wsgi.owner = self

    @property
    def port(self) -> int:
        return int(self._wsgi.server_port)

    def start(self) -> None:
        """Start to serve; returns immediately."""
        self._wsgi.start()
        self._loop_watch.start()
        if self._socketio is not None:
            self._watch = gevent.spawn(self._watch_queues)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Accept no more requests, close the websockets, and wait up to ``seconds`` for the remaining requests."""
        if self._watch is not None:
            self._watch.kill()
        self._wsgi.close()
        open_connections: list[WebSocket | _Reader] = [*self.websockets, *self.waiting]
        for connection in open_connections:
            connection.cut()
        self._wsgi.stop(seconds)
        self._loop_watch.stop()

    def drop_slow_clients(self) -> None:
        """Disconnect Socket.IO clients whose message queue is too long."""
        engine = self._socketio.server.eio
        for client_id, client in [*engine.sockets.items()]:
            if client.queue.qsize() > self._max_queued_messages:
                _log.info("disconnected a client that does not read its messages")
                self._drop(client_id, client)

    def cut_abandoned_websockets(self) -> None:
        """Close websockets whose client Socket.IO has dropped, for example after a missed ping."""
        clients = self._socketio.server.eio.sockets.items()
        used = {self._websocket(client_id) for client_id, client in [*clients] if not client.closed}
        now = time.monotonic()
        for websocket in [*self.websockets]:
            if websocket in used:
                websocket.abandoned_since = None
            elif websocket.abandoned_since is None:
                websocket.abandoned_since = now
            elif now - websocket.abandoned_since > self._abandoned_seconds:
                websocket.cut()

    def _watch_queues(self) -> None:
        while True:
            gevent.sleep(WATCH_SECONDS)
            self.drop_slow_clients()
            self.cut_abandoned_websockets()

    def _drop(self, client_id: str, client: Any) -> None:
        websocket = self._websocket(client_id)
        client.close(wait=False, abort=True)
        while not client.queue.empty():
            client.queue.get_nowait()
            client.queue.task_done()
        client.queue.put(None)  # its writer waits for the end
        if websocket is not None:
            websocket.cut()

    def _websocket(self, client_id: str) -> WebSocket | None:
        environ = self._socketio.server.environ.get(client_id, {})
        return environ.get(WEBSOCKET) or self.websocket_of.get(client_id)


def serve(
    app: Any,
    listener: Any,
    *,
    socketio: Any = None,
    on_start: Callable[[int], None] | None = None,
    **limits: Any,
) -> None:
    """Serve ``app`` until SIGINT or SIGTERM; ``on_start`` is called with the port once it is ready.

    ``limits`` are passed to `Server`. Half of the available file descriptors are reserved for other uses.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits["max_connections"] = min(limits.get("max_connections", MAX_CONNECTIONS), max(1, descriptors // 2))
    server = Server(app, listener, socketio=socketio, **limits)
    # Exclude the objects loaded so far from garbage collection, which would block the event loop.
    gc.freeze()
    stopping = Event()
    handlers = [gevent.signal_handler(number, stopping.set) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        server.start()
        if on_start is not None:
            on_start(server.port)
        stopping.wait()
    finally:
        server.stop()
        for handler in handlers:
            handler.cancel()


class WebSocket:
    """The connection of a websocket for simple-websocket, which other greenlets can close.

    simple-websocket assumes that ``send`` sends all data, which gevent's does not, and it answers pings while
    another greenlet may be sending.
    """

    def __init__(self, connection: Any) -> None:
        self.abandoned_since: float | None = None
        self._connection = connection
        self._sending = BoundedSemaphore(1)

    def get_socket(self) -> WebSocket:
        """Return the attributes that simple-websocket expects of a server's request."""
        return self

    def send(self, data: bytes) -> int:
        with self._sending:
            try:
                with gevent.Timeout(SEND_SECONDS, TimeoutError("the client does not read")):
                    self._connection.sendall(data)
            except TimeoutError:
                self.cut()
                raise
        return len(data)

    def recv(self, size: int) -> bytes:
        data: bytes = self._connection.recv(size)
        return data

    def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        """Close the connection and wake blocked readers and writers."""
        _shut_down(self._connection)


class _WSGIServer(WSGIServer):  # type: ignore[misc]
    owner: Server

    def init_socket(self) -> None:
        # gevent's default would look up the machine's name in the network.
        self.environ.setdefault("SERVER_NAME", "digits")
        super().init_socket()
        # Connections inherit these options. Those with dead peers are closed before hours pass.
        milliseconds = int(UNACKNOWLEDGED_SECONDS * 1000)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        # gevent sends headers and body separately; without this, a short body waits 40 ms for an acknowledgment.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle(self, connection: Any, address: Any) -> None:
        counted = Connection(network_of(str(address[0])), functools.partial(_shut_down, connection))
        if not self.owner.connections.admit(counted):
            self.owner.refusals.add(f"{counted.address}: too many connections")
            return
        try:
            _Handler(connection, address, self, counted).handle()
        finally:
            self.owner.connections.forget(counted)


class _Handler(WSGIHandler):  # type: ignore[misc]
    """One connection, with time limits on idling, headers, request bodies and responses."""

    server: _WSGIServer
    requestline: str | None

    def __init__(self, connection: Any, address: Any, server: _WSGIServer, counted: Connection) -> None:
        self._counted = counted
        self._reader = _Reader(connection, counted, server.owner)
        # Read the kernel's tables in a thread; they are long on a busy machine.
        self._peer = Peer(address[:2], connection.getsockname()[:2])
        # Collects the headers and the start of a short response, which one system call sends.
        self._joined: bytearray | None = None
        super().__init__(connection, address, server, io.BufferedReader(self._reader))

    def read_requestline(self) -> str:
        self._reader.end_body()
        self._counted.state = State.WAITING
        waiting = self.server.owner.waiting
        waiting.add(self._reader)
        try:
            with gevent.Timeout(self.server.owner.idle_seconds, TimeoutError("no request came")):
                return str(super().read_requestline())
        finally:
            waiting.discard(self._reader)

    def read_request(self, raw_requestline: str) -> Any:
        if not _REQUEST_LINE.fullmatch(raw_requestline):
            raise ValueError("malformed request line")
        try:
            with gevent.Timeout(self.server.owner.header_seconds, ValueError("headers arrived too slowly")):
                return super().read_request(raw_requestline)
        except OSError as error:
            raise ValueError(f"the connection was closed within the headers: {error}") from error

    def MessageClass(self, lines: Any, *rest: Any) -> Any:  # noqa: N802 - gevent's name
        """Read the headers; raises ValueError for ambiguous ones, which allow request smuggling."""
        headers = super().MessageClass(io.BytesIO(_read_headers(lines)), *rest)
        # If the length of a body is ambiguous, its end could be mistaken for another request.
        lengths = headers.get_all("content-length") or []
        codings = headers.get_all("transfer-encoding") or []
        if len(lengths) + len(codings) > 1:
            raise ValueError("multiple Content-Length or Transfer-Encoding headers")
        if lengths and not _LENGTH.fullmatch(lengths[0].strip(" \t")):
            raise ValueError("Content-Length is not a number")
        if codings and (codings[0].strip(" \t").lower() != "chunked" or self.request_version != "HTTP/1.1"):
            raise ValueError("unsupported transfer encoding")
        return headers

    def get_environ(self) -> dict[str, Any]:
        begin_turn()
        environ: dict[str, Any] = super().get_environ()
        environ[CONNECTION] = self._peer
        self._counted.state = State.WORKING
        if self._connection_upgrade_requested():
            # Data after the websocket ends is not a request.
            self.close_connection = True
            self._counted.state = State.LIVE
            websocket = WebSocket(self.socket)
            # The key under which simple-websocket looks for the server's socket.
            environ[WEBSOCKET] = environ["eventlet.input"] = websocket
            self.server.owner.websockets.add(websocket)
            for client_id in parse_qs(environ["QUERY_STRING"]).get("sid", ()):
                self.server.owner.websocket_of[client_id] = websocket
        else:
            self._reader.begin_body()
        return environ

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        write = super().start_response(status, headers, exc_info)
        if any(name.lower() == "connection" and value.lower() == "close" for name, value in headers):
            # Otherwise gevent would read the rest of the body.
            self._reader.stop()
        return write

    def handle_one_response(self) -> None:
        super().handle_one_response()
        self._reader.linger()

    def _write_with_headers(self, data: bytes) -> None:
        if len(data) > MAX_JOINED_BYTES:
            super()._write_with_headers(data)
            return
        self._joined = bytearray()
        try:
            super()._write_with_headers(data)
        finally:
            joined, self._joined = self._joined, None
        self._sendall(joined)

    def _sendall(self, data: bytes | bytearray) -> None:
        if self._joined is not None:
            self._joined += data
            return
        seconds = SEND_SECONDS + len(data) / self.server.owner.slowest_bytes_per_second
        with self._counted.waiting(), gevent.Timeout(seconds, TimeoutError("the client does not read")):
            super()._sendall(data)
        end_long_turn()

    def format_request(self) -> str:
        # Without the query, which may contain the token.
        self.requestline = (self.requestline or "")[:500].partition("?")[0]
        return str(super().format_request())

    def log_error(self, msg: str, *args: Any) -> None:
        text = re.sub(r"\?\S*", "?…", (msg % args if args else msg)[:300])
        self.server.owner.refusals.add(f"{self._counted.address}: {text}")

    def _log_error(self, kind: Any, value: Any, trace: Any) -> None:
        if issubclass(kind, TimeoutError | ConnectionError):
            self.server.owner.refusals.add(f"{self._counted.address}: a request was interrupted: {value}")
        # Unlike gevent, do not log the headers, which contain secrets.
        elif not issubclass(kind, gevent.GreenletExit):
            _log.error("a request failed outside the application", exc_info=(kind, value, trace))


def _read_headers(lines: Any) -> bytes:
    """Return the header lines of a request with the final empty line; raises ValueError if malformed or too long."""
    size = 0
    headers: list[bytes] = []
    while True:
        line = lines.readline(MAX_HEADER_BYTES - size + 1)
        size += len(line)
        if size > MAX_HEADER_BYTES or len(headers) > MAX_HEADERS:
            raise ValueError("headers too long")
        headers.append(line)
        if line == b"\r\n":
            return b"".join(headers)
        if not _HEADER_LINE.fullmatch(line):
            raise ValueError("malformed header")


class _Reader(io.RawIOBase):
    """Reads a connection; raises TimeoutError for slow clients, and returns end-of-file once stopped.

    Between `begin_body` and `end_body`, the server's minimum transfer rate applies.
    """

    def __init__(self, connection: Any, counted: Connection, limits: Server) -> None:
        self._connection = connection
        self._counted = counted
        self._limits = limits
        self._body_end: float | None = None
        self._is_over = False

    def readable(self) -> bool:
        return True

    def stop(self) -> None:
        self._is_over = True

    def linger(self) -> None:
        """Once stopped, end the response and read what the client still sends, until it closes the connection."""
        if not self._is_over:
            return
        with contextlib.suppress(OSError), gevent.Timeout(LINGER_SECONDS, False), self._counted.waiting():
            self._connection.shutdown(socket.SHUT_WR)
            while self._connection.recv(io.DEFAULT_BUFFER_SIZE):
                end_long_turn()

    def begin_body(self) -> None:
        self._body_end = time.monotonic() + self._limits.body_seconds

    def end_body(self) -> None:
        self._body_end = None

    def cut(self) -> None:
        """Wake blocked readers with end-of-file."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RD)

    def readinto(self, buffer: Any) -> int:
        if self._is_over:
            return 0
        try:
            with (
                self._counted.waiting(),
                gevent.Timeout(self._seconds(), TimeoutError("the client sends too slowly")),
            ):
                end_long_turn()
                count: int = self._connection.recv_into(buffer)
        except TimeoutError:
            self._is_over = True
            raise
        if self._body_end is not None:
            self._body_end += count / self._limits.slowest_bytes_per_second
        return count

    def _seconds(self) -> float:
        silence = self._limits.body_seconds
        return (
            silence if self._body_end is None else max(0.0, min(silence, self._body_end - time.monotonic()))
        )


def _shut_down(connection: Any) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _log_stall(label: str, seconds: float, cpu_seconds: float) -> None:
    _log.warning("event loop blocked for %.2f s (%.2f s of CPU time) by %s", seconds, cpu_seconds, label)


def _refuse_gevent_websocket() -> None:
    if importlib.util.find_spec("geventwebsocket") is not None:
        raise RuntimeError(
            "The package gevent-websocket is installed. It is no longer maintained, and Socket.IO would use it: "
            "remove it with 'pip uninstall gevent-websocket'."
        )
