"""Changes of a dataset's records that are not part of a version yet: ``pending-edits.json`` in its job folder."""

from __future__ import annotations

import threading
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from digits.core.files import MissingFile, read_json, write_json
from digits.core.schema import Count
from digits.core.splits import Split
from digits.kinds.versions import MAX_EDITS, Edits

PENDING_FILE = "pending-edits.json"
# A record: its split and its number.
Place = Annotated[str, Meta(pattern=r"^(train|val|test)/(0|[1-9][0-9]{0,9})\Z")]
Index = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,9})\Z")]

_writing = threading.Lock()


class Change(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The change of a record: it is excluded, or has another target or split.

    ``label`` is the index of its new class. A record with any number of labels has ``labels``, whether each index is
    added or removed, and one with numbers has the new ``numbers`` by index.
    """

    exclude: bool = False
    label: Count | UnsetType = UNSET
    labels: dict[Index, bool] = field(default_factory=dict)
    numbers: dict[Index, float] = field(default_factory=dict)
    split: Split | UnsetType = UNSET


Changes = Annotated[dict[Place, Change], Meta(max_length=MAX_EDITS)]


class _File(Struct):
    changes: Changes


def load(job_folder: Path) -> dict[str, Change]:
    """Return the pending changes by record, such as ``train/7``; raises UnreadableFile."""
    try:
        return read_json(job_folder / PENDING_FILE, _File, below=job_folder).changes
    except MissingFile:
        return {}


def update(job_folder: Path, changes: dict[str, Change | None]) -> dict[str, Change]:
    """Save a new change of each record in ``changes``, without the one of a None, and return all changes.

    Raises UnreadableFile and OSError.
    """
    with _writing:
        kept = load(job_folder)
        for place, change in changes.items():
            if change is None:
                kept.pop(place, None)
            else:
                kept[place] = change
        _save(job_folder, kept)
    return kept


def remove_created(job_folder: Path, edits: Edits) -> None:
    """Remove the pending changes if they are those of a version that was created; raises UnreadableFile and OSError."""
    with _writing:
        if as_edits(load(job_folder)) == edits:
            _save(job_folder, {})


def _save(job_folder: Path, changes: dict[str, Change]) -> None:
    if changes:
        write_json(job_folder / PENDING_FILE, {"schema": 1, **msgspec.to_builtins(_File(changes))})
    else:
        (job_folder / PENDING_FILE).unlink(missing_ok=True)


def as_edits(changes: dict[str, Change]) -> Edits:
    """Return the changes as those of a new version, sorted by record."""
    edits = Edits()
    for record, change in sorted(
        ((_record(place), change) for place, change in changes.items()), key=itemgetter(0)
    ):
        if change.exclude:
            edits.exclude.append(record)
            continue
        if change.label is not UNSET:
            edits.relabel.append((*record, change.label))
        for index, is_added in sorted(change.labels.items()):
            (edits.add_labels if is_added else edits.remove_labels).append((*record, int(index)))
        for index, value in sorted(change.numbers.items()):
            edits.set_numbers.append((*record, int(index), value))
        if change.split is not UNSET:
            edits.move.append((*record, change.split))
    return edits


def _record(place: str) -> tuple[Any, int]:
    split, _, number = place.partition("/")
    return split, int(number)
