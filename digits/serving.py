"""The HTTP server: gevent's, with a handle on every open websocket."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

import gevent
from gevent.pywsgi import WSGIHandler, WSGIServer

from digits.gate import WEBSOCKET

# Answers that are being sent when the server stops may take this long to end.
STOP_SECONDS = 1.0


class _Connection:
    """The connection of one request, for ending a websocket from outside."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def cut(self) -> None:
        """End the websocket; whoever reads from it sees it closed."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already


class _Handler(WSGIHandler):
    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        if "websocket" in environ.get("HTTP_UPGRADE", "").lower():
            environ[WEBSOCKET] = _Connection(self.socket)
        return environ


def answer_requests(app: Callable[..., Any], listener: socket.socket) -> None:
    """Serve ``app`` on a listening socket until SIGINT or SIGTERM."""
    server = WSGIServer(listener, app, handler_class=_Handler, log=None)
    watchers = [
        gevent.signal_handler(number, server.stop, STOP_SECONDS) for number in (signal.SIGINT, signal.SIGTERM)
    ]
    try:
        server.serve_forever(stop_timeout=STOP_SECONDS)
    finally:
        for watcher in watchers:
            watcher.cancel()
