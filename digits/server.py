"""Answers HTTP and websockets with gevent, with bounds on what strangers can make it hold.

gevent's server waits forever for a request that never ends, and a websocket
client that does not read makes the queue of its messages grow without limit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import re
import signal
import socket
import weakref
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore
from gevent.pool import Pool
from gevent.pywsgi import LoggingLogAdapter, WSGIHandler, WSGIServer

from digits.gate import WEBSOCKET
from digits.peers import CONNECTION, Connection

IDLE_SECONDS = 15.0
HEADER_SECONDS = 10.0
BODY_SECONDS = 30.0
SEND_SECONDS = 20.0
UNACKNOWLEDGED_SECONDS = 20.0
STOP_SECONDS = 5.0
WATCH_SECONDS = 0.2
MAX_CONNECTIONS = 1000
MAX_QUEUED_MESSAGES = 256

_log = logging.getLogger(__name__)


class Server:
    """Answers requests until it is stopped.

    ``listener`` is a listening socket, or (host, port). ``socketio`` is the
    Flask-SocketIO object whose slow clients are to be dropped.
    """

    def __init__(
        self,
        app: Any,
        listener: Any,
        *,
        socketio: Any = None,
        max_connections: int = MAX_CONNECTIONS,
        idle_seconds: float = IDLE_SECONDS,
        header_seconds: float = HEADER_SECONDS,
        body_seconds: float = BODY_SECONDS,
        max_queued_messages: int = MAX_QUEUED_MESSAGES,
    ) -> None:
        _refuse_gevent_websocket()
        self.idle_seconds = idle_seconds
        self.header_seconds = header_seconds
        self.body_seconds = body_seconds
        # The connections between two requests.
        self.waiting: set[_Reader] = set()
        # The websockets that are open, and those of them that go on from a polling session.
        self.websockets: weakref.WeakSet[WebSocket] = weakref.WeakSet()
        self.websocket_of: weakref.WeakValueDictionary[str, WebSocket] = weakref.WeakValueDictionary()
        self._socketio = socketio
        self._max_queued_messages = max_queued_messages
        self._watch: Any = None
        self._wsgi = _WSGIServer(
            listener,
            app,
            spawn=Pool(max_connections),
            handler_class=_Handler,
            log=LoggingLogAdapter(_log, logging.DEBUG),
            error_log=LoggingLogAdapter(_log, logging.INFO),
        )
        self._wsgi.owner = self

    @property
    def port(self) -> int:
        return int(self._wsgi.server_port)

    def start(self) -> None:
        """Begin to answer; returns at once."""
        self._wsgi.start()
        if self._socketio is not None:
            self._watch = gevent.spawn(self._watch_queues)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Take no more requests, close the websockets, and give the rest ``seconds`` to end."""
        if self._watch is not None:
            self._watch.kill()
        self._wsgi.close()
        open_connections: list[WebSocket | _Reader] = [*self.websockets, *self.waiting]
        for connection in open_connections:
            connection.cut()
        self._wsgi.stop(seconds)

    def drop_slow_clients(self) -> None:
        """Cut off the Socket.IO clients that have let too many messages pile up."""
        engine = self._socketio.server.eio
        for client_id, client in [*engine.sockets.items()]:
            if client.queue.qsize() > self._max_queued_messages:
                _log.info("a client that does not read its messages is cut off")
                self._drop(client_id, client)

    def _watch_queues(self) -> None:
        while True:
            gevent.sleep(WATCH_SECONDS)
            self.drop_slow_clients()

    def _drop(self, client_id: str, client: Any) -> None:
        websocket = self._websocket(client_id)
        client.close(wait=False, abort=True)
        while not client.queue.empty():
            client.queue.get_nowait()
            client.queue.task_done()
        client.queue.put(None)  # its writer waits for an end
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
    """Serve ``app`` until SIGINT or SIGTERM; ``on_start`` is called with the port once it answers.

    ``limits`` are those of `Server`.
    """
    server = Server(app, listener, socketio=socketio, **limits)
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
    """The connection of a websocket, as simple-websocket wants it, that can be cut by others.

    simple-websocket believes that ``send`` sends everything, which gevent's does not,
    and it answers pings while another greenlet may be sending.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._sending = BoundedSemaphore(1)

    def get_socket(self) -> WebSocket:
        """What simple-websocket asks a server's request for."""
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
        """End the connection; whoever reads or writes it is woken. The server closes it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


class _WSGIServer(WSGIServer):  # type: ignore[misc]
    owner: Server

    def init_socket(self) -> None:
        # Not gevent's way, which asks the network for the machine's name.
        self.environ.setdefault("SERVER_NAME", "digits")
        super().init_socket()
        # Connections inherit it: one whose peer is gone does not stay for hours.
        milliseconds = int(UNACKNOWLEDGED_SECONDS * 1000)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


class _Handler(WSGIHandler):  # type: ignore[misc]
    """One connection, with time limits on waiting for a request, its headers, and its body."""

    server: _WSGIServer
    requestline: str | None

    def __init__(self, connection: Any, address: Any, server: _WSGIServer) -> None:
        self._reader = _Reader(connection, server.owner.body_seconds)
        # The kernel's tables are read in a thread: they are long on a busy machine.
        self._connection = Connection(address[:2], connection.getsockname()[:2], _in_thread)
        super().__init__(connection, address, server, io.BufferedReader(self._reader))

    def read_requestline(self) -> str:
        waiting = self.server.owner.waiting
        waiting.add(self._reader)
        try:
            with gevent.Timeout(self.server.owner.idle_seconds, TimeoutError("no request came")):
                return str(super().read_requestline())
        finally:
            waiting.discard(self._reader)

    def read_request(self, raw_requestline: str) -> Any:
        with gevent.Timeout(self.server.owner.header_seconds, ValueError("headers came too slowly")):
            is_read = super().read_request(raw_requestline)
        # Where the length of a body is in doubt, its end could be taken for another request.
        encodings = self.headers.get_all("transfer-encoding") or ["chunked"]
        if [encoding.strip().lower() for encoding in encodings] != ["chunked"]:
            raise ValueError("an unknown transfer encoding")
        if len(self.headers.get_all("content-length") or []) > 1:
            raise ValueError("several lengths of one body")
        return is_read

    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        environ[CONNECTION] = self._connection
        if self._connection_upgrade_requested():
            # What is left on the line afterwards is no request.
            self.close_connection = True
            websocket = WebSocket(self.socket)
            # The key under which simple-websocket finds a server's own socket object.
            environ[WEBSOCKET] = environ["eventlet.input"] = websocket
            self.server.owner.websockets.add(websocket)
            for client_id in parse_qs(environ["QUERY_STRING"]).get("sid", ()):
                self.server.owner.websocket_of[client_id] = websocket
        return environ

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        write = super().start_response(status, headers, exc_info)
        if any(name.lower() == "connection" and value.lower() == "close" for name, value in headers):
            # Without this, gevent would read the rest of a body that nobody wants.
            self._reader.stop()
        return write

    def format_request(self) -> str:
        # Without the query, which may hold the token.
        self.requestline = (self.requestline or "")[:500].partition("?")[0]
        return str(super().format_request())

    def log_error(self, msg: str, *args: Any) -> None:
        text = msg % args if args else msg
        super().log_error("%s", re.sub(r"\?\S*", "?…", text[:300]))

    def _log_error(self, kind: Any, value: Any, trace: Any) -> None:
        # Not gevent's way, which prints the request's headers with their secrets.
        if not issubclass(kind, gevent.GreenletExit):
            _log.error("a request failed outside of the application", exc_info=(kind, value, trace))


def _in_thread(find: Callable[[], int | None]) -> int | None:
    uid: int | None = gevent.get_hub().threadpool.apply(find)
    return uid


class _Reader(io.RawIOBase):
    """Reads a connection; silence that is too long, or being stopped, looks like its end."""

    def __init__(self, connection: Any, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._is_over = False

    def readable(self) -> bool:
        return True

    def stop(self) -> None:
        self._is_over = True

    def cut(self) -> None:
        """Wake whoever reads, with the end of the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RD)

    def readinto(self, buffer: Any) -> int:
        if self._is_over:
            return 0
        try:
            with gevent.Timeout(self._seconds, TimeoutError("the client stopped sending")):
                count: int = self._connection.recv_into(buffer)
        except TimeoutError:
            self._is_over = True
            raise
        return count


def _refuse_gevent_websocket() -> None:
    if importlib.util.find_spec("geventwebsocket") is not None:
        raise RuntimeError(
            "The package gevent-websocket is installed. It is no longer maintained, and Socket.IO would use it: "
            "remove it with 'pip uninstall gevent-websocket'."
        )
