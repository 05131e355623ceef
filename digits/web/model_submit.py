"""Create model jobs, to be submitted to the scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from digits.core.files import write_bytes
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.kinds.jobs import DatasetJob
from digits.web.standard_networks import network

SAMPLE_EPOCHS = 5
SAMPLE_BATCH = 64


def new_model(
    folder: Path,
    dataset: DatasetJob,
    recipe: Train | None = None,
    name: str | None = None,
    *,
    text: str | None = None,
    device: str = "next",
    owner: str | None = None,
    group: str = "",
    form: dict[str, Any] | None = None,
) -> ModelJob:
    """Create a job in ``folder`` that trains the network ``text``, by default LeNet, and write the network there."""
    if recipe is None:
        recipe = _first_recipe(dataset)
        form = {**_first_form(dataset), **(form or {})}
    write_bytes(folder / recipe.network, (text or network("lenet").text).encode())
    return ModelJob(
        id=folder.name,
        folder=folder,
        name=name or f"LeNet on {dataset.name}",
        owner=owner,
        group=group,
        form=form or {},
        tasks=ModelJob.first_tasks(),
        dataset_id=dataset.id,
        recipe=recipe,
        device=device,
    )


def _first_recipe(dataset: DatasetJob) -> Train:
    return Train(
        dataset=str(dataset.folder),
        epochs=SAMPLE_EPOCHS,
        batch_size=SAMPLE_BATCH,
        solver={"type": "MOMENTUM", "learning_rate": 0.01, "momentum": 0.9},
        lr_policy={"policy": "step", "size": 33.0, "gamma": 0.1},
    )


def _first_form(dataset: DatasetJob) -> dict[str, Any]:
    return {
        "model_name": f"LeNet on {dataset.name}",
        "dataset": dataset.id,
        "train_epochs": SAMPLE_EPOCHS,
        "batch_size": [SAMPLE_BATCH],
        "solver_type": "MOMENTUM",
        "learning_rate": [0.01],
        "method": "standard",
        "standard_networks": "lenet",
    }
