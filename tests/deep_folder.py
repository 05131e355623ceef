"""A folder nested so deeply that functions which recurse, or build its path, fail."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from digits.core.files import remove_tree

# More than frames fit on the interpreter's stack.
LEVELS = 1100


def make_deep(folder: Path, name: str = "longer than the longest path") -> None:
    """Create ``folder`` with nested folders called ``name`` and a file in the innermost."""
    folder.mkdir()
    here = os.open(folder, os.O_PATH)
    for _ in range(LEVELS):
        os.mkdir(name, dir_fd=here)
        here, above = os.open(name, os.O_PATH, dir_fd=here), here
        os.close(above)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@contextlib.contextmanager
def deep_folder(folder: Path, name: str = "longer than the longest path") -> Iterator[Path]:
    """Do what `make_deep` does, and delete the folder at the end."""
    try:
        make_deep(folder, name)
        yield folder
    finally:
        remove_tree(folder)  # pytest could not
