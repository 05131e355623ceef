"""Send files of jobs. Views must use this instead of Flask's ``send_file``."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from flask import Response, request, send_file

from digits.core.errors import NotFound
from digits.core.files import MissingFile, open_plain


def send_job_file(folder: Path, name: str, shown_as: str | None) -> Response:
    """Send the regular file ``name`` below ``folder``; raises NotFound if it is missing, UnreadableFile for a link.

    Browsers display it with the media type ``shown_as``, or download it if that is None.
    """
    try:
        file = open_plain(folder / name, below=folder)
    except MissingFile:
        raise NotFound("There is no such file.") from None
    state = os.fstat(file.fileno())
    response = send_file(
        file,
        mimetype=shown_as or "application/octet-stream",
        as_attachment=shown_as is None,
        download_name=PurePath(name).name,
        last_modified=state.st_mtime,
        conditional=False,
        etag=f"{state.st_mtime_ns:x}-{state.st_size:x}",
        max_age=0,
    )
    response.content_length = state.st_size
    response.make_conditional(request, accept_ranges=True, complete_length=state.st_size)
    return response
