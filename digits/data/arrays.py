"""Read arrays in NumPy's format (``.npy``), whose headers and sizes are not trusted."""

from __future__ import annotations

import ast
import math
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, open_plain

# Results of the largest datasets have about this size.
MAX_ARRAY_BYTES = 1 << 30
_MAX_HEADER_BYTES = 10_000
# By the version of the format.
_LENGTH_FORMATS = {(1, 0): "<H", (2, 0): "<I"}


def load_array(
    path: Path,
    *,
    below: Path,
    max_bytes: int = MAX_ARRAY_BYTES,
    dtype: np.dtype[Any] | None = None,
    is_growing: bool = False,
) -> NDArray[Any]:
    """Load the array in the file ``path`` of a job, whose folder is ``below``; see `read_array`.

    Raises UnreadableFile, also for an array of another type than ``dtype``.
    """
    try:
        with open_plain(path, below=below) as file:
            found = read_array(file, max_bytes, is_growing=is_growing)
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path.name} cannot be read: {error}") from error
    if dtype is not None and found.dtype != dtype:
        raise UnreadableFile(f"{path.name} has an unexpected format")
    return found


def read_array(file: BinaryIO, max_bytes: int, *, is_growing: bool = False) -> NDArray[Any]:
    """Read an array of numbers from an open file of at most ``max_bytes``.

    If ``is_growing``, rows may be missing at the end, because they are still being written. Raises ValueError for
    anything else, and allocates no more memory than the file has bytes.
    """
    size = os.fstat(file.fileno()).st_size
    if size > max_bytes:
        raise ValueError(f"it is larger than {max_bytes:,} bytes")
    shape, is_fortran, dtype = _read_header(file)
    available = size - file.tell()
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError("it does not contain numbers")
    if is_growing and shape and not is_fortran:
        row_bytes = dtype.itemsize * math.prod(shape[1:])
        shape = (min(shape[0], available // max(1, row_bytes)), *shape[1:])
    count = math.prod(shape)
    # Even an array without elements has a length, for which its rows would be created.
    if count * dtype.itemsize > available or max(shape, default=0) > size:
        raise ValueError("it is shorter than its header states")
    found = np.fromfile(file, dtype, count)
    if len(found) != count:
        raise ValueError("it became shorter")
    return found.reshape(shape[::-1]).T if is_fortran else found.reshape(shape)


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
