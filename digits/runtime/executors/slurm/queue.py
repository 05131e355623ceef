"""The queue of Slurm: the jobs of this user, as one `squeue` lists them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from digits.runtime.executors.commands import CommandFailed, Commands
from digits.runtime.executors.queue_executor import Listing, Unreachable
from digits.runtime.executors.slurm.words import LAUNCH_FAILURES, message_of

# Id, state, reason, expected start and comment.
_FORMAT = "%i|%T|%r|%S|%k"
_PENDING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED"}
_ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip


@dataclass(frozen=True)
class SlurmJob:
    """A job in the queue, or one that ended minutes ago. ``start`` is its start or expected start as a Unix time."""

    id: int
    state: str
    reason: str
    start: float | None
    comment: str

    attempt: ClassVar[int] = 0

    @property
    def is_active(self) -> bool:
        return self.state not in _ENDED

    @property
    def is_pending(self) -> bool:
        return self.state in _PENDING

    @property
    def is_running(self) -> bool:
        # A job that is queued again completes first.
        return self.is_active and not self.is_pending and self.state != "COMPLETING"

    @property
    def failed_to_launch(self) -> bool:
        """Whether a node could not start it; then Slurm ends it, or queues and holds it."""
        return self.reason.replace("_", " ") in LAUNCH_FAILURES


class Queue:
    """The jobs of this user. Those of this server have comments that begin with ``mark``."""

    def __init__(self, commands: Commands, mark: str) -> None:
        self._commands, self._mark = commands, mark
        self._known: dict[str, SlurmJob] = {}

    def list_jobs(self) -> Listing[SlurmJob]:
        """List the jobs; raises Unreachable. A job whose line has not changed is the same object as before."""
        listing: Listing[SlurmJob] = Listing(time.monotonic())
        command = ("squeue", "--me", "--noheader", "--states=all", f"--format={_FORMAT}")
        lines = ask(self._commands, *command).splitlines()
        found = {line: self._known.get(line) or parse(line, self._mark) for line in lines}
        jobs = [job for job in found.values() if job]
        # Slurm may hold a job again after its release, without a change of its line.
        self._known = {line: job for line, job in found.items() if job and not job.failed_to_launch}
        # Ids begin at 1 again when the controller has lost its state.
        for job in sorted(jobs, key=lambda job: job.id):
            if not job.comment.startswith(self._mark):
                listing.others += job.is_active
                continue
            if older := listing.jobs.get(job.comment):
                listing.replaced.append(older)
            listing.jobs[job.comment] = job
        return listing


def ask(commands: Commands, *command: str) -> str:
    """Return what a command of Slurm prints; raises Unreachable if it fails."""
    try:
        code, text = commands.run(*command)
    except CommandFailed as error:
        raise Unreachable(str(error)) from error
    if code != 0:
        raise Unreachable(message_of(text))
    return text


def parse(line: str, mark: str) -> SlurmJob | None:
    """Return the job in a ``line`` of `squeue`, or None if it contains none.

    Raises Unreachable for a line with a comment that begins with ``mark`` but no id of a single job.
    """
    fields = line.strip().split("|", 4)
    if not re.fullmatch(r"\d+", fields[0], re.ASCII) or len(fields) < 5:
        if len(fields) == 5 and fields[4].startswith(mark):
            raise Unreachable(f"squeue printed a line that cannot be read: {line.strip()[:200]}")
        return None
    id, state, reason, when, comment = fields
    start = float(when) if when.isdecimal() else None
    return SlurmJob(int(id), state, reason, start, comment)


def command_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return ``variables`` without those that change what Slurm's commands do or print."""
    kept = {
        name: value
        for name, value in variables.items()
        if not re.match(r"(SBATCH|SQUEUE|SCANCEL|SINFO|SALLOC|SRUN|SLURM)_", name) or name == "SLURM_CONF"
    }
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}
