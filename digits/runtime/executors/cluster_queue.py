"""The queue of a scheduler such as Slurm or Ray: its jobs, and how tasks become jobs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from digits.core.task import Failure
from digits.runtime.executors.cluster import ClusterExecutor
from digits.runtime.executors.executor import Waiting
from digits.runtime.executors.local import child_environment
from digits.runtime.executors.submission import Submission, node_environment, write_script

Status = Literal["pending", "running", "ending", "failed", "canceled", "out of memory", "expired"]


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
        self._environment = node_environment(child_environment(self._variables, pass_env))
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
        """Stop active jobs: some may save their state, others have had the time for that.

        Return those that will do nothing, although the scheduler still lists them.
        """
        raise NotImplementedError

    def discard(self, jobs: Sequence[QueuedJob]) -> None:
        """End ``jobs`` that no run wants; some have ended already."""
        raise NotImplementedError

    def path(self, folder: Path, ending: str) -> Path:
        """Return the path of a file of the scheduler in the folder of a task (see `submission`)."""
        return folder / f"{self.title.lower()}.{ending}"

    def name_of(self, folder: Path, submitted: Submission) -> str:
        """Return the name of the latest attempt of a submission."""
        return (
            f"{self._mark}{os.path.relpath(folder, self._jobs_folder)}:{submitted.token}:{submitted.attempt}"
        )

    def write_script(self, folder: Path, new: Submission, command: Sequence[str]) -> None:
        """Write the script of a new submission, which becomes ``command``; raises OSError."""
        hidden = {} if new.request.gpus_per_worker else {"CUDA_VISIBLE_DEVICES": ""}
        write_script(self.path(folder, "sh"), new.run, {**self._environment, **hidden}, command)
