"""Reports of models, as programs see them."""

from __future__ import annotations

from msgspec import Struct


class ReportedEvaluation(Struct):
    name: str
    snapshot: str
    split: str
    metrics: dict[str, float]


class ReportedRecord(Struct):
    """A record with a large error; ``result`` is its target and its prediction in words."""

    file: str
    result: str


class ReportData(Struct):
    """A report without charts and images.

    The ``verdict`` says in words how good the model is, "" if nothing measures it. ``error`` is why the training
    failed.
    """

    id: str
    name: str
    verdict: str
    facts: dict[str, str]
    error: str | None
    notes: str
    settings: dict[str, str]
    environment: dict[str, str]
    evaluation: ReportedEvaluation | None
    worst: list[ReportedRecord]
