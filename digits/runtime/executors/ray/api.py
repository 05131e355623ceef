"""Requests to Ray's REST API, as plain HTTP: the server needs no package of Ray."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from gevent.monkey import get_original

from digits.core.schema import JsonObject
from digits.runtime.executors.cluster import Unreachable

_TIMEOUT_SECONDS = 20.0

T = TypeVar("T")

# Those of the operating system, also after gevent has replaced them.
_Socket, _getaddrinfo = get_original("socket", ("socket", "getaddrinfo"))


class RayError(Unreachable):
    """Ray answered a request with an error: its HTTP ``status``, and all text. The message is its last line."""

    def __init__(self, status: int, text: str) -> None:
        lines = [line for line in text.splitlines() if line.strip(" .")]
        super().__init__((lines[-1] if lines else f"HTTP status {status}")[:500])
        self.status, self.text = status, text


class RayApi:
    """Sends requests to the dashboard of a Ray cluster at ``address``, for at most `_TIMEOUT_SECONDS` each.

    ``token`` is that of a cluster with ``RAY_AUTH_MODE=token``. The methods block, and use nothing of gevent: call them
    in a native thread.
    """

    def __init__(self, address: str, token: str = "") -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(self, path: str, kind: type[T]) -> T:
        """Return the answer to a request; raises Unreachable or RayError."""
        try:
            return msgspec.json.decode(self.send("GET", path), type=kind)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"{self._host}:{self._port} does not answer as Ray does: {error}") from error

    def send(self, method: str, path: str, body: JsonObject | None = None) -> bytes:
        """Return the text of the answer to a request; raises Unreachable or RayError."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.sock = self._connect()
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, f"{self._path}/api/{path}", data, self._headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(f"no answer from {self._host}:{self._port} ({why})") from error
        finally:
            connection.close()
        if answer.status in (401, 403):
            problem = "it requires a token, or another one than that in DIGITS_RAY_TOKEN"
            raise Unreachable(f"{problem} ({answer.status})")
        if answer.status >= 400:
            raise RayError(answer.status, text.decode(errors="replace"))
        return text

    def _connect(self) -> Any:
        problem = OSError("its name has no address")
        addresses = _getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in addresses:
            sock = _Socket(family, kind, protocol)
            sock.settimeout(_TIMEOUT_SECONDS)
            try:
                sock.connect(address)
                return sock
            except OSError as error:
                sock.close()
                problem = error
        raise problem
