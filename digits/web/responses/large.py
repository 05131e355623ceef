"""Responses whose parts are in memory already, sent without copying them as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flask import Response

_PIECE_BYTES = 256 * 1024


def large_response(parts: Sequence[bytes | bytearray], headers: Mapping[str, str]) -> Response:
    """Return a response whose body is the ``parts``, one after the other."""
    length = str(sum(map(len, parts)))
    return Response(_pieces(parts), headers={**headers, "Content-Length": length})


def _pieces(parts: Sequence[bytes | bytearray]) -> Iterator[bytes]:
    for part in parts:
        for start in range(0, len(part), _PIECE_BYTES):
            yield bytes(part[start : start + _PIECE_BYTES])
