"""Identify the user of this machine at the other end of a TCP connection.

The peer of a local connection is the socket whose local and remote address are ours, exchanged. `ask_kernel` asks for
this one (netlink's ``sock_diag``), which takes some microseconds. Where that is not supported, `find_uid` searches the
list of all sockets in ``/proc/net/tcp`` and ``/proc/net/tcp6``.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from digits.core.files import TRANSIENT

# WSGI key of the `Peer` of a request, set by the server.
CONNECTION = "digits.connection"

Address = tuple[str, int]

PROC_NET = Path("/proc/net")
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
_DEFAULT_OVERFLOW_UID = 65534
# States of connected sockets: the peer's side is open, or closed for sending only.
_CONNECTED = (1, 4, 5)
_LISTEN = b"0A"
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
# Family, protocol and states; then ports and addresses; then interface and cookie, both of which are unknown.
_QUESTION = struct.Struct("=BBxxI"), struct.Struct("!HH16s16s"), struct.pack("=IQ", 0, 2**64 - 1)
# The state, the user and the inode.
_ANSWER = struct.Struct("=xB62xII")
_ANSWER_SECONDS = 1.0
# Fields of a row; the remote address is between the local one and the state.
_LOCAL, _STATE, _UID, _INODE = 1, 3, 7, 9


class Peer:
    """A TCP connection between ``peer`` and ``local``, both of them (host, port).

    ``run`` calls a function and returns its result; the server passes one that
    reads the kernel's tables, which are long on a busy machine, outside the event loop.
    """

    def __init__(
        self,
        peer: Address,
        local: Address,
        run: Callable[[Callable[[], int | None]], int | None] | None = None,
    ) -> None:
        self._peer = peer
        self._local = local
        self._run = run or (lambda find: find())

    @cached_property
    def uid(self) -> int | None:
        """The user id that owns the peer's socket, looked up once; None if it cannot be determined."""
        socket = ask_kernel(self._peer, self._local)
        if socket is None:
            return self._run(lambda: find_uid(self._peer, self._local))
        return socket.uid if socket.is_connected else None

    @property
    def is_own(self) -> bool:
        """Whether the peer's socket belongs to the user of this process."""
        return self.uid is not None and self.uid == os.geteuid() and self.uid != overflow_uid()


class Socket(NamedTuple):
    """A TCP socket as the kernel describes it. A closed one, whoever opened it, is root's and has no inode."""

    state: int
    uid: int
    inode: int

    @property
    def is_connected(self) -> bool:
        """Whether a program has the socket open, and its connection too."""
        return self.state in _CONNECTED and self.inode != 0


def ask_kernel(peer: Address, local: Address) -> Socket | None:
    """Ask the kernel for the socket connected from ``peer`` to ``local``; None if it has none or cannot answer.

    Raises OSError if this process has too many open files. The kernel answers at once, so the event loop need not wait.
    """
    try:
        ends = [(_unmapped(host).packed, port) for host, port in (peer, local)]
        family = socket.AF_INET if all(len(host) == 4 for host, _ in ends) else socket.AF_INET6
        general, own, unknown = _QUESTION
        question = general.pack(family, socket.IPPROTO_TCP, 0xFFFFFFFF)
        question += own.pack(ends[0][1], ends[1][1], ends[0][0], ends[1][0]) + unknown
        length = _HEADER.size + len(question)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as netlink:
            netlink.settimeout(_ANSWER_SECONDS)
            netlink.send(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + question)
            answer = netlink.recv(4096)
    except ValueError:
        return None
    except OSError as error:
        if error.errno in TRANSIENT:
            raise
        return None
    _, kind, *_ = _HEADER.unpack_from(answer)
    is_answer = kind == _SOCK_DIAG_BY_FAMILY
    return Socket(*_ANSWER.unpack_from(answer, _HEADER.size)) if is_answer else None


def find_uid(peer: Address, local: Address, tables: Path = PROC_NET) -> int | None:
    """The user id that owns the socket connected from ``peer`` to ``local``.

    None if the tables cannot be read, or have no open socket with these addresses; raises OSError if this process
    has too many open files.
    """
    for table, addresses in _spellings(peer, local):
        for row in _rows(tables / table):
            if row[_LOCAL:_STATE] == addresses:
                socket = Socket(int(row[_STATE], 16), int(row[_UID]), int(row[_INODE]))
                if socket.is_connected:
                    return socket.uid
    return None


def lookup_problem(port: int, tables: Path = PROC_NET) -> str:
    """Why `find_uid` does not work in this process; empty if it does.

    ``port`` is one that this process listens on.
    """
    if os.geteuid() == overflow_uid():
        return "this server runs as the user nobody, which represents unknown users"
    suffix = b":%04X" % port
    rows = [row for table in ("tcp", "tcp6") for row in _rows(tables / table)]
    listening = [row for row in rows if row[_STATE] == _LISTEN]
    if not listening:
        return f"{tables}/tcp cannot be read or is empty"
    if not any(row[_LOCAL].endswith(suffix) and int(row[_UID]) == os.geteuid() for row in listening):
        return f"{tables}/tcp does not list this server's own socket under its user"
    return ""


@cache
def overflow_uid() -> int:
    """The user id that the kernel reports for users outside this process's namespace."""
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):
        return _DEFAULT_OVERFLOW_UID


def _spellings(peer: Address, local: Address) -> Iterator[tuple[str, list[bytes]]]:
    """The tables that may list the peer's socket, with both addresses in their format."""
    try:
        ends = [(_unmapped(host), port) for host, port in (peer, local)]
    except ValueError:
        return
    if all(host.version == 4 for host, _ in ends):
        yield "tcp", [_hexadecimal(*end) for end in ends]
        # An IPv6 socket may be connected to an IPv4 address.
        ends = [(ipaddress.ip_address(f"::ffff:{host}"), port) for host, port in ends]
    yield "tcp6", [_hexadecimal(*end) for end in ends]


def _unmapped(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _hexadecimal(host: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> bytes:
    """An address in the kernel's format: 32-bit words in native byte order."""
    words = struct.unpack(f"={len(host.packed) // 4}I", host.packed)
    return b"".join(b"%08X" % word for word in words) + b":%04X" % port


def _rows(table: Path) -> Iterator[list[bytes]]:
    """The rows of a socket table, without its header; empty if it cannot be read."""
    try:
        with open(table, "rb") as file:
            next(file, None)
            yield from (row for row in map(bytes.split, file) if len(row) > _INODE)
    except OSError as error:
        if error.errno in TRANSIENT:
            raise
