"""Arrays and images in HDF5 files of DIGITS 4 to 6: ``data``, float32 [images, channels, height, width], and ``label``.

Files are untrusted: links to other files are not followed, and sizes are checked before anything is read.
"""

from __future__ import annotations

import importlib
import math
import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, open_plain, read_bytes
from digits.data.databases import caffe
from digits.data.databases.caffe import Entry, Shape
from digits.data.images.images import MAX_PIXELS, UnusableImage
from digits.data.sources.plan import Located, UnusableSource, first_line_of, listed, show

LIST_FILE = "list.txt"
HDF5_ENDINGS = (".h5", ".hdf5")
MAX_CHUNK_BYTES = 64 << 20
MAX_FILES = 10_000
MAX_RECORDS = 50_000_000
LABELS_AT_ONCE = 65536
VALUES_AT_ONCE = 1 << 20
ENCODING = "numbers"

_MAX_LIST_BYTES = 4 << 20
_NUMERIC = "fiu"


class Hdf5Arrays(Located):
    """The arrays of the database ``path``, a folder or a file: images, or vectors of numbers.

    They are named by their number in all files, with the digits of the keys that DIGITS wrote to LMDB databases.
    """

    format = "HDF5"

    def __init__(self, path: Path, below: Path | None = None) -> None:
        """Find the files, and check their shapes; raises UnusableSource."""
        self.root = path
        self._below = below
        self._folder = path if path.is_dir() else path.parent
        self._names = _file_names(path, below) if path.is_dir() else [path.name]
        self._states: dict[str, tuple[int, int]] = {}
        self._starts: list[int] = []
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._open_file: Any = None
        self._open_name = ""
        for name in self._names:
            self._starts.append(self.count)
            with self._open(name) as file:
                self._check(file, name)
                self._shapes[name] = _dataset(file, name, "data").shape
            self._states[name] = self._state(name)
        if self.count > MAX_RECORDS:
            raise UnusableSource(f"{self.describe()} has more than {MAX_RECORDS:,} records.")

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(shape[0] for shape in self._shapes.values())

    def names(self) -> list[str]:
        """Return the names of all records."""
        return [f"{number:08d}" for number in range(self.count)]

    def entries(self) -> Iterator[Entry]:
        """Yield the records in order, without labels; raises UnusableSource if they are not images."""
        for start, name in zip(self._starts, self._names, strict=True):
            shape = _image_shape(self._shapes[name], name)
            for number in range(start, start + self._shapes[name][0]):
                yield Entry(f"{number:08d}", -1, shape, ENCODING)

    def vectors(self) -> Iterator[tuple[str, list[float]]]:
        """Yield the name and the values of each record; raises UnusableSource if they cannot be read."""
        for first, name in zip(self._starts, self._names, strict=True):
            count, *sizes = self._shapes[name]
            width = math.prod(sizes)
            if width > VALUES_AT_ONCE:
                raise UnusableSource(
                    f"The records in {show(name)} have {width:,} values.", f"The limit is {VALUES_AT_ONCE:,}."
                )
            rows = VALUES_AT_ONCE // max(width, 1)
            with self._open(name) as file:
                values = _dataset(file, name, "data")
                for start in range(0, count, rows):
                    block = _read(values, slice(start, start + rows), name)
                    for number, vector in enumerate(block.reshape(len(block), -1).tolist(), first + start):
                        yield f"{number:08d}", vector

    def read(self, name: str) -> bytes:
        try:
            file_name, row = self._place(name)
            _image_shape(self._shapes[file_name], file_name)
            if self._open_name != file_name:
                self.close()
                self._open_file, self._open_name = self._open(file_name), file_name
            if self._state(file_name) != self._states[file_name]:
                raise UnusableImage("the file was changed while it was read")
            values = self._open_file["data"][row]
        except UnusableImage:
            raise
        except UnusableSource as error:
            raise UnusableImage(error.message.rstrip(".")) from error
        except Exception as error:  # h5py raises various errors for damaged files
            raise UnusableImage(f"the HDF5 file is damaged: {first_line_of(error)}") from error
        return caffe.as_file(caffe.whole_pixels(values))

    def close(self) -> None:
        if self._open_file is not None:
            self._open_file.close()
        self._open_file, self._open_name = None, ""

    def _check(self, file: Any, name: str) -> None:
        """Raise UnusableSource if the records in ``file`` cannot be used."""
        if not _dataset(file, name, "data").ndim:
            raise UnusableSource(
                f"“data” in {show(name)} is a single value, not one or more for each record."
            )

    def _place(self, name: str) -> tuple[str, int]:
        """Return the file of a record, and its row there."""
        number = int(name)
        index = bisect_right(self._starts, number) - 1
        return self._names[index], number - self._starts[index]

    def _state(self, name: str) -> tuple[int, int]:
        status = (self._folder / name).stat()
        return status.st_mtime_ns, status.st_size

    def _open(self, name: str) -> Any:
        try:
            h5py = importlib.import_module("h5py")
        except ImportError as error:  # TensorFlow requires it
            raise UnusableSource(
                "HDF5 files require the package h5py.", "Install it with: pip install h5py"
            ) from error
        try:
            open_plain(self._folder / name, below=self._below).close()  # refuse links
            return h5py.File(self._folder / name, "r", locking=False, rdcc_nbytes=MAX_CHUNK_BYTES)
        except (UnreadableFile, FileNotFoundError) as error:
            raise UnusableSource(f"{show(name)} in {self.describe()} cannot be read: {error}.") from error
        except OSError as error:
            raise UnusableSource(
                f"{show(name)} in {self.describe()} is damaged or not an HDF5 file: {first_line_of(error)}."
            ) from error


class Hdf5Images(Hdf5Arrays):
    """The images of the database ``path`` with a class each; images are named ``file:row``."""

    def entries(self) -> Iterator[Entry]:
        """Yield the records in order; raises UnusableSource if the labels cannot be read."""
        for name in self._names:
            shape = _image_shape(self._shapes[name], name)
            with self._open(name) as file:
                _, labels = _datasets(file, name)
                for start in range(0, self._shapes[name][0], LABELS_AT_ONCE):
                    values = _read(labels, slice(start, start + LABELS_AT_ONCE), name)
                    for row, label in enumerate(values.reshape(len(values)).tolist(), start):
                        whole = math.isfinite(label) and label == int(label)
                        fault = "" if whole else f"the label {label:g} is not an integer"
                        yield Entry(f"{name}:{row}", label, shape, ENCODING, fault)

    def _check(self, file: Any, name: str) -> None:
        _datasets(file, name)

    def _place(self, name: str) -> tuple[str, int]:
        file_name, _, row = name.rpartition(":")
        return file_name, int(row)


def is_hdf5(folder: Path) -> bool:
    """Return whether ``folder`` contains an HDF5 database: HDF5 files, and no other files but their list."""
    found = False
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name == LIST_FILE:
                    continue
                if not entry.name.lower().endswith(HDF5_ENDINGS):
                    return False
                found = True
    except OSError:
        return False
    return found


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


def _datasets(file: Any, name: str) -> tuple[Any, Any]:
    """Return the images and the labels in ``file``; raises UnusableSource if their shapes do not fit."""
    images, labels = (_dataset(file, name, item) for item in ("data", "label"))
    _image_shape(images.shape, name)
    count = images.shape[0]
    if not labels.ndim or labels.shape[0] != count or math.prod(labels.shape[1:]) != 1:
        raise UnusableSource(
            f"“label” in {show(name)} has shape {_sizes(labels.shape)}, but “data” has shape {_sizes(images.shape)}.",
            "Classification requires one label per image.",
        )
    return images, labels


def _image_shape(shape: tuple[int, ...], name: str) -> Shape:
    """Return the size of the images in the file ``name``, whose ``data`` has ``shape``; raises UnusableSource."""
    if len(shape) != 4:
        raise UnusableSource(
            f"“data” in {show(name)} has shape {_sizes(shape)}.",
            "Four dimensions are required: images, channels, height, width.",
        )
    _, channels, height, width = shape
    if channels not in (1, 3):
        raise UnusableSource(
            f"“data” in {show(name)} has shape {_sizes(shape)}.",
            f"Images must have 1 or 3 channels, not {channels}.",
        )
    if min(height, width) < 1 or height * width > MAX_PIXELS:
        raise UnusableSource(
            f"The images in {show(name)} have {width:,}×{height:,} pixels.",
            f"The limit is {MAX_PIXELS:,} pixels.",
        )
    return Shape(width, height, channels)


def _read(values: Any, rows: slice, name: str) -> NDArray[np.float64]:
    """Return some rows of a dataset in the file ``name``; raises UnusableSource if they are damaged."""
    try:
        return np.asarray(values[rows], np.float64)
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
        f"“{name}” in {show(place)} declares shape {_sizes(dataset.shape)} but contains only part of the data."
    )


def _damaged(place: str, error: Exception) -> UnusableSource:
    return UnusableSource(f"{show(place)} is damaged: {first_line_of(error)}.")


def _sizes(shape: tuple[int, ...]) -> str:
    return "×".join(f"{size:,}" for size in shape) or "of a single value"
