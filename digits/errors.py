"""Errors with a meaning for the user.

    DigitsError             500  base; its text may be shown
    ├── BadRequest          400  the request cannot be understood
    ├── NotAllowed          403  the request is understood and refused
    │   └── OtherSite       403  a page of another site asks for what only our own pages may
    ├── NotFound            404  there is no such thing
    ├── InUse               403  something else depends on it (403 as DIGITS answered)
    ├── NotReady            409  what is needed is still being made
    ├── Damaged             409  the files of a job cannot be understood
    ├── Unavailable         503  a part of the server is not there
    ├── StorageError        503  the disk is read-only, broken, or may not be written
    └── DiskFull            507  there is no space left

One handler turns them into a page or into JSON, and another one an OSError that
`explain` knows. Any other exception is a fault of the program: it goes to the log
and the user sees a plain server error.
"""

from __future__ import annotations

import errno
import os
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


class OtherSite(NotAllowed):
    pass


class NotFound(DigitsError):
    http_status = 404


class InUse(DigitsError):
    http_status = 403


class NotReady(DigitsError):
    http_status = 409


class Damaged(DigitsError):
    http_status = 409

    def __init__(self, message: str, hint: str, job_id: str) -> None:
        super().__init__(message, hint)
        self.job_id = job_id


class Unavailable(DigitsError):
    http_status = 503


class StorageError(DigitsError):
    http_status = 503


class DiskFull(DigitsError):
    http_status = 507


_MAKE_ROOM = "Make room, for example by deleting jobs that nobody needs, then try again."
_EXPLAINED: dict[int, tuple[type[DigitsError], str, str]] = {
    errno.ENOSPC: (DiskFull, "The disk is full.", _MAKE_ROOM),
    errno.EDQUOT: (DiskFull, "The disk quota of the server's user is used up.", _MAKE_ROOM),
    errno.EFBIG: (DiskFull, "The file is larger than the server may write.", "Raise its limit: ulimit -f."),
    errno.EROFS: (StorageError, "The disk is read-only.", "Mount it for writing, then try again."),
    errno.EACCES: (StorageError, "The server has no permission to write there.", "Change the owner or mode."),
    errno.EPERM: (StorageError, "The server has no permission to write there.", "Change the owner or mode."),
    errno.EIO: (StorageError, "The disk does not work: input/output error.", "Look into the system's log."),
    errno.EMFILE: (Unavailable, "The server has too many open files.", "Try again in a moment."),
    errno.ENFILE: (Unavailable, "This machine has too many open files.", "Try again in a moment."),
}


def explain(error: OSError) -> DigitsError | None:
    """An error of the disk in words for the user; None if it is none of the disk's."""
    if error.errno not in _EXPLAINED:
        return None
    kind, message, hint = _EXPLAINED[error.errno]
    if error.errno == errno.ENOSPC and _has_no_inodes(error.filename):
        message = "The disk is full: it cannot hold any more files (no free inodes)."
    return kind(message, hint)


def _has_no_inodes(path: object) -> bool:
    """Whether what is missing for a new file at ``path`` is not space."""
    try:
        state = os.statvfs(os.path.dirname(os.fsdecode(path)) or ".")  # type: ignore[arg-type]
    except (OSError, TypeError):
        return False
    return state.f_files > 0 and state.f_favail == 0
