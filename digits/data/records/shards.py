"""Find the files of a dataset: one file, all shards of a set such as ``train-00000-of-00002``, or a pattern."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable
from pathlib import Path

from digits.data.records.index import CLASSES_ENDING, INDEX_ENDING, NAMES_ENDING
from digits.data.sources.plan import UnusableSource, listed, show

MAX_FILES = 100_000
_SHARD = re.compile(r"(?P<start>.*)(?P<number>[0-9]{5})-of-(?P<total>[0-9]{5})(?P<end>.*)")
MAX_PATTERN_CHARACTERS = 400
_PATTERN = frozenset("*?[")


def is_pattern(path: str) -> bool:
    """Return whether the last part of ``path`` is a pattern such as ``train-*``."""
    return not _PATTERN.isdisjoint(os.path.basename(path))


def is_shard(path: Path) -> bool:
    """Return whether ``path`` has the name of one of several shards."""
    return bool(_SHARD.fullmatch(path.name))


def files_at(path: str | Path) -> list[Path]:
    """Return the files of a path, sorted: a file and all other shards of its set, or those that match a pattern.

    Raises UnusableSource if there are none, or if shards are missing.
    """
    place = Path(path)
    if is_pattern(str(path)) and not place.is_file():
        # Translating many brackets takes quadratic time.
        is_long = len(place.name) > MAX_PATTERN_CHARACTERS
        files = (
            []
            if is_long
            else [item for item in files_in(place.parent) if fnmatch.fnmatchcase(item.name, place.name)]
        )
        if not files:
            raise UnusableSource(f"No file matches {show(str(path))}.")
        check_shards(files)
        return files
    if not is_shard(place):
        return [place]
    files = [item for item in files_in(place.parent) if _set_of(item.name) == _set_of(place.name)]
    check_shards(files or [place])
    return files or [place]


def files_in(folder: Path) -> list[Path]:
    """Return the files of a folder, sorted; raises UnusableSource if it cannot be read.

    Excludes hidden files, links that lead outside the folder, and the files that DIGITS writes beside its shards.
    """
    root = os.path.realpath(folder)
    paths = _entries(folder)
    endings = (INDEX_ENDING, NAMES_ENDING, CLASSES_ENDING)
    shards = [Path(path) for path in paths if not path.endswith(endings)]
    beside = {str(shard.with_suffix(ending)) for shard in shards for ending in endings}
    return [
        Path(path)
        for path in paths
        if path not in beside
        and os.path.isfile(path)
        and os.path.commonpath([os.path.realpath(path), root]) == root
    ]


def folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder that are neither hidden nor links, sorted; raises UnusableSource."""
    return [Path(path) for path in _entries(folder) if os.path.isdir(path) and not os.path.islink(path)]


def check_shards(paths: Iterable[Path]) -> None:
    """Raise UnusableSource if a set of shards is incomplete."""
    sets: dict[tuple[str, str, str], set[int]] = {}
    for path in paths:
        match = _SHARD.fullmatch(path.name)
        if match:
            sets.setdefault((match["start"], match["total"], match["end"]), set()).add(int(match["number"]))
    for (start, total, end), numbers in sets.items():
        missing = [number for number in range(int(total)) if number not in numbers]
        if missing:
            names = listed(f"{start}{number:05d}-of-{total}{end}" for number in missing)
            raise UnusableSource(f"{len(missing):,} of {int(total):,} shards are missing: {names}.")


def _entries(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            paths = sorted(entry.path for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise UnusableSource(f"{show(str(folder))} cannot be read: {error.strerror}.") from error
    if len(paths) > MAX_FILES:
        raise UnusableSource(f"{show(str(folder))} contains more than {MAX_FILES:,} files.")
    return paths


def _set_of(name: str) -> tuple[str, str, str] | None:
    match = _SHARD.fullmatch(name)
    return (match["start"], match["total"], match["end"]) if match else None
