"""What requests changed, as programs see it: jobs by id, other things by id or name."""

from __future__ import annotations

from msgspec import Struct


class Deleted(Struct):
    deleted: str


class DeletedJobs(Struct):
    deleted: list[str]


class Aborted(Struct):
    aborted: str


class AbortedJobs(Struct):
    aborted: list[str]


class RegroupedJobs(Struct):
    regrouped: list[str]


class Removed(Struct):
    removed: str


class Suggestions(Struct):
    """How a text in a field can be completed."""

    suggestions: list[str]
