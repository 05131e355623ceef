"""Live updates for browsers over Socket.IO. No other module uses the socket.

Clients of the namespace ``/jobs`` join the room of a job, or the room for all jobs, and receive the messages of
`digits.web.live_messages`. They request missed updates over HTTP.
"""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask_socketio import SocketIO, join_room, leave_room

from digits.core import job as jobs
from digits.web.auth import VISITOR
from digits.web.live_messages import EVERYONE

NAMESPACE = "/jobs"
MAX_MESSAGE_BYTES = 100_000


class Live:
    """The server side of the socket."""

    def __init__(self) -> None:
        self.socketio = SocketIO()

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
        self.socketio.on_event("join", _join, namespace=NAMESPACE)
        self.socketio.on_event("leave", _leave, namespace=NAMESPACE)

    def publish(self, room: str, event: str, body: dict[str, Any]) -> None:
        """Send ``body`` to all clients in ``room``."""
        if self.socketio.server is not None:
            self.socketio.emit(event, body, to=room, namespace=NAMESPACE)

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


def _every_origin(origin: str) -> bool:
    return True


def _room(body: Any) -> str | None:
    room = body.get("room") if isinstance(body, dict) else None
    if isinstance(room, str) and (room == EVERYONE or jobs.is_id(room)):
        return room
    return None


def _join(body: Any = None) -> dict[str, Any]:
    room = _room(body)
    if room is None:
        return {"error": "There is no such room."}
    join_room(room)
    return {"room": room}


def _leave(body: Any = None) -> dict[str, Any]:
    room = _room(body)
    if room is None:
        return {"error": "There is no such room."}
    leave_room(room)
    return {"room": room}
