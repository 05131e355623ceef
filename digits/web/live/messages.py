"""Messages to browsers about changes of jobs: plain data, created by pure functions.

A message consists of a room, the name of a Socket.IO event and a JSON value. Rooms are job ids, for the pages of
jobs, and `EVERYONE`, for lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from digits.core import events
from digits.core.job import Job
from digits.core.metrics.series import row_json
from digits.core.model_job import epoch_label
from digits.core.task import Failure, TaskState
from digits.runtime import changes
from digits.web.template_filters import line_of

EVERYONE = "job_management"
JOB = "job update"
TASK = "task update"

Message = tuple[str, str, dict[str, Any]]


def background(update: str, job: Job, key: str, state: TaskState | None, failure: Failure | None) -> Message:
    """Return the message ``update`` about the background task ``key``, which has ended if there is no ``state``."""
    body = {"update": update, "job_id": job.id, "key": key, "state": "failed" if failure else "done"}
    if state is not None:
        body |= {**_progress(state), "state": "running"}
    return (job.id, TASK, body)


def size_measured(job: Job) -> Message:
    """Return the message that the size of the folder of ``job`` is not the one that its page showed."""
    return (job.id, JOB, {"update": "size", "job_id": job.id})


def history(job: Job) -> list[list[Any]]:
    return [[status.title, at] for status, at in job.history]


def of(change: changes.Change) -> list[Message]:
    """Return the messages that report ``change`` to browsers."""
    return _MESSAGES[type(change)](change)


def _edited(change: changes.JobEdited) -> list[Message]:
    value = msgspec.to_builtins(getattr(change.job, change.attribute))
    return _to_both(change, {"update": "attribute", "attribute": change.attribute, "value": value})


def _status_changed(change: changes.StatusChanged) -> list[Message]:
    job = change.job
    body = {
        "update": "status",
        "status": job.status.title,
        "css": job.status.css,
        "running": job.status.is_running,
        "history": history(job),
        "waiting_for": job.waiting_for,
        "waiting_at": job.waiting_at,
        "expected_start": job.expected_start,
        "error": job.failure.as_json() if job.failure else None,
    }
    return _to_both(change, body)


def _progress_changed(change: changes.ProgressChanged) -> list[Message]:
    job = change.job
    percentage = round(100 * job.progress, 1)
    return _to_both(change, {"update": "progress", "percentage": percentage, "eta_seconds": job.seconds_left})


def _output_written(change: changes.OutputWritten) -> list[Message]:
    body = {"update": "log", "job_id": change.job.id, "task": change.task.name, "text": change.text}
    return [(change.job.id, TASK, body)]


def _curve_changed(change: changes.CurveChanged) -> list[Message]:
    numbers = change.metrics.sparkline()
    line, label = line_of(tuple(numbers))
    body = {
        "update": "sparkline",
        "job_id": change.job.id,
        "data": numbers,
        "line": line,
        "label": label,
        "last_accuracy": change.metrics.last_accuracy(),
    }
    return [(EVERYONE, TASK, body)]


def _events_applied(change: changes.EventsApplied) -> list[Message]:
    messages = []
    job, task = change.job, change.task
    seen = {type(event) for event in change.events}
    for kind, update, body_of in TASK_UPDATES:
        if kind in seen:
            body = body_of(task.state, [event for event in change.events if isinstance(event, kind)])
            messages.append((job.id, TASK, {"update": update, "job_id": job.id, "task": task.name, **body}))
    return messages


def _to_both(change: changes.Change, body: dict[str, Any]) -> list[Message]:
    """Return messages with ``body`` for the job's page and for lists."""
    body = {**body, "job_id": change.job.id}
    return [(change.job.id, JOB, body), (EVERYONE, JOB, body)]


_MESSAGES: dict[type[changes.Change], Callable[[Any], list[Message]]] = {
    changes.JobAdded: lambda change: [(EVERYONE, JOB, {"update": "added", "job_id": change.job.id})],
    changes.JobDeleted: lambda change: _to_both(change, {"update": "deleted"}),
    changes.JobEdited: _edited,
    changes.StatusChanged: _status_changed,
    changes.ProgressChanged: _progress_changed,
    changes.OutputWritten: _output_written,
    changes.EventsApplied: _events_applied,
    changes.CurveChanged: _curve_changed,
}


def _progress(state: TaskState, _: Sequence[Any] = ()) -> dict[str, Any]:
    return {
        "percentage": round(100 * state.fraction, 1),
        "eta_seconds": state.seconds_left,
        "doing": state.doing,
    }


def _snapshots(state: TaskState, _: Sequence[Any]) -> dict[str, Any]:
    newest_first = sorted(state.snapshots, reverse=True)
    return {"data": [[epoch, f"Epoch {epoch_label(epoch)}"] for epoch, _ in newest_first]}


def _best_snapshot(_: TaskState, seen: Sequence[events.BestSnapshotChanged]) -> dict[str, Any]:
    latest = seen[-1]
    return {"epoch": latest.epoch, "metric": latest.metric, "value": events.for_browser(latest.value)}


def _skipped(state: TaskState, _: Sequence[Any]) -> dict[str, Any]:
    return {"count": state.skipped, "last": [events.facts(skip) for skip in state.first_skips]}


def _inputs(state: TaskState, _: Sequence[Any]) -> dict[str, Any]:
    return {"splits": {split: events.facts(prepared, "split") for split, prepared in state.inputs.items()}}


# The update about each type of event, and its keys, from the state of the task and the events of this type.
TASK_UPDATES: tuple[
    tuple[type[events.Event], str, Callable[[TaskState, Sequence[Any]], dict[str, Any]]], ...
] = (
    # First, because it invalidates rows, and later events of this batch may add others.
    (events.Resumed, "resumed", lambda state, seen: {}),
    (events.Progressed, "progress", _progress),
    (events.Counted, "counts", lambda state, seen: {"splits": state.counts}),
    (events.Skipped, "skipped", _skipped),
    (events.Warned, "warned", lambda state, seen: {"messages": state.warnings}),
    (events.Built, "built", lambda state, seen: {"layers": state.layers, "parameters": state.parameters}),
    (events.InputPrepared, "input_prepared", _inputs),
    (
        events.WeightsLoaded,
        "weights_loaded",
        lambda state, seen: {"data": events.facts(state.loaded_weights)},
    ),
    (
        events.Measured,
        "metrics",
        lambda state, seen: {"cursor": state.cursor, "rows": [row_json(event) for event in seen]},
    ),
    (events.Saved, "snapshots", _snapshots),
    (events.Removed, "snapshots", _snapshots),
    (events.PhaseChanged, "phase", lambda state, seen: {"epoch": seen[-1].epoch}),
    # After the snapshots, which include the best one.
    (events.BestSnapshotChanged, "best", _best_snapshot),
    (events.UsageSampled, "usage", lambda state, seen: {"data": events.facts(state.usage)}),
)
