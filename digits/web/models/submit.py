"""Create model jobs, to be submitted to the scheduler."""

from __future__ import annotations

from pathlib import Path

from digits.core import pretrained_files
from digits.core.compute import Compute
from digits.core.files import write_bytes
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import network
from digits.web.models import network_settings
from digits.web.offload import in_thread

# Keep the demonstration short, whatever the recommended settings.
FIRST_EPOCHS = 5


def new_model(
    folder: Path,
    dataset: DatasetJob,
    recipe: Train,
    name: str,
    *,
    text: str,
    network_folder: Path | None = None,
    compute: Compute = Compute(),  # noqa: B008 (immutable)
    **fields: str | None,
) -> ModelJob:
    """Create a job in ``folder`` that trains a network with source code ``text`` on ``dataset``.

    ``network_folder`` contains the `pretrained_files` to which the network refers, if any. ``fields`` are other ones of
    the job: its device, owner and group.
    """
    in_thread(write_bytes, folder / recipe.network, text.encode())
    if network_folder:
        pretrained_files.link(network_folder, folder)
    return ModelJob.create(folder, dataset_id=dataset.id, recipe=recipe, name=name, compute=compute, **fields)


def first_model(folder: Path, dataset: DatasetJob) -> ModelJob:
    """Create a job in ``folder`` that trains the recommended network for ``dataset`` briefly, with the same owner."""
    best = network_settings.recommended(dataset)
    assert best, f"there are networks for {dataset.data_kind.name}"
    recipe = network_settings.recommended_recipe(best, str(dataset.folder), network_settings.weights_places())
    recipe.epochs = min(recipe.epochs, FIRST_EPOCHS)
    chosen = network(best.network)
    name = f"{chosen.title} on {dataset.name}"
    return new_model(folder, dataset, recipe, name, text=chosen.text, device="next", owner=dataset.owner)
