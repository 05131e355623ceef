"""The formats in which a dataset can be downloaded."""

from __future__ import annotations

from typing import Any

from flask import url_for

from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.export import formats_of
from digits.kinds.views import views_of


def offered(job: DatasetJob) -> list[dict[str, Any]]:
    """Return the formats of a dataset for its page, the usual one first."""
    return [
        {
            "name": name,
            "title": item.title,
            "contents": item.contents,
            "url": url_for("exports.download", job_id=job.id, ending="zip", format=name),
        }
        for name, item in formats_of(job.data_kind).items()
    ]


def for_annotation_tools(job: DatasetJob) -> dict[str, Any] | None:
    """Return the format in which annotation tools read the targets of a dataset, or None if they cannot."""
    name = views_of(job.data_kind).annotation_format
    return next((item for item in offered(job) if item["name"] == name), None)
