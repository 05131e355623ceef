"""The files of a complete model that a network calls with ``digits.pretrained``, beside its ``network.py``.

Importing a Keras model or a SavedModel creates them. The network refers to them by a relative path, so every folder
with a copy of the network contains the files, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from digits.core.files import files_below

# The folder of a SavedModel. A Keras model is a file with this stem and one of `KERAS_SUFFIXES`.
NAME = "pretrained"
KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
NAMES = (NAME, *(f"{NAME}{suffix}" for suffix in KERAS_SUFFIXES))


def names_in(folder: Path) -> list[str]:
    """Return the paths of the files in ``folder``, relative to it and sorted. Links are ignored."""
    paths = []
    for name in NAMES:
        path = folder / name
        if not path.is_symlink():
            paths += files_below(path) if path.is_dir() else [path]
    return sorted(
        path.relative_to(folder).as_posix() for path in paths if path.is_file() and not path.is_symlink()
    )


def copy(source: Path, target: Path) -> None:
    """Copy the files in the folder ``source`` to the folder ``target``. Raises OSError."""
    for one, other in _pairs(source, target):
        shutil.copyfile(one, other)


def link(source: Path, target: Path) -> None:
    """Like `copy`, but with hard links if the file system allows them, for folders of jobs, which are not modified."""
    for one, other in _pairs(source, target):
        try:
            other.hardlink_to(one)
        except OSError:  # another file system, or one without hard links
            shutil.copyfile(one, other)


def _pairs(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files in ``source`` that are not in ``target``, and their paths there."""
    for name in names_in(source):
        one, other = source / name, target / name
        if not (other.exists() and other.samefile(one)):
            other.parent.mkdir(parents=True, exist_ok=True)
            other.unlink(missing_ok=True)
            yield one, other
