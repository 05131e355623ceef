"""The files beside a shard, by which its records are found without opening it.

The index has the place of each record in the shard, and its group. The names are those of the sources of the records.
The classes, which only targets have for which a record can contain several (sets of labels, masks and boxes), are
those in each record. See `digits.data.records.records` for the format of a shard.
"""

from __future__ import annotations

import functools
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, open_plain, read_bytes
from digits.data.file_cache import FileCache
from digits.data.manifest import SplitRecords

# ``group`` is the position of the record's group in the manifest, or -1.
INDEX_DTYPE = np.dtype([("offset", "<u8"), ("length", "<u4"), ("group", "<i4")])
INDEX_ENDING = ".index"
# A class that a record contains; ``record`` is its number in the shard. They are in the order of the records, and in
# that of the classes of each.
CLASS_DTYPE = np.dtype([("record", "<u4"), ("class", "<u4")])
CLASSES_ENDING = ".classes"
# In the order of the records, each followed by a zero byte.
NAMES_ENDING = ".names"
MAX_PAYLOAD_BYTES = 256 << 20
MAX_INDEX_BYTES = 256 << 20
MAX_NAMES_BYTES = MAX_CLASSES_BYTES = 1 << 30

# A frame of the TFRecord format: the length of the payload and its checksum, the payload, its checksum.
HEADER_BYTES = 12
CHECKSUM_BYTES = 4


class DamagedRecords(UnreadableFile):
    """A shard or its index is truncated, modified, or inconsistent with the manifest."""


class SplitIndex:
    """The positions of the records of a split, verified against the sizes of its shards.

    ``entries`` has an array of `INDEX_DTYPE` for each of the ``shards``. Raises DamagedRecords if files are missing
    or inconsistent.
    """

    def __init__(self, job_folder: Path, split: SplitRecords) -> None:
        self.shards = [job_folder / name for name in split.shards]
        self.entries = [_read_index(path, job_folder) for path in self.shards]
        self._starts: list[int] = np.cumsum([0, *map(len, self.entries)]).tolist()
        if len(self) != split.count:
            raise DamagedRecords(f"the shards contain {len(self)} records, but the manifest {split.count}")

    def __len__(self) -> int:
        return self._starts[-1]

    @functools.cached_property
    def groups(self) -> NDArray[np.int32]:
        """The group of each record, int32 [records]; -1 for none."""
        if not self.entries:
            return np.zeros(0, np.int32)
        return np.concatenate([entries["group"] for entries in self.entries]).astype(np.int32)

    def members(self, group: int) -> NDArray[np.int64]:
        """Return the numbers of the records of a group, in ascending order."""
        order, sorted_groups = self._by_group
        first, last = np.searchsorted(sorted_groups, [group, group + 1])
        return order[first:last]

    @functools.cached_property
    def _by_group(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        order = np.argsort(self.groups, kind="stable")
        return order, self.groups[order]

    def locate(self, number: int) -> tuple[Path, int, int]:
        """Return the shard of record ``number``, and the offset and length of its payload; raises IndexError."""
        if not 0 <= number < len(self):
            raise IndexError(f"record {number} of {len(self)}")
        shard = bisect_right(self._starts, number) - 1
        offset, length, _ = self.entries[shard][number - self._starts[shard]].item()
        return self.shards[shard], offset, length


class IndexCache:
    """Indexes of recently used splits, of at most ``max_records`` records together, but at least one split.

    A record takes about 32 bytes of memory. An index is read again if a file of its split has changed.
    """

    def __init__(self, max_records: int) -> None:
        self._cache: FileCache[tuple[Path, ...], SplitIndex] = FileCache(max_records)

    def get(self, job_folder: Path, split: SplitRecords) -> SplitIndex:
        """Return the index of ``split``; raises DamagedRecords."""
        shards = tuple(job_folder / name for name in split.shards)
        files = [path for shard in shards for path in (shard, index_path(shard))]
        try:
            return self._cache.get(shards, files, lambda: SplitIndex(job_folder, split), len)
        except OSError as error:
            name = Path(error.filename or job_folder).name
            raise DamagedRecords(f"{name} cannot be read: {error.strerror}") from error


def index_path(shard: Path) -> Path:
    """Return the path of the index of ``shard``."""
    return shard.with_suffix(INDEX_ENDING)


def open_shard(path: Path, job_folder: Path) -> BinaryIO:
    """Open a shard for reading; raises DamagedRecords."""
    try:
        return open_plain(path, below=job_folder)
    except UnreadableFile as error:
        raise DamagedRecords(str(error)) from error


def _read_index(shard: Path, job_folder: Path) -> NDArray[Any]:
    """Load the index of ``shard``, verified to lie inside the shard without overlaps."""
    try:
        data = read_bytes(index_path(shard), MAX_INDEX_BYTES, below=job_folder)
    except UnreadableFile as error:
        raise DamagedRecords(str(error)) from error
    if len(data) % INDEX_DTYPE.itemsize:
        raise DamagedRecords(f"{index_path(shard).name} is truncated")
    index = np.frombuffer(data, INDEX_DTYPE)
    with open_shard(shard, job_folder) as file:
        shard_bytes = os.fstat(file.fileno()).st_size
    # Frames are contiguous, so their lengths determine their positions.
    frames = index["length"].astype(np.uint64) + np.uint64(HEADER_BYTES + CHECKSUM_BYTES)
    ends = np.cumsum(frames)
    starts = ends - frames + np.uint64(HEADER_BYTES)
    expected_bytes = int(ends[-1]) if len(ends) else 0
    if len(index) and int(index["length"].max()) > MAX_PAYLOAD_BYTES:
        raise DamagedRecords(
            f"{index_path(shard).name} contains a record of more than {MAX_PAYLOAD_BYTES:,} bytes"
        )
    if expected_bytes != shard_bytes or not np.array_equal(starts, index["offset"]):
        raise DamagedRecords(f"{shard.name} and its index are inconsistent: one is truncated or damaged")
    return index


def names_path(shard: Path) -> Path:
    """Return the path of the names of ``shard``."""
    return shard.with_suffix(NAMES_ENDING)


def join_names(names: Iterable[bytes]) -> bytes:
    """Return the contents of the file with ``names``."""
    return b"".join(name.replace(b"\0", b"") + b"\0" for name in names)


def read_names(job_folder: Path, split: SplitRecords) -> list[bytes]:
    """Return the names of the records of ``split``; raises UnreadableFile if a file is missing or damaged."""
    names: list[bytes] = []
    for shard in split.shards:
        names += read_bytes(names_path(job_folder / shard), MAX_NAMES_BYTES, below=job_folder).split(b"\0")[
            :-1
        ]
    if len(names) != split.count:
        raise UnreadableFile(f"the shards have {len(names)} names, but the manifest {split.count} records")
    return names


def find_names(job_folder: Path, split: SplitRecords, text: str) -> NDArray[np.int64]:
    """Return the numbers of the records of ``split`` whose names contain ``text``, in ascending order.

    ``text`` has at least one character, and no zero byte. Letters from A to Z match in upper and lower case. Raises
    UnreadableFile if a file is missing or damaged.
    """
    needle = re.compile(re.escape(text.encode("utf-8", "replace").lower()))
    parts, start = [np.zeros(0, np.int64)], 0
    for shard in split.shards:
        data = read_bytes(names_path(job_folder / shard), MAX_NAMES_BYTES, below=job_folder).lower()
        if data and data[-1]:
            raise UnreadableFile(f"{names_path(Path(shard))} is truncated")
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0)
        places = np.fromiter((match.start() for match in needle.finditer(data)), np.int64)
        # Several occurrences in a name are one match.
        parts.append(np.unique(np.searchsorted(ends, places)) + start)
        start += len(ends)
    if start != split.count:
        raise UnreadableFile(f"the shards have {start} names, but the manifest {split.count} records")
    return np.concatenate(parts)


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
