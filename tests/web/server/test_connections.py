"""The choice of the connection to close when the limit is reached."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from digits.web.server.connections import Connection, Connections, State


class Crowd:
    """Connections that record which ones were closed."""

    def __init__(self, most: int, most_per_address: int | None = None) -> None:
        self.connections = Connections(most, most_per_address)
        self.cut: list[str] = []

    def open(self, name: str, address: str = "10.0.0.1", state: State = State.WAITING) -> bool:
        connection = Connection(address, lambda: self.cut.append(name), state)
        return self.connections.admit(connection)


def test_below_the_limit_no_connection_is_closed():
    crowd = Crowd(3, 2)
    assert crowd.open("a") and crowd.open("b") and crowd.open("c", "10.0.0.2")
    assert crowd.cut == [] and len(crowd.connections) == 3


def test_the_oldest_idle_connection_is_closed_first():
    crowd = Crowd(3)
    assert (
        crowd.open("works", state=State.WORKING)
        and crowd.open("live", state=State.LIVE)
        and crowd.open("waits")
    )
    assert crowd.open("new") and crowd.open("newer")
    assert crowd.cut == ["waits", "new"]


def test_without_idle_connections_a_websocket_is_closed():
    crowd = Crowd(2)
    assert (
        crowd.open("older", state=State.LIVE) and crowd.open("newer", state=State.LIVE) and crowd.open("new")
    )
    assert crowd.cut == ["older"]


def test_a_working_connection_is_never_closed():
    crowd = Crowd(2)
    assert crowd.open("a", state=State.WORKING) and crowd.open("b", state=State.WORKING)
    assert not crowd.open("new") and crowd.cut == [] and len(crowd.connections) == 2


def test_the_address_with_the_most_connections_loses_one():
    crowd = Crowd(4)
    assert crowd.open("lonely", "10.0.0.2")
    assert all(crowd.open(f"flood {number}") for number in range(3))
    assert crowd.open("new", "10.0.0.3")
    assert crowd.cut == ["flood 0"]


def test_each_address_has_a_limit():
    crowd = Crowd(10, 2)
    assert crowd.open("a") and crowd.open("other", "10.0.0.2") and crowd.open("b") and crowd.open("c")
    assert crowd.cut == ["a"]


def test_a_connection_waiting_for_its_client_is_idle():
    connection = Connection("10.0.0.1", lambda: None, State.WORKING)
    with connection.waiting():
        assert connection.state is State.WAITING
    assert connection.state is State.WORKING
    live = Connection("10.0.0.1", lambda: None, State.LIVE)
    with live.waiting():
        assert live.state is State.LIVE


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(State), st.booleans()), max_size=60))
def test_the_limits_hold_for_any_sequence(arrivals):
    connections, opened = Connections(6, 3), []
    for address, state, leaves in arrivals:
        connection = Connection(address, lambda: None, state)
        if connections.admit(connection):
            opened.append(connection)
        if leaves and opened:
            connections.forget(opened.pop(0))
        present = list(connections)
        assert len(present) == len(connections) <= 6
        assert all(sum(item.address == name for item in present) <= 3 for name in "abc")
