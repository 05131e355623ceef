"""Limit how often a network may try to log in."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

LOGINS_PER_MINUTE = 10
MAX_REMEMBERED_ADDRESSES = 10_000


class RateLimiter:
    """Allow ``per_minute`` tries per network, in bursts of up to that number.

    Only the last `MAX_REMEMBERED_ADDRESSES` networks are remembered; ``len`` counts them.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, address: str) -> bool:
        """Use up one try; return False if none is left."""
        key = network_of(address)
        with self._lock:
            now = self._clock()
            left, since = self._left.pop(key, (self._per_minute, now))
            left = min(self._per_minute, left + (now - since) * self._per_minute / 60)
            is_allowed = left >= 1
            self._left[key] = (left - 1 if is_allowed else left, now)
            while len(self._left) > MAX_REMEMBERED_ADDRESSES:
                self._left.popitem(last=False)
        return is_allowed


def network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the /64 prefix of an IPv6 address."""
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((number, 64), strict=False)) if number.version == 6 else address
