"""A task: one process's worth of work of a job, and what is known of it.

The task's folder in its job's holds four files: ``recipe.json`` (what to do),
``events.jsonl`` (what happened), ``output.log`` (for people) and ``exit.json``
(how it ended). What is known of a task is folded from its events.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from digits import events
from digits.status import Status

EVENTS_FILE = "events.jsonl"

# The exit code of a process that found another one at work on its task.
EXIT_BUSY = 75
MAX_NAMED_SKIPS = 20

History = list[tuple[str, float]]


@dataclass
class Failure:
    """Why a task failed, as shown to the user."""

    message: str
    hint: str = ""
    line: int | None = None
    trace: list[dict[str, Any]] = field(default_factory=list)
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass
class Task:
    """One task of a job. ``handle`` finds its process again after a restart."""

    name: str
    title: str
    history: History = field(default_factory=list)
    handle: dict[str, Any] | None = None
    devices: list[str] = field(default_factory=list)
    failure: Failure | None = None
    news: News = field(default_factory=lambda: News())

    def __post_init__(self) -> None:
        if not self.history:
            self.history = [(Status.INIT.value, time.time())]

    @property
    def status(self) -> Status:
        return Status(self.history[-1][0])

    def move(self, status: Status, at: float | None = None) -> bool:
        """Step to ``status``; False if the task has it already. Raises ValueError for an illegal step."""
        if status is self.status:
            return False
        if not self.status.may_become(status):
            raise ValueError(f"a task cannot step from {self.status.title} to {status.title}")
        self.history.append((status.value, time.time() if at is None else at))
        return True

    def within_last_step(self, at: float | None) -> float | None:
        """``at`` if it is a moment since the last step; None, which stands for now, if it cannot be."""
        return at if at is not None and self.history[-1][1] <= at <= time.time() else None

    def hear(self, event: events.Event) -> None:
        """Fold in what the task told. The end of an earlier run is not the end of this one."""
        if isinstance(event, (events.Failed, events.Finished)) and event.at < self.made_ready:
            return
        self.news.add(event)

    @property
    def made_ready(self) -> float:
        """Unix time since which the task was to run, or to run again."""
        return next((at for code, at in reversed(self.history) if code == Status.INIT.value), 0.0)

    @property
    def seconds_run(self) -> float:
        """Seconds for which it has run, all runs together."""
        ends = [*(at for _, at in self.history[1:]), time.time()]
        steps = zip(self.history, ends, strict=True)
        return sum(end - at for (code, at), end in steps if code == Status.RUN.value)

    def restart(self) -> None:
        """Make ready to run again, after it was stopped or failed."""
        self.move(Status.INIT)
        self.handle, self.failure = None, None
        self.devices = []
        # The log goes on in the same file; it is folded anew, as it may take back what it told.
        self.news = News()

    @property
    def progress(self) -> float:
        """From 0 to 1."""
        return 1.0 if self.status is Status.DONE else self.news.fraction

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "history": [list(step) for step in self.history],
            "handle": self.handle,
            "devices": self.devices,
            "failure": self.failure.as_json() if self.failure else None,
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Task:
        failure = body.get("failure")
        return cls(
            name=str(body["name"]),
            title=str(body.get("title", body["name"])),
            history=[(Status(code).value, float(at)) for code, at in body.get("history", [])],
            handle=body.get("handle"),
            devices=[str(device) for device in body.get("devices", [])],
            failure=Failure(**failure) if failure else None,
        )


@dataclass
class News:
    """What a task has told so far: the fold of its events, up to ``cursor`` in the log."""

    cursor: int = 0
    fraction: float = 0.0
    seconds_left: float | None = None
    doing: str = ""
    counts: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    skipped: int = 0
    first_skips: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    layers: list[dict[str, Any]] = field(default_factory=list)
    parameters: int | None = None
    fed: dict[str, dict[str, Any]] = field(default_factory=dict)
    restored: dict[str, Any] | None = None
    snapshots: list[tuple[float, str]] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    failure: Failure | None = None
    result: dict[str, Any] | None = None

    def add(self, event: events.Event) -> None:
        """Fold one event in."""
        fold = _FOLDS.get(type(event))
        if fold:
            fold(self, event)

    @property
    def is_finished(self) -> bool:
        """Whether the task said that all its work is done."""
        return self.result is not None


def _facts(event: events.Event, *without: str) -> dict[str, Any]:
    """What an event tells, by name, but for when it happened and for ``without``."""
    names = (item.name for item in dataclasses.fields(event))
    return {name: getattr(event, name) for name in names if name not in ("at", *without)}


def _progressed(news: News, event: events.Progressed) -> None:
    news.fraction = min(1.0, max(0.0, event.fraction))
    news.seconds_left = event.seconds_left
    news.doing = event.doing


def _counted(news: News, event: events.Counted) -> None:
    news.counts[event.split] = {"labels": event.labels, "counts": event.counts}


def _skipped(news: News, event: events.Skipped) -> None:
    news.skipped += 1
    if len(news.first_skips) < MAX_NAMED_SKIPS:
        skip = {"path": event.path, "reason": event.reason, "split": event.split, "label": event.label}
        news.first_skips.append(skip)


def _warned(news: News, event: events.Warned) -> None:
    if len(news.warnings) < MAX_NAMED_SKIPS:
        news.warnings.append(event.message)


def _built(news: News, event: events.Built) -> None:
    news.layers, news.parameters = event.layers, event.parameters


def _fed(news: News, event: events.Fed) -> None:
    news.fed[event.split] = _facts(event, "split")


def _restored(news: News, event: events.Restored) -> None:
    news.restored = _facts(event)


def _saved(news: News, event: events.Saved) -> None:
    _forget(news, event.path)
    news.snapshots.append((event.epoch, event.path))


def _removed(news: News, event: events.Removed) -> None:
    _forget(news, event.path)


def _forget(news: News, path: str) -> None:
    news.snapshots = [snapshot for snapshot in news.snapshots if snapshot[1] != path]


def _resumed(news: News, event: events.Resumed) -> None:
    # How the run before this one ended is over; its warnings are told again if they still hold.
    news.failure = news.result = None
    news.warnings = []


def _used(news: News, event: events.Used) -> None:
    news.usage = _facts(event)


def _failed(news: News, event: events.Failed) -> None:
    news.failure = Failure(event.message, event.hint, event.line, event.trace, event.detail)


def _finished(news: News, event: events.Finished) -> None:
    news.result = event.result
    news.fraction = 1.0


_FOLDS: dict[type[events.Event], Callable[[News, Any], None]] = {
    events.Progressed: _progressed,
    events.Counted: _counted,
    events.Skipped: _skipped,
    events.Warned: _warned,
    events.Built: _built,
    events.Fed: _fed,
    events.Restored: _restored,
    events.Saved: _saved,
    events.Removed: _removed,
    events.Resumed: _resumed,
    events.Used: _used,
    events.Failed: _failed,
    events.Finished: _finished,
}
