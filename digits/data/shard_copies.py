"""The copies of the shards of a split that a task reads, made ahead of it in the cache of its machine."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from digits.core.files import UnreadableFile
from digits.data.node_cache import BeingCopied, NodeCache, NoRoom, reason_of, touch
from digits.data.record_index import SplitIndex, open_shard

log = logging.getLogger(__name__)

# A shard that another process is copying is looked at this often.
BUSY_SECONDS = 0.5
# From linux/ioprio.h: the calling thread, and the class that gets the disk only when nobody else needs it.
_IOPRIO_SELF, _IOPRIO_IDLE = 1, 3 << 13
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}


class ShardCopies:
    """The copies that one reader of the shards of ``index`` uses, which a thread makes in the order of its reading.

    ``hashes`` are the SHA-256 hashes of the shards. Where something fails, such as a full disk, the reader uses the
    original, and the log says so once. Several threads may use the same object.
    """

    def __init__(self, cache: NodeCache, job_folder: Path, index: SplitIndex, hashes: Sequence[str]) -> None:
        self.folder = cache.folder
        self._cache, self._job_folder, self._index = cache, job_folder, index
        self._hashes = dict(zip(index.shards, hashes, strict=True))
        self._files: dict[Path, BinaryIO] = {}
        self._rejected: list[BinaryIO] = []
        self._waiting: deque[Path] = deque()
        # Those of the waiting ones that nobody has tried to copy yet, and the one that is being copied.
        self._untried: set[Path] = set()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def read_ahead(self, batches: Iterable[NDArray[np.int64]]) -> None:
        """Begin to copy the shards of the records that will be read, ``batches`` of numbers.

        A shard of which less than half will be read is not worth it.
        """
        planned = [shard for shard in self._plan(batches) if shard not in self._files]
        with self._changed:
            if not planned or self._closed.is_set() or self._cache.is_broken:
                return
            self._waiting.extend(shard for shard in planned if shard not in self._waiting)
            self._untried.update(planned)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="node cache", daemon=True)
                self._thread.start()

    @property
    def are_complete(self) -> bool:
        """Whether all shards have copies."""
        return len(self._files) == len(self._index.shards)

    def file(self, shard: Path) -> BinaryIO | None:
        """Return the open copy of ``shard``, if there is one so far."""
        return self._files.get(shard)

    def wait(self, shard: Path) -> Path:
        """Return the path of the copy of ``shard``, once it is made, or of the original if none can be made now."""
        with self._changed:
            while shard in self._untried:
                self._changed.wait()
        # Not the name of the copy, which another process may remove if it is damaged.
        return Path(f"/proc/self/fd/{self._files[shard].fileno()}") if shard in self._files else shard

    def reject(self, shard: Path) -> None:
        """Use the original of ``shard`` from now on, because the copy is damaged, and remove the copy."""
        with self._changed:
            file = self._files.pop(shard, None)
            if file is None:
                return
            self._rejected.append(file)  # another thread may be reading it
        log.warning("The copy of %s in %s is damaged; the original is used.", shard.name, self.folder)
        with contextlib.suppress(OSError):
            self._cache.remove(self._hashes[shard])

    def reject_all(self) -> bool:
        """Use the originals of all shards; return whether there were copies."""
        shards = list(self._files)
        for shard in shards:
            self.reject(shard)
        return bool(shards)

    def close(self) -> None:
        self._closed.set()
        with self._changed:
            thread = self._thread
        if thread:
            thread.join()
        for file in (*self._files.values(), *self._rejected):
            with contextlib.suppress(OSError):
                touch(file)
            file.close()
        self._files.clear()
        self._rejected.clear()

    def _plan(self, batches: Iterable[NDArray[np.int64]]) -> list[Path]:
        """Return the shards to copy, in the order in which they are needed."""
        shards = np.concatenate([np.zeros(0, np.int64), *map(self._index.shards_of, batches)])
        counts = np.bincount(shards, minlength=len(self._index.shards))
        first = np.zeros(len(counts), np.int64)
        first[shards[::-1]] = np.arange(len(shards))[::-1]
        worth = [2 * count >= len(self._index.entries[shard]) > 0 for shard, count in enumerate(counts)]
        order = np.argsort(first, kind="stable")
        return [self._index.shards[shard] for shard in order if worth[shard]]

    def _run(self) -> None:
        _yield_disk()
        is_full = False
        try:
            while shard := self._next():
                try:
                    self._settle(shard, self._obtain(shard, is_full))
                except NoRoom:
                    is_full = True
                    self._settle(shard)
                except BeingCopied:
                    self._settle(shard)
                    self._waiting.append(shard)
                    self._closed.wait(BUSY_SECONDS)
            self._report(is_full)
        except (OSError, UnreadableFile) as error:
            self._cache.is_broken = True
            log.warning("No more records are copied to %s: %s.", self.folder, reason_of(error))
        finally:
            with self._changed:
                self._end()

    def _next(self) -> Path | None:
        with self._changed:
            if self._waiting and not self._closed.is_set() and not self._cache.is_broken:
                return self._waiting.popleft()
            self._end()
            return None

    def _end(self) -> None:
        """Leave nothing to wait for. The next call of `read_ahead` starts another thread."""
        if self._thread is threading.current_thread():
            self._thread = None
            self._waiting.clear()
            self._untried.clear()
            self._changed.notify_all()

    def _obtain(self, shard: Path, is_full: bool) -> BinaryIO | None:
        digest, size = self._hashes[shard], self._index.size_of(shard)
        if is_full:
            return self._cache.open(digest, size)
        with open_shard(shard, self._job_folder) as source:
            return self._cache.copy(source, digest, size, self._closed.is_set)

    def _settle(self, shard: Path, copy: BinaryIO | None = None) -> None:
        with self._changed:
            if copy is not None:
                self._files[shard] = copy
            self._untried.discard(shard)
            self._changed.notify_all()

    def _report(self, is_full: bool) -> None:
        if self._closed.is_set():
            return
        total, copied = len(self._index.shards), len(self._files)
        limit = f"; it is limited to {self._cache.limit() / 1e9:.1f} GB" if is_full else ""
        split = self._index.shards[0].name.partition("-")[0]
        log.info("%d of %d shards of “%s” are in the cache %s%s", copied, total, split, self.folder, limit)


def _yield_disk() -> None:
    """Let this thread use the disk only when nobody else needs it.

    Its priority for the processor remains: while it waits for the processor, it may hold the interpreter's lock.
    """
    if number := _IOPRIO_SET.get(os.uname().machine):
        ctypes.CDLL(None).syscall(number, _IOPRIO_SELF, 0, _IOPRIO_IDLE)
