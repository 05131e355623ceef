"""Sums over workers that are connected in a ring: each one sends to the next and receives from the one before.

Every worker passes on a part of the array while it receives another one. So all of them send and receive about twice
the size of the array, whatever their number. A part is summed along one path and then copied, so the result is the same
to the last bit for all workers and whenever it is computed again.

The connections are authenticated by a key that only the user of the server can read, but not encrypted.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core import files
from digits.worker.failure import PartnerLost
from digits.worker.gang import rendezvous
from digits.worker.gang.rendezvous import LOOPBACK, Rendezvous, address, place

_NONCE_BYTES = 32
# Time in which a process that has begun to answer must continue.
_ANSWER_SECONDS = 5.0
# A machine that does not answer for half a minute is gone. One that computes for hours answers.
_KEEPALIVE = {
    socket.TCP_KEEPIDLE: 10,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 4,
    socket.TCP_USER_TIMEOUT: 30_000,
}


class OutOfStep(OSError):
    """The workers have diverged: they do not make the same calls."""


class Ring:
    """The connections of the worker ``rank``, of ``workers``: from the one ``before`` it and to the one ``after`` it.

    ``neighbors`` is the number of workers that reach each other by loopback, this one included.
    """

    def __init__(
        self, rank: int, workers: int, neighbors: int, before: socket.socket, after: socket.socket
    ) -> None:
        self.rank, self.workers, self.neighbors = rank, workers, neighbors
        self._before, self._after = _prepared(before), _prepared(after)
        self._calls = 0

    def reduce(self, values: NDArray[Any], combine: Callable[..., Any] = np.add) -> NDArray[Any]:
        """Combine ``values`` of all workers, which have the same shape and dtype.

        Raises OSError if a worker is lost, and OutOfStep if the one before this one makes another call.
        """
        result = np.array(values)
        self._calls += 1
        call = np.array([self._calls, result.size, result.dtype.num], np.int64)
        other = np.empty_like(call)
        self._pass(call, other)
        if not np.array_equal(call, other):
            raise OutOfStep("the workers do not take the same steps")
        parts = np.array_split(result.reshape(-1), self.workers)
        received = np.empty_like(parts[0])  # no part is larger
        for turn in range(self.workers - 1):
            arriving = parts[(self.rank - turn - 1) % self.workers]
            incoming = received[: len(arriving)]
            self._pass(parts[(self.rank - turn) % self.workers], incoming)
            combine(incoming, arriving, out=arriving)
        for turn in range(self.workers - 1):
            outgoing = parts[(self.rank - turn + 1) % self.workers]
            self._pass(outgoing, parts[(self.rank - turn) % self.workers])
        return result

    def close(self) -> None:
        self._before.close()
        self._after.close()

    def _pass(self, outgoing: NDArray[Any], incoming: NDArray[Any]) -> None:
        """Send ``outgoing`` to the next worker while ``incoming`` is filled by the one before."""
        sending, receiving = outgoing.view(np.uint8).data, incoming.view(np.uint8).data
        while sending or receiving:
            poll = select.poll()
            if sending:
                poll.register(self._after, select.POLLOUT)
            if receiving:
                poll.register(self._before, select.POLLIN)
            for descriptor, _ in poll.poll():
                if descriptor == self._after.fileno():
                    sending = sending[self._after.send(sending) :]
                else:
                    count = self._before.recv_into(receiving)
                    if not count:
                        raise ConnectionError("the connection was closed")
                    receiving = receiving[count:]


def connect(meeting: Rendezvous) -> Ring:
    """Connect the workers of ``meeting``. Raises PartnerLost if one of them does not come or has ended."""
    deadline = time.monotonic() + rendezvous.DEADLINE_SECONDS
    places = meeting.exchange("place", place(), deadline)
    host = LOOPBACK if len(set(places)) == 1 else address()
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
        partners = meeting.exchange("address", f"{host} {port} {secrets.token_hex()}", deadline)
        addresses = [line.split() for line in partners]
        key, (next_host, next_port, _) = (
            addresses[0][2].encode(),
            addresses[(meeting.rank + 1) % meeting.workers],
        )
        try:
            after = socket.create_connection((next_host, int(next_port)), _left(deadline))
            before = _accepted(server, after, key, deadline)
        except OSError as error:
            raise PartnerLost(
                f"The next worker, at {next_host}, cannot be reached: {error}.",
                "Look for its error in the output of the task, and start the training again. Workers on several "
                "machines connect to each other at any port.",
            ) from error
    neighbors = places.count(places[meeting.rank])
    return Ring(meeting.rank, meeting.workers, neighbors, before, after)


def _accepted(server: socket.socket, after: socket.socket, key: bytes, deadline: float) -> socket.socket:
    """Return the connection of a process that knows the ``key``, and prove to the worker ``after`` that this one does.

    Either can happen first: the worker before this one may be the last to see the addresses. Raises OSError after the
    ``deadline``.
    """
    before: socket.socket | None = None
    has_answered = False
    nonces: dict[socket.socket, bytes] = {}
    try:
        while before is None or not has_answered:
            for ready in _readable([server, *nonces, *([] if has_answered else [after])], deadline):
                if ready is server:
                    connection, _ = server.accept()
                    connection.settimeout(_ANSWER_SECONDS)
                    nonces[connection] = secrets.token_bytes(_NONCE_BYTES)
                    with contextlib.suppress(OSError):
                        connection.sendall(nonces[connection])
                elif ready is after:
                    after.sendall(hmac.digest(key, _received(after), "sha256"))
                    has_answered = True
                elif _knows(key, nonces.pop(ready), ready):
                    before = ready
                else:
                    ready.close()
    finally:
        for stranger in nonces:
            stranger.close()
    return before


def _readable(sockets: list[socket.socket], deadline: float) -> list[socket.socket]:
    """Wait until some of ``sockets`` can be read, and return these. Raises TimeoutError after the ``deadline``."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(1000 * _left(deadline))}
    if not ready:
        raise TimeoutError("no answer in time")
    return [one for one in sockets if one.fileno() in ready]


def _knows(key: bytes, nonce: bytes, connection: socket.socket) -> bool:
    try:
        return hmac.compare_digest(_received(connection), hmac.digest(key, nonce, "sha256"))
    except OSError:
        return False


def _received(connection: socket.socket) -> bytes:
    data = b""
    while len(data) < _NONCE_BYTES:
        piece = connection.recv(_NONCE_BYTES - len(data))
        if not piece:
            raise ConnectionError("it closed the connection")
        data += piece
    return data


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _prepared(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    # A network that closes descriptors which it does not own, such as 3 and 4, does not end the connection.
    moved = socket.socket(fileno=files.move_to_high_descriptor(connection.detach()))
    moved.setblocking(False)
    return moved
