"""Identify the user of this machine at the other end of a TCP connection.

The kernel lists every socket of the machine, with the user that owns it, in
``/proc/net/tcp`` and ``/proc/net/tcp6``. The peer of a local connection is the row
whose local and remote address are ours, exchanged.
"""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from digits.core.files import TRANSIENT

# WSGI key of the `Peer` of a request, set by the server.
CONNECTION = "digits.connection"

Address = tuple[str, int]

PROC_NET = Path("/proc/net")
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
_DEFAULT_OVERFLOW_UID = 65534
# States of connected sockets: the peer's side is open, or closed for sending only.
_CONNECTED = (b"01", b"04", b"05")
_LISTEN = b"0A"
# Fields of a row; the remote address is between the local one and the state.
_LOCAL, _STATE, _UID, _INODE = 1, 3, 7, 9


class Peer:
    """A TCP connection between ``peer`` and ``local``, both of them (host, port).

    ``run`` calls a function and returns its result; the server passes one that
    reads the kernel's tables outside the event loop.
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
        return self._run(lambda: find_uid(self._peer, self._local))

    @property
    def is_own(self) -> bool:
        """Whether the peer's socket belongs to the user of this process."""
        return self.uid is not None and self.uid == os.geteuid() and self.uid != overflow_uid()


def find_uid(peer: Address, local: Address, tables: Path = PROC_NET) -> int | None:
    """The user id that owns the socket connected from ``peer`` to ``local``.

    None if the tables cannot be read, or have no open socket with these addresses; raises OSError if this process
    has too many open files.
    A socket that its program has already closed is listed as root's, whoever
    opened it; it has no inode and is ignored.
    """
    for table, addresses in _spellings(peer, local):
        for row in _rows(tables / table):
            if row[_LOCAL:_STATE] == addresses and row[_STATE] in _CONNECTED and row[_INODE] != b"0":
                return int(row[_UID])
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
