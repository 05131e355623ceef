"""Copies of shards that are on a network file system, in a folder of this machine.

All tasks of a user on a machine share the folder. The name of a copy is its SHA-256 hash, which the manifest of a
dataset contains for each shard: whatever happens to the original, a copy is never stale. It is verified when it is
made, and each of its records again when it is read.

A reader holds a shared lock on the copies that it uses. To make room, those that nobody uses are removed, the least
recently used one first. All changes of the folder happen under an exclusive lock of its file `LOCK_FILE`. A copy that
is being made has the ending `PART` and an exclusive lock of its own, so that the remains of a killed process are
noticed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from digits.core import file_systems
from digits.core.environment import NODE_CACHE
from digits.core.files import UnreadableFile, locked, make_private_folder, open_plain
from digits.core.settings import SettingsError, read_settings

log = logging.getLogger(__name__)

LOCK_FILE = ".lock"
PART = ".part"
# By default, the share of the space that would be free without copies.
DEFAULT_SHARE = 0.5
LOCK_SECONDS = 30.0
_CHUNK = 4 << 20
_NAME = re.compile(rf"[0-9a-f]{{64}}({re.escape(PART)})?")


class NoRoom(Exception):
    """The copies in use and the new one would take more than the limit."""


class BeingCopied(Exception):
    """Another process is making this copy."""


class NodeCache:
    """Copies in ``folder``, of at most ``limit`` bytes together.

    The default limit is `DEFAULT_SHARE` of the free space and that of the copies. The folder is created if it does not
    exist. Raises OSError if it cannot be used, such as PermissionError if another user can open it.
    """

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder = folder
        self.is_broken = False  # after an error of its disk, no more copies are made
        self._limit = limit
        make_private_folder(folder)

    def open(self, digest: str, size: int) -> BinaryIO | None:
        """Open the copy of a file with this SHA-256 ``digest`` and ``size``, if there is one.

        It stays in the folder until the file is closed. Raises OSError.
        """
        with self._locked():
            return self._open(digest, size)

    def copy(
        self, source: BinaryIO, digest: str, size: int, is_stopped: Callable[[], bool] = lambda: False
    ) -> BinaryIO | None:
        """Copy ``source`` and open the copy, as by `open`.

        Return None if the contents of ``source`` are others, or once ``is_stopped``. Raises NoRoom, BeingCopied and
        OSError.
        """
        with self._locked():
            if existing := self._open(digest, size):
                return existing
            part = self._begin(digest, size)
        is_published = False
        try:
            if not _transfer(source, part, digest, size, is_stopped):
                return None
            with self._locked():
                os.replace(part.name, self.folder / digest)
                is_published = True
                # Closing it would not suffice if this process was forked meanwhile.
                fcntl.flock(part, fcntl.LOCK_UN)
                return self._open(digest, size)
        finally:
            if not is_published:  # while its lock keeps others from making this copy
                with contextlib.suppress(OSError):
                    os.unlink(part.name)
            with contextlib.suppress(OSError):  # of a full disk: the buffer cannot be written
                part.close()

    def remove(self, digest: str) -> None:
        """Remove a copy that is damaged. Raises OSError."""
        with self._locked():
            (self.folder / digest).unlink(missing_ok=True)

    def limit(self) -> int:
        """Return the most bytes that all copies may take together."""
        return self._limit_with(self._entries())

    def _open(self, digest: str, size: int) -> BinaryIO | None:
        path = self.folder / digest
        try:
            file = open_plain(path)
        except UnreadableFile:
            return None
        if os.fstat(file.fileno()).st_size != size:  # cut off by a crash of the machine
            file.close()
            path.unlink()
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            touch(file)
        except BlockingIOError:  # a fork of a process that made or examined it
            file.close()
            return None
        except OSError:
            file.close()
            raise
        return file

    def _begin(self, digest: str, size: int) -> BinaryIO:
        """Create the file of a new copy, with an exclusive lock and its final size, which the limit includes."""
        entries = self._entries()
        path = self.folder / f"{digest}{PART}"
        if any(entry.path == path for entry in entries):
            raise BeingCopied
        self._make_room(size, entries)
        part = open(path, "xb")  # noqa: SIM115 - the caller closes it
        try:
            fcntl.flock(part, fcntl.LOCK_EX)
            part.truncate(size)
        except BaseException:
            path.unlink()
            part.close()
            raise
        return part

    def _entries(self) -> list[_Entry]:
        """Return the files of all copies; remove those that a killed process has left incomplete."""
        entries = []
        with os.scandir(self.folder) as files:
            for entry in files:
                if not _NAME.fullmatch(entry.name):
                    continue
                if entry.name.endswith(PART) and (lock := _lock_unused(Path(entry.path))):
                    os.unlink(entry.path)
                    lock.close()
                    continue
                with contextlib.suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=False)
                    size, used = state.st_size, state.st_blocks * 512
                    entries.append(_Entry(state.st_mtime_ns, Path(entry.path), size, used))
        return entries

    def _limit_with(self, entries: list[_Entry]) -> int:
        if self._limit is not None:
            return self._limit
        disk = os.statvfs(self.folder)
        space = disk.f_bavail * disk.f_frsize + sum(entry.used for entry in entries)
        return int(space * DEFAULT_SHARE)

    def _make_room(self, size: int, entries: list[_Entry]) -> None:
        """Remove copies that nobody uses until one of ``size`` bytes fits; raises NoRoom, and then removes none."""
        excess = sum(entry.size for entry in entries) + size - self._limit_with(entries)
        with contextlib.ExitStack() as locks:
            unused = []
            for entry in sorted(entries):
                if excess <= 0:
                    break
                if lock := _lock_unused(entry.path):
                    locks.enter_context(lock)
                    unused.append(entry.path)
                    excess -= entry.size
            if excess > 0:
                raise NoRoom
            for path in unused:
                path.unlink()

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locked(self.folder / LOCK_FILE, LOCK_SECONDS)


@dataclass(frozen=True, order=True)
class _Entry:
    """A file of the cache: when it was used last, its final ``size``, and the bytes that it takes so far."""

    used_at: int
    path: Path
    size: int
    used: int


def _lock_unused(path: Path) -> BinaryIO | None:
    """Open and lock a file that nobody uses; return None if somebody does."""
    try:
        file = open_plain(path)
    except UnreadableFile:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _transfer(
    source: BinaryIO, target: BinaryIO, digest: str, size: int, is_stopped: Callable[[], bool]
) -> bool:
    """Copy ``size`` bytes; return whether they have the SHA-256 hash ``digest``."""
    hashed, offset = hashlib.sha256(), 0
    os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
    while offset < size and not is_stopped():
        data = os.pread(source.fileno(), min(_CHUNK, size - offset), offset)
        if not data:
            return False
        hashed.update(data)
        target.write(data)
        offset += len(data)
    target.flush()
    return hashed.hexdigest() == digest


def cache_for(folder: Path) -> NodeCache | None:
    """Return the cache of this machine for the files in ``folder``; None if they are local, or there is no cache."""
    if not file_systems.is_network(folder):
        return None
    try:
        setting = read_settings({NODE_CACHE: os.environ.get(NODE_CACHE, "auto")}).node_cache
    except SettingsError as error:
        log.warning("There is no cache of records. %s.", error)
        return None
    return _cache_in(setting.place or _default_place(), setting.limit) if setting.is_on else None


@functools.cache
def _cache_in(place: Path | None, limit: int | None) -> NodeCache | None:
    """Return the cache of this user in ``place``; if it cannot be used, log the reason once and return None."""
    if place is None:
        log.info("There is no cache of records: set %s to a folder on a local disk.", NODE_CACHE)
        return None
    folder = place / f"digits-cache-{os.geteuid()}"
    try:
        if file_systems.is_network(place):
            raise OSError(0, "it is on a network file system", str(place))
        return NodeCache(folder, limit)
    except OSError as error:
        log.warning("Records are not copied to %s: %s.", folder, reason_of(error))
        return None


def _default_place() -> Path | None:
    """Return the folder for temporary files of this machine, unless it takes memory or is on another machine."""
    # A task that was forked has a TMPDIR of its own, in the folder of its job.
    for name in (os.environ.get("SLURM_TMPDIR"), os.environ.get("TMPDIR"), "/tmp", "/var/tmp"):  # noqa: S108
        place = Path(name or "")
        is_usable = bool(name) and os.access(place, os.W_OK | os.X_OK)
        if is_usable and not file_systems.is_network(place) and not file_systems.is_in_memory(place):
            return place
    return None


def touch(copy: BinaryIO) -> None:
    """Note that a copy is in use now. The kernel's own time would be the same for several copies."""
    os.utime(copy.fileno(), ns=(time.time_ns(),) * 2)


def reason_of(error: Exception) -> object:
    """Return why the cache cannot be used, for the log."""
    return (error.strerror if isinstance(error, OSError) else None) or error
