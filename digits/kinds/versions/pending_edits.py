"""Changes of a dataset's records that are not part of a version yet.

They are in ``pending-edits.jsonl`` in its job folder, an append-only log of who changed what: see
`digits.core.append_log`. The log ends when a version of all changes has been created.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from digits.core import append_log
from digits.core.schema import Count, UnixTime
from digits.core.splits import SPLITS, Split
from digits.kinds.versions.versions import MAX_EDITS, Edits

PENDING_FILE = "pending-edits.jsonl"
# The datasets whose pending changes stay in memory.
_CACHED = 4
# The changes that are encoded in a step.
_STEP = 2000
# A record: its split and its number.
Place = Annotated[str, Meta(pattern=r"^(train|val|test)/(0|[1-9][0-9]{0,9})\Z")]
Index = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,9})\Z")]

_turn = threading.Lock()


class Change(Struct, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The change of a record: it is excluded, or has another target or split.

    ``label`` is the index of its new class. A record with any number of labels has ``labels``, whether each index is
    added or removed, and one with numbers has the new ``numbers`` by index.
    """

    exclude: bool = False
    label: Count | UnsetType = UNSET
    labels: dict[Index, bool] | UnsetType = UNSET
    numbers: dict[Index, float] | UnsetType = UNSET
    split: Split | UnsetType = UNSET

    @property
    def changes_target(self) -> bool:
        return not self.exclude and bool(
            self.label is not UNSET or (self.labels or None) or (self.numbers or None)
        )


class Entry(Struct, omit_defaults=True, gc=False):
    """A line of the log: the ``change`` of a record replaces an earlier one; null restores the record.

    ``rev`` numbers the entries, ``by`` is the name of the user, and ``at`` the Unix time.
    """

    record: Place
    change: Change | None
    rev: Count
    at: UnixTime
    by: str = ""


class TooManyChanges(Exception):
    """More records would be changed than a version can have changes."""


class Pending:
    """The pending changes of a dataset: ``changes`` by record, such as ``train/7``, up to the revision ``rev``."""

    def __init__(self) -> None:
        self.changes: dict[str, Change] = {}
        self.rev = 0
        self.cursor = 0
        self.identity: tuple[int, int] | None = None
        self._digest = hashlib.sha256()
        self._excluded = self._relabeled = self._moved = 0

    def apply(self, entry: Entry) -> None:
        before = self.changes.pop(entry.record, None)
        if before is not None:
            self._count(before, -1)
        if entry.change is not None:
            self.changes[entry.record] = entry.change
            self._count(entry.change, 1)
        self.rev = entry.rev
        self._digest.update(msgspec.json.encode(entry))

    @property
    def token(self) -> str:
        """Identifies these changes."""
        return f"{self.rev}-{self._digest.hexdigest()[:16]}"

    @property
    def words(self) -> str:
        """The changes in words, such as *3 images excluded*; see `Edits.describe`."""
        return Edits.in_words(self._excluded, self._relabeled, self._moved)

    def splits(self, counts: dict[str, int]) -> dict[str, int]:
        """Return the numbers of records in the splits of a version, from those of the dataset."""
        after: dict[str, int] = {split: counts.get(split, 0) for split in SPLITS}
        for place in list(self.changes):
            change = self.changes.get(place)
            if change is None:  # restored meanwhile
                continue
            if change.exclude:
                after[place.partition("/")[0]] -= 1
            elif change.split is not UNSET:
                after[place.partition("/")[0]] -= 1
                after[change.split] += 1
        return after

    def pieces(self) -> Iterator[bytes]:
        """Yield the JSON of the changes by record, piece by piece."""
        # Names alone, because the collector would look through a million pairs, without letting others run.
        places = list(self.changes)
        yield b"{"
        separator = b""
        for start in range(0, len(places), _STEP):
            step = places[start : start + _STEP]
            if body := msgspec.json.encode(
                {name: self.changes[name] for name in step if name in self.changes}
            )[1:-1]:
                yield separator + body
                separator = b","
        yield b"}"

    def _count(self, change: Change, sign: int) -> None:
        self._excluded += sign * change.exclude
        self._relabeled += sign * change.changes_target
        self._moved += sign * (not change.exclude and change.split is not UNSET)


_states: OrderedDict[Path, Pending] = OrderedDict()


def load(job_folder: Path) -> Pending:
    """Return the pending changes; raises UnreadableFile. Only the part of the log is read that is new."""
    with _turn:
        return _load(job_folder)


def update(job_folder: Path, changes: dict[str, Change | None], by: str = "") -> Pending:
    """Save a new change of each record in ``changes``, without the one of a None, and return all changes.

    Raises TooManyChanges, UnreadableFile and OSError, and then saves none.
    """
    with _turn:
        pending = _load(job_folder)
        new = sum(change is not None and place not in pending.changes for place, change in changes.items())
        if len(pending.changes) + new > MAX_EDITS:
            raise TooManyChanges
        at = time.time()
        entries = [
            Entry(place, change, rev, at, by)
            for rev, (place, change) in enumerate(changes.items(), pending.rev + 1)
        ]
        if entries:
            append_log.append(job_folder / PENDING_FILE, entries)
        pending = _load(job_folder)
        if not pending.changes:
            _remove(job_folder)
        return pending


def remove_created(job_folder: Path, edits: Edits) -> None:
    """Remove the pending changes if they are those of a version that was created; raises UnreadableFile and OSError."""
    with _turn:
        if as_edits(_load(job_folder).changes) == edits:
            _remove(job_folder)


def _load(job_folder: Path) -> Pending:
    path = job_folder / PENDING_FILE
    try:
        status = path.lstat()
        identity = status.st_dev, status.st_ino
    except FileNotFoundError:
        _states.pop(job_folder, None)
        return Pending()
    pending = _states.pop(job_folder, None)
    if pending is None or pending.identity != identity or pending.cursor > status.st_size:
        pending = Pending()
        pending.identity = identity
    for entry, end in append_log.read(path, Entry, pending.cursor, below=job_folder):
        pending.apply(entry)
        pending.cursor = end
    _states[job_folder] = pending
    while len(_states) > _CACHED:
        _states.popitem(last=False)
    return pending


def _remove(job_folder: Path) -> None:
    _states.pop(job_folder, None)
    (job_folder / PENDING_FILE).unlink(missing_ok=True)


def as_edits(changes: dict[str, Change]) -> Edits:
    """Return the changes as those of a new version, sorted by record."""
    edits = Edits()
    for record, change in _sorted(changes):
        if change.exclude:
            edits.exclude.append(record)
            continue
        if change.label is not UNSET:
            edits.relabel.append((*record, change.label))
        for index, is_added in sorted((change.labels or {}).items()):
            (edits.add_labels if is_added else edits.remove_labels).append((*record, int(index)))
        for index, value in sorted((change.numbers or {}).items()):
            edits.set_numbers.append((*record, int(index), value))
        if change.split is not UNSET:
            edits.move.append((*record, change.split))
    return edits


def _sorted(changes: dict[str, Change]) -> Iterator[tuple[tuple[Any, int], Change]]:
    """Yield the changes by record, sorted by the names of the splits and by number; NumPy sorts without the GIL."""
    places: dict[str, list[str]] = {}
    for place in list(changes):
        places.setdefault(place.partition("/")[0], []).append(place)
    for split in sorted(places):
        numbers = np.array([int(place.rpartition("/")[2]) for place in places[split]])
        numbers.sort()
        for number in numbers.tolist():
            if change := changes.get(f"{split}/{number}"):
                yield (split, number), change
