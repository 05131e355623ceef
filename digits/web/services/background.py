"""The kinds of background tasks, and the state of such a task on pages and in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from digits.core.task import Failure
from digits.runtime.background_tasks import BackgroundTasks
from digits.web.resources.tasks import TaskError, TaskProgress

Name = Literal["health", "evaluation", "embedding", "export", "prediction"]


@dataclass(frozen=True)
class BackgroundKind:
    """The ``folder`` of a task in that of its job, and the ``noun`` for it in messages."""

    folder: str
    noun: str


# By the name of their pool and of their messages to browsers. One task of each kind runs at a time.
KINDS: dict[Name, BackgroundKind] = {
    "health": BackgroundKind("check", "check"),
    "evaluation": BackgroundKind("evaluate", "evaluation"),
    "embedding": BackgroundKind("map-embeddings", "embedding map"),
    "export": BackgroundKind("export", "export"),
    "prediction": BackgroundKind("predict", "prediction"),
}


def state_of(
    tasks: BackgroundTasks, job_id: str, has_result: bool, damage: Failure | None = None
) -> TaskProgress:
    """Return the state of the task of a job: none, running, failed or done.

    ``damage`` is the error of an unreadable result. If the job has several tasks, it is the state of the first one.
    """
    running, failure = tasks.state(job_id), tasks.failure(job_id) or damage
    if running:
        return TaskProgress(
            state="running",
            progress=round(100 * running.fraction, 1),
            eta_seconds=running.seconds_left,
            doing=running.doing,
        )
    return TaskProgress(
        state="failed" if failure else "done" if has_result else "none", error=error_of(failure)
    )


def error_of(failure: Failure | None) -> TaskError | None:
    """Return the error that pages and JSON show; None without a ``failure``."""
    return TaskError(failure.message, failure.hint, failure.line) if failure else None
