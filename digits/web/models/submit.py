"""Create model jobs, to be submitted to the scheduler."""

from __future__ import annotations

from pathlib import Path

from digits.core import pretrained_files
from digits.core.files import write_bytes
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.kinds.jobs import DatasetJob
from digits.web.models import network_settings
from digits.web.models.form import ModelForm
from digits.web.models.standard_networks import Network, network

# Keep the demonstration short, whatever the network's recommended settings.
FIRST_EPOCHS = 5


def new_model(
    folder: Path,
    dataset: DatasetJob,
    recipe: Train,
    name: str,
    *,
    text: str,
    network_folder: Path | None = None,
    device: str = "next",
    owner: str | None = None,
    group: str = "",
) -> ModelJob:
    """Create a job in ``folder`` that trains a network with source code ``text`` on ``dataset``.

    ``network_folder`` contains the `pretrained_files` to which the network refers, if any.
    """
    write_bytes(folder / recipe.network, text.encode())
    if network_folder:
        pretrained_files.link(network_folder, folder)
    return ModelJob(
        id=folder.name,
        folder=folder,
        name=name,
        owner=owner,
        group=group,
        tasks=ModelJob.first_tasks(),
        dataset_id=dataset.id,
        recipe=recipe,
        device=device,
    )


def first_model(folder: Path, dataset: DatasetJob) -> ModelJob:
    """Create a job in ``folder`` that trains the default network for ``dataset`` for a few epochs."""
    default = network_settings.network_for(dataset) or network("lenet")
    recipe = _recipe(default, dataset)
    return new_model(folder, dataset, recipe, f"{default.title} on {dataset.name}", text=default.text)


def _recipe(chosen: Network, dataset: DatasetJob) -> Train:
    form = ModelForm(formdata=None)
    network_settings.apply(network_settings.settings_on(chosen, dataset), form)
    (size,), (rate,) = form.batch_size.data, form.learning_rate.data
    recipe = form.recipe(str(dataset.folder), None, size, rate)
    recipe.epochs = min(recipe.epochs, FIRST_EPOCHS)
    return recipe
