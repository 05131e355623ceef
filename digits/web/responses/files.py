"""Send files of jobs, archives and large bodies. Views must use this instead of Flask's ``send_file``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import BinaryIO

from flask import Response, request, send_file

from digits.core.errors import BadRequest, NotFound
from digits.core.files import MissingFile, open_plain
from digits.data.archives.writing import MEDIA_TYPES
from digits.runtime.offload import each_in_thread

_PIECE_BYTES = 256 * 1024


def send_job_file(folder: Path, name: str, shown_as: str | None) -> Response:
    """Send the regular file ``name`` below ``folder``; raises NotFound if it is missing, UnreadableFile for a link.

    Browsers display it with the media type ``shown_as``, or download it if that is None.
    """
    try:
        file = open_plain(folder / name, below=folder)
    except MissingFile:
        raise NotFound("There is no such file.") from None
    return send_opened(file, PurePath(name).name, shown_as)


def send_opened(file: BinaryIO, name: str, shown_as: str | None, *, max_age: int = 0) -> Response:
    """Send an open ``file``, which is closed afterwards; browsers keep it for ``max_age`` seconds."""
    state = os.fstat(file.fileno())
    response = send_file(
        file,
        mimetype=shown_as or "application/octet-stream",
        as_attachment=shown_as is None,
        download_name=name,
        last_modified=state.st_mtime,
        conditional=False,
        etag=f"{state.st_mtime_ns:x}-{state.st_size:x}",
        max_age=max_age,
    )
    response.content_length = state.st_size
    response.make_conditional(request, accept_ranges=True, complete_length=state.st_size)
    return response


def check_ending(ending: str) -> None:
    """Raise BadRequest unless ``ending`` is that of an archive."""
    if ending not in MEDIA_TYPES:
        raise BadRequest(f"Unknown archive format “{ending}”.", f"Use one of {', '.join(MEDIA_TYPES)}.")


def archive_response(name: str, ending: str, pieces: Iterator[bytes]) -> Response:
    """Return the download of an archive called ``name``, whose ``pieces`` are made in threads while it is sent."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return Response(each_in_thread(pieces), mimetype=MEDIA_TYPES[ending], headers=headers)


def large_response(parts: Sequence[bytes | bytearray], headers: Mapping[str, str]) -> Response:
    """Return a response whose body is the ``parts``, one after the other, without copying them as a whole."""
    length = str(sum(map(len, parts)))
    return Response(pieces_of(parts), headers={**headers, "Content-Length": length})


def pieces_of(parts: Sequence[bytes | bytearray]) -> Iterator[bytes]:
    """Yield the ``parts`` in pieces that are not too long to copy."""
    for part in parts:
        for start in range(0, len(part), _PIECE_BYTES):
            yield bytes(part[start : start + _PIECE_BYTES])
