"""A clock that only runs while a server does, for what expires."""

from __future__ import annotations

import time
from pathlib import Path

from msgspec import Struct

from digits.core.files import UnreadableFile, read_json, write_json
from digits.core.schema import NonNegative


class _Saved(Struct):
    seconds: NonNegative


class RunningTime:
    """How long servers have run with the file ``path``, in seconds.

    Unlike the time of the machine, which may be wrong by years until it is corrected, it never jumps. After a crash, it
    may lack the time since it was saved last.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._before = read_json(path, _Saved).seconds
        except UnreadableFile:
            self._before = 0.0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    def advance_to(self, seconds: float) -> None:
        """Let the clock show at least ``seconds``: it lacked time."""
        self._before += max(0.0, seconds - self.seconds)

    def save(self) -> None:
        """Save the time; raises OSError."""
        write_json(self._path, _Saved(self.seconds))
