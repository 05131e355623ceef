"""Values computed from files, which are computed again once a file changes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class _Cached(Generic[Value]):
    signature: tuple[Any, ...]
    value: Value
    cost: int


class FileCache(Generic[Key, Value]):
    """Recently used values with a total cost of at most ``max_cost``, but at least one. Several threads may use it."""

    def __init__(self, max_cost: int) -> None:
        self._max_cost = max_cost
        self._found: OrderedDict[Key, _Cached[Value]] = OrderedDict()
        self._cost = 0
        self._lock = threading.Lock()

    def get(
        self, key: Key, files: Iterable[Path], compute: Callable[[], Value], cost: Callable[[Value], int]
    ) -> Value:
        """Return the value of ``key``, which ``compute`` derives from ``files``.

        Raises OSError if there is no such file, and any exception raised by ``compute``.
        """
        # Replacing or modifying a file changes the signature.
        signature = tuple(_signature(path) for path in files)
        with self._lock:
            cached = self._found.get(key)
            if cached and cached.signature == signature:
                self._found.move_to_end(key)
                return cached.value
        value = compute()
        new = _Cached(signature, value, cost(value))
        with self._lock:
            if replaced := self._found.pop(key, None):
                self._cost -= replaced.cost
            self._found[key] = new
            self._cost += new.cost
            while len(self._found) > 1 and self._cost > self._max_cost:
                self._cost -= self._found.popitem(last=False)[1].cost
        return value


def _signature(path: Path) -> tuple[int, int, int]:
    status = os.lstat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns
