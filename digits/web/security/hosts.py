"""The host names of this server."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

import psutil

from digits.core.addresses import is_loopback

HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::\d{1,5})?")


class Hosts:
    """The host names of this server. Ports are ignored: tunnels and containers change them.

    Another name indicates DNS rebinding: a page of another site has its own name resolved to
    this machine. A server that listens on all addresses also accepts the machine's addresses
    and its name.
    """

    def __init__(self, bind_host: str, allowed: Iterable[str] = ()) -> None:
        bound = bind_host.strip("[]").lower()
        self._is_everywhere = bound in ("", "0.0.0.0", "::", "*")  # noqa: S104 - compared, not bound
        names = {"localhost", *(without_port(name.lower()) for name in allowed)}
        names.add(socket.gethostname().lower() if self._is_everywhere else plain_name(bound))
        self._names = names - {""}

    def __contains__(self, host: str) -> bool:
        """Return whether ``host``, the value of a Host header, is one of the names."""
        match = HOST.fullmatch(host.lower())
        if match is None:
            return False
        name = plain_name(match["name"])
        return name in self._names or is_loopback(name) or (self._is_everywhere and name in _own_addresses())


def without_port(host: str) -> str:
    match = HOST.fullmatch(host.lower())
    return plain_name(match["name"]) if match else host


def plain_name(name: str) -> str:
    """Return the canonical spelling of a host name or address."""
    bare = name.strip("[]").removesuffix(".")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return bare


def _own_addresses() -> set[str]:
    families = psutil.net_if_addrs().values()
    return {plain_name(item.address.split("%")[0].lower()) for items in families for item in items}
