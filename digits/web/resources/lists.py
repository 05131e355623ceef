"""Lists of jobs, page by page, and the server, as programs see them."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from digits.web.resources.jobs import BriefJob, JobRow
from digits.web.resources.models import BriefModel


class ListPage(Struct, kw_only=True):
    """A page of each list; ``totals`` are the lengths of the lists, and ``next`` is the URL of the next page."""

    page: int
    per_page: int
    totals: dict[str, int]
    next: str | None


class DatasetRows(ListPage, kw_only=True):
    datasets: list[JobRow]


class ModelRows(ListPage, kw_only=True):
    models: list[JobRow]


class LabelsRows(ListPage, kw_only=True):
    labels: list[JobRow]


class JobRows(ListPage, kw_only=True):
    """All jobs; ``model_output_fields`` are the further keys in rows of models."""

    running: list[JobRow]
    datasets: list[JobRow]
    models: list[JobRow]
    labels: list[JobRow]
    damaged: list[JobRow]
    pretrained_models: list[JobRow]
    model_output_fields: list[str]


class TableRow(Struct):
    job: JobRow


class ServerHealth(Struct):
    """The version of the server, and the problem if jobs cannot be saved or pages not served."""

    version: str
    problem: str | UnsetType = UNSET


class ServerIndex(ListPage, kw_only=True):
    """The server and its jobs."""

    version: str
    jobs_dir: str
    server_name: str
    datasets: list[BriefJob]
    models: list[BriefModel]
    labels: list[BriefJob]
    damaged: list[BriefJob]
    refused_plugins: list[dict[str, Any]]
