"""The family of a dataset: the datasets of which it is a version, and all their versions."""

from __future__ import annotations

from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.versions import CreateVersion
from digits.web.services import services


def family_of(job: DatasetJob) -> list[DatasetJob]:
    """Return the datasets of the family of ``job``, the newest first."""
    root = root_of(job)
    family = [each for each in services().store.all(DatasetJob) if root_of(each) == root]
    return sorted(family, key=lambda each: each.submitted, reverse=True)


def root_of(job: DatasetJob) -> str:
    """Return the id of the dataset from which the family comes; it may have been deleted."""
    while isinstance(job.recipe, CreateVersion):
        parent = services().store.find(job.recipe.parent_id)
        if not isinstance(parent, DatasetJob):
            return job.recipe.parent_id
        job = parent
    return job.id
