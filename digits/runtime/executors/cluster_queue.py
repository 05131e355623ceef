"""The queue of a scheduler such as Slurm or Ray: its jobs, and how tasks become jobs.

The names of the files of a submission begin with that of the scheduler: ``slurm.json`` is the `Submission`,
``slurm.sh`` runs on a node, and ``slurm.log`` is what the scheduler and `digits.runtime.executors.node_job` print.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct

from digits.core import files
from digits.core.job import DeviceRequest
from digits.core.task import Failure
from digits.runtime import supervisor
from digits.runtime.executors import node_job, processes
from digits.runtime.executors.cluster import ClusterExecutor
from digits.runtime.executors.executor import Waiting
from digits.runtime.executors.local import child_environment, devices_environment

Status = Literal["pending", "running", "ending", "failed", "canceled", "out of memory", "expired"]

T = TypeVar("T")


class Submission(Struct):
    """What is submitted for a ``run``.

    The ``token`` distinguishes this run from earlier ones, whose jobs may still start. ``attempt`` counts its
    submissions; it is saved before each, because the scheduler may accept one although no answer comes.
    """

    run: int
    token: str
    request: DeviceRequest
    attempt: int = 0


class Attempt(Struct):
    """What the file of `node_job` contains about the latest attempt."""

    token: str = ""
    phase: Literal["", "waiting", "running", "interrupted"] = ""
    nodes: str = ""


@dataclass(frozen=True)
class QueuedJob:
    """A job of the scheduler, with its ``id`` there, and the ``name`` under which a run was submitted.

    ``words`` is what the scheduler says of it. Of a pending job, ``reason`` is the scheduler's name of why it waits,
    ``start`` the expected start as a Unix time. A job that has ``expired`` waited longer than the scheduler permits.
    """

    id: str
    name: str
    status: Status
    words: str
    reason: str = ""
    start: float | None = None

    @property
    def is_active(self) -> bool:
        return self.status in ("pending", "running", "ending")

    @property
    def is_pending(self) -> bool:
        return self.status == "pending"


class LimitReached(OSError):
    """The scheduler accepts no more jobs of this user for now. The message is the reason, as in “because …”."""


class Refused(OSError):
    """The scheduler will never accept a job, because of ``failure``."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.failure = Failure(message, hint)


class ClusterQueue(ClusterExecutor):
    """The queue of a scheduler with jobs for tasks in ``jobs_folder``.

    See `LocalExecutor` for ``pass_env`` and ``environment``. At most every ``list_seconds``, one query lists all jobs;
    a run that had begun and is not in the queue for ``lost_seconds`` is submitted again.

    The methods that subclasses implement are called in native threads, except `waiting`, and raise Unreachable.
    """

    title: str
    # Hints for users: the scheduler does not answer, a job is lost.
    setup_hint: str
    lost_hint: str

    def __init__(
        self,
        jobs_folder: Path,
        *,
        pass_env: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        list_seconds: float = 5.0,
        lost_seconds: float = 90.0,
    ) -> None:
        self._jobs_folder = Path(os.path.abspath(jobs_folder))
        server = hashlib.sha256(os.fsencode(self._jobs_folder)).hexdigest()[:8]
        self._mark = f"digits:{server}:"
        self._variables = os.environ if environment is None else environment
        local = (
            "TMPDIR",
            "CUDA_VISIBLE_DEVICES",
        )  # do not apply on a node, where the scheduler assigns the GPUs
        kept = child_environment(self._variables, pass_env)
        self._environment = {name: value for name, value in kept.items() if name not in local}
        self.list_seconds, self.lost_seconds = list_seconds, lost_seconds

    def command(self, folder: Path, new: Submission) -> list[str]:
        """Return the command that runs a task on a node, without its program."""
        raise NotImplementedError

    def send(self, folder: Path, new: Submission) -> None:
        """Submit the script in ``folder`` under the name of the submission; raises LimitReached or Refused."""
        raise NotImplementedError

    def list_jobs(self) -> dict[str, QueuedJob]:
        """Return the jobs of this server, also recently ended ones, by their names, in one query."""
        raise NotImplementedError

    def waiting(self, job: QueuedJob, has_begun: bool) -> Waiting:
        """Return why a pending ``job`` waits, whose run may have begun before."""
        raise NotImplementedError

    def cancel(self, gently: Sequence[QueuedJob], at_once: Sequence[QueuedJob]) -> Collection[QueuedJob]:
        """Stop jobs: some may save their state, others have had the time for that, or have ended already.

        Return those that will do nothing, although the scheduler still lists them.
        """
        raise NotImplementedError

    def path(self, folder: Path, ending: str) -> Path:
        """Return the path of a file of the scheduler in the folder of a task."""
        return folder / f"{self.title.lower()}.{ending}"

    def name_of(self, folder: Path, submitted: Submission) -> str:
        """Return the name of the latest attempt of a submission."""
        return (
            f"{self._mark}{os.path.relpath(folder, self._jobs_folder)}:{submitted.token}:{submitted.attempt}"
        )

    def prepare(self, folder: Path, new: Submission, command: Sequence[str]) -> None:
        """Write the files of a new submission, whose script becomes ``command``; raises OSError."""
        # What an earlier run left.
        for stale in (folder / node_job.ATTEMPT_FILE, self.path(folder, "log"), folder / node_job.EXIT_FILE):
            stale.unlink(missing_ok=True)
        # A node asks for the contents of an existing file, but may remember for a minute that there was none.
        files.write_bytes(folder / node_job.STOP_FILE, b"0")
        devices = devices_environment(())
        if new.request.gpus_per_worker:
            del devices["CUDA_VISIBLE_DEVICES"]
        own = {processes.TASK_VARIABLE: str(folder), supervisor.RUN_VARIABLE: str(new.run)}
        variables = {**self._environment, **devices, **own}
        lines = [
            "#!/bin/sh",
            "trap '' TERM",  # one that came before the command handles it would end the job
            *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
            f"exec {shlex.join(command)}",
        ]
        files.write_bytes(self.path(folder, "sh"), "\n".join([*lines, ""]).encode())
        files.write_json(self.path(folder, "json"), new)

    def load(self, folder: Path, run: int | None = None) -> Submission | None:
        """Return what was submitted for this ``run`` of the task in ``folder``, by default for any run."""
        saved = _read(self.path(folder, "json"), Submission)
        return saved if saved and run in (saved.run, None) else None


def load_attempt(folder: Path) -> Attempt:
    """Return what is known about the latest attempt of the task in ``folder``."""
    return _read(folder / node_job.ATTEMPT_FILE, Attempt) or Attempt()


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return files.read_json(path, kind, below=path.parents[1])
    except files.UnreadableFile:
        return None
