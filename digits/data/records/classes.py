"""The classes that the records of a shard contain: a file beside it, which is searched without opening the shard.

Only targets for which a record can contain several classes have it: sets of labels, masks and boxes. It is an array of
`CLASS_DTYPE`, in the order of the records and of the classes of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, read_bytes
from digits.data.records.index import SplitIndex

CLASSES_ENDING = ".classes"
# A class that a record contains; ``record`` is its number in the shard.
CLASS_DTYPE = np.dtype([("record", "<u4"), ("class", "<u4")])
MAX_CLASSES_BYTES = 1 << 30


def classes_path(shard: Path) -> Path:
    """Return the path of the classes of ``shard``."""
    return shard.with_suffix(CLASSES_ENDING)


def pack_classes(classes: Sequence[NDArray[np.int64]]) -> bytes:
    """Return the contents of the file for records with these ``classes``, int [classes] each, in ascending order."""
    rows = np.zeros(sum(map(len, classes)), CLASS_DTYPE)
    if len(rows):
        rows["record"] = np.repeat(np.arange(len(classes)), [len(names) for names in classes])
        rows["class"] = np.concatenate(classes)
    return rows.tobytes()


def select_containing(job_folder: Path, index: SplitIndex, number: int, classes: int) -> NDArray[np.bool_]:
    """Return whether each record of the split with ``index`` contains the class ``number``, bool [records].

    ``classes`` is the number of all classes. If ``number`` equals it, return whether each record contains no class.
    Raises UnreadableFile if a file is missing or damaged.
    """
    selected = [np.zeros(0, np.bool_)]
    for shard, entries in zip(index.shards, index.entries, strict=True):
        rows = _read_classes(shard, len(entries), job_folder)
        records = rows["record"] if number == classes else rows["record"][rows["class"] == number]
        of_shard = np.full(len(entries), number == classes)
        of_shard[records] = number < classes
        selected.append(of_shard)
    return np.concatenate(selected)


def _read_classes(shard: Path, count: int, job_folder: Path) -> NDArray[Any]:
    """Load the classes of the ``count`` records of ``shard``."""
    file = classes_path(shard)
    data = read_bytes(file, MAX_CLASSES_BYTES, below=job_folder)
    if len(data) % CLASS_DTYPE.itemsize:
        raise UnreadableFile(f"{file.name} is truncated")
    rows = np.frombuffer(data, CLASS_DTYPE)
    if len(rows) and int(rows["record"].max()) >= count:
        raise UnreadableFile(f"{file.name} and {shard.name} are inconsistent: one of them is damaged")
    return rows
