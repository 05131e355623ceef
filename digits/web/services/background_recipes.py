"""Recipes of background tasks, from models and datasets."""

from __future__ import annotations

from typing import Any

from digits.core.model_job import ModelJob
from digits.core.recipe import CheckDataset, Evaluate
from digits.core.snapshot_list import Snapshot
from digits.core.splits import Split
from digits.core.status import Status
from digits.data.models.evaluation import name_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.store import Store


def split_fields(job: ModelJob, snapshot: Snapshot, dataset: DatasetJob, split: Split) -> dict[str, Any]:
    """Return the fields of a `PredictSplit` for a split of ``dataset``, its own or another one, except the name."""
    return {
        "model": str(job.folder),
        "snapshot": snapshot.name,
        "epoch": snapshot.epoch,
        "trained_on": str(job.dataset_folder),
        "dataset": str(dataset.folder),
        "split": split,
    }


def evaluation_recipe(job: ModelJob, snapshot: Snapshot, dataset: DatasetJob, split: Split) -> Evaluate:
    """Return the recipe that evaluates ``snapshot`` of ``job`` on a split of ``dataset``, its own or another one."""
    other = "" if dataset.id == job.dataset_id else dataset.id
    fields = split_fields(job, snapshot, dataset, split)
    return Evaluate(**fields, name=name_of(snapshot.name, split, other))


def first_evaluations(job: ModelJob, store: Store) -> list[Evaluate]:
    """Return the recipes that evaluate the best snapshot on the test split and on the validation split.

    Splits without records are left out. Empty without a snapshot, and for models that generate images.
    """
    dataset = store.find(job.dataset_id)
    if not isinstance(dataset, DatasetJob) or dataset.status is not Status.DONE or job.tasks[0].state.latent:
        return []
    manifest, snapshot = dataset.manifest(), job.snapshots().default
    if manifest is None or snapshot is None:
        return []
    splits: tuple[Split, ...] = ("test", "val")
    return [
        evaluation_recipe(job, snapshot, dataset, split)
        for split in splits
        if split in manifest.splits and manifest.splits[split].count
    ]


def health_check(job: DatasetJob) -> CheckDataset:
    """Return the recipe of the health check of a dataset."""
    views = views_of(job.data_kind)
    return CheckDataset(
        dataset=str(job.folder), appearance=views.checks_appearance, counts=views.checks_counts
    )
