"""Limits on the number of open connections."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass


class State(enum.Enum):
    """The state of a connection: waiting for its client, processing a request, or a websocket."""

    WAITING = "waiting"
    WORKING = "working"
    LIVE = "live"


@dataclass(eq=False)
class Connection:
    """An open connection. ``cut`` closes it and wakes blocked readers and writers."""

    address: str
    cut: Callable[[], None]
    state: State = State.WAITING

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the connection as waiting for its client during the block."""
        before = self.state
        if before is State.WORKING:
            self.state = State.WAITING
        try:
            yield
        finally:
            if before is State.WORKING:
                self.state = before


class Connections:
    """At most ``most`` connections, and ``most_per_address`` of them from one address.

    At the limit, a new connection replaces the oldest one that is waiting for its client, or else the
    oldest websocket: of the same address, or of the address with the most connections. So idle and slow
    clients cannot lock others out. If all connections are processing requests, the new one is refused.
    """

    def __init__(self, most: int, most_per_address: int | None = None) -> None:
        self._most = most
        self._most_per_address = most_per_address or most
        self._by_address: dict[str, list[Connection]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_address.values()))

    def __iter__(self) -> Iterator[Connection]:
        """The connections, the oldest of each address first."""
        for connections in list(self._by_address.values()):
            yield from list(connections)

    def admit(self, connection: Connection) -> bool:
        """Add a connection, closing another one if the limit is reached; False if it is refused."""
        own = self._by_address.get(connection.address, [])
        if len(own) >= self._most_per_address and not self._cut_one(own):
            return False
        if len(self) >= self._most:
            crowds = sorted(self._by_address.values(), key=len, reverse=True)
            if not any(self._cut_one(crowd) for crowd in crowds):
                return False
        self._by_address.setdefault(connection.address, []).append(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended; no-op for one that was cut."""
        own = self._by_address.get(connection.address, [])
        if connection in own:
            own.remove(connection)
        if not own:
            self._by_address.pop(connection.address, None)

    def _cut_one(self, crowd: list[Connection]) -> bool:
        for state in (State.WAITING, State.LIVE):
            victim = next((item for item in crowd if item.state is state), None)
            if victim is not None:
                self.forget(victim)
                victim.cut()
                return True
        return False
