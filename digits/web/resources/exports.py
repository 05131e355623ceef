"""Exports of models in other formats, as pages and programs see them."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from digits.core.recipe import FileName
from digits.data.models.export import ModelExport, Refusal
from digits.web.resources.tasks import ActivityState


class FormatRow(Struct):
    """A format, and the reason why the model cannot be exported in it."""

    name: str
    title: str
    use: str
    refusal: Refusal | None


class ExportResult(ModelExport, frozen=True, kw_only=True):
    """An export, and the URL of its archive."""

    url: str


class Exports(ActivityState, kw_only=True):
    """The state of the running export of a model, its exports and the formats.

    ``snapshot`` is that of a request for an export.
    """

    exports: list[ExportResult]
    formats: list[FormatRow]
    snapshot: FileName | UnsetType = UNSET
