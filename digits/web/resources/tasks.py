"""The state of background tasks, such as evaluations and exports."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class TaskError(Struct):
    """Why a task failed; ``line`` is the one of the network that causes it."""

    message: str
    hint: str
    line: int | None


class TaskProgress(Struct, kw_only=True):
    """The state of a task. ``progress`` is in percent, and ``doing`` its present stage."""

    state: Literal["none", "waiting", "running", "failed", "done", "incomplete"]
    progress: float = 0.0
    eta_seconds: float | None = None
    doing: str = ""
    error: TaskError | None = None


class ActivityTask(Struct):
    """A task that is waiting, running or stopping."""

    name: str
    title: str
    state: Literal["waiting", "running", "stopping"]


class ActivityState(TaskProgress, kw_only=True):
    """The state of the running task of an activity; ``tasks`` are this one and the waiting ones."""

    tasks: list[ActivityTask] = []
