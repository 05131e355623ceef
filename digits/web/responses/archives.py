"""Archives as responses."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Response

from digits.core.errors import BadRequest
from digits.data.archives.writing import MEDIA_TYPES
from digits.runtime.offload import each_in_thread


def check_ending(ending: str) -> None:
    """Raise BadRequest unless ``ending`` is that of an archive."""
    if ending not in MEDIA_TYPES:
        raise BadRequest(f"Unknown archive format “{ending}”.", f"Use one of {', '.join(MEDIA_TYPES)}.")


def archive_response(name: str, ending: str, pieces: Iterator[bytes]) -> Response:
    """Return the download of an archive called ``name``, whose ``pieces`` are made in threads while it is sent."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return Response(each_in_thread(pieces), mimetype=MEDIA_TYPES[ending], headers=headers)
