"""Sums over workers that are connected in a ring: each one sends to the next and receives from the one before.

Every worker passes on a part of the array while it receives another one. So all of them send and receive about twice
the size of the array, whatever their number. A part is summed along one path and then copied, so the result is the same
to the last bit for all workers and whenever it is computed again.

Both ends of a connection prove that they know a key that only the user of the server can read. What they send then is
neither encrypted nor signed, which would cost as much time as a fast network: the network between the nodes is trusted.
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

_NONCE_BYTES, _DIGEST_BYTES = 32, 32
# Connections that have not proved themselves.
_MAX_GUESTS = 100
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
        result = np.array(values, order="C")  # its parts are views
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
    with socket.create_server((host, 0)) as server, contextlib.ExitStack() as on_failure:
        port = server.getsockname()[1]
        partners = meeting.exchange("address", f"{host} {port} {secrets.token_hex()}", deadline)
        addresses = [line.split() for line in partners]
        key, (next_host, next_port, _) = (
            addresses[0][2].encode(),
            addresses[(meeting.rank + 1) % meeting.workers],
        )
        try:
            after = socket.create_connection((next_host, int(next_port)), _left(deadline))
            on_failure.callback(after.close)
            before = _before(server, _Handshake(after, key, is_client=True), deadline)
        except OSError as error:
            raise PartnerLost(
                f"The next worker, at {next_host}, cannot be reached: {error}.",
                "Look for its error in the output of the task, and start the training again. Workers on several "
                "machines connect to each other at any port.",
            ) from error
        on_failure.pop_all()
    neighbors = places.count(places[meeting.rank])
    return Ring(meeting.rank, meeting.workers, neighbors, before, after)


class _Handshake:
    """Both sides of a ``connection`` prove that they know the ``key``, the one that has connected first.

    Each sends a nonce, and then the digest of its role and both nonces. Reads only what has arrived.
    """

    def __init__(self, connection: socket.socket, key: bytes, *, is_client: bool) -> None:
        self.connection = connection
        self.key, self._is_client = key, is_client
        self._nonce, self._received = secrets.token_bytes(_NONCE_BYTES), b""
        self._has_proved = False
        connection.setblocking(False)
        connection.sendall(self._nonce)

    def advance(self) -> bool:
        """Go on after the connection has become readable; return whether both sides have proved themselves.

        Raises OSError if the other side has closed the connection or does not know the key.
        """
        piece = self.connection.recv(_NONCE_BYTES + _DIGEST_BYTES - len(self._received))
        if not piece:
            raise ConnectionError("it closed the connection")
        self._received += piece
        nonce, proof = self._received[:_NONCE_BYTES], self._received[_NONCE_BYTES:]
        is_proved = len(proof) == _DIGEST_BYTES
        if is_proved and not hmac.compare_digest(proof, self._proof(not self._is_client, nonce)):
            raise ConnectionError("another program answers at its address")
        if not self._has_proved and (is_proved or (self._is_client and len(nonce) == _NONCE_BYTES)):
            self.connection.sendall(self._proof(self._is_client, nonce))
            self._has_proved = True
        return is_proved

    def _proof(self, of_client: bool, nonce: bytes) -> bytes:
        nonces = self._nonce + nonce if self._is_client else nonce + self._nonce
        return hmac.digest(self.key, (b"client" if of_client else b"server") + nonces, "sha256")


def _before(server: socket.socket, after: _Handshake, deadline: float) -> socket.socket:
    """Return the connection of the worker before this one, once it and the one ``after`` have proved themselves.

    Either can happen first: the worker before this one may be the last to see the addresses. Strangers do not delay
    them. Raises OSError after the ``deadline``, or if another program is at the address of the worker after this one.
    """
    before: socket.socket | None = None
    is_after_proved = False
    guests: dict[socket.socket, _Handshake] = {}
    try:
        while before is None or not is_after_proved:
            waiting = [after.connection] if not is_after_proved else []
            for ready in _readable([server, *guests, *waiting], deadline):
                if ready is after.connection:
                    is_after_proved = after.advance()
                    continue
                guest = server.accept()[0] if ready is server else ready
                try:
                    if ready is server:
                        guests[guest] = _Handshake(guest, after.key, is_client=False)
                    elif guests[guest].advance():
                        del guests[guest]
                        before = guest
                except OSError:  # a stranger
                    guests.pop(guest, None)
                    guest.close()
            while len(guests) > _MAX_GUESTS:
                oldest = next(iter(guests))
                del guests[oldest]
                oldest.close()
    except BaseException:
        if before:
            before.close()
        raise
    finally:
        for guest in guests:
            guest.close()
    return before


def _readable(sockets: list[socket.socket], deadline: float) -> list[socket.socket]:
    """Wait until some of ``sockets`` can be read, and return these. Raises TimeoutError after the ``deadline``."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(1000 * _left(deadline))}
    if not ready or time.monotonic() > deadline:
        raise TimeoutError("no answer in time")
    return [one for one in sockets if one.fileno() in ready]


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
