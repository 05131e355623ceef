"""The names of the sources of a shard's records: a file beside it, which is searched without opening the shard.

It contains the names in the order of the records, each followed by a zero byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, read_bytes
from digits.data.manifest import SplitRecords

NAMES_ENDING = ".names"
MAX_NAMES_BYTES = 1 << 30


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
