"""Simulated power losses: record all changes of a process to a folder, and reproduce the states a power loss may leave.

A file system guarantees little before `fsync`. Written data may be lost, truncated or zero; the creation, replacement
or removal of a name may or may not take effect, and a later change may survive without an earlier one. The `fsync` of
a file makes its contents durable, that of a folder its names.

A `Recording` captures the folder whenever the process syncs, renames or removes something. Contents are read
from the disk, whichever library wrote them. Each `Moment` yields the states
that a power loss may leave.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = "folder"

# Paths relative to the recorded folder, with the inode there; None for a removed name.
Names = dict[str, int]
Change = dict[str, int | None]


def _moved(names: Names, inode: int, name: str) -> Names:
    """The names below the folder ``inode`` after it is renamed to ``name``: they belong to the folder, not its path."""
    before = next((path for path, number in names.items() if number == inode), name)
    return {
        name + path[len(before) :]: number for path, number in names.items() if path.startswith(f"{before}/")
    }


def _close(held: dict[int, int]) -> None:
    for descriptor in held.values():
        os.close(descriptor)


@dataclass(frozen=True)
class Moment:
    """A moment at which power may be lost.

    ``names`` and ``contents`` (by inode) are durable. Later ``changes`` of names may or may not be,
    each atomically, and neither may the contents in ``current``. Contents are identified by their digests.
    """

    names: Names
    contents: dict[int, str]
    changes: list[Change]
    current: dict[int, str]


class Recording:
    """Records changes in ``folder`` after `start`, by this process and those forked from it."""

    def __init__(self, folder: Path, store: Path, ignored: tuple[str, ...] = ("output.log", "tb")) -> None:
        store.mkdir()
        self._folder, self._store, self._ignored = folder, store, ignored
        self._held: dict[int, int] = {}  # an inode number is not reused while the file is open
        weakref.finalize(self, _close, self._held)
        self._known: dict[tuple[int, int, int], str] = {}
        self._names: Names = {}
        self._contents: dict[int, str] = {}
        self._changes: list[Change] = []
        self._last: Names = {}
        self._latest: Moment | None = None

    def start(self, patched: pytest.MonkeyPatch) -> None:
        """Treat the current state as durable, and start to record changes."""
        self._last, self._contents = self._look()
        self._names = dict(self._last)
        fsync = os.fsync

        def recorded_fsync(descriptor: int) -> None:
            self._note()
            fsync(descriptor)
            self._synchronized(os.fstat(descriptor).st_ino)
            self._note()

        def recorded_sync() -> None:
            self._note()
            self._last, self._contents = self._look()
            self._names, self._changes = dict(self._last), []
            self._note()

        patched.setattr(os, "fsync", recorded_fsync)
        patched.setattr(os, "sync", recorded_sync)
        for name in ("replace", "rename", "unlink", "mkdir"):
            patched.setattr(os, name, self._around(getattr(os, name)))

    def moments(self) -> Iterator[Moment]:
        """All moments, in chronological order."""
        with open(self._store / "moments", "rb") as file:
            while True:
                try:
                    yield pickle.load(file)
                except EOFError:
                    return

    def surviving(self) -> dict[str, bytes | None]:
        """The contents of the folder that are durable after the last moment."""
        *_, last = self.moments()
        return self._state(last, [], lambda old, new: old)

    def states(
        self, moment: Moment, chance: random.Random, count: int = 1
    ) -> Iterator[dict[str, bytes | None]]:
        """Possible states after a power loss: all that can be lost, nothing lost, and ``count`` random ones."""
        yield self._state(moment, [], lambda old, new: old)
        yield self._state(moment, moment.changes, lambda old, new: new)
        for _ in range(count):
            kept = [change for change in moment.changes if chance.random() < 0.5]
            yield self._state(moment, kept, lambda old, new: _part(old, new, chance))

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            self._note()
            result = function(*args, **kwargs)
            self._note()
            return result

        return recorded

    def _note(self) -> None:
        names, current = self._look()
        changed = names.keys() ^ self._last.keys() | {
            name for name in names.keys() & self._last.keys() if names[name] != self._last[name]
        }
        if changed:
            self._changes.append({name: names.get(name) for name in changed})
        self._last = names
        moment = Moment(dict(self._names), dict(self._contents), list(self._changes), current)
        if moment == self._latest:
            return
        self._latest = moment
        with open(self._store / "moments", "ab") as file:
            pickle.dump(moment, file)

    def _synchronized(self, inode: int) -> None:
        names, current = self._look()
        if inode in current and current[inode] != FOLDER:
            self._contents[inode] = current[inode]
            return
        place = next((name for name in names if names[name] == inode), None)
        if place is None:
            if os.stat(self._folder).st_ino != inode:
                return
            place = ""
        inside = {name for name in {*names, *self._names} if os.path.dirname(name) == place}
        before = dict(self._names)
        for name in inside:
            if name in names:
                self._names[name] = names[name]
                if current[names[name]] == FOLDER:
                    self._contents[names[name]] = FOLDER
                    self._names.update(_moved(before, names[name], name))
            else:
                self._names.pop(name, None)
        left = [{name: to for name, to in change.items() if name not in inside} for change in self._changes]
        self._changes = [change for change in left if change]

    def _look(self) -> tuple[Names, dict[int, str]]:
        names, contents = {}, {}
        for path in sorted(self._folder.rglob("*")):
            relative = path.relative_to(self._folder)
            if any(part in self._ignored for part in relative.parts):
                continue
            try:
                inode = self._inode(path)
            except FileNotFoundError:
                continue
            names[str(relative)] = inode
            contents[inode] = FOLDER if path.is_dir() else self._digest(inode)
        return names, contents

    def _inode(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDONLY)
        inode = os.fstat(descriptor).st_ino
        if inode in self._held:
            os.close(descriptor)
        else:
            self._held[inode] = descriptor
        return inode

    def _digest(self, inode: int) -> str:
        found = os.fstat(self._held[inode])
        key = inode, found.st_mtime_ns, found.st_size
        if key not in self._known:
            data = os.pread(self._held[inode], found.st_size, 0)
            digest = hashlib.sha256(data).hexdigest()
            if not (self._store / digest).exists():
                (self._store / digest).write_bytes(data)
            self._known[key] = digest
        return self._known[key]

    def _state(
        self, moment: Moment, kept: list[Change], choose: Callable[[bytes, bytes], bytes]
    ) -> dict[str, bytes | None]:
        names: Change = dict(moment.names)
        for change in kept:
            names.update(change)
        state: dict[str, bytes | None] = {}
        for name, inode in sorted(names.items()):
            parent = os.path.dirname(name)
            if inode is None or (parent and parent not in state):
                continue
            now = moment.current.get(inode, moment.contents.get(inode, ""))
            if FOLDER in (now, moment.contents.get(inode)):
                state[name] = None
            else:
                old = self._data(moment.contents.get(inode, ""))
                state[name] = choose(old, self._data(now) if now else old)
        return state

    def _data(self, digest: str) -> bytes:
        return (self._store / digest).read_bytes() if digest else b""


def write(state: dict[str, bytes | None], folder: Path) -> None:
    """Make the new ``folder`` hold ``state``."""
    folder.mkdir()
    for name, data in state.items():
        if data is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(data)


def _part(old: bytes, new: bytes, chance: random.Random) -> bytes:
    """A possible state of a file that was durable as ``old`` and was being changed to ``new``."""
    if not new.startswith(old):
        return chance.choice((old, new))
    kept = new[: chance.randint(len(old), len(new))]
    return chance.choice((new, kept, kept + bytes(len(new) - len(kept))))
