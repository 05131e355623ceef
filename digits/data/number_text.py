"""Arrays as JSON, as rows of CSV and as NumPy files, in pieces of some thousand numbers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

_PIECE_VALUES = 16_384


def json_pieces(values: NDArray[Any]) -> Iterator[bytes]:
    """Yield ``values`` as nested lists in JSON, with null for NaN and infinity."""
    if values.size <= _PIECE_VALUES:
        yield msgspec.json.encode(values.tolist())
        return
    rows = max(1, _PIECE_VALUES * len(values) // values.size)
    for start in range(0, len(values), rows):
        mark = b"," if start else b"["
        part = values[start : start + rows]
        if part.size <= _PIECE_VALUES:
            yield mark + msgspec.json.encode(part.tolist())[1:-1]
        else:
            yield mark
            yield from json_pieces(part[0])
    yield b"]"


def csv_pieces(first: str, values: NDArray[Any]) -> Iterator[bytes]:
    """Yield a row for each of the ``values`` with the cell ``first``, the indexes and the value."""
    rows = (
        f"{first},{' '.join(map(str, place))},{value}\r\n".encode() for place, value in np.ndenumerate(values)
    )
    while piece := b"".join(islice(rows, _PIECE_VALUES)):
        yield piece


def npy_pieces(values: NDArray[Any]) -> Iterator[bytes]:
    """Yield a NumPy file of ``values``."""
    header = io.BytesIO()
    values = np.ascontiguousarray(values).reshape(values.shape)
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(values))
    yield header.getvalue()
    flat = values.reshape(-1)
    for start in range(0, flat.size, _PIECE_VALUES):
        yield flat[start : start + _PIECE_VALUES].tobytes()
