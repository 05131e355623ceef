"""Errors with a meaning for the user.

    DigitsError             500  base; its text may be shown
    ├── BadRequest          400  the request cannot be understood
    ├── NotAllowed          403  the request is understood and refused
    ├── NotFound            404  there is no such thing
    ├── InUse               403  something else depends on it (403 as DIGITS answered)
    ├── NotReady            409  what is needed is still being made
    └── Unavailable         503  a part of the server is not there

One handler turns them into a page or into JSON. Any other exception is a fault
of the program: it goes to the log and the user sees a plain server error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class DigitsError(Exception):
    """Base of all errors whose text is meant for the user.

    ``trace`` has the frames of a mistake in the user's network, as in `digits.events.Failed`.
    """

    http_status = 500

    def __init__(self, message: str, hint: str = "", trace: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.trace = list(trace)


class BadRequest(DigitsError):
    http_status = 400


class NotAllowed(DigitsError):
    http_status = 403


class NotFound(DigitsError):
    http_status = 404


class InUse(DigitsError):
    http_status = 403


class NotReady(DigitsError):
    http_status = 409


class Unavailable(DigitsError):
    http_status = 503
