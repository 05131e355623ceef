"""A job: something the user asked for, with a name, an owner, a folder and tasks.

A job's folder is its only record; ``job.json`` in it is written by the server
alone, whole, whenever something changes.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from digits.files import UnreadableFile, read_json, write_json
from digits.recipe import Recipe
from digits.status import Status, worst
from digits.task import Failure, History, Task

FILE_NAME = "job.json"
SCHEMA = 1
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4,16}")


def new_id() -> str:
    """A new job id: local time and 24 random bits, ``YYYYMMDD-HHMMSS-xxxxxx``."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def is_id(text: str) -> bool:
    """Whether ``text`` has the form of a job id, and so may name a folder."""
    return _ID.fullmatch(text) is not None


@dataclass(kw_only=True, eq=False)
class Job:
    """Base of all jobs. Sub-classes say what their tasks are to do and what they wait for.

    ``form`` keeps what the user filled in, for cloning. ``summary`` keeps what lists
    show of a job that has ended, so that they need not read its events again.
    """

    kind: ClassVar[str] = ""
    type_title: ClassVar[str] = ""

    id: str
    folder: Path
    name: str
    owner: str | None = None
    group: str = ""
    notes: str = ""
    form: dict[str, Any] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    history: History = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    waiting_for: str = ""

    def __post_init__(self) -> None:
        if not self.history:
            self.history = [(Status.INIT.value, time.time())]

    # What a kind of job has to say

    def recipe(self, task: Task) -> Recipe:
        """What ``task`` is to do, decided when it starts."""
        raise NotImplementedError

    def needs(self) -> Sequence[str]:
        """Ids of jobs that must be done before this one starts."""
        return ()

    def wants(self, task: Task) -> Wish:
        """The devices that ``task`` runs on."""
        return Wish()

    def details(self) -> dict[str, Any]:
        """The part of ``job.json`` that only this kind has."""
        return {}

    # What all jobs have

    @property
    def status(self) -> Status:
        return Status(self.history[-1][0])

    @property
    def submitted(self) -> float:
        """Unix time of the job's creation."""
        return self.history[0][1]

    @property
    def elapsed(self) -> float:
        """Seconds for which tasks have run."""
        return sum(task.seconds_run for task in self.tasks)

    @property
    def progress(self) -> float:
        """From 0 to 1: the mean of the tasks."""
        if self.status is Status.DONE:
            return 1.0
        return sum(task.progress for task in self.tasks) / max(1, len(self.tasks))

    @property
    def seconds_left(self) -> float | None:
        running = [task for task in self.tasks if task.status is Status.RUN]
        return running[0].news.seconds_left if running else None

    @property
    def can_resume(self) -> bool:
        """Whether the job, stopped or failed, can be taken up again."""
        return False

    def resume(self) -> None:
        """Make ready to go on; the scheduler does the rest."""
        for task in self.tasks:
            if task.status in (Status.ABORT, Status.ERROR):
                task.restart()

    def clear_away(self) -> None:
        """Remove what a task that ended badly left, unless the job can go on with it."""

    @property
    def failure(self) -> Failure | None:
        return next((task.failure for task in self.tasks if task.failure), None)

    def task_folder(self, task: Task) -> Path:
        return self.folder / task.name

    def note_status(self, at: float | None = None) -> bool:
        """Bring the job's status in line with its tasks'; whether it changed."""
        status = worst(task.status for task in self.tasks)
        if status is self.status:
            return False
        now = time.time() if at is None else at
        last_code, last_at = self.history[-1]
        # A wait that nobody could notice is not worth a line in the history.
        if last_code == Status.WAIT.value and status is Status.RUN and now - last_at < 1:
            self.history.pop()
        self.history.append((status.value, now))
        return True

    def save(self, **changes: str) -> None:
        """Write ``job.json``, with ``changes`` in the place of what the job has."""
        write_json(self.folder / FILE_NAME, {**self.as_json(), **changes})

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "id": self.id,
            "kind": self.kind,
            "name": self.name,
            "owner": self.owner,
            "group": self.group,
            "notes": self.notes,
            "history": [list(step) for step in self.history],
            "tasks": [task.as_json() for task in self.tasks],
            "form": self.form,
            "summary": self.summary,
            **self.details(),
        }

    @classmethod
    def from_json(cls, folder: Path, body: dict[str, Any]) -> Self:
        """The job that ``body``, the content of a ``job.json``, describes."""
        return cls(
            id=folder.name,
            folder=folder,
            name=str(body["name"]),
            owner=body.get("owner"),
            group=str(body.get("group", "")),
            notes=str(body.get("notes", "")),
            form=dict(body.get("form", {})),
            tasks=[Task.from_json(task) for task in body.get("tasks", [])],
            history=[(Status(code).value, float(at)) for code, at in body.get("history", [])],
            summary=dict(body.get("summary", {})),
            **cls.own_details(body),
        )

    @classmethod
    def own_details(cls, body: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the constructor that only this kind has."""
        return {}


@dataclass(frozen=True)
class Wish:
    """The devices a task wants: a pool's slot, certain GPUs, or the next free ones.

    ``pool`` is ``create``, ``cpu`` or ``gpu``. For ``gpu``, ``chosen`` lists GPU
    indexes; without any, the next ``count`` free GPUs are meant.
    """

    pool: str = "create"
    chosen: tuple[str, ...] = ()
    count: int = 1


def load(folder: Path, kinds: dict[str, type[Job]]) -> Job:
    """The job in ``folder``; raises UnreadableFile."""
    body = read_json(folder / FILE_NAME)
    try:
        if body["schema"] > SCHEMA:
            raise UnreadableFile(f"{FILE_NAME} was written by a newer version of DIGITS")
        return kinds[body["kind"]].from_json(folder, body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableFile(f"{FILE_NAME}: {type(error).__name__}: {error}") from error
