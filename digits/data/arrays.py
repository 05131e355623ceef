"""Read and write arrays in NumPy's format (``.npy``), whose headers and sizes are not trusted."""

from __future__ import annotations

import ast
import contextlib
import io
import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import EllipsisType
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, open_plain, write_bytes

BLOCK_BYTES = 16 << 20
# Results of the largest datasets have about this size.
MAX_ARRAY_BYTES = 1 << 30
_MAX_HEADER_BYTES = 10_000
# The sides of an array; None for any, and ... at the end for any number of further ones.
Shape = tuple[int | EllipsisType | None, ...]
# By the version of the format.
_LENGTH_FORMATS = {(1, 0): "<H", (2, 0): "<I"}


def load_array(
    path: Path,
    *,
    below: Path,
    max_bytes: int = MAX_ARRAY_BYTES,
    dtype: np.dtype[Any] | None = None,
    shape: Shape | None = None,
) -> NDArray[Any]:
    """Load the array in the file ``path`` of a job, whose folder is ``below``; see `read_array`.

    Raises UnreadableFile.
    """
    with _opened(path, below) as file:
        return read_array(file, max_bytes, dtype, shape)


@contextlib.contextmanager
def _opened(path: Path, below: Path) -> Iterator[BinaryIO]:
    """Open a file of a job; an error inside becomes UnreadableFile."""
    try:
        with open_plain(path, below=below) as file:
            yield file
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path.name} cannot be read: {error}") from error


def load_rows(path: Path, *, below: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Load an array of one dimension, such as records of a structured ``dtype``; see `load_array`."""
    return load_array(path, below=below, dtype=dtype, shape=(None,))


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write ``array`` atomically; raises OSError."""
    file = io.BytesIO()
    npy.write_array(file, array, allow_pickle=False)
    write_bytes(path, file.getvalue())


def read_blocks(
    path: Path, *, below: Path, dtype: np.dtype[Any], block_bytes: int = BLOCK_BYTES
) -> Iterator[NDArray[Any]]:
    """Yield the rows so far of an array [rows, columns], which may still grow, in blocks of about ``block_bytes``.

    The file ``path`` is one of a job, whose folder is ``below``. Raises UnreadableFile, also for an array of another
    type.
    """
    with _opened(path, below) as file:
        shape, is_fortran, stored = _read_header(file)
        if stored != dtype or len(shape) != 2 or is_fortran:
            raise UnreadableFile(f"{path.name} has an unexpected format")
        row_bytes = max(1, dtype.itemsize * shape[1])
        rows = max(1, block_bytes // row_bytes)
        while whole := len(data := file.read(rows * row_bytes)) // row_bytes:
            yield np.frombuffer(data, dtype, whole * shape[1]).reshape(whole, shape[1])


def read_rows(path: Path, *, below: Path) -> Iterator[NDArray[Any]]:
    """Yield the rows [1, …] of an array [rows, …] one by one.

    The file ``path`` is one of a job, whose folder is ``below``. Raises UnreadableFile.
    """
    with _opened(path, below) as file:
        shape, is_fortran, dtype = _read_header(file)
        if not shape or is_fortran or dtype.hasobject:
            raise ValueError("it is not an array of rows")
        count = math.prod(shape[1:])
        if shape[0] * count * dtype.itemsize > os.fstat(file.fileno()).st_size - file.tell():
            raise ValueError("it is shorter than its header states")
        for _ in range(shape[0]):
            data = file.read(count * dtype.itemsize)
            yield np.frombuffer(data, dtype, count).reshape(shape[1:])


def read_array(
    file: BinaryIO,
    max_bytes: int = MAX_ARRAY_BYTES,
    dtype: np.dtype[Any] | None = None,
    shape: Shape | None = None,
) -> NDArray[Any]:
    """Read an array of numbers from an open file of at most ``max_bytes``, with this ``dtype`` and ``shape`` if given.

    Raises ValueError for anything else before reading it, and allocates no more memory than the file has bytes.
    """
    start = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(start)
    if size > max_bytes:
        raise ValueError(f"it is larger than {max_bytes:,} bytes")
    stored_shape, is_fortran, stored = _read_header(file)
    available = size - file.tell()
    if stored.hasobject or stored.itemsize == 0:
        raise ValueError("it does not contain numbers")
    if (dtype is not None and stored != dtype) or (shape is not None and not _matches(stored_shape, shape)):
        wanted = ", ".join("any" if side is None else str(side) for side in shape or stored_shape)
        wanted = f"{dtype or 'numbers'} [{wanted.replace('Ellipsis', '…')}]"
        raise ValueError(f"expected {wanted}, got {stored} {list(stored_shape)}")
    count = math.prod(stored_shape)
    # Even an array without elements has a length, for which its rows would be created.
    if count * stored.itemsize > available or max(stored_shape, default=0) > size:
        raise ValueError("it is shorter than its header states")
    data = bytearray(count * stored.itemsize)
    if file.readinto(data) != len(data):  # type: ignore[attr-defined]
        raise ValueError("it became shorter")
    return np.ndarray(stored_shape, stored, data, order="F" if is_fortran else "C")


def _matches(shape: tuple[int, ...], wanted: Shape) -> bool:
    if wanted[-1:] == (...,):
        wanted = wanted[:-1]
        shape = shape[: len(wanted)]
    return len(shape) == len(wanted) and all(
        side in (one, None) for one, side in zip(shape, wanted, strict=True)
    )


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, whether the order is that of Fortran, and the type; raises ValueError."""
    version = npy.read_magic(file)
    if version not in _LENGTH_FORMATS:
        raise ValueError("its version is unknown")
    format_ = _LENGTH_FORMATS[version]
    try:
        (length,) = struct.unpack(format_, file.read(struct.calcsize(format_)))
        if length > _MAX_HEADER_BYTES:
            raise ValueError("its header is too long")
        header = ast.literal_eval(file.read(length).decode("latin-1"))
        shape, dtype = tuple(header["shape"]), npy.descr_to_dtype(header["descr"])
        if not all(type(side) is int and side >= 0 for side in shape):
            raise ValueError("its shape is not one of an array")
        return shape, bool(header["fortran_order"]), dtype
    except (struct.error, SyntaxError, TypeError, KeyError, IndexError, RecursionError, MemoryError) as error:
        raise ValueError("its header is damaged") from error
