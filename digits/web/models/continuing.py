"""Continue a training after it has ended: for more epochs, or after a failure."""

from __future__ import annotations

from typing import Any, NamedTuple

from flask import url_for

from digits.core.errors import BadRequest, NotAllowed
from digits.core.model_job import ModelJob, epoch_label
from digits.core.recipe import DEFAULT_BATCH_SIZE, MAX_EPOCHS, Train
from digits.core.schedules import TITLES, Fixed
from digits.core.status import Status
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import of_model
from digits.runtime.offload import in_thread
from digits.web.jobs.serializers import data_of, kind_of
from digits.web.request_limits import limited


def can_continue(job: ModelJob) -> bool:
    """Return whether a training that has finished can continue."""
    return job.status is Status.DONE and _has_data(job) and _epochs_done(job) > 0


def more_epochs(job: ModelJob) -> int:
    """Return how many epochs to add to a training that was too short: half of them, at least 5; 0 if it cannot."""
    if not can_continue(job):
        return 0
    done = _epochs_done(job)
    return int(min(max(5, done / 2), MAX_EPOCHS - done))


def epochs_of_request(job: ModelJob) -> float | None:
    """Return the number of epochs that ``job`` is to be trained in all; None if the request does not change it.

    Raises BadRequest, or NotAllowed if the training cannot continue.
    """
    total = limited("train_epochs")
    more = limited("more_epochs")
    if total is None and more is None:
        return None
    if job.status.is_running or job.is_imported:
        state = "it was trained elsewhere" if job.is_imported else f"it is {job.status.title.lower()}"
        raise NotAllowed(
            f"“{job.name}” cannot be continued: {state}.",
            "Train a new model from its weights."
            if job.is_imported
            else "Wait until it has ended, or abort it.",
        )
    done = _epochs_done(job)
    if not done:
        raise NotAllowed(
            f"“{job.name}” cannot be continued: it has no resume point.",
            "Train a new model from one of its snapshots."
            if job.status is Status.DONE
            else "Resume it without train_epochs: it starts over.",
        )
    if not _has_data(job):
        raise NotAllowed(f"“{job.name}” cannot be continued: its dataset is missing or not finished.")
    if total is not None and more is not None:
        raise BadRequest("Set either “train_epochs” or “more_epochs”.")
    if more is not None and job.status is not Status.DONE:
        raise BadRequest(
            f"“more_epochs” is for finished trainings; “{job.name}” is {job.status.title.lower()}.",
            "Set train_epochs to the number of epochs in all.",
        )
    epochs = done + more if more is not None else float(total or 0)
    if not done < epochs <= MAX_EPOCHS:
        name = "train_epochs" if more is None else "more_epochs"
        raise BadRequest(
            f"“{name}”: the training must have more epochs in all than the {epoch_label(done)} that it has done, "
            f"and at most {MAX_EPOCHS:,}."
        )
    return epochs


class WayBack(NamedTuple):
    """A link to the form with the settings of a training, and those that its failure suggests.

    It ``replaces`` Resume if these settings are sure to fail again.
    """

    label: str
    url: str
    replaces: bool


def way_back(job: ModelJob) -> WayBack | None:
    """Return the way to change the settings of a training that runs or has failed; None for another one.

    A lower learning rate is a tenth of the present one, or that of the standard network if this is lower.
    """
    if job.is_imported or not (job.status.is_running or job.failure):
        return None
    label, changes = "Edit and try again", dict[str, Any]()
    remedy = job.failure.remedy if job.failure else {}
    size = int((job.recipe.batch_size or DEFAULT_BATCH_SIZE) * float(remedy.get("batch_factor", 0)))
    if factor := float(remedy.get("rate_factor", 0)):
        label = "Clone with the rate divided by ten"
        rate, network = job.recipe.solver.learning_rate, of_model(job)
        if network and 0 < (own := float(network.values.get("learning_rate", 0))) < factor * rate:
            label, factor = f"Clone with the network’s own rate, {own:g}", own / rate
        changes = {"rate_factor": f"{factor:.6g}"}
    elif size:
        label, changes = f"Clone with batch size {size}", {"batch_size": size}
    elif "numerics_checks" in remedy:
        label, changes = "Clone with Detect NaN/Inf", {"numerics_checks": remedy["numerics_checks"]}
    url = url_for("model_form.new", kind=kind_of(job), clone=job.id, **changes)
    return WayBack(label, url, bool(changes) or bool(job.failure and job.failure.line))


def schedule_note(recipe: Train) -> str:
    """Return which learning rates apply to a continued training."""
    policy = recipe.lr_policy
    if isinstance(policy, Fixed) and not policy.warmup:
        return f"The learning rate remains {recipe.solver.learning_rate:g}."
    name = "warm-up" if isinstance(policy, Fixed) else TITLES[type(policy)].lower()
    return (
        f"The learning rate ({name}) depends on the number of epochs: from here on, it is that of a training with all "
        "epochs, old and new."
    )


def _epochs_done(job: ModelJob) -> float:
    return in_thread(lambda: job.epochs_done)  # a network may fill the folder with files


def _has_data(job: ModelJob) -> bool:
    data = data_of(job)
    return isinstance(data, DatasetJob) and data.status is Status.DONE
