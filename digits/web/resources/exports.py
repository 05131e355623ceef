"""Exports of models in other formats, as pages and programs see them."""

from __future__ import annotations

from msgspec import Struct

from digits.core.recipe import FileName
from digits.data.models.export import ModelExport, Refusal
from digits.web.resources.tasks import TaskProgress


class FormatRow(Struct):
    """A format, and the reason why the model cannot be exported in it."""

    name: str
    title: str
    use: str
    refusal: Refusal | None


class ExportResult(ModelExport, frozen=True, kw_only=True):
    """An export, and the URL of its archive."""

    url: str


class Exports(TaskProgress, kw_only=True):
    """The state of the running export of a model, its exports and the formats."""

    exports: list[ExportResult]
    formats: list[FormatRow]


class RequestedExport(Exports, kw_only=True):
    """The exports of a model after a request for one of its ``snapshot``."""

    snapshot: FileName
