"""Delete files and folders in the background."""

from __future__ import annotations

import logging
import secrets
import stat
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import gevent

from digits.core.files import remove_tree
from digits.runtime.offload import in_thread

log = logging.getLogger(__name__)

PREFIX = ".deleted-"
SMALL_BYTES = 1_000_000
RETRY_SECONDS = 60.0
CLOSE_SECONDS = 2.0


class Trash:
    """Deletes what is discarded, in a native thread, one item after another.

    Each item is first renamed to a name in ``folder`` that begins with `PREFIX`, so that it disappears immediately,
    and the next server deletes the leftovers of a killed one. Failures are logged once and retried.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: deque[Path] = deque()
        self._failed: dict[Path, str] = {}
        self._retry_at = 0.0
        self._worker: gevent.Greenlet | None = None

    def discard(self, path: Path) -> None:
        """Delete a file or a folder, if it exists; a small file at once, which is faster than starting a thread."""
        try:
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size <= SMALL_BYTES:
                path.unlink()
            else:
                self.take(path)
        except FileNotFoundError:
            pass
        except OSError:  # such as a full disk
            self._delete(path)

    def take(self, path: Path) -> None:
        """Delete a file or folder; raises OSError, leaving it unchanged."""
        self.resume([path.rename(self._folder / f"{PREFIX}{secrets.token_hex(8)}")])

    def resume(self, leftovers: Iterable[Path]) -> None:
        """Delete the ``leftovers`` of an earlier server where they are."""
        self._waiting += leftovers
        self._work()

    def maintain(self) -> None:
        """Try again, from time to time, to delete what could not be deleted."""
        if self._failed and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._waiting += [path for path in self._failed if path not in self._waiting]
        self._work()

    def close(self) -> None:
        """Stop after the current item, or after `CLOSE_SECONDS`; the next server deletes the others."""
        self._waiting.clear()
        if self._worker is not None:
            self._worker.join(CLOSE_SECONDS)

    def _work(self) -> None:
        if self._waiting and not self._worker:
            self._worker = gevent.spawn(self._run)

    def _run(self) -> None:
        while self._waiting:
            self._delete(self._waiting.popleft())

    def _delete(self, path: Path) -> None:
        problem = in_thread(_problem_of_deleting, path)
        if problem and problem != self._failed.get(path):
            log.warning("%s cannot be deleted, will retry: %s", path, problem)
        if problem:
            self._failed[path] = problem
        else:
            self._failed.pop(path, None)


def _problem_of_deleting(path: Path) -> str:
    """Delete a file or a folder; return why that failed, or an empty text."""
    try:
        remove_tree(path)
    except Exception as error:  # the trash is never a reason to stop
        return str(error) or type(error).__name__
    return ""
