"""Creates dataset jobs."""

from __future__ import annotations

import secrets
from typing import Any

from digits.dataset.job import DatasetJob
from digits.download import Sample
from digits.recipe import CreateDataset
from digits.services import services


def create_dataset(
    plan: CreateDataset,
    name: str,
    *,
    owner: str | None = None,
    group: str = "",
    form: dict[str, Any] | None = None,
) -> DatasetJob:
    """Submit a job that makes a dataset as ``plan`` says."""
    folder = services().store.new_folder()
    job = DatasetJob(
        id=folder.name,
        folder=folder,
        name=name,
        owner=owner,
        group=group,
        form=form or {},
        tasks=DatasetJob.first_tasks(),
        plan=plan,
    )
    services().scheduler.submit(job)
    return job


def create_sample(sample: Sample, owner: str | None = None) -> DatasetJob:
    """Submit a job that downloads a sample and makes a dataset of it."""
    folder = services().settings.samples_dir / sample.id
    plan = CreateDataset(
        train={"folder": str(folder / "train"), "min_per_class": 1},
        val={"folder": str(folder / "test"), "min_per_class": 1},
        pct_val=0,
        width=sample.width,
        height=sample.height,
        channels=sample.channels,
        seed=secrets.randbelow(2**31),
        sample=sample.id,
    )
    form = {
        "dataset_name": sample.title,
        "folder_train": str(folder / "train"),
        "has_val_folder": True,
        "folder_val": str(folder / "test"),
        "folder_pct_val": 0,
        "resize_width": sample.width,
        "resize_height": sample.height,
        "resize_channels": str(sample.channels),
    }
    return create_dataset(plan, sample.title, owner=owner, form=form)
