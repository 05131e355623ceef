"""The owner of a connection's peer, with real sockets and recorded socket tables."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from digits.web.security.peers import Address, Peer, ask_kernel, find_uid, lookup_problem, overflow_uid
from tests.failing_disk import few_descriptors
from tests.raw_http import OTHER_UID, client_socket

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   {n}: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid:5d}        0 {inode} 2 0 20 4 30 10 -1\n"
PEER, LOCAL = ("127.0.0.1", 0x9A8C), ("127.0.0.1", 0xA791)


def table(folder: Path, *rows: tuple[str, str, str, int, int], name: str = "tcp") -> Path:
    """A folder with a socket table: local and remote address, state, user and inode of each socket."""
    text = "".join(
        ROW.format(n=n, local=local, remote=remote, state=state, uid=uid, inode=inode)
        for n, (local, remote, state, uid, inode) in enumerate(rows)
    )
    (folder / name).write_text(HEADING + text)
    return folder


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as opened:
        yield opened


def uids(peer: Address, local: Address) -> list[int | None]:
    """Return the user that the kernel names, if it supports the question, and the one in the tables."""
    asked, listed = ask_kernel(peer, local), find_uid(peer, local)
    return [listed if asked is None else asked.uid, listed]


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
def test_user_of_a_real_connection_is_found(listener: socket.socket, uid: int) -> None:
    with client_socket(listener.family, uid) as client:
        client.connect(listener.getsockname())
        accepted, address = listener.accept()
        with accepted:
            connection = Peer(address[:2], accepted.getsockname()[:2])
            assert connection.uid == find_uid(address[:2], accepted.getsockname()[:2]) == uid
            assert connection.is_own == (uid == os.geteuid())


def test_ipv6_client_of_an_ipv4_server_is_found() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        client_socket(socket.AF_INET6, OTHER_UID) as client,
    ):
        client.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        accepted, address = listener.accept()
        with accepted:
            assert uids(address, accepted.getsockname()) == [OTHER_UID] * 2


def test_ipv4_client_of_an_ipv6_server_is_found() -> None:
    everywhere = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with everywhere, client_socket(socket.AF_INET, OTHER_UID) as client:
        client.connect(("127.0.0.1", everywhere.getsockname()[1]))
        accepted, address = everywhere.accept()
        with accepted:
            assert uids(address[:2], accepted.getsockname()[:2]) == [OTHER_UID] * 2


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
            assert uids(address, accepted.getsockname()) == [OTHER_UID] * 2


def test_user_of_a_closed_socket_is_unknown() -> None:
    """The kernel lists it as owned by root, whoever opened it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with client_socket(socket.AF_INET, OTHER_UID) as client:
            client.connect(listener.getsockname())
            accepted, address = listener.accept()
        with accepted:
            assert Peer(address, accepted.getsockname()).uid is None
            assert find_uid(address, accepted.getsockname()) is None
            closed = ask_kernel(address, accepted.getsockname())
            assert closed is None or not closed.is_connected
            assert not Peer(address, accepted.getsockname()).is_own


def test_user_is_looked_up_once() -> None:
    asked = []
    connection = Peer(PEER, LOCAL, run=lambda find: asked.append(find) or os.geteuid())
    assert connection.is_own and connection.is_own and connection.uid == os.geteuid()
    assert len(asked) == 1


def test_peer_is_the_row_with_swapped_addresses(tmp_path: Path) -> None:
    own, peer = ("0100007F:A791", "0100007F:9A8C"), ("0100007F:9A8C", "0100007F:A791")
    listens, other = ("0100007F:A791", "00000000:0000"), ("0100007F:9A8D", "0100007F:A791")
    rows = [(*listens, "0A", 1, 5), (*own, "01", 2, 6), (*other, "01", 3, 7), (*peer, "01", 1000, 8)]
    assert find_uid(PEER, LOCAL, table(tmp_path, *rows)) == 1000


@pytest.mark.parametrize(("state", "inode"), [("05", 0), ("06", 0), ("01", 0), ("02", 9), ("03", 9)])
def test_only_open_sockets_count(tmp_path: Path, state: str, inode: int) -> None:
    row = ("0100007F:9A8C", "0100007F:A791", state, 0, inode)
    assert find_uid(PEER, LOCAL, table(tmp_path, row)) is None


@pytest.mark.parametrize(
    "text", ["", "nonsense\n", HEADING, HEADING + "   0: 0100007F:9A8C 0100007F:A791 01\n"]
)
def test_malformed_tables_yield_no_user(tmp_path: Path, text: str) -> None:
    (tmp_path / "tcp").write_text(text)
    assert find_uid(PEER, LOCAL, tmp_path) is None
    assert "cannot be read" in lookup_problem(5000, tmp_path)


def test_malformed_addresses_yield_no_user(tmp_path: Path) -> None:
    assert find_uid(("", 1), ("somewhere", 2)) is None
    assert find_uid(PEER, LOCAL, tmp_path / "missing") is None


def test_lookup_works_on_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert lookup_problem(listener.getsockname()[1]) == ""


def test_lookup_that_misses_its_own_socket_is_a_problem(tmp_path: Path) -> None:
    row = ("0100007F:1388", "00000000:0000", "0A", os.geteuid() + 1, 5)
    assert "does not list this server's own socket" in lookup_problem(5000, table(tmp_path, row))


def test_unknown_users_never_match_the_own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """All users unknown to a container share the same id."""
    unknown = overflow_uid()
    monkeypatch.setattr(os, "geteuid", lambda: unknown)
    assert not Peer(PEER, LOCAL, run=lambda find: unknown).is_own
    assert "nobody" in lookup_problem(5000)
