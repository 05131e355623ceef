"""A cache on disk of pictures of records, such as thumbnails."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from digits.core.files import write_bytes

# Part of the limit that remains after files are removed, so that not every new file removes another one.
_KEPT = 0.8


class PictureCache:
    """Pictures in ``folder`` of at most ``max_bytes``; the least recently used ones are removed.

    A picture that cannot be saved, for instance because the disk is full, is made again the next time. The methods read
    and write files: call them in a thread.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        # Approximate: several threads may change it.
        self._size: int | None = None

    def find(self, key: str) -> bytes | None:
        """Return the picture of ``key`` if it is kept."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data or None

    def save(self, key: str, data: bytes) -> None:
        """Keep the picture of ``key``, if possible."""
        with contextlib.suppress(OSError):
            self._write(self._path(key), data)

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode()).hexdigest()

    def _write(self, path: Path, data: bytes) -> None:
        if self._size is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._size = sum(entry.stat().st_size for entry in os.scandir(self._folder))
        write_bytes(path, data, durable=False)
        self._size += len(data)
        if self._size > self._max_bytes:
            self._size = self._remove_oldest()

    def _remove_oldest(self) -> int:
        """Remove files until the rest is clearly below the limit; return its size in bytes."""
        states = [(entry.stat(), entry.path) for entry in os.scandir(self._folder)]
        states.sort(key=lambda item: item[0].st_mtime_ns)
        size = sum(state.st_size for state, _ in states)
        for state, name in states:
            if size <= _KEPT * self._max_bytes:
                break
            Path(name).unlink(missing_ok=True)
            size -= state.st_size
        return size
