"""Run tasks as jobs of Slurm, through its commands ``sbatch``, ``squeue``, ``scancel``, ``scontrol`` and ``sinfo``.

On the nodes, `digits.runtime.executors.slurm.batch` runs a task under the same supervisor as locally.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

from digits.core.job import DeviceRequest
from digits.core.task import Failure
from digits.runtime.executors.cluster import Finding, Overview
from digits.runtime.executors.commands import CommandFailed, CommandNotFound, Commands
from digits.runtime.executors.executor import Exit, Waiting
from digits.runtime.executors.queue_executor import (
    Listed,
    Listing,
    QueueExecutor,
    QueueOptions,
    Run,
    Unreachable,
)
from digits.runtime.executors.slurm import batch, nodes
from digits.runtime.executors.slurm.check import check
from digits.runtime.executors.slurm.queue import Queue, SlurmJob, command_environment
from digits.runtime.executors.slurm.submission import (
    SlurmSubmission,
    option_problem,
    options,
    own_arguments,
)
from digits.runtime.executors.slurm.words import (
    LIMIT,
    SUBMIT_LIMIT,
    UNREACHABLE,
    message_of,
    reason_in_words,
    remedy,
)
from digits.runtime.threads import in_thread

log = logging.getLogger(__name__)

# A submission that a limit refuses is repeated after this time.
LIMIT_SECONDS = 15.0
# Slurm expects a start after a year if it cannot know, as behind a job without a time limit.
MAX_WAIT_SECONDS = 300 * 86400.0
# How often in a row a job is started again that a node could not start.
MAX_FAILED_STARTS = 5


class SlurmExecutor(QueueExecutor[SlurmJob]):
    """Runs tasks as jobs of Slurm. See `QueueExecutor` for the arguments."""

    title = "Slurm"
    submissions = SlurmSubmission
    lost_hint = "The controller may have lost its state, or the node cannot write to the jobs folder."

    def __init__(self, jobs_folder: Path, **options: Unpack[QueueOptions]) -> None:
        super().__init__(jobs_folder, **options)
        self._commands = Commands(command_environment(self._variables))
        self._queue = Queue(self._commands, self._mark)

    def close(self) -> None:
        super().close()
        self._commands.close()

    # The cluster

    def overview(self) -> Overview:
        return nodes.overview(self._commands)

    def check(self, folder: Path) -> Iterator[Finding]:
        return check(self._commands, folder, self._environment)

    def refusal(self, folder: Path, request: DeviceRequest) -> Failure | None:
        if problem := option_problem(request.compute.options):
            return Failure(*problem)
        try:
            return self._refusal(request)
        except CommandNotFound as error:
            return Failure(f"Slurm does not answer: {error}.", "Install it, or run the job on this machine.")
        except (CommandFailed, Unreachable):
            return None  # the job waits until Slurm answers

    def _refusal(self, request: DeviceRequest) -> Failure | None:
        code, _ = self._commands.run("sbatch", "--test-only", *options(request), "--wrap=:")
        if code == 0:
            return None
        # That also fails for a job that has to wait, as for a drained node. So submit one, which does nothing.
        probe = ("--begin=now+10minutes", "--job-name=digits-check", "--output=/dev/null", "--wrap=:")
        code, text = self._commands.run("sbatch", "--parsable", *options(request), *probe)
        if code != 0:
            # A job beyond the limit of submitted jobs waits, and so does one for a controller that is away.
            waits = SUBMIT_LIMIT.search(text) or UNREACHABLE.search(text)
            return None if waits else self._refused(text)
        self._commands.run("scancel", text.strip().rpartition("\n")[2].partition(";")[0])
        nodes, workers = len(self.overview().nodes), request.compute.workers
        if workers <= nodes:
            return None
        return Failure(
            f"The cluster has {nodes} nodes, and {workers} workers need one each.", "Request fewer workers."
        )

    def _refused(self, text: str) -> Failure:
        """Return the failure of a job that `sbatch` refused with this ``text``."""
        message = message_of(text)
        hint = remedy(message, lambda: self.overview().partitions)
        return Failure(f"Slurm refused the job: {message}", hint)

    # The scheduler

    def _create(self, folder: Path, run: int, request: DeviceRequest) -> SlurmSubmission:
        return SlurmSubmission.create(folder, run, request, self._program, self._environment_of(request))

    def _submit(self, run: Run[SlurmJob]) -> None:
        submission = run.submission
        assert isinstance(submission, SlurmSubmission)
        arguments = [*submission.arguments, *own_arguments(run.folder, run.comment)]
        try:
            code, text = self._run_command("sbatch", "--parsable", *arguments)
        except CommandFailed as error:
            self._postpone(f"Slurm does not accept jobs: {error}")
            return
        if code == 0:
            self._accept([run])
            run.wait("Slurm has accepted it")
            return
        if UNREACHABLE.search(text):
            self._postpone("Slurm's controller does not answer")
            return
        run.is_unsure = False
        if SUBMIT_LIMIT.search(text) or (LIMIT.search(text) and self._has_others()):
            reason = f"your limit of submitted jobs at Slurm is reached ({message_of(text)})"
            self._postpone(reason, LIMIT_SECONDS)
        else:
            run.state = Exit(failure=in_thread(self._refused, text), seconds=0.0)

    def _has_others(self) -> bool:
        """Whether this user has other jobs, the end of which may permit more."""
        return bool(self._others) or any(run.submission.is_accepted for run in self._runs.values())

    def _list_jobs(self) -> Listing[SlurmJob]:
        return self._queue.list_jobs()

    def _waiting(self, run: Run[SlurmJob], job: SlurmJob) -> Waiting:
        if _may_start_again(run, job):
            with contextlib.suppress(CommandFailed):
                self._run_command("scontrol", "release", str(job.id))
        is_known = job.start is not None and job.start < time.time() + MAX_WAIT_SECONDS
        reason = reason_in_words(job.reason, str(job.id), has_begun=bool(run.phase))
        return Waiting(reason, job.start if is_known else None)

    def _cancel(self, gently: Sequence[Listed[SlurmJob]], at_once: Sequence[Listed[SlurmJob]]) -> None:
        killed = [str(job.id) for _, job in at_once if not job.is_pending]
        pending = [str(job.id) for _, job in (*gently, *at_once) if job.is_pending]
        if pending or killed:
            self._scancel(*pending, *killed)
        if killed:
            self._scancel("--signal=KILL", "--full", *killed)
        # Without a signal, Slurm would kill a task that needs longer to save its state.
        if stopped := [str(job.id) for _, job in gently if not job.is_pending]:
            self._scancel("--signal=TERM", *stopped)

    def _discard(self, jobs: Sequence[SlurmJob]) -> None:
        if active := [str(job.id) for job in jobs if job.is_active]:
            self._scancel(*active)

    def _end_of(self, run: Run[SlurmJob], job: SlurmJob) -> Exit | None:
        if job.state == "CANCELLED":
            return self._canceled()
        if job.state == "OUT_OF_MEMORY":
            return Exit(out_of_memory=True)
        if run.has_begun or _may_start_again(run, job):  # its program was killed, or was never started
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


def _may_start_again(run: Run[SlurmJob], job: SlurmJob) -> bool:
    """Count a failure of a node to start the program; return whether to try again."""
    run.failed_starts += job.failed_to_launch
    return job.failed_to_launch and run.failed_starts <= MAX_FAILED_STARTS
