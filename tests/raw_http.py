"""A test server, and clients that can violate HTTP in ways that libraries do not allow."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from digits.web.security.peers import Peer

PATIENCE_SECONDS = 30.0
PROGRAM = Path(__file__).with_name("small_server.py")


# A user other than the one that runs the tests; only root can create sockets for another user.
OTHER_UID = 12345 if os.geteuid() == 0 else os.geteuid()


def client_socket(family: int = socket.AF_INET, uid: int | None = None) -> socket.socket:
    """Return a socket owned by the user ``uid``, as if opened by a program of that user."""
    own = os.geteuid()
    os.seteuid(own if uid is None else uid)
    try:
        return socket.socket(family)
    finally:
        os.seteuid(own)


def peer_of(uid: int | None) -> Peer:
    """Return a connection owned by the user ``uid``."""
    peer = Peer(("127.0.0.1", 1), ("127.0.0.1", 2))
    vars(peer)["uid"] = uid
    return peer


class SmallServer:
    """A running server; ``log`` contains its log, ``output`` its output."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path, output: str = "") -> None:
        self.process = process
        self.port = port
        self.output = output
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def connect(self, receive_buffer: int | None = None, uid: int | None = None) -> socket.socket:
        connection = client_socket(socket.AF_INET, uid)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def send(self, text: str, uid: int | None = None) -> Answer:
        """Send a raw request, with ``\\n`` for line ends, and return the response."""
        with self.connect(uid=uid) as connection:
            connection.sendall(text.replace("\n", "\r\n").encode())
            return Answer.read(connection)

    def get(self, path: str, *headers: str, uid: int | None = None) -> Answer:
        lines = [f"GET {path} HTTP/1.1", f"Host: localhost:{self.port}", *headers, "Connection: close"]
        return self.send("\n".join(lines) + "\n\n", uid)


@contextlib.contextmanager
def small_server(folder: Path, **arguments: Any) -> Iterator[SmallServer]:
    """Run `small_server.py` with these arguments."""
    log = folder / "server.log"
    root = str(PROGRAM.parent.parent)
    with open(log, "w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline() or "0")
        assert port, log.read_text()
        yield SmallServer(process, port, log)
    finally:
        with process:
            process.kill()


class Answer:
    """Status, headers (lowercase names) and body of a response."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @classmethod
    def read(cls, connection: socket.socket) -> Answer:
        """Read one response; its status is 0 if the connection closes without one."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = _receive(connection)
            if not piece:
                return cls(0, {}, data)
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split()[1])
        length = int(headers.get("content-length", 0))
        while status != 101 and len(body) < length:
            piece = _receive(connection)
            if not piece:
                break
            body += piece
        return cls(status, headers, body)


class RawWebSocket:
    """A minimal websocket client."""

    def __init__(self, connection: socket.socket, port: int, path: str, headers: list[str]) -> None:
        self.connection = connection
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            *(
                []
                if any(line.lower().startswith("host:") for line in headers)
                else [f"Host: localhost:{port}"]
            ),
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            *headers,
        ]
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.status = 0
        # Read byte by byte: frames follow the header.
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = connection.recv(1)
            if not piece:
                return
            head += piece
        self.status = int(head.split()[1])

    def send(self, text: str) -> None:
        data, mask = text.encode(), os.urandom(4)
        assert len(data) < 126
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        self.connection.sendall(bytes([0x81, 0x80 | len(data)]) + mask + masked)

    def receive(self) -> str | None:
        """Return the next text message, or None if the server has closed the connection."""
        try:
            first, second = self._exactly(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", self._exactly(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self._exactly(8))
            payload = self._exactly(length)
        except (EOFError, ConnectionError):
            return None
        return payload.decode() if first == 0x81 else None

    def close(self) -> None:
        self.connection.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.connection.recv(min(count - len(data), 65536))
            if not piece:
                raise EOFError
            data += piece
        return data


@contextlib.contextmanager
def websocket(
    server: SmallServer,
    *headers: str,
    path: str = "/socket.io/?EIO=4&transport=websocket",
    receive_buffer: int | None = None,
    uid: int | None = None,
) -> Iterator[RawWebSocket]:
    """Open a websocket to ``server``, which may have refused it."""
    with server.connect(receive_buffer, uid) as connection:
        yield RawWebSocket(connection, server.port, path, list(headers))


def join(live: RawWebSocket) -> None:
    """Perform the Socket.IO handshake."""
    opened = live.receive()
    assert opened is not None and opened.startswith("0{")
    live.send("40")
    joined = live.receive()
    assert joined is not None and joined.startswith("40")


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionError:
        return b""
