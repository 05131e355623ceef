"""What browsers are told while jobs change: plain data, made by pure functions.

A message is a room, the name of a Socket.IO event and a JSON value. The rooms
are a job's id, for the job's page, and `EVERYONE`, for the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from digits.core import events
from digits.core.job import Job
from digits.core.metrics import Metrics, row_json
from digits.core.model_job import epoch_label
from digits.core.status import Status
from digits.core.task import News, Task

EVERYONE = "job_management"
JOB = "job update"
TASK = "task update"

Message = tuple[str, str, dict[str, Any]]
Publish = Callable[[str, str, dict[str, Any]], None]


def history(job: Job) -> list[list[Any]]:
    return [[Status(code).title, at] for code, at in job.history]


def job_status(job: Job) -> list[Message]:
    body = {
        "update": "status",
        "job_id": job.id,
        "status": job.status.title,
        "css": job.status.css,
        "running": job.status.is_running,
        "history": history(job),
        "waiting_for": job.waiting_for,
        "error": job.failure.as_json() if job.failure else None,
    }
    return [(job.id, JOB, body), (EVERYONE, JOB, body)]


def job_progress(job: Job) -> list[Message]:
    body = {
        "update": "progress",
        "job_id": job.id,
        "percentage": round(100 * job.progress, 1),
        "eta_seconds": job.seconds_left,
    }
    return [(job.id, JOB, body), (EVERYONE, JOB, body)]


def job_attribute(job: Job, attribute: str) -> list[Message]:
    value = getattr(job, attribute)
    body = {"update": "attribute", "job_id": job.id, "attribute": attribute, "value": value}
    return [(job.id, JOB, body), (EVERYONE, JOB, body)]


def job_added(job: Job) -> list[Message]:
    return [(EVERYONE, JOB, {"update": "added", "job_id": job.id})]


def job_deleted(job: Job) -> list[Message]:
    body = {"update": "deleted", "job_id": job.id}
    return [(job.id, JOB, body), (EVERYONE, JOB, body)]


def task_output(job: Job, task: Task, text: str) -> list[Message]:
    return [(job.id, TASK, {"update": "log", "job_id": job.id, "task": task.name, "text": text})]


def sparkline(job: Job, metrics: Metrics) -> list[Message]:
    body = {
        "update": "sparkline",
        "job_id": job.id,
        "data": metrics.sparkline(),
        "last_accuracy": metrics.last_accuracy(),
    }
    return [(EVERYONE, TASK, body)]


def task_news(job: Job, task: Task, happened: Sequence[events.Event]) -> list[Message]:
    """What the page of ``job`` is told when ``happened`` has been folded into ``task.news``."""
    messages = []
    seen = {type(event) for event in happened}
    for kind, tell in _NEWS:
        if kind in seen:
            body = tell(task.news, [event for event in happened if isinstance(event, kind)])
            messages.append((job.id, TASK, {"job_id": job.id, "task": task.name, **body}))
    return messages


def _progress(news: News, _: list[Any]) -> dict[str, Any]:
    return {
        "update": "progress",
        "percentage": round(100 * news.fraction, 1),
        "eta_seconds": news.seconds_left,
        "doing": news.doing,
    }


def _metrics(news: News, happened: list[events.Measured]) -> dict[str, Any]:
    return {"update": "metrics", "cursor": news.cursor, "rows": [row_json(event) for event in happened]}


def _snapshots(news: News, _: list[Any]) -> dict[str, Any]:
    newest_first = sorted(news.snapshots, reverse=True)
    return {
        "update": "snapshots",
        "data": [[epoch, f"Epoch {epoch_label(epoch)}"] for epoch, _ in newest_first],
    }


def _best(news: News, happened: list[events.Excelled]) -> dict[str, Any]:
    latest = happened[-1]
    return {
        "update": "best",
        "epoch": latest.epoch,
        "metric": latest.metric,
        "value": events.for_browser(latest.value),
    }


def _resumed(news: News, _: list[Any]) -> dict[str, Any]:
    return {"update": "resumed"}


def _usage(news: News, _: list[Any]) -> dict[str, Any]:
    return {"update": "usage", "data": events.for_browser(news.usage)}


def _counts(news: News, happened: list[events.Counted]) -> dict[str, Any]:
    return {"update": "counts", "splits": news.counts}


def _skipped(news: News, _: list[Any]) -> dict[str, Any]:
    return {"update": "skipped", "count": news.skipped, "last": news.first_skips}


def _warned(news: News, _: list[Any]) -> dict[str, Any]:
    return {"update": "warned", "messages": news.warnings}


def _built(news: News, _: list[Any]) -> dict[str, Any]:
    return {"update": "built", "layers": news.layers, "parameters": news.parameters}


def _fed(news: News, _: list[Any]) -> dict[str, Any]:
    return {"update": "fed", "splits": news.fed}


def _restored(news: News, _: list[Any]) -> dict[str, Any]:
    return {"update": "restored", "data": news.restored}


_NEWS: tuple[tuple[type[events.Event], Callable[[News, list[Any]], dict[str, Any]]], ...] = (
    # First: it voids rows, and others of this batch may come after it.
    (events.Resumed, _resumed),
    (events.Progressed, _progress),
    (events.Counted, _counts),
    (events.Skipped, _skipped),
    (events.Warned, _warned),
    (events.Built, _built),
    (events.Fed, _fed),
    (events.Restored, _restored),
    (events.Measured, _metrics),
    (events.Saved, _snapshots),
    (events.Removed, _snapshots),
    # After the snapshots: the best one is among them.
    (events.Excelled, _best),
    (events.Used, _usage),
)
