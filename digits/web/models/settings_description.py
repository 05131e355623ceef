"""The settings of a training in words, for the page of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import humanize

from digits.core.events import InputPrepared
from digits.core.model_job import ModelJob
from digits.core.recipe import DEFAULT_BATCH_SIZE, SOLVER_TITLES, Solver, Train
from digits.core.schedules import TITLES
from digits.data.manifest import Manifest
from digits.data.models.pretrained_catalog import CATALOG, PREFIX
from digits.kinds.views import Views
from digits.web.jobs.serializers import job_views
from digits.web.models.form import AUGMENTATIONS, SOLVER_FIELDS
from digits.web.services import services

# Titles with descriptions.
Settings = list[tuple[str, str]]

_MEANS = {"pixel": "per channel"}
_BALANCES = {"class_weights": "class weights", "sampling": "oversampling of rare classes"}
_XLA = {None: "", True: ", XLA", False: ", no XLA"}
_WEIGHTS_ON = {"first_gpu": "on the first GPU", "cpu": "on the CPU"}


def settings_of(job: ModelJob, manifest: Manifest | None) -> Settings:
    """Return the settings of a model, with its input and its devices."""
    task, views = job.tasks[0], job_views(job)
    words = (
        (views.describe_input(manifest), views.describe_dataset(manifest))
        if manifest and manifest.width
        else ()
    )
    prepared = services().scheduler.task_state(job, task).inputs.get("train")
    return [
        *known({"Input": ", ".join(filter(None, words)), "Data loading": describe_loading(prepared)}),
        *(describe_preprocessing(job.recipe) if job.is_imported else describe_settings(job.recipe, views)),
        *describe_devices(job.recipe, task.devices),
    ]


def describe_settings(recipe: Train, views: Views[Any]) -> Settings:
    """Return the settings of a training of the kind of ``views``, without those that are off."""
    stopping, tuning = recipe.early_stopping, recipe.fine_tune
    augmentations = (binding.describe(getattr(recipe.augment, binding.name)) for binding in AUGMENTATIONS)
    settings = {
        "Epochs": f"{recipe.epochs:g}",
        "Batch size": f"{recipe.batch_size or DEFAULT_BATCH_SIZE}",
        "Optimizer": _describe_solver(recipe.solver),
        "Learning rate": f"{recipe.solver.learning_rate}, {TITLES[type(recipe.lr_policy)].lower()}",
        "Initial weights": _describe_weights(recipe.weights or ""),
        "Fine-tuning": "",
        "Frozen layers": ", ".join(recipe.freeze),
        **dict(describe_preprocessing(recipe)),
        "Augmentation": ", ".join(filter(None, augmentations)),
        "Class balancing": _BALANCES.get(recipe.balance, ""),
        "Precision": recipe.precision.replace("_", " ") + _XLA[recipe.xla],
        "Seed": "" if recipe.seed is None else str(recipe.seed),
    }
    if stopping:
        settings["Epochs"] += (
            f"; early stopping on {views.metric(stopping.metric).word}, patience {stopping.patience:g}"
        )
    if recipe.batch_accumulation > 1:
        settings["Batch size"] += f", gradients accumulated over {recipe.batch_accumulation} batches"
    if tuning:
        settings["Fine-tuning"] = (
            f"Head first for {tuning.head_epochs:g} epochs at {tuning.head_rate:g}, "
            f"then all layers with trunk factor {tuning.trunk_factor:g}"
        )
    return known(settings)


def _describe_weights(weights: str) -> str:
    entry = CATALOG.get(weights.removeprefix(PREFIX)) if weights.startswith(PREFIX) else None
    return f"ImageNet, {entry.title}" if entry else weights.rpartition("/")[2]


def describe_preprocessing(recipe: Train) -> Settings:
    """Return the settings that an imported model has, too."""
    crop_size = f"{recipe.crop_size} px" if recipe.crop_size else ""
    return known({"Mean subtraction": _MEANS.get(recipe.mean, recipe.mean), "Random crop size": crop_size})


def describe_devices(recipe: Train, devices: Sequence[str]) -> Settings:
    """Return the devices of a training, and where the weights are if it has several."""
    names = device_names(devices)
    if len(devices) > 1:
        return [("Devices", f"{names}; weights {_WEIGHTS_ON[recipe.weights_on]}")]
    return known({"Device": names})


def describe_loading(prepared: InputPrepared | None) -> str:
    """Return how the images reach the network, and why; empty before the input is prepared."""
    if prepared is None:
        return ""
    need, room = humanize.naturalsize(prepared.bytes), humanize.naturalsize(prepared.budget_bytes)
    if prepared.how == "resident":
        return f"Cached in {prepared.place} ({need} of {room} available)"
    return f"Streamed from disk ({need} exceeds the {room} of {prepared.place} available)"


def device_names(devices: Sequence[str]) -> str:
    """Return the names of devices; GPUs have the driver's numbers."""
    return ", ".join("CPU" if device == "cpu" else f"GPU {device}" for device in devices)


def known(values: Mapping[str, str]) -> Settings:
    """Return titles and ``values``, without empty ones."""
    return [(title, value) for title, value in values.items() if value]


def _describe_solver(solver: Solver) -> str:
    words = ""
    if solver.type == "RMSPROP":
        words = f", momentum {solver.momentum}, decay {solver.rms_decay}"
    elif solver.type in SOLVER_FIELDS["momentum"]:
        words = f" {solver.momentum}"
    elif solver.type in SOLVER_FIELDS["beta_1"]:
        words = f", β {solver.beta_1} and {solver.beta_2}"
    if solver.type in SOLVER_FIELDS["weight_decay"]:
        words += f", weight decay {solver.weight_decay}"
    return f"{SOLVER_TITLES[solver.type]}{words}"
