"""Create dataset jobs, to be submitted to the scheduler."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from digits.core.recipe import CreateDataset
from digits.data.sample_catalog import Sample
from digits.kinds.classification.job import DatasetJob
from digits.web.services import services


def new_dataset(
    folder: Path,
    plan: CreateDataset,
    name: str,
    *,
    owner: str | None = None,
    group: str = "",
    form: dict[str, Any] | None = None,
) -> DatasetJob:
    """Create a job in ``folder`` that creates a dataset from ``plan``."""
    return DatasetJob(
        id=folder.name,
        folder=folder,
        name=name,
        owner=owner,
        group=group,
        form=form or {},
        tasks=DatasetJob.first_tasks(),
        plan=plan,
    )


def new_sample(folder: Path, sample: Sample, owner: str | None = None) -> DatasetJob:
    """Create a job in ``folder`` that downloads a sample and creates a dataset from it."""
    settings = services().settings
    source = settings.samples_dir / sample.id
    plan = CreateDataset(
        train={"folder": str(source / "train"), "min_per_class": 1},
        val={"folder": str(source / "test"), "min_per_class": 1},
        pct_val=0,
        width=sample.width,
        height=sample.height,
        channels=sample.channels,
        seed=secrets.randbelow(2**31),
        sample=sample.id,
        sample_mirrors=[*settings.sample_mirrors],
    )
    form = {
        "dataset_name": sample.title,
        "folder_train": str(source / "train"),
        "has_val_folder": True,
        "folder_val": str(source / "test"),
        "folder_pct_val": 0,
        "resize_width": sample.width,
        "resize_height": sample.height,
        "resize_channels": str(sample.channels),
    }
    return new_dataset(folder, plan, sample.title, owner=owner, form=form)
