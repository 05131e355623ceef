"""Errors of requests to an inference server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from digits.core.events import Frame
from digits.core.files import UnreadableFile
from digits.worker.failure import UserFault, describe, in_a_sentence


class Refused(UserFault):
    """An error response to a request, with its HTTP ``status``.

    ``trace`` lists the frames of an error in the network, the user's own first.
    """

    def __init__(self, message: str, hint: str = "", status: int = 400, trace: Sequence[Frame] = ()) -> None:
        super().__init__(message, hint)
        self.status, self.trace = status, list(trace)

    @classmethod
    def because(cls, error: Exception, before: str = "") -> Refused:
        """The response to ``error``: status 400 for errors of the user's network, 500 for bugs."""
        if isinstance(error, Refused):
            return error
        event = describe(error)
        is_users = event.line is not None or isinstance(error, (UserFault, UnreadableFile))
        return cls(f"{before}{in_a_sentence(event)}", event.hint, 400 if is_users else 500, event.trace)

    def as_json(self) -> dict[str, Any]:
        """Return the message that answers the request."""
        return {
            "ok": False,
            "message": self.message,
            "hint": self.hint,
            "status": self.status,
            "trace": self.trace,
        }
