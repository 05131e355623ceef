"""Run tasks as jobs of Slurm, through its commands ``sbatch``, ``squeue``, ``scancel``, ``scontrol`` and ``sinfo``.

On the nodes, `digits.runtime.executors.slurm.batch` runs a task under the same supervisor as locally.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

from digits.core.job import DeviceRequest
from digits.core.task import Failure
from digits.runtime.executors.cluster import Finding, Overview
from digits.runtime.executors.commands import CommandFailed, Commands
from digits.runtime.executors.executor import Exit, Waiting
from digits.runtime.executors.queue_executor import Listing, QueueExecutor, QueueOptions, Run
from digits.runtime.executors.slurm import batch, nodes
from digits.runtime.executors.slurm.check import check
from digits.runtime.executors.slurm.queue import SlurmJob, command_environment, list_jobs
from digits.runtime.executors.slurm.submission import SlurmSubmission, options, reserved_options
from digits.runtime.executors.slurm.words import (
    LAUNCH_FAILED,
    LIMIT,
    UNREACHABLE,
    message_of,
    reason_in_words,
    remedy,
)
from digits.runtime.threads import in_thread

log = logging.getLogger(__name__)

# A submission that a limit refuses is repeated after this time.
LIMIT_SECONDS = 15.0
# How often a job is released that Slurm holds because a node could not start it.
MAX_RELEASES = 5


class SlurmExecutor(QueueExecutor[SlurmJob]):
    """Runs tasks as jobs of Slurm. See `QueueExecutor` for the arguments."""

    title = "Slurm"
    submissions = SlurmSubmission
    lost_hint = "The controller may have lost its state, or the node cannot write to the jobs folder."

    def __init__(self, jobs_folder: Path, **options: Unpack[QueueOptions]) -> None:
        super().__init__(jobs_folder, **options)
        self._releases: Counter[str] = Counter()
        self._commands = Commands(command_environment(self._variables))

    def close(self) -> None:
        self._commands.close()
        super().close()

    # The cluster

    def overview(self) -> Overview:
        return nodes.overview(self._commands)

    def check(self, folder: Path) -> Iterator[Finding]:
        return check(self._commands, folder, self._environment)

    def refusal(self, folder: Path, request: DeviceRequest) -> Failure | None:
        reserved = ", ".join(reserved_options(request.compute.options))
        if reserved:
            return Failure(f"DIGITS sets {reserved} itself.", "Remove it from the additional options.")
        command = ("sbatch", "--test-only", *options(folder, request, comment="digits"), "--wrap=:")
        try:
            code, text = self._commands.run(*command)
        except CommandFailed as error:
            return Failure(f"Slurm does not answer: {error}.", "Try again, or run it on this machine.")
        return None if code == 0 else self._refused(text)

    def _refused(self, text: str) -> Failure:
        """Return the failure of a job that `sbatch` refused with this ``text``."""
        message = message_of(text)
        hint = remedy(message, lambda: self.overview().partitions)
        return Failure(f"Slurm refused the job: {message}", hint)

    # The scheduler

    def _create(self, folder: Path, run: int, request: DeviceRequest, comment: str) -> SlurmSubmission:
        return SlurmSubmission.create(folder, run, request, comment, self._program, self._environment)

    def _submit(self, run: Run[SlurmJob]) -> bool:
        assert isinstance(run.submission, SlurmSubmission)
        try:
            code, text = self._run_command("sbatch", "--parsable", *run.submission.arguments)
        except CommandFailed as error:
            self._postpone(run, f"Slurm does not accept jobs: {error}")
            return False
        if code == 0:
            self._accept(run)
            run.wait("Slurm has accepted it")
            return True
        if UNREACHABLE.search(text):
            self._postpone(run, "Slurm's controller does not answer")
            return False
        run.is_unsure = False
        # The limit may be one on the size of the job, which the end of others does not change.
        if LIMIT.search(text) and (
            self._others or any(r.submission.is_accepted for r in self._runs.values())
        ):
            self._postpone(run, f"your limit of submitted jobs at Slurm is reached ({message_of(text)})")
            self._submit_at += LIMIT_SECONDS
            return False
        run.state = Exit(failure=in_thread(self._refused, text), seconds=0.0)
        return True

    def _list_jobs(self) -> Listing[SlurmJob]:
        return list_jobs(self._commands, self._mark)

    def _waiting(self, job: SlurmJob) -> Waiting:
        if job.reason.replace("_", " ") == LAUNCH_FAILED and self._releases[job.comment] < MAX_RELEASES:
            self._releases[job.comment] += 1
            with contextlib.suppress(CommandFailed):
                self._run_command("scontrol", "release", str(job.id))
        return Waiting(reason_in_words(job.reason, job.id), job.start)

    def _cancel(self, run: Run[SlurmJob], job: SlurmJob, seconds: float) -> None:
        ids = str(job.id)
        if self._is_to_kill(run, seconds):
            self._scancel(ids)
            self._scancel("--signal=KILL", "--full", ids)
            return
        if job.is_pending:
            self._scancel("--state=PENDING", ids)
        # Without a signal, Slurm would kill a task that needs longer to save its state.
        self._scancel("--signal=TERM", ids)

    def _discard(self, jobs: Sequence[SlurmJob]) -> None:
        if active := [str(job.id) for job in jobs if job.is_active]:
            self._scancel(*active)

    def _end_of(self, run: Run[SlurmJob], job: SlurmJob) -> Exit | None:
        if job.state == "CANCELLED":
            failure = Failure("The job was canceled in Slurm, not here.", "Resume it to run it again.")
            return Exit(stopped=True, failure=failure)
        if job.state == "OUT_OF_MEMORY":
            return Exit(out_of_memory=True)
        if run.has_begun:  # its program was killed
            return None
        state = job.state.lower().replace("_", " ")
        state += f" ({job.reason})" if job.reason != "None" else ""
        return Exit(
            failure=Failure(
                f"Slurm job {job.id} ended without a result: {state}.",
                f"The end of {batch.LOG_FILE} in its folder may show why. The check of the compute target shows "
                "whether the nodes share the jobs folder and Python.",
            )
        )

    def _run_command(self, *command: str) -> tuple[int, str]:
        return in_thread(self._commands.run, *command)

    def _scancel(self, *arguments: str) -> None:
        try:
            self._run_command("scancel", *arguments)
        except CommandFailed as error:
            log.warning("scancel %s failed: %s", " ".join(arguments), error)
