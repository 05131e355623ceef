"""The queue of Slurm: the jobs of this user, as one `squeue` lists them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from digits.runtime.executors.commands import CommandFailed, Commands
from digits.runtime.executors.queue_executor import Listing, Unreachable
from digits.runtime.executors.slurm.words import message_of

# Job id, state, reason, expected start and comment.
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


def list_jobs(commands: Commands, mark: str) -> Listing[SlurmJob]:
    """List the jobs of this user; raises Unreachable."""
    listing: Listing[SlurmJob] = Listing(time.monotonic())
    try:
        code, text = commands.run("squeue", "--me", "--noheader", "--states=all", f"--format={_FORMAT}")
    except CommandFailed as error:
        raise Unreachable(str(error)) from error
    if code != 0:
        raise Unreachable(message_of(text))
    jobs = [job for job in map(_parse, text.splitlines()) if job]
    # Ids begin at 1 again when the controller has lost its state.
    for job in sorted(jobs, key=lambda job: job.id):
        if not job.comment.startswith(mark):
            listing.others += job.is_active
            continue
        if older := listing.jobs.get(job.comment):
            listing.replaced.append(older)
        listing.jobs[job.comment] = job
    return listing


def command_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return ``variables`` without those that change what Slurm's commands do or print."""
    kept = {
        name: value
        for name, value in variables.items()
        if not re.match(r"(SBATCH|SQUEUE|SCANCEL|SINFO|SALLOC|SRUN|SLURM)_", name) or name == "SLURM_CONF"
    }
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def _parse(line: str) -> SlurmJob | None:
    """Return the job in a line of `squeue`; None for an element of an array, which is not ours."""
    fields = line.strip().split("|", 4)
    if len(fields) < 5 or not fields[0].isdecimal():
        return None
    start = float(fields[3]) if fields[3].isdecimal() else None
    return SlurmJob(int(fields[0]), fields[1], fields[2], start, fields[4])
