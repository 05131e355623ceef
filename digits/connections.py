"""The open connections: how many there may be, and which one makes room for another."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass


class State(enum.Enum):
    """What a connection does: it waits for its client, works for it, or is a websocket."""

    WAITING = "waiting"
    WORKING = "working"
    LIVE = "live"


@dataclass(eq=False)
class Connection:
    """An open connection. ``cut`` ends it; whoever reads or writes it is woken."""

    address: str
    cut: Callable[[], None]
    state: State = State.WAITING

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """For as long as it is the client's turn."""
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

    A new one beyond that takes the place of the oldest one that waits for its client, or else of the
    oldest websocket: of the same address, or of the address with the most. So silent and slow clients
    never keep others out. While all of them work, a new one is refused.
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
        """Count a new connection in, with another one cut if there is no room; False if it has to go."""
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
        """Count a connection out that has ended; one that was cut is out already."""
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
