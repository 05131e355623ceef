"""Errors, as programs see them. TensorFlow Serving and KServe define their own, with a text as ``error``."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from digits.core.events import Frame


class ErrorFacts(Struct):
    """What went wrong. ``type`` is a name such as *NotFound*, ``hint`` what to do.

    ``trace`` are the stack frames of an error in a network. ``details`` is the traceback of a fault in debug mode.
    """

    message: str
    type: str
    hint: str | UnsetType = UNSET
    trace: list[Frame] | UnsetType = UNSET
    details: str | UnsetType = UNSET


class Error(Struct):
    """The body of a response with an error."""

    error: ErrorFacts


class InvalidForm(Error):
    """The body of a response to a form with invalid fields: the messages by field, and a summary."""

    errors: dict[str, list[str]]
