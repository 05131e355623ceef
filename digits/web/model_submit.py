"""Create model jobs, to be submitted to the scheduler."""

from __future__ import annotations

from pathlib import Path

from digits.core.files import write_bytes
from digits.core.model_job import ModelJob
from digits.core.recipe import Solver, Train
from digits.core.schedules import Step
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
) -> ModelJob:
    """Create a job in ``folder`` that trains the network ``text``, by default LeNet, and write the network there."""
    if recipe is None:
        recipe = _first_recipe(dataset)
    write_bytes(folder / recipe.network, (text or network("lenet").text).encode())
    return ModelJob(
        id=folder.name,
        folder=folder,
        name=name or f"LeNet on {dataset.name}",
        owner=owner,
        group=group,
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
        solver=Solver(type="MOMENTUM"),
        lr_policy=Step(),
    )
