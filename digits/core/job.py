"""A job: something the user requested, with a name, an owner, a folder and tasks.

A job's folder is its only record; ``job.json`` in it is written atomically, and only by the server, whenever
something changes.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, Self

import msgspec
from msgspec import Meta, Struct, field

from digits.core import events, schema
from digits.core.compute import Compute
from digits.core.errors import Damaged
from digits.core.files import UnreadableFile, read_json, write_json
from digits.core.metrics.series import MetricRange
from digits.core.recipe import Recipe
from digits.core.schema import Count
from digits.core.status import Status, worst
from digits.core.task import EVENTS_FILE, Failure, History, Task, not_before

FILE_NAME = "job.json"
SCHEMA = 1
ID = r"\d{8}-\d{6}-[0-9a-f]{4,16}"


def new_id() -> str:
    """Return a new job id: local time and 24 random bits, ``YYYYMMDD-HHMMSS-xxxxxx``."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def is_id(text: str) -> bool:
    """Return whether ``text`` has the form of a job id, and so may name a folder."""
    return re.fullmatch(ID, text, re.ASCII) is not None


class Summary(Struct, kw_only=True):
    """Results displayed in job lists, stored so that lists do not read events or products.

    ``last_accuracy`` is in percent; ``snapshot_values`` are the validation metrics of the default snapshot of a
    finished training; ``ranges`` are those of `Metrics.ranges`; ``record_bytes`` is the size of a finished dataset's
    records.
    """

    sparkline: list[float] = field(default_factory=list)
    last_accuracy: float | None = None
    last_values: dict[str, float] = field(default_factory=dict)
    snapshot_values: dict[str, float] = field(default_factory=dict)
    ranges: dict[str, MetricRange] = field(default_factory=dict)
    record_bytes: Count | None = None


class Job(Struct, kw_only=True, eq=False, dict=True, weakref=True):
    """Base of all jobs, and the schema of ``job.json``. Subclasses define the recipes and requirements of tasks.

    ``id`` and ``folder`` always come from the job's location in the store, not from the file.
    """

    type: ClassVar[str] = ""

    id: str
    folder: Path
    name: str
    owner: str | None = None
    group: str = ""
    notes: str = ""
    tasks: Annotated[list[Task], Meta(min_length=1, max_length=100)] = field(default_factory=list)
    history: Annotated[History, Meta(min_length=1, max_length=1_000_000)] = field(default_factory=list)
    summary: Summary = field(default_factory=Summary)
    compute: Compute = Compute()

    def __post_init__(self) -> None:
        self.waiting_for = self.waiting_at = ""
        self.expected_start: float | None = None
        if not self.history:
            self.history = [(Status.INIT, time.time())]

    @classmethod
    def create(cls, folder: Path, **fields: Any) -> Self:
        """Return a new job in ``folder`` with its first tasks."""
        return cls(id=folder.name, folder=folder, tasks=cls.first_tasks(), **fields)

    # Defined by each type of job

    @classmethod
    def first_tasks(cls) -> list[Task]:
        """Return the tasks of a new job."""
        raise NotImplementedError

    def recipe_for(self, task: Task) -> Recipe:
        """Return the recipe of ``task``, created when it starts."""
        raise NotImplementedError

    def needs(self) -> Sequence[str]:
        """Return the ids of jobs that must be done before this one starts."""
        return ()

    def device_request(self, task: Task) -> DeviceRequest:
        """Return the devices that ``task`` requires."""
        return DeviceRequest(compute=self.compute)

    # Shared by all types

    @property
    def status(self) -> Status:
        return self.history[-1][0]

    @property
    def submitted(self) -> float:
        """Unix time of the job's creation."""
        return self.history[0][1]

    @property
    def elapsed(self) -> float:
        """Total running time of the tasks, in seconds."""
        return sum(task.seconds_run for task in self.tasks)

    @property
    def progress(self) -> float:
        """The mean progress of the tasks, 0 to 1."""
        if self.status is Status.DONE:
            return 1.0
        return sum(task.progress for task in self.tasks) / max(1, len(self.tasks))

    @property
    def seconds_left(self) -> float | None:
        running = [task for task in self.tasks if task.status is Status.RUN]
        return running[0].state.seconds_left if running else None

    @property
    def can_resume(self) -> bool:
        """Whether the job, stopped or failed, can be resumed."""
        return False

    def resume(self) -> None:
        """Prepare the job to run again; the scheduler starts it."""
        self._restart([task for task in self.tasks if task.status in (Status.ABORT, Status.ERROR)])

    def _restart(self, ended: Sequence[Task]) -> None:
        # All logs are read before the first task changes, because reading may fail.
        log_ends = [events.end(self.task_folder(task) / EVENTS_FILE) for task in ended]
        for task, log_end in zip(ended, log_ends, strict=True):
            task.restart(log_end)

    def summarize_products(self) -> None:
        """Update the summary from the products, which are complete."""

    def clear_away(self) -> None:
        """Remove the leftovers of a failed task, unless the job can resume from them."""

    @property
    def failure(self) -> Failure | None:
        """Why the job failed, or which of its products is damaged; None otherwise."""
        return next((task.failure for task in self.tasks if task.failure), None) or self.damage

    @property
    def damage(self) -> Failure | None:
        """The damage to the job's products, if any."""
        return None

    def task_folder(self, task: Task) -> Path:
        return self.folder / task.name

    def wait_for(self, what: str, expected_start: float | None = None, at: str = "") -> bool:
        """Set what the job waits for, or an empty text; return whether that changed.

        In the queue of a scheduler outside the server, ``at`` is its title, ``what`` is the reason for waiting, as in
        “because …”, and ``expected_start`` may be known, as a Unix time.
        """
        before = self.waiting_for, self.expected_start, self.waiting_at
        self.waiting_for, self.expected_start, self.waiting_at = what, expected_start, at
        return before != (what, expected_start, at)

    def update_status(self, at: float | None = None) -> bool:
        """Update the job's status from those of its tasks; return whether it changed."""
        status = worst(task.status for task in self.tasks)
        if status is self.status:
            return False
        last, last_at = self.history[-1]
        now = not_before(last_at, at)
        # Omit waits that are too short to notice.
        if last is Status.WAIT and status is Status.RUN and now - last_at < 1:
            self.history.pop()
        self.history.append((status, now))
        return True

    def save(self, **changes: Any) -> None:
        """Write ``job.json``, with ``changes`` replacing the job's own values; raises OSError."""
        write_json(self.folder / FILE_NAME, {**self.as_json(), **changes})

    def as_json(self) -> dict[str, Any]:
        """Return the contents of ``job.json``."""
        body = msgspec.to_builtins(self, enc_hook=str)
        del body["folder"]
        return {"schema": SCHEMA, "type": self.type, **body}


class DeviceRequest(Struct, frozen=True):
    """What a task needs to run: the CPU, the next free GPUs, or specific ones.

    ``pool`` names the tasks with which it shares limits (see `digits.runtime.executors.pools`). ``gpu_count`` is
    the number of GPUs, which its workers divide; ``gpus`` lists the indexes of specific ones. With ``if_free``, the
    task does not wait for GPUs: if they are in use, it runs on the CPU. ``compute`` is where it runs.
    """

    pool: str = "dataset"
    gpu_count: int = 0
    gpus: tuple[str, ...] = ()
    if_free: bool = False
    compute: Compute = Compute()

    def __post_init__(self) -> None:
        if self.gpus:
            msgspec.structs.force_setattr(self, "gpu_count", len(self.gpus))

    @property
    def gpus_per_worker(self) -> int:
        return self.gpu_count // self.compute.workers

    @property
    def indivisible(self) -> str:
        """A sentence if its workers cannot get the same number of GPUs; otherwise empty."""
        count, workers = self.gpu_count, self.compute.workers
        if count % workers == 0:
            return ""
        return f"{count} GPU{'s' * (count > 1)} cannot be divided equally among {workers} workers."


class _Header(Struct):
    schema: int
    type: str


class DamagedJob(Job, kw_only=True, eq=False):
    """A job whose folder is invalid. It can be viewed and deleted, but is never written."""

    type: ClassVar[str] = "damaged"

    reason: str

    def __post_init__(self) -> None:
        self.waiting_for = self.waiting_at = ""
        self.expected_start = None
        self.history = [(Status.ERROR, _made_at(self.id))]

    @property
    def failure(self) -> Failure:
        return Failure(
            f"This job is damaged: {self.reason}.",
            "Repair the file and restart the server, or delete the job. The server does not modify the folder.",
        )

    def save(self, **changes: Any) -> NoReturn:
        raise self.error()

    def error(self) -> Damaged:
        """Return the error for requests that need the intact job."""
        return Damaged(self.failure.message, self.failure.hint, self.id)


def _made_at(job_id: str) -> float:
    """Return the creation time encoded in a job id, as Unix time; 0 if it is invalid."""
    try:
        return max(0.0, time.mktime(time.strptime(job_id[:15], "%Y%m%d-%H%M%S")))
    except (ValueError, OverflowError):
        return 0.0


def load(folder: Path, types: dict[str, type[Job]]) -> Job:
    """Load the job in ``folder``; raises UnreadableFile."""
    body = read_json(folder / FILE_NAME, dict[str, Any])
    try:
        header = schema.convert(body, _Header)
        if header.schema > SCHEMA:
            raise UnreadableFile(f"{FILE_NAME} was written by a newer version of DIGITS")
        if header.type not in types:
            raise UnreadableFile(f"{FILE_NAME}: unknown type of job {header.type!r}")
        return _from_json(types[header.type], folder, body)
    except schema.Malformed as error:
        raise UnreadableFile(f"{FILE_NAME}: {error}") from error


class _Named(Struct):
    name: str = ""


def name_of(folder: Path) -> str:
    """Return the name of the job in ``folder``, or the name of the folder if the job cannot be read."""
    try:
        return read_json(folder / FILE_NAME, _Named, below=folder).name or folder.name
    except UnreadableFile:
        return folder.name


def check_readable(job: Job) -> None:
    """Raise `schema.Malformed` if `load` would reject the saved ``job``."""
    _from_json(type(job), job.folder, job.as_json())


def _from_json(job_type: type[Job], folder: Path, body: dict[str, Any]) -> Job:
    return schema.convert({**body, "id": folder.name, "folder": folder}, job_type)
