"""The rows of lists as JSON: rows of jobs with further keys of DIGITS 6, such as ``loss (train) last``."""

from __future__ import annotations

from typing import Any

import msgspec

from digits.core.job import Job
from digits.core.model_job import ModelJob
from digits.kinds.jobs import DatasetJob, ImportedDataset
from digits.web.jobs import serializers
from digits.web.resources.encoding import as_json


def list_row(job: Job) -> dict[str, Any]:
    """Return the row of a job; ``extension`` is the kind of a dataset or model."""
    kind = serializers.data_kind(job)
    body: dict[str, Any] = {**as_json(serializers.row(job)), "extension": kind.name if kind else None}
    if isinstance(job, ModelJob):
        body |= {"framework": "tensorflow", **output_fields(job)}
    elif isinstance(job, DatasetJob):
        body["backend"] = "tfrecords"
    return body


def output_fields(job: Job) -> dict[str, float]:
    """Return the ranges of a model's metrics."""
    return {
        f"{name} {part}": value
        for name, values in job.summary.ranges.items()
        for part, value in msgspec.structs.asdict(values).items()
    }


def pretrained_row(job: Job) -> dict[str, Any]:
    """Return the row of an imported model, a *pretrained model* in DIGITS 6."""
    manifest = ImportedDataset(job.folder).manifest()
    return {
        **list_row(job),
        "type": "pretrained_model",
        "username": job.owner,
        "has_labels": bool(manifest and manifest.target.labels),
    }
