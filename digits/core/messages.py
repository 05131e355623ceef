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
_PIECE_BYTES = 64 * 1024


class Channel:
    """A connection that carries messages.

    Its peer waits for the response to a message before it sends the next one.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # What was received after the part that has been read.
        self._ahead = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        self._connection.close()

    def send(self, message: Any, attached: Sequence[IO[bytes]] = ()) -> None:
        """Send ``message`` with the contents of the files ``attached``, in pieces; raises OSError."""
        sizes = [file.seek(0, SEEK_END) for file in attached]
        if attached:
            message = {**message, "attached": sizes}
        # Unlike msgspec, the standard library keeps NaN.
        data = json.dumps(message).encode() + b"\n"
        for file in attached:
            file.seek(0)
        if sum(sizes) <= _PIECE_BYTES:
            self._connection.sendall(data + b"".join(file.read() for file in attached))
            return
        self._connection.sendall(data)
        for file in attached:
            for piece in iter(partial(file.read, _PIECE_BYTES), b""):
                self._connection.sendall(piece)

    def receive(self) -> tuple[Any, list[bytearray]] | None:
        """Wait for a message; return it and its attachments, or None if the connection was closed.

        Takes time proportional to the size of the message. Raises ValueError if it is not JSON, and OSError if the
        connection ends within it or cannot be used any more, because the message is too large.
        """
        line = self._line()
        if not line:
            return None
        message = json.loads(line)
        if not isinstance(message, dict) or "attached" not in message:
            return message, []
        try:
            sizes = msgspec.convert(message["attached"], list[int])
        except msgspec.ValidationError as error:
            raise OSError(f"the sizes of the attachments are invalid: {error}") from error
        if any(size < 0 for size in sizes) or sum(sizes) > MAX_ATTACHED_BYTES:
            raise OSError("the attachments are too large")
        return message, [self._exactly(size) for size in sizes]

    def _line(self) -> bytearray:
        """Return the next line; empty if the connection was closed."""
        start = 0
        while (end := self._ahead.find(b"\n", start)) < 0:
            start = len(self._ahead)
            if start > MAX_LINE_BYTES:
                raise OSError("the message is too long")
            data = self._connection.recv(_PIECE_BYTES)
            if not data and not start:
                return bytearray()
            if not data:
                raise OSError("it closed the connection")
            self._ahead += data
        return self._taken(end + 1)

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        ahead = self._taken(size)
        data[: len(ahead)] = ahead
        rest = memoryview(data)[len(ahead) :]
        while rest:
            count = self._connection.recv_into(rest)
            if not count:
                raise OSError("it closed the connection")
            rest = rest[count:]
        return data

    def _taken(self, size: int) -> bytearray:
        """Remove up to ``size`` bytes that were received, and return them."""
        taken = self._ahead[:size]
        del self._ahead[:size]
        return taken
