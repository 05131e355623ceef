"""Protection against requests to private addresses (SSRF), for a whole process.

Every connection of Python's sockets, whatever library makes it and for whatever redirect, is checked when it is made,
by its IP address. Another answer of the DNS between a check and the connection therefore changes nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Callable
from typing import Any

# IPv4 addresses in IPv6 ones: of a translator, and mapped by a socket.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# All addresses of IPv6 that have been allocated to networks (https://www.iana.org/assignments/ipv6-address-space).
_UNICAST = ipaddress.ip_network("2000::/3")
# Not known to `ipaddress` of all versions of Python, from IANA's registries of special addresses: protocols, relays of
# 6to4, Teredo and other protocols, documentation, and 6to4, which contains any IPv4 address.
_SPECIAL = [
    ipaddress.ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
]

# The refused connections, for the message.
refusals: list[str] = []


class Refused(PermissionError):
    """A connection to a private address was blocked."""


def install(is_listed: Callable[[str, int | None], bool]) -> None:
    """Restrict this process to public addresses, and to hosts for which ``is_listed(host, port)`` is true.

    This cannot be undone.
    """
    listed: set[tuple[str, int]] = set()
    resolve = socket.getaddrinfo

    def resolve_and_note(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
        addresses = resolve(host, port, *arguments, **named)
        name = host.decode() if isinstance(host, bytes) else str(host)
        for *_, place in addresses:
            address, number = str(place[0]), int(place[1])
            if is_listed(name.rstrip(".").lower(), number):
                listed.add((address, number))
        return addresses

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("socket.connect", "socket.sendto") or arguments[1] is None:
            return
        target = arguments[1]
        if not isinstance(target, tuple):
            raise Refused("Connections to local sockets are refused.")
        host, port = str(target[0]), target[1]
        if not (is_public(host) or (host, port) in listed or is_listed(host, port)):
            refusals.append(host)
            raise Refused(f"Connections to {host} are refused.")

    socket.getaddrinfo = resolve_and_note
    sys.addaudithook(check)


def is_public(host: str) -> bool:
    """Return whether ``host`` is an IP address that the whole internet shares. Names are not."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
        if address in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
        if address not in _UNICAST:
            return False
    is_special = address.is_multicast or any(address in network for network in _SPECIAL)
    return address.is_global and not is_special
