"""Read the output of a task as stored by the supervisor: its beginning and its end, possibly with a gap."""

from __future__ import annotations

import os
import re
from pathlib import Path

from digits.core.files import UnreadableFile, open_plain

_SEGMENT = re.compile(r"output(?:\.(\d+))?\.log")
# Terminal colors and other control characters mean nothing on a page.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_LINE_CHARACTERS = 4096


def read(folder: Path, after: int = 0, limit: int = 256 * 1024) -> tuple[str, int]:
    """Return the text printed after byte ``after``, and the offset to continue from.

    Return at most ``limit`` bytes, the latest ones if there are more; the text states
    how many were left out.
    """
    segments = _segments(folder)
    if not segments:
        return "", after
    end = segments[-1][0] + segments[-1][1]
    start = max(after, end - limit)
    pieces: list[bytes] = []
    position = after
    for offset, size, path in segments:
        if offset + size <= start or size == 0:
            continue
        begin = max(start, offset)
        if begin > position:
            pieces.append(f"[… {begin - position:,} bytes left out …]\n".encode())
        pieces.append(_read_piece(path, begin - offset, offset + size - begin))
        position = offset + size
    return clean(b"".join(pieces).decode(errors="replace")), max(end, after)


def last_lines(folder: Path, count: int) -> list[str]:
    """Return the last ``count`` lines that the task printed."""
    text, _ = read(folder, 0, limit=64 * 1024)
    return text.splitlines()[-count:]


def clean(text: str) -> str:
    """Return ``text`` without control characters and with long lines truncated."""
    text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = text.split("\n")
    return "\n".join(
        line if len(line) <= _LINE_CHARACTERS else line[:_LINE_CHARACTERS] + " […]" for line in lines
    )


def _segments(folder: Path) -> list[tuple[int, int, Path]]:
    segments = []
    try:
        if folder.is_symlink():
            return []
        entries = list(os.scandir(folder))
    except OSError:
        return []
    for entry in entries:
        match = _SEGMENT.fullmatch(entry.name)
        if match and entry.is_file(follow_symlinks=False):
            size = entry.stat(follow_symlinks=False).st_size
            segments.append((int(match[1] or 0), size, Path(entry.path)))
    return sorted(segments)


def _read_piece(path: Path, offset: int, count: int) -> bytes:
    try:
        with open_plain(path, below=path.parent.parent) as file:
            file.seek(offset)
            return file.read(count)
    except UnreadableFile:
        return b""
