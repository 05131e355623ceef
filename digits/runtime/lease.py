"""The claim of one server to a jobs folder, which other machines may share.

A lock of the kernel keeps other servers of this machine out. Not every network file system passes locks on to other
machines, so the lock file also names its owner, with a count that the owner increases every `RENEW_SECONDS`. A server
of another machine takes the folder over only if the count has not changed for `STALE_SECONDS`: it measures this by its
own clock, because the clocks of two machines may differ. It then replaces the file, so that an owner that was only cut
off notices.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import math
import os
import secrets
import time
from pathlib import Path

import gevent
import msgspec
from msgspec import Struct

from digits.core import schema
from digits.core.errors import DigitsError
from digits.core.files import is_disk_full
from digits.core.schema import Count
from digits.runtime.executors.processes import boot_id
from digits.runtime.offload import in_thread

log = logging.getLogger(__name__)

LOCK_FILE = ".lock"
RENEW_SECONDS = 5.0
STALE_SECONDS = 30.0
# How often a server looks whether the owner on another machine is alive.
WATCH_SECONDS = 0.5
# Of two servers that take a folder over at the same time, the second one wins; both look after this time.
SETTLE_SECONDS = 2.0
CLOSE_SECONDS = 2.0
_MAX_BYTES = 4096
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class StoreInUse(DigitsError):
    """Another server uses the same jobs folder."""


class Owner(Struct, kw_only=True):
    """The contents of the lock file: the server that owns the folder. ``boot`` identifies a run of its machine."""

    host: str
    boot: str
    pid: int
    beat: Count = 0


class Lease:
    """Claims ``folder`` for this server; raises StoreInUse or OSError.

    If the owner is on another machine and does not seem to be alive, wait for it, or raise StoreInUse with
    ``waits=False``.
    """

    def __init__(self, folder: Path, *, waits: bool = True) -> None:
        self._path = folder / LOCK_FILE
        self._me = Owner(host=os.uname().nodename, boot=boot_id(), pid=os.getpid())
        self._renewed_at = self._due = 0.0
        self._problem = ""
        self._worker: gevent.Greenlet | None = None
        self._descriptor = self._claim(waits)
        self._renewed_at = _now()
        # Soon, because another machine may have claimed at the same time.
        self._due = self._renewed_at + WATCH_SECONDS

    @property
    def is_held(self) -> bool:
        """Whether this server owns the folder; after a long pause, such as a suspension, according to the file."""
        if not is_at(self._descriptor, self._path):
            return False
        return _now() - self._renewed_at < STALE_SECONDS or self._renew()

    def maintain(self) -> None:
        """Renew the claim in a native thread when it is due."""
        if _now() >= self._due and not self._worker:
            self._due = _now() + RENEW_SECONDS
            self._worker = gevent.spawn(in_thread, self._renew)

    def close(self) -> None:
        """Give the folder up, so that a server of another machine can claim it at once."""
        if self._worker is not None:
            self._worker.join(CLOSE_SECONDS)
        if self.is_held:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def _renew(self) -> bool:
        """Increase the count in the lock file; return whether this server still owns the folder."""
        try:
            # Opening and closing it makes network file systems read and write what other machines see.
            descriptor = os.open(self._path, _FLAGS & ~os.O_CREAT)
            try:
                if not os.path.samestat(os.fstat(descriptor), os.fstat(self._descriptor)):
                    return False
                owner = _owner_in(descriptor)
                if owner and (owner.boot, owner.pid) != (self._me.boot, self._me.pid):
                    self._renewed_at = -math.inf
                    return False
                self._me.beat += 1
                _write(descriptor, self._me)
            finally:
                os.close(descriptor)
        except OSError as error:
            # On a full disk, no other server can claim the folder either.
            if not is_disk_full(error):
                if str(error) != self._problem:
                    log.warning("the lock of the jobs folder could not be renewed, will retry: %s", error)
                self._problem = str(error)
                return False
        self._problem, self._renewed_at = "", _now()
        return True

    def _claim(self, waits: bool) -> int:
        descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            is_locked, owner = _lock(descriptor), _owner_in(descriptor)
            is_ours = owner is None or owner.boot == self._me.boot
            if is_ours and is_locked:
                try:
                    _write(descriptor, self._me)
                except OSError as error:
                    if not is_disk_full(error):  # the server starts even then; it is written later
                        raise
                return descriptor
            if is_ours and is_locked is False:
                raise self._in_use(owner)
            if owner:
                self._wait_for_silence(owner, waits)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return self._replace()

    def _wait_for_silence(self, owner: Owner, waits: bool) -> None:
        """Return when the lock file has not changed for `STALE_SECONDS`; raises StoreInUse if it changes."""
        if not waits:
            raise self._in_use(owner)
        before = _contents(self._path)
        log.warning(
            "%s belongs to a server on %s; waiting %g s to see whether it still runs",
            self._path.parent,
            owner.host,
            STALE_SECONDS,
        )
        end = time.monotonic() + STALE_SECONDS
        while time.monotonic() < end:
            time.sleep(WATCH_SECONDS)
            now = _contents(self._path)
            if now and now != before:
                raise self._in_use(owner)
        log.warning("the server on %s no longer runs; taking over %s", owner.host, self._path.parent)

    def _replace(self) -> int:
        """Replace the lock file by one of this server."""
        temporary = self._path.with_name(f"{LOCK_FILE}.{secrets.token_hex(4)}.tmp")
        descriptor = os.open(temporary, _FLAGS | os.O_EXCL, 0o600)
        try:
            _lock(descriptor)
            _write(descriptor, self._me)
            os.fsync(descriptor)
            os.replace(temporary, self._path)
            time.sleep(SETTLE_SECONDS)
            if not is_at(descriptor, self._path):
                raise self._in_use(None)
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        return descriptor

    def _in_use(self, owner: Owner | None) -> StoreInUse:
        where = f" on {owner.host}" if owner and owner.boot != self._me.boot else ""
        return StoreInUse(
            f"Another DIGITS server{where} uses the jobs folder {self._path.parent}.",
            "Stop it, or choose another folder with --jobs-dir.",
        )


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether the open file or folder is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _now() -> float:
    """Return the seconds since the machine was started, including those in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _lock(descriptor: int) -> bool | None:
    """Lock an open file; return whether it is ours, or None on file systems without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        return None
    return True


def _write(descriptor: int, owner: Owner) -> None:
    data = msgspec.json.encode(owner)
    os.pwrite(descriptor, data, 0)
    os.ftruncate(descriptor, len(data))


def _owner_in(descriptor: int) -> Owner | None:
    """Return the owner in a lock file, unknown if its contents are damaged, and None if there is none."""
    data = os.pread(descriptor, _MAX_BYTES, 0)
    try:
        return schema.decode(data, Owner) if data else None
    except ValueError:
        return Owner(host="another machine", boot="", pid=0)


def _contents(path: Path) -> bytes:
    """Return the contents of a lock file, as other machines see them at this moment; empty if there is none."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
