"""Identify the user of this machine at the other end of a TCP connection.

The peer of a local connection is the socket whose local and remote address are ours, exchanged. Netlink's ``sock_diag``
returns its owner within microseconds. Where it is not supported, all users have to log in.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from digits.core.files import TRANSIENT

# WSGI key of the `Peer` of a request, set by the server.
CONNECTION = "digits.connection"

Address = tuple[str, int]

_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
_DEFAULT_OVERFLOW_UID = 65534
# States of connected sockets: the peer's side is open, or closed for sending only.
_CONNECTED = (1, 4, 5)
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
# Family, protocol and states; then ports and addresses; then interface and cookie, both of which are unknown.
_QUESTION = struct.Struct("=BBxxI"), struct.Struct("!HH16s16s"), struct.pack("=IQ", 0, 2**64 - 1)
# The state, the user and the inode.
_ANSWER = struct.Struct("=xB62xII")
_ANSWER_SECONDS = 1.0


class Peer:
    """A TCP connection between ``peer`` and ``local``, both of them (host, port)."""

    def __init__(self, peer: Address, local: Address) -> None:
        self._peer = peer
        self._local = local

    @cached_property
    def uid(self) -> int | None:
        """The user id that owns the peer's socket, looked up once; None if it cannot be determined."""
        socket = ask_kernel(self._peer, self._local)
        return socket.uid if socket and socket.is_connected else None

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


def lookup_problem() -> str:
    """Return the reason why this process cannot look up owners of connections; empty if it can."""
    if os.geteuid() == overflow_uid():
        return "this server runs as the user nobody, which represents unknown users"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        local = listener.getsockname()
        with socket.create_connection(local) as client:
            is_known = Peer(client.getsockname(), local).is_own
    return "" if is_known else "the kernel does not say who owns a connection (sock_diag)"


@cache
def overflow_uid() -> int:
    """The user id that the kernel reports for users outside this process's namespace."""
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):
        return _DEFAULT_OVERFLOW_UID


def _unmapped(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address
