"""Append-only logs: values as JSON, one per line, which are durable once appended and are never modified.

One process appends to a log at a time, and one thread of it; any number read it meanwhile. A position in a log is a
cursor, the offset of a byte. A writer that was killed may leave an incomplete line, which readers skip and the next
writer removes, because the call that appended it never returned.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from digits.core import schema
from digits.core.files import MissingFile, UnreadableFile, open_plain, sync_folder

MAX_LINE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20

Entry = TypeVar("Entry", bound=Struct)


def append(path: Path, entries: Iterable[Struct]) -> None:
    """Append all ``entries`` durably, or none of them.

    Raises ValueError before anything is written if a reader could not read one, and OSError.
    """
    lines = [_line(entry) for entry in entries]
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        whole = _end_of_lines(descriptor, size)
        if whole < size:
            os.ftruncate(descriptor, whole)
        try:
            waiting = b"".join(lines)
            while waiting:
                waiting = waiting[os.write(descriptor, waiting) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, whole)
            raise
        if not whole:
            sync_folder(path.parent)
    finally:
        os.close(descriptor)


def read(path: Path, type_: type[Entry], cursor: int = 0, *, below: Path) -> Iterator[tuple[Entry, int]]:
    """Yield each entry after ``cursor``, with the cursor at its end; nothing if there is no log.

    ``below`` is the folder of the job. Raises UnreadableFile with the place of a line that is damaged.
    """
    try:
        opened = open_plain(path, below=below)
    except MissingFile:
        return
    decode = schema.decoder(type_).decode
    with opened as file:
        file.seek(cursor)
        while (line := file.readline(MAX_LINE_BYTES + 1)).endswith(b"\n"):
            try:
                entry = decode(line)
            except (ValueError, RecursionError) as error:
                raise UnreadableFile(
                    f"the line at byte {cursor:,} of {path.name} is damaged: {error}"
                ) from error
            cursor += len(line)
            yield entry, cursor
        if len(line) > MAX_LINE_BYTES:
            raise UnreadableFile(
                f"the line at byte {cursor:,} of {path.name} is longer than {MAX_LINE_BYTES:,} bytes"
            )


def _line(entry: Struct) -> bytes:
    line = msgspec.json.encode(entry) + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(
            f"A change of {len(line):,} bytes is larger than the limit of {MAX_LINE_BYTES:,} bytes"
        )
    schema.decode(line, type(entry))
    return line


def _end_of_lines(descriptor: int, size: int) -> int:
    """Return the end of the last complete line."""
    while size:
        start = max(0, size - _BLOCK_BYTES)
        place = os.pread(descriptor, size - start, start).rfind(b"\n")
        if place >= 0:
            return start + place + 1
        size = start
    return 0
