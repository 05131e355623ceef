"""Live updates for browsers over Socket.IO. No other module uses the socket.

Clients of the namespace ``/jobs`` join the room of a job, or the room for all jobs, and receive the messages of
`digits.web.live.messages`. Every page contains the cursor of the moment when it was requested. A client that joins a
room sends the cursor, learns from the answer whether messages were published to the room since then, and if so,
requests the page again over HTTP.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from typing import Any

import gevent
from flask import Flask

from digits.core import job as jobs
from digits.kinds.plugins import forbid_imports
from digits.web.live.messages import EVERYONE
from digits.web.security.environ import VISITOR

# They take a third of the time to import the server.
with forbid_imports(
    ("aio_pika", "aiohttp", "kafka", "kombu", "redis", "requests", "tornado", "websocket", "zmq"),
    "only clients and message queues of Socket.IO need it",
):
    from flask_socketio import SocketIO, join_room, leave_room, rooms

NAMESPACE = "/jobs"
STORAGE = "storage"
MAX_MESSAGE_BYTES = 100_000
# The rooms of a client; no page joins more than one for each job that it shows in detail.
MAX_ROOMS = 200
# Updates of lists of which only the latest one matters.
CURRENT = frozenset({"progress", "sparkline"})
# If many people watch the lists, these updates, and requests for the lists that other changes cause, take about this
# share of the server's time. Sending a message to one client, and answering its request, takes about these seconds.
LISTS_SHARE = 0.2
SEND_SECONDS = 30e-6
ANSWER_SECONDS = 3e-3
CROWD = 50


class Live:
    """The server side of the socket.

    ``storage_problem`` returns the message and hint of the error that keeps jobs from being saved, or None. Clients
    receive it when they join and when it changes.
    """

    def __init__(self, storage_problem: Callable[[], dict[str, str] | None]) -> None:
        self.socketio = SocketIO()
        self._storage_problem = storage_problem
        # Cursors of different servers cannot be compared.
        self._server = secrets.token_hex(8)
        self._published = 0
        # The number of the latest message in each room.
        self._latest: dict[str, int] = {}
        # Updates that wait because too many people watch the lists, by job and update.
        self._waiting: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        self._free_at = 0.0
        self._sender: gevent.Greenlet | None = None

    def connect(self, app: Flask) -> None:
        """Serve the socket alongside ``app``. The gate checks host, origin and login."""
        self.socketio.init_app(
            app,
            async_mode="gevent",
            path="socket.io",
            # The gate has already checked the Origin against the allowed hosts.
            cors_allowed_origins=_every_origin,
            max_http_buffer_size=MAX_MESSAGE_BYTES,
            serve_client=False,
        )
        self.socketio.on_event("join", self._join, namespace=NAMESPACE)
        self.socketio.on_event("leave", _leave, namespace=NAMESPACE)

    @property
    def cursor(self) -> str:
        """The position of the next message among the messages to all rooms.

        Read it before the data that messages report, so that `has_missed` never omits a change.
        """
        return f"{self._server}.{self._published}"

    def has_missed(self, room: str, cursor: object) -> bool:
        """Return whether a message was, or may have been, published to ``room`` since ``cursor``."""
        server, _, position = cursor.partition(".") if isinstance(cursor, str) else ("", "", "")
        if server != self._server or not re.fullmatch(r"[0-9]{1,18}", position):
            return True
        return self._latest.get(room, 0) > int(position)

    @property
    def watchers(self) -> int:
        """The number of clients that watch the lists."""
        return self._clients_in(EVERYONE)

    def publish(self, room: str, event: str, body: dict[str, Any]) -> None:
        """Send ``body`` to all clients in ``room``.

        Updates of lists that would take too much time wait for their turn, and are then the latest of their job. Other
        messages about lists contain the number of seconds over which a crowd spreads its requests.
        """
        if room != EVERYONE:
            self._send(room, event, body)
        elif body.get("update") not in CURRENT:
            spread = (
                {"spread": self.watchers * ANSWER_SECONDS / LISTS_SHARE} if self.watchers >= CROWD else {}
            )
            self._send(room, event, body | spread)
        elif self._waiting or time.monotonic() < self._free_at:
            self._waiting[body["job_id"], body["update"]] = event, body
            if not self._sender:
                self._sender = gevent.spawn(self._send_waiting)
        else:
            self._send_update(event, body)

    def _send_waiting(self) -> None:
        while self._waiting:
            gevent.sleep(max(0.0, self._free_at - time.monotonic()))
            self._send_update(*self._waiting.pop(next(iter(self._waiting))))

    def _send_update(self, event: str, body: dict[str, Any]) -> None:
        self._send(EVERYONE, event, body)
        self._free_at = time.monotonic() + self.watchers * SEND_SECONDS / LISTS_SHARE

    def _send(self, room: str, event: str, body: dict[str, Any]) -> None:
        self._published += 1
        self._latest[room] = self._published
        if self._clients_in(room):
            self.socketio.emit(event, body, to=room, namespace=NAMESPACE)

    def _clients_in(self, room: str) -> int:
        server = self.socketio.server
        return len(server.manager.rooms.get(NAMESPACE, {}).get(room, ())) if server is not None else 0

    def publish_storage_problem(self) -> None:
        """Send the current storage problem to all clients."""
        if self.socketio.server is not None:
            self.socketio.emit(STORAGE, {"problem": self._storage_problem()}, namespace=NAMESPACE)

    def disconnect(self, session_id: str) -> None:
        """Close the connections of a login session, including long-polling ones."""
        server = self.socketio.server
        for client_id, environ in [*server.environ.items()] if server is not None else []:
            visitor = environ.get(VISITOR)
            if visitor is None or visitor.session is None or visitor.session.id != session_id:
                continue
            client = server.eio.sockets.get(client_id)
            if client is not None:
                client.close(wait=False, abort=True)

    def _join(self, body: Any = None) -> dict[str, Any]:
        room = _room(body)
        if room is None:
            return {"error": "There is no such room."}
        if room not in (joined := rooms()) and len(joined) > MAX_ROOMS:
            return {"error": f"This client has joined {MAX_ROOMS} rooms. Leave one of them first."}
        join_room(room)
        return {
            "room": room,
            "missed": self.has_missed(room, body.get("cursor")),
            "storage_problem": self._storage_problem(),
        }


def _every_origin(origin: str) -> bool:
    return True


def _room(body: Any) -> str | None:
    room = body.get("room") if isinstance(body, dict) else None
    if isinstance(room, str) and (room == EVERYONE or jobs.is_id(room)):
        return room
    return None


def _leave(body: Any = None) -> dict[str, Any]:
    room = _room(body)
    if room is None:
        return {"error": "There is no such room."}
    leave_room(room)
    return {"room": room}
