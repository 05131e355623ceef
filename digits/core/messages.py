"""Messages between the server and its inference servers: a line of JSON and the bytes that it announces.

    {"call": "serve", "requests": [{"format": "tensorflow", "attached": 1}], "attached": [4300000]}⏎
    4,300,000 bytes

The key ``attached`` lists the sizes of the attachments; a message without it is only the line.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from functools import partial
from io import SEEK_END
from typing import IO, Any

import msgspec

# The header with the length of the JSON in a client's KServe request or response that ends with binary tensors.
JSON_LENGTH = "Inference-Header-Content-Length"
MAX_LINE_BYTES = 64 << 20
MAX_ATTACHED_BYTES = 512 << 20
_PIECE_BYTES = 256 * 1024


def send(connection: socket.socket, message: Any, attached: Sequence[IO[bytes]] = ()) -> None:
    """Send ``message`` with the contents of the files ``attached``, in pieces; raises OSError."""
    if attached:
        message = {**message, "attached": [file.seek(0, SEEK_END) for file in attached]}
    # Unlike msgspec, the standard library keeps NaN.
    connection.sendall(json.dumps(message).encode() + b"\n")
    for file in attached:
        file.seek(0)
        for piece in iter(partial(file.read, _PIECE_BYTES), b""):
            connection.sendall(piece)


def receive(connection: socket.socket) -> tuple[Any, list[bytearray]] | None:
    """Wait for a message; return it and its attachments, or None if the connection was closed.

    Takes time proportional to the size of the message. Raises ValueError if it is not JSON, and OSError if the
    connection ends within it or cannot be used any more, because the message is too large.
    """
    line = _line(connection)
    if not line:
        return None
    message = json.loads(line)
    sizes = message.get("attached", []) if isinstance(message, dict) else []
    try:
        sizes = msgspec.convert(sizes, list[int])
    except msgspec.ValidationError as error:
        raise OSError(f"the sizes of the attachments are invalid: {error}") from error
    if any(size < 0 for size in sizes) or sum(sizes) > MAX_ATTACHED_BYTES:
        raise OSError("the attachments are too large")
    return message, [_exactly(connection, size) for size in sizes]


def _line(connection: socket.socket) -> bytes:
    """Return the next line without reading beyond it; empty if the connection was closed."""
    pieces: list[bytearray] = []
    size = 0
    while not pieces or not pieces[-1].endswith(b"\n"):
        ahead = connection.recv(_PIECE_BYTES, socket.MSG_PEEK)
        if not ahead:
            if pieces:
                raise OSError("it closed the connection")
            return b""
        pieces.append(_exactly(connection, ahead.find(b"\n") + 1 or len(ahead)))
        size += len(pieces[-1])
        if size > MAX_LINE_BYTES:
            raise OSError("the message is too long")
    return b"".join(pieces)


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = connection.recv_into(rest)
        if not count:
            raise OSError("it closed the connection")
        rest = rest[count:]
    return data
