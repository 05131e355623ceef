"""Images in HDF5 files of DIGITS 4 to 6: ``data``, float32 [images, channels, height, width], and ``label``.

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
from digits.data import caffe
from digits.data.caffe import Entry, Shape
from digits.data.images import MAX_PIXELS, UnusableImage
from digits.data.sources import UnusableSource, listed, show

LIST_FILE = "list.txt"
HDF5_ENDINGS = (".h5", ".hdf5")
MAX_CHUNK_BYTES = 64 << 20
MAX_FILES = 10_000
MAX_RECORDS = 50_000_000
LABELS_AT_ONCE = 65536
ENCODING = "numbers"

_MAX_LIST_BYTES = 4 << 20
_NUMERIC = "fiu"


class Hdf5Images:
    """The images of the database ``path``, a folder or a file; images are named ``file:row``."""

    format = "HDF5"

    def __init__(self, path: Path, below: Path | None = None) -> None:
        """Find the files, and check their shapes; raises UnusableSource."""
        self._path = path
        self._below = below
        self._root = path if path.is_dir() else path.parent
        self._names = _file_names(path, below) if path.is_dir() else [path.name]
        self._states: dict[str, tuple[int, int]] = {}
        self._counts: dict[str, int] = {}
        self._shapes: dict[str, Shape] = {}
        self._open_file: Any = None
        self._open_name = ""
        for name in self._names:
            with self._open(name) as file:
                images, _ = _datasets(file, name)
                count, channels, height, width = images.shape
            self._counts[name], self._shapes[name] = count, Shape(width, height, channels)
            self._states[name] = self._state(name)
        if self.count > MAX_RECORDS:
            raise UnusableSource(f"{self.describe()} has more than {MAX_RECORDS:,} images.")

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(self._counts.values())

    def entries(self) -> Iterator[Entry]:
        """Yield the records in order; raises UnusableSource if the labels cannot be read."""
        for name in self._names:
            shape = self._shapes[name]
            with self._open(name) as file:
                _, labels = _datasets(file, name)
                for start in range(0, self._counts[name], LABELS_AT_ONCE):
                    try:
                        values = np.asarray(labels[start : start + LABELS_AT_ONCE], np.float64)
                    except Exception as error:  # h5py raises various errors for damaged files
                        raise _damaged(name, error) from error
                    for row, label in enumerate(values.reshape(len(values)).tolist(), start):
                        whole = math.isfinite(label) and label == int(label)
                        fault = "" if whole else f"the label {label:g} is not an integer"
                        yield Entry(f"{name}:{row}", label, shape, ENCODING, fault)

    def read(self, name: str) -> bytes:
        file_name, _, row = name.rpartition(":")
        try:
            if self._open_name != file_name:
                self.close()
                self._open_file, self._open_name = self._open(file_name), file_name
            if self._state(file_name) != self._states[file_name]:
                raise UnusableImage("the file was changed while it was read")
            values = self._open_file["data"][int(row)]
        except UnusableImage:
            raise
        except UnusableSource as error:
            raise UnusableImage(error.message.rstrip(".")) from error
        except Exception as error:  # h5py raises various errors for damaged files
            raise UnusableImage(f"the HDF5 file is damaged: {_first_line(error)}") from error
        return caffe.as_file(caffe.whole_pixels(values))

    def describe(self) -> str:
        return show(str(self._path))

    def is_available(self) -> bool:
        return self._path.exists()

    def close(self) -> None:
        if self._open_file is not None:
            self._open_file.close()
        self._open_file, self._open_name = None, ""

    def _state(self, name: str) -> tuple[int, int]:
        status = (self._root / name).stat()
        return status.st_mtime_ns, status.st_size

    def _open(self, name: str) -> Any:
        try:
            h5py = importlib.import_module("h5py")
        except ImportError as error:  # TensorFlow requires it
            raise UnusableSource(
                "HDF5 files require the package h5py.", "Install it with: pip install h5py"
            ) from error
        try:
            open_plain(self._root / name, below=self._below).close()  # refuse links
            return h5py.File(self._root / name, "r", locking=False, rdcc_nbytes=MAX_CHUNK_BYTES)
        except (UnreadableFile, FileNotFoundError) as error:
            raise UnusableSource(f"{show(name)} in {self.describe()} cannot be read: {error}.") from error
        except OSError as error:
            raise UnusableSource(
                f"{show(name)} in {self.describe()} is damaged or not an HDF5 file: {_first_line(error)}."
            ) from error


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
        found = [item.name for item in folder.iterdir() if item.suffix.lower() in HDF5_ENDINGS]
        names = sorted(found, key=_number_and_name)
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
    if images.ndim != 4:
        raise UnusableSource(
            f"“data” in {show(name)} has shape {_sizes(images.shape)}.",
            "Four dimensions are required: images, channels, height, width.",
        )
    count, channels, height, width = images.shape
    if channels not in (1, 3):
        raise UnusableSource(
            f"“data” in {show(name)} has shape {_sizes(images.shape)}.",
            f"Images must have 1 or 3 channels, not {channels}.",
        )
    if min(height, width) < 1 or height * width > MAX_PIXELS:
        raise UnusableSource(
            f"The images in {show(name)} have {width:,}×{height:,} pixels.",
            f"The limit is {MAX_PIXELS:,} pixels.",
        )
    if not labels.ndim or labels.shape[0] != count or math.prod(labels.shape[1:]) != 1:
        raise UnusableSource(
            f"“label” in {show(name)} has shape {_sizes(labels.shape)}, but “data” has shape {_sizes(images.shape)}.",
            "Classification requires one label per image.",
        )
    return images, labels


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
        found = file[name]
        if not isinstance(found, h5py.Dataset):
            raise UnusableSource(f"“{name}” in {show(place)} is a group, not a dataset.")
        if found.is_virtual or found.external:
            raise UnusableSource(f"“{name}” in {show(place)} refers to other files, which are not read.")
        if found.dtype.kind not in _NUMERIC:
            raise UnusableSource(f"“{name}” in {show(place)} contains {found.dtype}, not numbers.")
        _check_storage(found, name, place)
    except UnusableSource:
        raise
    except Exception as error:  # h5py raises various errors for damaged files
        raise _damaged(place, error) from error
    return found


def _check_storage(found: Any, name: str, place: str) -> None:
    """Raise UnusableSource if less data is stored than declared, or if it takes much memory to decompress it."""
    if found.shape is None:
        raise UnusableSource(f"“{name}” in {show(place)} has no values.")
    if found.chunks is None:
        if found.id.get_storage_size() < found.size * found.dtype.itemsize:
            raise _incomplete(found, name, place)
        return
    chunk_bytes = math.prod(found.chunks) * found.dtype.itemsize
    if chunk_bytes > MAX_CHUNK_BYTES:
        raise UnusableSource(
            f"“{name}” in {show(place)} is stored in chunks of {chunk_bytes >> 20:,} MiB.",
            f"The limit is {MAX_CHUNK_BYTES >> 20} MiB. Write the file with smaller chunks.",
        )
    chunks = math.prod(math.ceil(size / part) for size, part in zip(found.shape, found.chunks, strict=True))
    if found.id.get_num_chunks() < chunks:
        raise _incomplete(found, name, place)


def _incomplete(found: Any, name: str, place: str) -> UnusableSource:
    return UnusableSource(
        f"“{name}” in {show(place)} declares shape {_sizes(found.shape)} but contains only part of the data."
    )


def _damaged(place: str, error: Exception) -> UnusableSource:
    return UnusableSource(f"{show(place)} is damaged: {_first_line(error)}.")


def _sizes(shape: tuple[int, ...]) -> str:
    return "×".join(f"{size:,}" for size in shape) or "of a single value"


def _first_line(error: Exception) -> str:
    return show((str(error).splitlines() or [type(error).__name__])[0]).rstrip(".")
