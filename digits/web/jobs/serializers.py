"""Describe jobs as `digits.web.resources`, for pages and for programs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import humanize
import msgspec
from flask import request, url_for

from digits.core import events, preflight_result
from digits.core.events import for_browser
from digits.core.files import UnreadableFile
from digits.core.job import DamagedJob, Job
from digits.core.model_job import ModelJob, epoch_label
from digits.core.snapshot_list import newest_name
from digits.core.splits import SPLITS
from digits.core.status import Status
from digits.data.manifest import CHANGES_FILE, SKIPPED_FILE, Manifest
from digits.kinds import Kind, default_kind
from digits.kinds.dataset_form import RESIZE_TITLES
from digits.kinds.jobs import DatasetJob, ImportedDataset, last_metric
from digits.kinds.versions import CreateVersion, read_changes
from digits.kinds.views import describe_images, views_of
from digits.web.models.form import SOLVER_TITLES
from digits.web.models.settings_description import (
    Settings,
    describe_devices,
    describe_preprocessing,
    describe_settings,
    device_names,
    known,
)
from digits.web.offload import in_turns
from digits.web.resources.datasets import (
    ChangedRecord,
    CreateDbTask,
    Dataset,
    DatasetContents,
    GenericDbTask,
    Shard,
    SkippedImages,
    SplitCounts,
    VersionOf,
)
from digits.web.resources.encoding import as_json
from digits.web.resources.jobs import (
    BriefJob,
    Device,
    JobPage,
    JobRow,
    JobStatus,
    JobUrls,
    StatusChange,
    TaskRow,
)
from digits.web.resources.models import (
    BriefModel,
    CurveMark,
    Model,
    ModelData,
    ModelPage,
    Preflight,
    Snapshot,
    SnapshotMetrics,
)
from digits.web.services import services

log = logging.getLogger(__name__)

SUGGESTED_GROUPS = 20
# On the page of a version.
MAX_CHANGES = 100
_PLACES = {"model": "models", "dataset": "datasets"}


def brief(job: Job) -> BriefJob:
    """Return the response to creating a job."""
    return BriefJob(job.id, job.name, job.status.title)


def row(job: Job) -> JobRow:
    """Return a job's row in lists."""
    parent = _dataset_of(job)
    return JobRow(
        id=job.id,
        name=job.name,
        type=job.type,
        type_title=type_title(job),
        group=job.group,
        owner=job.owner,
        status=job.status.title,
        status_label=job.status.label,
        status_css=job.status.css,
        waiting_for=job.waiting_for,
        expected_start=job.expected_start,
        running=job.status.is_running,
        progress=round(100 * job.progress, 1),
        eta_seconds=job.seconds_left,
        submitted=job.submitted,
        elapsed=job.elapsed,
        url=_url(job),
        dataset_id=parent.id if parent else getattr(job, "dataset_id", None),
        dataset_name=parent.name if parent else None,
        refs=services().store.count_children(job),
        error=_failure(job),
        detail=_detail(job),
        bytes=job.summary.record_bytes,
        sparkline=job.summary.sparkline,
        last_accuracy=job.summary.last_accuracy,
        metric=metric_words(job),
    )


def status(job: Job) -> JobStatus:
    """Return the state of a job."""
    return JobStatus(_failure(job), job.status.title, job.name, type_title(job), round(100 * job.progress, 1))


def type_title(job: Job) -> str:
    """Return the type of a job in words, such as *Image classification model*."""
    kind = data_kind(job)
    return f"{kind.title} {job.type}" if kind else f"{job.type.capitalize()} job"


def data_kind(job: Job) -> Kind | None:
    """Return the kind of a dataset, or of a model's dataset; None for a damaged job or a missing dataset."""
    found = job if isinstance(job, DatasetJob) else data_of(job)
    return found.data_kind if found else None


def data_of(job: Job) -> DatasetJob | ImportedDataset | None:
    """Return the dataset of a model, imported models included; None if it is missing."""
    if isinstance(job, ModelJob) and job.is_imported:
        return ImportedDataset(job.folder)
    found = _dataset_of(job)
    return found if isinstance(found, DatasetJob) else None


def rows(jobs: Iterable[Job], describe: Callable[[Job], Any] = row) -> list[Any]:
    """Return rows for job lists, yielding to other greenlets. A job that raises an error is shown as damaged and
    does not affect the others.
    """
    shown = []
    for job in in_turns(iter(jobs)):
        try:
            shown.append(describe(job))
        except Exception as error:
            log.exception("job %s cannot be shown", job.id)
            reason = f"{type(error).__name__}: {error}"
            shown.append(row(DamagedJob(id=job.id, folder=job.folder, name=job.name, reason=reason)))
    return shown


def page(job: Job) -> JobPage:
    """Return a job's data for its own page."""
    return JobPage(
        **msgspec.structs.asdict(row(job)),
        notes=job.notes,
        can_resume=job.can_resume,
        is_imported=isinstance(job, ModelJob) and job.is_imported,
        groups=services().store.index.groups("", SUGGESTED_GROUPS),
        history=[StatusChange(status.label, status.css, at) for status, at in job.history],
        directory=str(job.folder),
        folder_bytes=services().folder_sizes.of(job),
        failure=job.failure,
        tasks=[
            TaskRow(
                name=task.name,
                title=task.title,
                status=task.status.title,
                status_css=task.status.css,
                progress=round(100 * task.progress, 1),
                eta_seconds=task.state.seconds_left,
                doing=task.state.doing,
            )
            for task in job.tasks
        ],
        warnings=_warnings(job),
        urls=JobUrls(
            json=f"{_url(job)}.json",
            abort=f"{_url(job)}/abort",
            delete=_url(job),
            clone=url_for("jobs.clone", job_id=job.id),
            output=url_for("jobs.output", job_id=job.id),
        ),
    )


def _warnings(job: Job) -> list[str]:
    return [warning for task in job.tasks for warning in services().scheduler.task_state(job, task).warnings]


def dataset(job: DatasetJob) -> DatasetContents | None:
    """Return the contents of a finished dataset; None until it is finished."""
    manifest = job.manifest() if job.status is Status.DONE else None
    if manifest is None:
        return None
    views = views_of(job.data_kind)
    return DatasetContents(
        width=manifest.width,
        height=manifest.height,
        channels=manifest.channels,
        dtype=manifest.dtype,
        encoding=manifest.encoding,
        padding=manifest.padding,
        resize_mode=manifest.resize_mode,
        resize_title=RESIZE_TITLES.get(manifest.resize_mode, manifest.resize_mode),
        kind=job.data_kind.name,
        labels=manifest.target.labels,
        groups=manifest.groups,
        target_names=manifest.target.names,
        input=views.describe_input(manifest),
        about=views.describe_dataset(manifest),
        tiles=views.tiles(manifest),
        splits={
            name: SplitCounts(split.count, split.bytes, split.counts)
            for name, split in manifest.splits.items()
        },
        mean_url=url_for("jobs.file", path=f"{job.id}/mean.png") if views.shows_images else "",
        mean_pixel=manifest.mean_pixel,
        skipped=skipped(job),
        source=manifest.source,
        content_hash=manifest.content_hash,
        version_of=_version_of(job),
        new_version_url=url_for("versions.new", job_id=job.id),
        explore_url=url_for("explore.show", kind=job.data_kind, job_id=job.id),
    )


def _version_of(job: DatasetJob) -> VersionOf | None:
    """Return the parent of a version, and how it differs; None for other datasets."""
    recipe = job.recipe
    if not isinstance(recipe, CreateVersion):
        return None
    parent = services().store.find(recipe.parent_id)
    changes = [recipe.changes] if recipe.changes else []
    if recipe.keep < 100:
        changes.append(f"{recipe.keep:g}% of the images kept")
    if recipe.pct_val is not None or recipe.pct_test is not None:
        changes.append("divided into new splits")
    return VersionOf(
        id=recipe.parent_id,
        name=parent.name if parent else recipe.parent_name,
        url=_url(parent) if parent else None,
        changes=", ".join(changes) or "other image size or format",
        changes_url=url_for("jobs.file", path=f"{job.id}/{CHANGES_FILE}") if _has_changes(job) else None,
    )


def _has_changes(job: DatasetJob) -> bool:
    return job.status is Status.DONE and (job.folder / CHANGES_FILE).is_file()


def changes(job: DatasetJob) -> list[ChangedRecord]:
    """Return the first changed records of a version."""
    recipe = job.recipe
    if not isinstance(recipe, CreateVersion) or not _has_changes(job):
        return []
    try:
        found = [ChangedRecord(*change) for change in read_changes(job.folder, MAX_CHANGES)]
    except UnreadableFile:
        return []
    if services().store.find(recipe.parent_id) is not None:
        for change in found:
            place: dict[str, Any] = {
                "job_id": recipe.parent_id,
                "split": change.split,
                "number": change.number,
            }
            change.url = url_for("records.image", **place)
            change.thumbnail = url_for("records.thumbnail", **place)
    return found


def skipped(job: DatasetJob) -> SkippedImages:
    """Return the skipped images of a dataset: their number, the first ones, and the URL of the full list."""
    state = services().scheduler.task_state(job, job.tasks[0])
    manifest = job.manifest() if job.status is Status.DONE else None
    count = manifest.skipped if manifest else state.skipped
    listed = count > 0 and (job.folder / SKIPPED_FILE).is_file()
    return SkippedImages(
        count=count,
        first=[events.facts(skip) for skip in state.first_skips],
        url=url_for("jobs.file", path=f"{job.id}/{SKIPPED_FILE}") if listed else None,
    )


def dataset_json(job: DatasetJob) -> dict[str, Any]:
    """Return the JSON of a dataset: a `Dataset`, and the keys of its kind."""
    manifest = job.manifest()
    body = Dataset(
        job.id, job.name, job.status.title, str(job.folder), error=_failure(job), warnings=_warnings(job)
    )
    if manifest is None:
        return as_json(body)
    views = views_of(job.data_kind)
    separate = {} if isinstance(job.recipe, CreateVersion) else views.separate_sources(job.recipe, manifest)
    body.ParseFolderTasks = [
        {
            "name": f"Parse Folder ({'/'.join(read)})",
            **fields,
            **{f"{name}_count": manifest.splits[name].count if name in read else 0 for name in SPLITS},
        }
        for read, fields in (
            ([name for name in manifest.splits if name not in separate], views.parse_task(manifest)),
            *(([name], fields) for name, fields in separate.items()),
        )
    ]
    for name, split in manifest.splits.items():
        title = f"Create DB ({name})"
        body.CreateDbTasks.append(
            CreateDbTask(
                title, split.count, manifest.width, manifest.height, manifest.channels, manifest.encoding
            )
        )
        body.create_db_tasks.append(
            GenericDbTask(title, f"{name}_db", split.count, next(iter(split.shards), None))
        )
    body.feature_dims, body.mean_pixel = list(manifest.shape), manifest.mean_pixel
    body.skipped, body.version_of = manifest.skipped, _version_of(job)
    body.content_hash = manifest.content_hash
    body.shards = [
        Shard(shard, digest)
        for split in manifest.splits.values()
        for shard, digest in zip(split.shards, split.hashes, strict=False)
    ]
    return {**as_json(body), **views.dataset_json(manifest)}


def brief_model(job: ModelJob) -> BriefModel:
    """Return a model for lists and archives."""
    parent = data_of(job)
    manifest = parent.manifest() if parent else None
    return BriefModel(
        id=job.id,
        name=job.name,
        status=job.status.title,
        dataset_id=job.dataset_id,
        job_id=job.id,
        submitted=job.submitted,
        username=job.owner,
        shape=list(manifest.shape) if manifest else None,
        resize_mode=manifest.resize_mode if manifest else None,
        mean=job.recipe.mean,
        crop_size=job.recipe.crop_size,
        whitening=job.recipe.augment.whitening,
        snapshot_file=newest_name(job.folder) or "no snapshots",
    )


def model_json(job: ModelJob) -> Model:
    """Return a model with its snapshots."""
    saved = job.snapshots()
    newest_first = list(reversed(saved.snapshots))
    return Model(
        **msgspec.structs.asdict(brief_model(job)),
        directory=str(job.folder),
        snapshots=[_epoch(snapshot.epoch) for snapshot in newest_first],
        best_epoch=_epoch(saved.best.epoch) if saved.best else None,
        snapshot_metrics=[
            SnapshotMetrics(_epoch(snapshot.epoch), snapshot.name, for_browser(snapshot.metrics))
            for snapshot in newest_first
        ],
        error=_failure(job),
        progress=round(100 * job.progress, 1),
    )


def model(job: ModelJob) -> ModelPage:
    """Return the additional data for a model's page."""
    task = job.tasks[0]
    state = services().scheduler.task_state(job, task)
    parent = data_of(job)
    trained_on = parent if isinstance(parent, DatasetJob) else None
    manifest = parent.manifest() if parent else None
    network, network_problem = _network(job)
    return ModelPage(
        dataset=ModelData(
            id=job.dataset_id,
            name=trained_on.name if trained_on else None,
            url=_url(trained_on) if trained_on else None,
            width=manifest.width if manifest else None,
            height=manifest.height if manifest else None,
            channels=manifest.channels if manifest else None,
            dtype=manifest.dtype if manifest else None,
            labels=manifest.target.labels if manifest else [],
        ),
        network=network,
        network_problem=network_problem,
        parameters=state.parameters,
        layers=state.layers,
        latent=state.latent,
        loaded_weights=events.facts(state.loaded_weights),
        snapshots=snapshots(job),
        marks=marks(job),
        preflight=_preflight(job),
        epochs=None if job.is_imported else job.recipe.epochs,
        settings=_settings(job, manifest),
        devices=device_names(task.devices),
        tensorboard_url=services().tensorboards.url_for(job.id),
        traces_url=url_for("traces.show", job_id=job.id) if job.recipe.traces_interval else None,
        metrics_url=url_for("models.metrics", job_id=job.id),
        csv_url=url_for("models.metrics_table", job_id=job.id),
    )


def _settings(job: ModelJob, manifest: Manifest | None) -> Settings:
    """Return titles and descriptions of a model's settings, which its page and its report show."""
    task, views = job.tasks[0], views_of(data_kind(job) or default_kind())
    words = (
        (views.describe_input(manifest), views.describe_dataset(manifest))
        if manifest and manifest.width
        else ()
    )
    prepared = services().scheduler.task_state(job, task).inputs.get("train")
    return [
        *known({"Input": ", ".join(filter(None, words)), "Data loading": _data_loading(prepared)}),
        *(describe_preprocessing if job.is_imported else describe_settings)(job.recipe),
        *describe_devices(job.recipe, task.devices),
    ]


def snapshots(job: ModelJob, weights: str | None = None) -> list[Snapshot]:
    """Return the snapshots of a model, newest first, for lists and choices.

    The default one is that with the path ``weights``, the best one, or the newest one if none has been validated.
    """
    saved, kind = job.snapshots(), data_kind(job) or default_kind()
    best = saved.best
    default = next((item for item in saved if str(job.folder / item.name) == weights), saved.default)
    rows = []
    for snapshot in saved:
        title, metrics = (
            f"Epoch {epoch_label(snapshot.epoch)}"
            if snapshot.epoch or not job.is_imported
            else "Imported weights",
            views_of(kind).describe_metrics(snapshot.metrics),
        )
        marks = " (best)" if snapshot is best else "" if snapshot.is_intact else " (damaged)"
        rows.append(
            Snapshot(
                epoch=_epoch(snapshot.epoch),
                title=title,
                metrics=metrics,
                words=" · ".join(filter(None, (title + marks, metrics))),
                best=snapshot is best,
                default=snapshot is default,
                intact=snapshot.is_intact,
            )
        )
    return rows


def marks(job: ModelJob) -> list[CurveMark]:
    """Return what to mark on the curves of a model, by epoch: snapshots, phases of the training and warnings.

    Changes of the learning rate are in the curves.
    """
    state = services().scheduler.task_state(job, job.tasks[0])
    found = [
        CurveMark("best" if row.best else "snapshot", row.epoch, row.metrics or "saved")
        for row in snapshots(job)
        if not job.is_imported
    ]
    found += [CurveMark(mark.kind, mark.epoch, mark.text) for mark in state.marks]
    return sorted(found, key=lambda mark: mark.epoch)


def device_rows() -> list[Device]:
    """Return the devices of the machine, each with the name of the job that uses it."""
    busy = services().executor.ledger.holders()
    return [
        Device(
            id=device.id,
            name=device.name,
            is_gpu=device.is_gpu,
            memory_total=device.memory_total,
            memory_used=device.memory_used,
            busy_with=busy.get(device.id),
        )
        for device in services().devices.list()
    ]


def _dataset_of(job: Job | None) -> Job | None:
    dataset_id = getattr(job, "dataset_id", None)
    return services().store.find(dataset_id) if job and dataset_id and dataset_id != job.id else None


def _detail(job: Job) -> str:
    if isinstance(job, ModelJob) and job.is_imported:
        return "Imported"
    if isinstance(job, ModelJob):
        epochs = job.recipe.epochs
        return f"{epochs:g} epoch{'s' if epochs != 1 else ''} · {_optimizer(job)}"
    if not isinstance(job, DatasetJob):
        return ""
    manifest = job.manifest() if job.status is Status.DONE else None
    if manifest is None:
        return describe_images(job.recipe.width, job.recipe.height, job.recipe.channels)
    count = sum(split.count for split in manifest.splits.values())
    views = views_of(job.data_kind)
    about = views.describe_input(manifest), views.describe_dataset(manifest)
    return " · ".join([*about, f"{count:,} {views.records}"])


def _optimizer(job: ModelJob) -> str:
    return str(SOLVER_TITLES[job.recipe.solver.type])


def metric_words(job: Job) -> str:
    """Format the latest value of a model's main metric: ``93.2%`` for accuracy, otherwise with the metric's name,
    such as ``R² 0.93``. Return an empty string if there is none.
    """
    accuracy = job.summary.last_accuracy
    if accuracy is not None:
        return f"{accuracy:.1f}%"
    kind = data_kind(job) or default_kind()
    metric = last_metric(job, _dataset_of(job))
    return views_of(kind).describe_metric(*metric) if metric else ""


def _failure(job: Job) -> str | None:
    return job.failure.message if job.failure else None


def _epoch(epoch: float) -> float:
    return int(epoch) if epoch == int(epoch) else epoch


def _network(job: ModelJob) -> tuple[str, str]:
    """Return the source code of the network, and the reason why it cannot be shown."""
    try:
        return job.network_text(), ""
    except UnreadableFile as error:
        return "", f"The network cannot be shown: {error}."


def _preflight(job: ModelJob) -> Preflight | None:
    """Return the result of the preflight before the training, with the URL of its picture."""
    found = preflight_result.load(job.folder)
    return Preflight(**found, batch_url=url_for("models.first_batch", job_id=job.id)) if found else None


def _data_loading(prepared: events.InputPrepared | None) -> str:
    """Describe how the images reach the network, and why; empty before the input is prepared."""
    if prepared is None:
        return ""
    need, room = humanize.naturalsize(prepared.bytes), humanize.naturalsize(prepared.budget_bytes)
    if prepared.how == "resident":
        return f"Cached in {prepared.place} ({need} of {room} available)"
    return f"Streamed from disk ({need} exceeds the {room} of {prepared.place} available)"


def _url(job: Job) -> str:
    # Not url_for, which would take longer than the rest of a row.
    return f"{request.script_root}/{_PLACES.get(job.type, 'jobs')}/{job.id}"
