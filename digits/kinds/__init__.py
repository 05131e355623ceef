"""The kinds of job, in the order in which they are loaded: models look up their dataset."""

from __future__ import annotations

from digits.core.job import Job
from digits.core.model_job import ModelJob
from digits.kinds.classification.job import DatasetJob

KINDS: dict[str, type[Job]] = {kind.kind: kind for kind in (DatasetJob, ModelJob)}
