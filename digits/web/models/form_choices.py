"""The choices in the form of models: datasets, networks and metrics."""

from __future__ import annotations

import itertools
from typing import Any

from digits.core.job import Job
from digits.core.model_job import ModelJob
from digits.core.snapshot_list import newest_name
from digits.core.status import Status
from digits.kinds import Kind
from digits.kinds.forms.fields import NAME_LENGTH, choices
from digits.kinds.forms.request_fields import parse_integer
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views
from digits.runtime.offload import in_thread, in_turns
from digits.web.jobs import serializers
from digits.web.models import serializers as model_serializers
from digits.web.models.form import ModelForm
from digits.web.services import services

# The form lists this many of the newest jobs; the others can be searched.
SHOWN_DATASETS = 50
SHOWN_MODELS = 25
# The digits of a number at the end of a name, and the space before it.
_LONGEST_NUMBER = 6


def offer_datasets(form: ModelForm, words: str = "") -> tuple[int, bool]:
    """Offer the newest usable datasets that match, and the one chosen in the form.

    Return how many match, and whether there are more.
    """
    usable = (job for job in services().store.index.select(DatasetJob, words) if _is_usable(job))
    found = list(itertools.islice(usable, SHOWN_DATASETS + 1))
    offered, current = found[:SHOWN_DATASETS], services().store.find(form.dataset.data or "")
    if isinstance(current, DatasetJob) and _is_usable(current) and current not in offered:
        offered.append(current)
    form.dataset.choices = choices(*((job.id, job.name) for job in offered))
    return min(len(found), SHOWN_DATASETS), len(found) > SHOWN_DATASETS


def previous_networks(
    dataset: DatasetJob | None, words: str = "", chosen: str | None = None, weights: str | None = None
) -> dict[str, Any]:
    """Return the newest models for the kind of ``dataset`` that match and have snapshots, and the chosen model.

    Of each model, the snapshot ``weights`` is selected, or else the default one.
    """
    kind = dataset.data_kind if dataset else None
    fitting = (job for job in services().store.index.select(ModelJob, words) if _fits(job, kind))
    listed = list(itertools.islice(in_turns(fitting), SHOWN_MODELS + 1))
    has_more = len(listed) > SHOWN_MODELS
    del listed[SHOWN_MODELS:]
    job = services().store.find(chosen or "")
    if isinstance(job, ModelJob) and job not in listed and _has_network(job):
        listed.insert(0, job)
    return {
        "previous": [
            (serializers.row(job), model_serializers.snapshots(job, weights)) for job in in_turns(listed)
        ],
        "has_more_models": has_more,
        "searching": bool(words),
        "chosen": chosen,
    }


def _fits(job: ModelJob, kind: Kind | None) -> bool:
    """Return whether the network and the weights of ``job`` can be used for datasets of ``kind``."""
    data = serializers.data_of(job)
    return bool(data and data.data_kind == kind and _has_snapshots(job) and _has_network(job))


def _has_snapshots(job: ModelJob) -> bool:
    """Return whether ``job`` has snapshots; thousands of running trainings have none yet, and are not read."""
    if job.status is Status.RUN:
        return bool(job.tasks[0].state.snapshots)
    return in_thread(newest_name, job.folder) is not None


def _has_network(job: ModelJob) -> bool:
    return job.network_path.is_file() and not job.network_path.is_symlink()


def newest_dataset(kind: Kind) -> str | None:
    """Return the id of the newest usable dataset of ``kind``."""
    datasets = services().store.index.select(DatasetJob)
    return next((job.id for job in datasets if job.data_kind == kind and _is_usable(job)), None)


def _is_usable(job: Job) -> bool:
    return job.status is Status.DONE or job.status.is_running


def next_name(name: str) -> str:
    """Return a name for a copy of the model ``name``: that name with the first free number from 2."""
    base, _, number = name.rpartition(" ")
    if parse_integer(number) is None:
        base = name
    names = {job.name for job in services().store.index.select(ModelJob, base)}
    base = (base if base in names else name)[: NAME_LENGTH - _LONGEST_NUMBER]
    return next(free for count in itertools.count(2) if (free := f"{base} {count}") not in names)


def metric_choices(views: Views[Any]) -> dict[str, list[tuple[str, str]]]:
    """Return the metrics of a kind to choose the best snapshot and to stop early by, as values and labels."""
    metrics = [each for each in views.metrics if each.chart is not None and not each.name.endswith("/")]
    best = [(each.name, f"{each.best.capitalize()} validation {each.word}") for each in metrics]
    stopping = [(each.name, f"When {each.word} stops improving") for each in metrics]
    return {
        "best": [("", "Automatic"), *best, ("loss", "Lowest validation loss")],
        "stopping": [("", "Off"), *stopping, ("loss", "When loss stops improving")],
    }
