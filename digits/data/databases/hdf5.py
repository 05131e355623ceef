"""Records in HDF5 files of DIGITS 4 to 6: ``data``, such as images, and ``label`` if they have classes.

Files are untrusted: links to other files are not followed, and sizes are checked before anything is read.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from digits.core.files import UnreadableFile, open_plain, read_bytes
from digits.data.databases.stored import Stored, sizes_of
from digits.data.sources.plan import UnusableSource, first_line_of, listed, show

LIST_FILE = "list.txt"
HDF5_ENDINGS = (".h5", ".hdf5")
MAX_CHUNK_BYTES = 64 << 20
MAX_FILES = 10_000
VALUES_AT_ONCE = 1 << 20
# The values of one record.
MAX_VALUES = 1 << 28

_MAX_LIST_BYTES = 4 << 20
_NUMERIC = "fiu"


class Hdf5Database:
    """The records of the folder or the file ``path``; ``count`` is their number. Raises UnusableSource.

    They are named by their number in all files, with the digits of the keys that DIGITS wrote to LMDB databases.
    """

    format = "HDF5"

    def __init__(self, path: Path, below: Path | None = None) -> None:
        self.path, self._below = path, below
        self._folder = path if path.is_dir() else path.parent
        names = _file_names(path, below) if path.is_dir() else [path.name]
        self._counts = {name: self._count(name) for name in names}
        self.count = sum(self._counts.values())

    def records(self) -> Iterator[Stored]:
        """Yield the records in order; raises UnusableSource."""
        number = 0
        for name in self._counts:
            with self._open(name) as file:
                data, labels = _dataset(file, name, "data"), _labels(file, name)
                width = math.prod(data.shape[1:])
                if width > MAX_VALUES:
                    raise UnusableSource(
                        f"The records in {show(name)} have {width:,} values.", f"The limit is {MAX_VALUES:,}."
                    )
                rows = max(1, VALUES_AT_ONCE // max(width, 1))
                for start in range(0, data.shape[0], rows):
                    values = _read(data, start, start + rows, name)
                    classes = None if labels is None else _read(labels, start, start + rows, name).ravel()
                    for row, array in enumerate(values):
                        yield _stored(
                            f"{number:08d}", array, None if classes is None else float(classes[row])
                        )
                        number += 1

    def _count(self, name: str) -> int:
        with self._open(name) as file:
            data = _dataset(file, name, "data")
            if not data.ndim:
                raise UnusableSource(
                    f"“data” in {show(name)} is a single value, not one or more for each record."
                )
            return int(data.shape[0])

    def _open(self, name: str) -> Any:
        h5py = importlib.import_module("h5py")  # TensorFlow requires it
        try:
            open_plain(self._folder / name, below=self._below).close()  # refuse links
            return h5py.File(self._folder / name, "r", locking=False, rdcc_nbytes=MAX_CHUNK_BYTES)
        except (UnreadableFile, FileNotFoundError) as error:
            raise UnusableSource(
                f"{show(name)} in {show(str(self.path))} cannot be read: {error}."
            ) from error
        except OSError as error:
            raise UnusableSource(
                f"{show(name)} in {show(str(self.path))} is damaged or not an HDF5 file: {first_line_of(error)}."
            ) from error


def _stored(name: str, array: Any, label: float | None) -> Stored:
    if label is None:
        return Stored(name, array=array)
    if not (math.isfinite(label) and label == int(label)):
        return Stored(name, fault=f"the label {label:g} is not an integer")
    return Stored(name, label, array=array)


def _file_names(folder: Path, below: Path | None) -> list[str]:
    """Return the files in the order of ``list.txt``, or else by number.

    DIGITS wrote paths relative to its folder of jobs; all files are beside the list.
    """
    if (folder / LIST_FILE).exists():
        try:
            lines = read_bytes(folder / LIST_FILE, _MAX_LIST_BYTES, below=below).decode().splitlines()
        except (UnreadableFile, UnicodeDecodeError, OSError) as error:
            raise UnusableSource(f"{LIST_FILE} in {show(str(folder))} cannot be read: {error}.") from error
        names = [PurePosixPath(line.strip()).name for line in lines if line.strip()]
        if len(set(names)) < len(names):
            raise UnusableSource(f"{LIST_FILE} in {show(str(folder))} lists a file twice.")
    else:
        file_names = [item.name for item in folder.iterdir() if item.suffix.lower() in HDF5_ENDINGS]
        names = sorted(file_names, key=_number_and_name)
    if not names:
        raise UnusableSource(f"{show(str(folder))} has no HDF5 files.")
    if len(names) > MAX_FILES:
        raise UnusableSource(f"{show(str(folder))} has more than {MAX_FILES:,} HDF5 files.")
    return names


def _number_and_name(name: str) -> tuple[int, str]:
    stem = Path(name).stem
    return (int(stem) if stem.isdecimal() and len(stem) < 19 else 0), name


def _labels(file: Any, name: str) -> Any:
    """Return the labels in ``file``, one for each record, or None if it has none; raises UnusableSource."""
    if "label" not in file:
        return None
    data, labels = _dataset(file, name, "data"), _dataset(file, name, "label")
    if not labels.ndim or labels.shape[0] != data.shape[0] or math.prod(labels.shape[1:]) != 1:
        raise UnusableSource(
            f"“label” in {show(name)} has shape {sizes_of(labels.shape)}, but “data” has shape {sizes_of(data.shape)}.",
            "Classification requires one label per image.",
        )
    return labels


def _read(values: Any, first: int, last: int, name: str) -> Any:
    """Return some rows of a dataset in the file ``name``; raises UnusableSource if they are damaged."""
    try:
        return np.asarray(values[first:last])
    except Exception as error:  # h5py raises various errors for damaged files
        raise _damaged(name, error) from error


def _dataset(file: Any, place: str, name: str) -> Any:
    h5py = importlib.import_module("h5py")
    link = file.get(name, getlink=True)
    if link is None:
        raise UnusableSource(
            f"{show(place)} has no dataset “{name}”.", f"It contains {listed(file) or 'nothing'}."
        )
    if not isinstance(link, h5py.HardLink):
        raise UnusableSource(f"“{name}” in {show(place)} is a link, which is not followed.")
    try:
        dataset = file[name]
        if not isinstance(dataset, h5py.Dataset):
            raise UnusableSource(f"“{name}” in {show(place)} is a group, not a dataset.")
        if dataset.is_virtual or dataset.external:
            raise UnusableSource(f"“{name}” in {show(place)} refers to other files, which are not read.")
        if dataset.dtype.kind not in _NUMERIC:
            raise UnusableSource(f"“{name}” in {show(place)} contains {dataset.dtype}, not numbers.")
        _check_storage(dataset, name, place)
    except UnusableSource:
        raise
    except Exception as error:  # h5py raises various errors for damaged files
        raise _damaged(place, error) from error
    return dataset


def _check_storage(dataset: Any, name: str, place: str) -> None:
    """Raise UnusableSource if less data is stored than declared, or if it takes much memory to decompress it."""
    if dataset.shape is None:
        raise UnusableSource(f"“{name}” in {show(place)} has no values.")
    if dataset.chunks is None:
        if dataset.id.get_storage_size() < dataset.size * dataset.dtype.itemsize:
            raise _incomplete(dataset, name, place)
        return
    chunk_bytes = math.prod(dataset.chunks) * dataset.dtype.itemsize
    if chunk_bytes > MAX_CHUNK_BYTES:
        raise UnusableSource(
            f"“{name}” in {show(place)} is stored in chunks of {chunk_bytes >> 20:,} MiB.",
            f"The limit is {MAX_CHUNK_BYTES >> 20} MiB. Write the file with smaller chunks.",
        )
    chunks = math.prod(
        math.ceil(size / part) for size, part in zip(dataset.shape, dataset.chunks, strict=True)
    )
    if dataset.id.get_num_chunks() < chunks:
        raise _incomplete(dataset, name, place)


def _incomplete(dataset: Any, name: str, place: str) -> UnusableSource:
    return UnusableSource(
        f"“{name}” in {show(place)} declares shape {sizes_of(dataset.shape)} but contains only part of the data."
    )


def _damaged(place: str, error: Exception) -> UnusableSource:
    return UnusableSource(f"{show(place)} is damaged: {first_line_of(error)}.")
