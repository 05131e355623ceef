"""The kinds of background tasks, and the state of such a task on pages and in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from digits.core.task import Failure
from digits.runtime.background_tasks import BackgroundTasks

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
) -> dict[str, Any]:
    """Return ``state``: none, running, failed or done, with the progress in percent, or the error.

    ``damage`` is the error of an unreadable result. If the job has several tasks, it is the state of the first one.
    """
    running, failure = tasks.state(job_id), tasks.failure(job_id) or damage
    return {
        "state": "running" if running else "failed" if failure else "done" if has_result else "none",
        "progress": round(100 * running.fraction, 1) if running else 0.0,
        "eta_seconds": running.seconds_left if running else None,
        "doing": running.doing if running else "",
        "error": error_of(None if running else failure),
    }


def error_of(failure: Failure | None) -> dict[str, Any] | None:
    """Return the error that pages and JSON show; None without a ``failure``."""
    return {"message": failure.message, "hint": failure.hint, "line": failure.line} if failure else None
