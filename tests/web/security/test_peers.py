"""The owner of a connection's peer, with real sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from digits.web.security import peers
from digits.web.security.peers import Peer, ask_kernel, lookup_problem, overflow_uid
from tests.failing_disk import few_descriptors
from tests.raw_http import OTHER_UID, client_socket


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as opened:
        yield opened


def test_the_kernel_does_not_mistake_a_listener_for_the_peer(listener: socket.socket) -> None:
    address = listener.getsockname()[:2]
    found = ask_kernel(address, (address[0], 1))
    assert found is None or not found.is_connected
    assert ask_kernel(("", 1), ("somewhere", 2)) is None


def test_too_many_open_files_do_not_make_the_peer_unknown(listener: socket.socket) -> None:
    with client_socket(listener.family, os.geteuid()) as client:
        client.connect(listener.getsockname())
        peer = Peer(client.getsockname()[:2], listener.getsockname()[:2])
        with few_descriptors(0), pytest.raises(OSError, match="Too many open files"):
            assert peer.uid
        assert peer.uid == os.geteuid()


@pytest.mark.parametrize("uid", sorted({os.geteuid(), OTHER_UID}))
@pytest.mark.parametrize(
    ("bound", "reached", "client_family"),
    [
        ("127.0.0.1", "127.0.0.1", socket.AF_INET),
        ("::1", "::1", socket.AF_INET6),
        ("127.0.0.1", "::ffff:127.0.0.1", socket.AF_INET6),
        ("::", "127.0.0.1", socket.AF_INET),
    ],
)
def test_user_of_a_real_connection_is_found(
    bound: str, reached: str, client_family: socket.AddressFamily, uid: int
) -> None:
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with (
        socket.create_server((bound, 0), family=family, dualstack_ipv6=bound == "::") as opened,
        client_socket(client_family, uid) as client,
    ):
        client.connect((reached, opened.getsockname()[1]))
        accepted, address = opened.accept()
        with accepted:
            connection = Peer(address[:2], accepted.getsockname()[:2])
            assert connection.uid == uid
            assert connection.is_own == (uid == os.geteuid())


def test_half_closed_client_is_found() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        client_socket(socket.AF_INET, OTHER_UID) as client,
    ):
        client.connect(listener.getsockname())
        client.shutdown(socket.SHUT_WR)
        accepted, address = listener.accept()
        with accepted:
            assert accepted.recv(1) == b""
            assert Peer(address, accepted.getsockname()).uid == OTHER_UID


def test_user_of_a_closed_socket_is_unknown() -> None:
    """The kernel lists it as owned by root, whoever opened it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with client_socket(socket.AF_INET, OTHER_UID) as client:
            client.connect(listener.getsockname())
            accepted, address = listener.accept()
        with accepted:
            assert Peer(address, accepted.getsockname()).uid is None
            closed = ask_kernel(address, accepted.getsockname())
            assert closed is None or not closed.is_connected
            assert not Peer(address, accepted.getsockname()).is_own


def test_user_is_looked_up_once(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    with client_socket(listener.family, os.geteuid()) as client:
        client.connect(listener.getsockname())
        connection = Peer(client.getsockname()[:2], listener.getsockname()[:2])
        assert connection.is_own
    monkeypatch.setattr(peers, "ask_kernel", lambda *ends: None)
    assert connection.is_own and connection.uid == os.geteuid()
    assert Peer(("127.0.0.1", 1), ("127.0.0.1", 2)).uid is None


def test_a_kernel_that_does_not_know_owners_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lookup_problem() == ""
    monkeypatch.setattr(peers, "ask_kernel", lambda *ends: None)
    assert "does not say who owns a connection" in lookup_problem()


def test_unknown_users_never_match_the_own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """All users unknown to a container share the same id."""
    monkeypatch.setattr(peers, "ask_kernel", lambda *ends: peers.Socket(1, overflow_uid(), 1))
    monkeypatch.setattr(os, "geteuid", overflow_uid)
    assert not Peer(("127.0.0.1", 1), ("127.0.0.1", 2)).is_own
    assert "nobody" in lookup_problem()
