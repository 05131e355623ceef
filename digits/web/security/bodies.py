"""The limits of the bodies of requests."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from werkzeug.exceptions import BadRequest, HTTPException, RequestEntityTooLarge, RequestTimeout
from werkzeug.wsgi import LimitedStream

from digits.web.security.environ import FORM, MULTIPART, Environ

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 5_000_000
MAX_IMAGE_BYTES = 70_000_000
# With and without ``.json``.
_IMAGE_PATHS = (
    "/classify_one", "/infer_one", "/inside", "/heat-map", "/classify_many", "/infer_many", "/predictions",
    "/predict", "/top_n"
)  # fmt: skip
# By the start or the end of the path. They apply to multipart forms, whose files are written to disk.
BODY_LIMITS: Mapping[str, int] = {
    "/login": 64_000,
    "/socket.io": 128_000,
    "/serve/": MAX_IMAGE_BYTES,
    **{path + ending: MAX_IMAGE_BYTES for path in _IMAGE_PATHS for ending in ("", ".json")},
}
# The views at these paths read a body that is not a form in pieces, so that its limit applies as well.
STREAMED_PATHS = ("/uploads/", "/predict", "/predict.json", "/serve/")


class Body(LimitedStream):
    """The body of a request, limited to ``limit`` bytes.

    Errors while reading are client errors: they are raised as werkzeug's HTTPException and logged in
    one line, and ``is_broken`` closes the connection, because the start of the next request is unknown.
    ``title`` identifies the request in the log.
    """

    def __init__(self, stream: Any, limit: int, title: str) -> None:
        # One byte more than allowed, to detect an oversized body.
        super().__init__(stream, limit + 1, is_max=True)
        self.is_broken = False
        self._title = title

    def readinto(self, b: bytearray) -> int | None:  # type: ignore[override]
        count = super().readinto(b)
        if self.is_exhausted:
            self.on_exhausted()
        return count

    def on_exhausted(self) -> None:
        raise self._broken(RequestEntityTooLarge(), "too large")

    def on_disconnect(self, error: Exception | None = None) -> None:
        if isinstance(error, TimeoutError):
            raise self._broken(
                RequestTimeout("The body of this request arrived too slowly."), error
            ) from error
        if error is not None:
            raise self._broken(
                BadRequest("The body of this request is malformed or incomplete."), error
            ) from error

    def _broken(self, answer: HTTPException, reason: object) -> HTTPException:
        self.is_broken = True
        _log.info("%s: %s (%s)", self._title, answer.description, str(reason)[:120])
        return answer


def is_streamed(environ: Environ) -> bool:
    """Return whether the application reads the body in pieces instead of keeping it in memory."""
    media_type = str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower()
    path = str(environ.get("PATH_INFO", ""))
    return media_type == MULTIPART or (
        media_type != FORM and (path.startswith(STREAMED_PATHS) or path.endswith(STREAMED_PATHS))
    )
