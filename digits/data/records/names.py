"""The names of the sources of a shard's records: a file beside it, which is searched without opening the shard.

It contains the names in the order of the records, each followed by a zero byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, read_bytes
from digits.data.manifest import SplitRecords

NAMES_ENDING = ".names"
MAX_NAMES_BYTES = 1 << 30
_LOWER_CASE = 0x20
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz")


def names_path(shard: Path) -> Path:
    """Return the path of the names of ``shard``."""
    return shard.with_suffix(NAMES_ENDING)


def join_names(names: Iterable[bytes]) -> bytes:
    """Return the contents of the file with ``names``."""
    return b"".join(name.replace(b"\0", b"") + b"\0" for name in names)


def find_names(job_folder: Path, split: SplitRecords, text: str) -> NDArray[np.int64]:
    """Return the numbers of the records of ``split`` whose names contain ``text``, in ascending order.

    ``text`` has at least one character, and no zero byte. Letters from A to Z match in upper and lower case. Raises
    UnreadableFile if a file is missing or damaged.
    """
    needle = text.encode("utf-8", "replace").lower()
    parts, start = [np.zeros(0, np.int64)], 0
    for shard in split.shards:
        data = np.frombuffer(
            read_bytes(names_path(job_folder / shard), MAX_NAMES_BYTES, below=job_folder), np.uint8
        )
        ends = np.flatnonzero(data == 0)
        if len(data) and data[-1]:
            raise UnreadableFile(f"{names_path(Path(shard))} is truncated")
        matches = np.searchsorted(ends, _occurrences(data, needle))
        # Several occurrences in a name are one match.
        parts.append(matches[np.diff(matches, prepend=-1) > 0] + start)
        start += len(ends)
    if start != split.count:
        raise UnreadableFile(f"the shards have {start} names, but the manifest {split.count} records")
    return np.concatenate(parts)


def _occurrences(data: NDArray[np.uint8], needle: bytes) -> NDArray[np.int64]:
    """Return the positions of ``needle``, whose letters are lower case, in ``data``."""
    lowered = data | np.uint8(_LOWER_CASE)
    count = max(0, len(data) - len(needle) + 1)
    matches = np.ones(count, np.bool_)
    for index, byte in enumerate(needle):
        text = lowered if byte in _LETTERS else data
        matches &= text[index : index + count] == byte
    return np.flatnonzero(matches)
