"""Live updates for browsers over Socket.IO. No other module uses the socket.

Clients of the namespace ``/jobs`` join the room of a job, or the room for all jobs, and receive the messages of
`digits.web.live.messages`. Every page contains the cursor of the moment when it was requested. A client that joins a
room sends the cursor, learns from the answer whether messages were published to the room since then, and if so,
requests the page again over HTTP.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any

from flask import Flask
from flask_socketio import SocketIO, join_room, leave_room

from digits.core import job as jobs
from digits.web.live.messages import EVERYONE
from digits.web.security.environ import VISITOR

NAMESPACE = "/jobs"
STORAGE = "storage"
MAX_MESSAGE_BYTES = 100_000


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

    def publish(self, room: str, event: str, body: dict[str, Any]) -> None:
        """Send ``body`` to all clients in ``room``."""
        self._published += 1
        self._latest[room] = self._published
        if self.socketio.server is not None:
            self.socketio.emit(event, body, to=room, namespace=NAMESPACE)

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
