"""Describe jobs as `digits.web.resources`, for pages and for programs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flask import request

from digits.core.compute import LOCAL, Compute
from digits.core.job import DamagedJob, Job
from digits.core.model_job import ModelJob
from digits.core.recipe import SOLVER_TITLES
from digits.core.status import Status
from digits.data.manifest import Manifest
from digits.data.sources.plan import count_of
from digits.kinds import Kind, default_kind
from digits.kinds.jobs import DatasetJob, ImportedDataset, last_metric
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.views import Views, describe_images, views_of
from digits.runtime import devices
from digits.runtime.offload import in_turns
from digits.runtime.store import names_of
from digits.web.resources.datasets import FrozenLabels
from digits.web.resources.encoding import describe
from digits.web.resources.jobs import BriefJob, Device, Findings, JobRow, JobStatus
from digits.web.services import services
from digits.web.services.clusters import LOCAL_TITLE

log = logging.getLogger(__name__)

SUGGESTED_GROUPS = 20
PLACES = {"model": "models", "dataset": "datasets", "labels": "labels"}


def brief(job: Job) -> BriefJob:
    """Return the response to creating a job."""
    return BriefJob(job.id, job.name, job.status.title)


def row(job: Job) -> JobRow:
    """Return a job's row in lists."""
    parent, kind = _dataset_of(job), data_kind(job)
    return describe(
        JobRow,
        job,
        type_title=type_title(job),
        is_imported=isinstance(job, ModelJob) and job.is_imported,
        data_kind=kind.name if kind else None,
        kind_title=kind.title if kind else "",
        picture=_picture(job if parent is None else parent),
        status=job.status.title,
        status_label=job.status.label,
        status_css=job.status.css,
        running=job.status.is_running,
        progress=round(100 * job.progress, 1),
        eta_seconds=job.seconds_left,
        may_end_early=isinstance(job, ModelJob) and job.recipe.early_stopping is not None,
        url=job_url(job),
        dataset_id=parent.id if parent else getattr(job, "dataset_id", None),
        dataset_name=parent.name if parent else None,
        refs=services().store.count_children(job),
        error=failure_message(job),
        detail=_detail(job),
        bytes=job.summary.record_bytes,
        cluster=cluster_title(job),
        sparkline=job.summary.sparkline,
        last_accuracy=job.summary.last_accuracy,
        metric=metric_words(job),
    )


def cluster_title(job: Job) -> str:
    """Return the title of the cluster on which a job runs; empty for this machine."""
    target = job.compute.target
    return "" if target == LOCAL else services().clusters.titles.get(target, target)


def _place(job: Job) -> str:
    compute = job.compute
    if compute == Compute():
        return ""
    words = [
        cluster_title(job) or LOCAL_TITLE,
        f"partition {compute.partition}" if compute.partition else "",
        f"{compute.workers} workers" if compute.workers > 1 else "",
    ]
    nodes = services().clusters.nodes(compute.target, job.task_folder(job.tasks[0])) if job.tasks else ""
    if nodes and job.status is not Status.WAIT:
        words.append(f"on {nodes}")
    return ", ".join(filter(None, words))


def status(job: Job) -> JobStatus:
    """Return the state of a job."""
    return describe(JobStatus, row(job), type=type_title(job))


def type_title(job: Job) -> str:
    """Return the type of a job in words, such as *Image classification model*."""
    kind = data_kind(job)
    return f"{kind.title} {job.type}" if kind else f"{job.type.capitalize()} job"


def data_kind(job: Job) -> Kind | None:
    """Return the kind of a dataset or labels, or of a model's dataset; None for a damaged job or a missing dataset."""
    dataset = job if isinstance(job, LabelsJob) else data_of(job)
    return dataset.data_kind if dataset else None


def kind_of(job: Job) -> Kind:
    """Return the `data_kind` of a job, or the default kind."""
    return data_kind(job) or default_kind()


def job_views(job: Job) -> Views[Any]:
    """Return the views of `kind_of` a job."""
    return views_of(kind_of(job))


def data_of(job: Job) -> DatasetJob | ImportedDataset | None:
    """Return the dataset of a model, imported models included, or a dataset itself; None if it is missing."""
    if isinstance(job, ModelJob) and job.is_imported:
        return ImportedDataset(job.folder)
    dataset = _dataset_of(job) or job
    return dataset if isinstance(dataset, DatasetJob) else None


def contents_of(job: DatasetJob) -> Manifest | None:
    """Return the manifest of a dataset; None until it is done, or if it is damaged."""
    return job.manifest() if job.status is Status.DONE else None


def finished_dataset(dataset_id: str) -> tuple[DatasetJob, Manifest] | None:
    """Return a dataset with its manifest; None if it is missing or unfinished."""
    job = services().store.find(dataset_id)
    manifest = job.manifest() if isinstance(job, DatasetJob) else None
    return (job, manifest) if isinstance(job, DatasetJob) and manifest else None


def manifest_of(job: Job) -> Manifest | None:
    """Return the manifest of `data_of` a model; None if it is missing or unfinished."""
    data = data_of(job)
    return data.manifest() if data else None


def rows(jobs: Iterable[Job], describe: Callable[[Job], Any] = row) -> list[Any]:
    """Return rows for job lists, yielding to other greenlets. A job that raises an error is shown as damaged and
    does not affect the others.
    """
    rows = []
    for job in in_turns(jobs):
        try:
            rows.append(describe(job))
        except Exception as error:
            log.exception("job %s cannot be shown", job.id)
            reason = f"{type(error).__name__}: {error}"
            rows.append(row(DamagedJob(id=job.id, folder=job.folder, name=job.name, reason=reason)))
    return rows


def page(job: Job) -> dict[str, Any]:
    """Return what the templates of a job's own page show: its row as ``job``, and the job itself as ``stored``."""
    store = services().store
    users = store.users(job)
    return {
        "job": row(job),
        "stored": job,
        "users": users,
        "names_of_users": names_of(users),
        "failure": job.failure,
        "groups": store.index.groups("", SUGGESTED_GROUPS),
        "place": _place(job),
        "folder_bytes": services().folder_sizes.of(job),
        "findings": findings_of(job),
    }


def findings_of(job: Job) -> Findings:
    """Return the warnings and remarks of all tasks of a job, for its page and its JSON."""
    states = [services().scheduler.task_state(job, task) for task in job.tasks]
    return Findings(
        [warning for state in states for warning in state.warnings],
        [remark for state in states for remark in state.remarks],
    )


def device_rows() -> list[Device]:
    """Return the devices of the machine, each with the name of the job that uses it."""
    busy = services().executor.ledger.holders()
    return [device_row(device, busy) for device in services().devices.list()]


def device_row(device: devices.Device, busy: Mapping[str, str]) -> Device:
    """Return a device, which ``busy`` maps to the name of the job that uses it."""
    return describe(Device, device, busy_with=busy.get(device.id))


def _dataset_of(job: Job) -> Job | None:
    if not isinstance(job, ModelJob) or job.is_imported:
        return None
    return services().store.find(job.dataset_id)


def _picture(dataset: Job) -> str | None:
    """Return the URL of the thumbnail of a dataset's first record; None if it is not done or has no images."""
    manifest = (
        dataset.manifest() if isinstance(dataset, DatasetJob) and dataset.status is Status.DONE else None
    )
    if manifest is None or not job_views(dataset).shows_images:
        return None
    split = next((name for name, split in manifest.splits.items() if split.count), None)
    return f"{job_url(dataset)}/records/{split}/0/thumbnail" if split else None


def _detail(job: Job) -> str:
    if isinstance(job, ModelJob) and job.is_imported:
        return "Imported"
    if isinstance(job, ModelJob):
        epochs = job.recipe.epochs
        return f"{epochs:g} epoch{'s' if epochs != 1 else ''} · {SOLVER_TITLES[job.recipe.solver.type]}"
    if isinstance(job, LabelsJob):
        images = count_of(int(job.summary.last_values.get("images", 0)), "image")
        return f"{images} · {count_of(len(job.shown_classes), job.form.noun)}"
    if not isinstance(job, DatasetJob):
        return ""
    manifest = contents_of(job)
    if manifest is None:
        return describe_images(job.recipe.width, job.recipe.height, job.recipe.channels)
    count = sum(split.count for split in manifest.splits.values())
    views = views_of(job.data_kind)
    about = views.describe_input(manifest), views.describe_dataset(manifest)
    return " · ".join([*about, f"{count:,} {views.records}"])


def metric_words(job: Job) -> str:
    """Format the value of a model's main metric, such as ``Accuracy 93.2%``, or return an empty string."""
    found = last_metric(job, _dataset_of(job))
    if found is None:
        return ""
    metric = job_views(job).metric(found[0])
    return f"{metric.title} {metric.format(found[1])}"


def failure_message(job: Job) -> str | None:
    return job.failure.message if job.failure else None


def job_url(job: Job) -> str:
    # Not url_for, which would take longer than the rest of a row.
    return f"{request.script_root}/{PLACES.get(job.type, 'jobs')}/{job.id}"


def labels_of(job: DatasetJob) -> FrozenLabels | None:
    """Return the labels that a dataset, or the one of which it is a version, was made from."""
    frozen = job.kind_recipe.frozen
    if frozen is None:
        return None
    labels = services().store.find(frozen.id)
    return FrozenLabels(frozen.id, frozen.name, job_url(labels) if labels else None)
