"""Models as resources, for pages and for JSON."""

from __future__ import annotations

from collections.abc import Sequence

from flask import url_for

from digits.core.events import for_browser
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob, epoch_label, trace_name, traced_steps
from digits.core.snapshot_list import newest_name
from digits.data.manifest import Manifest
from digits.runtime.offload import in_thread
from digits.web.jobs.serializers import failure_message, job_views, manifest_of
from digits.web.resources.encoding import describe
from digits.web.resources.models import (
    BriefModel,
    CurveMark,
    Model,
    Snapshot,
    SnapshotMetrics,
    StepTrace,
)
from digits.web.services import services


def brief_model(job: ModelJob) -> BriefModel:
    """Return a model for lists and archives."""
    manifest = manifest_of(job)
    return describe(
        BriefModel,
        job,
        status=job.status.title,
        job_id=job.id,
        username=job.owner,
        shape=list(manifest.shape) if manifest else None,
        resize_mode=manifest.resize_mode if manifest else None,
        mean=job.recipe.mean,
        crop_size=job.recipe.crop_size,
        whitening=job.recipe.augment.whitening,
        snapshot_file=in_thread(newest_name, job.folder) or "no snapshots",
    )


def model_json(job: ModelJob) -> Model:
    """Return a model with its snapshots."""
    saved = in_thread(job.snapshots)
    newest_first = list(reversed(saved.snapshots))
    return describe(
        Model,
        brief_model(job),
        directory=str(job.folder),
        snapshots=[_epoch(snapshot.epoch) for snapshot in newest_first],
        best_epoch=_epoch(saved.best.epoch) if saved.best else None,
        snapshot_metrics=[
            SnapshotMetrics(_epoch(snapshot.epoch), snapshot.name, for_browser(snapshot.metrics))
            for snapshot in newest_first
        ],
        step_traces=step_traces_of(job),
        environment=environment(job, manifest_of(job)),
        error=failure_message(job),
        progress=round(100 * job.progress, 1),
    )


def environment(job: ModelJob, manifest: Manifest | None) -> dict[str, str]:
    """Return the software and hardware of a training, the hash of its dataset, and its seed, unless unknown."""
    result = services().scheduler.task_state(job, job.tasks[0]).result or {}
    recorded = result.get("environment")
    seed = result.get("seed")
    return {
        **(recorded if isinstance(recorded, dict) else {}),
        **({"Seed": str(seed)} if seed is not None and not job.is_imported else {}),
        **({"Dataset hash": manifest.content_hash} if manifest else {}),
    }


def snapshots(job: ModelJob, weights: str | None = None) -> list[Snapshot]:
    """Return the snapshots of a model for lists and choices: the best one, then the others, newest first.

    The default one is that with the path ``weights``, the best one, or the newest one if none has been validated.
    """
    saved, views = in_thread(job.snapshots), job_views(job)
    best = saved.best
    default = next((item for item in saved if str(job.folder / item.name) == weights), saved.default)
    rows = []
    for snapshot in sorted(saved, key=lambda item: item is not best):
        is_epoch = snapshot.epoch or not job.is_imported
        title = f"Epoch {epoch_label(snapshot.epoch)}" if is_epoch else "Imported weights"
        metrics = views.describe_metrics(snapshot.metrics)
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


def marks(job: ModelJob, rows: Sequence[Snapshot]) -> list[CurveMark]:
    """Return what to mark on the curves of a model, by epoch: its snapshots in ``rows``, phases and warnings.

    Changes of the learning rate are in the curves.
    """
    state = services().scheduler.task_state(job, job.tasks[0])
    found = [
        CurveMark("best" if row.best else "snapshot", row.epoch, row.metrics or "saved")
        for row in rows
        if not job.is_imported
    ]
    found += [CurveMark(mark.kind, mark.epoch, mark.text) for mark in state.marks]
    return sorted(found, key=lambda mark: mark.epoch)


def _epoch(epoch: float) -> float:
    return int(epoch) if epoch == int(epoch) else epoch


def step_traces_of(job: ModelJob) -> list[StepTrace]:
    """Return the steps of a training that have a trace."""
    steps = in_thread(traced_steps, job.folder)
    return [StepTrace(step, url_for("jobs.file", path=f"{job.id}/{trace_name(step)}")) for step in steps]


def network_text(job: ModelJob) -> tuple[str, str]:
    """Return the source code of the network, and the reason why it cannot be shown."""
    try:
        return job.network_text(), ""
    except UnreadableFile as error:
        return "", f"The network cannot be shown: {error}."
