"""The kinds of job, in the order in which they are loaded: models look up their dataset."""

from __future__ import annotations

from digits.dataset.job import DatasetJob
from digits.job import Job
from digits.model.job import ModelJob

KINDS: dict[str, type[Job]] = {kind.kind: kind for kind in (DatasetJob, ModelJob)}
