"""Errors with a meaning for the user.

    DigitsError             500  base; its text may be shown
    ├── BadRequest          400  the request cannot be understood
    ├── NotAllowed          403  the request is understood and refused
    │   └── OtherSite       403  a page of another site may not request this
    ├── NotFound            404  there is no such thing
    ├── InUse               403  something else depends on it (403 as DIGITS answered)
    ├── NotReady            409  a required job is not finished yet
    ├── Outdated            409  what the request changes was changed in the meantime
    ├── Damaged             409  the files of a job are invalid
    ├── Unavailable         503  a component of the server is unavailable
    ├── StorageError        503  the disk is read-only, failing, or not writable
    ├── TookTooLong         504  a component of the server did not answer in time
    └── DiskFull            507  no space is left on the disk

One error handler renders these as a page or as JSON; another does the same for every
OSError that `explain` recognizes. Any other exception is a bug: it is logged, and the
user sees a generic server error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Any


class DigitsError(Exception):
    """Base of all errors whose text is meant for the user.

    ``trace`` lists the frames of an error in the user's network, as in `digits.core.events.Failed`. ``remedy`` are
    values of form fields that follow the ``hint``.
    """

    http_status = 500

    def __init__(
        self,
        message: str,
        hint: str = "",
        trace: Sequence[dict[str, Any]] = (),
        remedy: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.trace = list(trace)
        self.remedy = dict(remedy or {})

    @property
    def sentences(self) -> str:
        """The message, followed by the hint."""
        return " ".join(filter(None, (self.message, self.hint)))


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


class Outdated(DigitsError):
    http_status = 409


class Damaged(DigitsError):
    http_status = 409

    def __init__(self, message: str, hint: str, job_id: str) -> None:
        super().__init__(message, hint)
        self.job_id = job_id


class TooBusy(DigitsError):
    http_status = 429


class TookTooLong(DigitsError):
    http_status = 504


class Unavailable(DigitsError):
    http_status = 503


class StorageError(DigitsError):
    http_status = 503


class DiskFull(DigitsError):
    http_status = 507


_MAKE_ROOM = "Free up space, for example by deleting jobs you no longer need, then try again."
_EXPLAINED: dict[int, tuple[type[DigitsError], str, str]] = {
    errno.ENOSPC: (DiskFull, "The disk is full.", _MAKE_ROOM),
    errno.EDQUOT: (DiskFull, "The disk quota of the server's user is exhausted.", _MAKE_ROOM),
    errno.EFBIG: (DiskFull, "The file exceeds the size limit.", "Raise it with ulimit -f."),
    errno.EROFS: (StorageError, "The disk is read-only.", "Remount it with write access, then try again."),
    errno.EACCES: (StorageError, "The server lacks write permission.", "Change the owner or the mode."),
    errno.EPERM: (StorageError, "The server lacks write permission.", "Change the owner or the mode."),
    errno.EIO: (StorageError, "The disk failed: input/output error.", "Check the system log."),
    errno.EMFILE: (Unavailable, "The server has too many open files.", "Try again in a moment."),
    errno.ENFILE: (Unavailable, "This machine has too many open files.", "Try again in a moment."),
}


def explain(error: OSError) -> DigitsError | None:
    """Translate ``error`` into an error for the user; None if it is not a storage error."""
    if error.errno not in _EXPLAINED:
        return None
    kind, message, hint = _EXPLAINED[error.errno]
    if error.errno == errno.ENOSPC and _has_no_inodes(error.filename):
        message = "The disk is full: it cannot hold any more files (no free inodes)."
    return kind(message, hint)


def _has_no_inodes(path: object) -> bool:
    """Whether the file system of ``path`` has run out of inodes."""
    try:
        state = os.statvfs(os.path.dirname(os.fsdecode(path)) or ".")  # type: ignore[arg-type]
    except (OSError, TypeError):
        return False
    return state.f_files > 0 and state.f_favail == 0
