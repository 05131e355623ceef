"""Create dataset jobs, to be submitted to the scheduler."""

from __future__ import annotations

import secrets
from pathlib import Path

from digits.core.recipe import CreateDataset, FolderSplit
from digits.data.samples import Sample
from digits.kinds.classification.job import DatasetJob
from digits.web.services import services


def new_dataset(
    folder: Path,
    recipe: CreateDataset,
    name: str,
    *,
    owner: str | None = None,
    group: str = "",
) -> DatasetJob:
    """Create a job in ``folder`` that creates a dataset from ``recipe``."""
    return DatasetJob(
        id=folder.name,
        folder=folder,
        name=name,
        owner=owner,
        group=group,
        tasks=DatasetJob.first_tasks(),
        recipe=recipe,
    )


def new_sample(folder: Path, sample: Sample, owner: str | None = None) -> DatasetJob:
    """Create a job in ``folder`` that downloads a sample and creates a dataset from it."""
    source = services().settings.samples_dir / sample.id
    recipe = CreateDataset(
        train=FolderSplit(folder=str(source / "train"), min_per_class=1),
        val=FolderSplit(folder=str(source / "test"), min_per_class=1),
        pct_val=0,
        width=sample.width,
        height=sample.height,
        channels=1 if sample.channels == 1 else 3,
        seed=secrets.randbelow(2**31),
        sample=sample.id,
    )
    return new_dataset(folder, recipe, sample.title, owner=owner)
