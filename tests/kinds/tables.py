"""Tables for tests of readers."""

from __future__ import annotations

from pathlib import Path

from digits.kinds.sources.tables import SplitTable


def write(folder: Path, text: str | bytes, name: str = "table.csv") -> Path:
    """Write a table and return its path."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def one_file(path: Path, folder: Path) -> SplitTable:
    """The table in the file ``path``, with images in ``folder``."""
    return SplitTable([path], folder, path.parent)
