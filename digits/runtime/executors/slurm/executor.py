"""Run tasks as jobs of Slurm, through its commands ``sbatch``, ``squeue``, ``scancel``, ``scontrol`` and ``sinfo``.

The jobs folder must be on a file system that the nodes share, at the same path, and so must this package and its Python
interpreter. On the nodes, `digits.runtime.executors.slurm.batch` runs a task under the same supervisor as locally.
The files in its folder decide what has happened; Slurm only explains what no file can: why a job waits, or that it is
gone.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gevent
import msgspec
from gevent.event import Event

from digits.core import files
from digits.core.job import DeviceRequest
from digits.core.task import Failure, Handle
from digits.runtime import supervisor, task_output
from digits.runtime.executors.cluster import Finding, Overview
from digits.runtime.executors.commands import CommandFailed, Commands
from digits.runtime.executors.executor import OUTPUT_LIMIT, Exit, Ledger, OpenLedger, Placement, Waiting
from digits.runtime.executors.exit_record import read_exit
from digits.runtime.executors.local import child_environment
from digits.runtime.executors.slurm import batch, nodes
from digits.runtime.executors.slurm.check import check
from digits.runtime.executors.slurm.queue import (
    Listing,
    SlurmJob,
    Unreachable,
    command_environment,
    list_jobs,
)
from digits.runtime.executors.slurm.submission import Submission, node_environment, options, reserved_options
from digits.runtime.executors.slurm.words import LIMIT, UNREACHABLE, message_of, reason_in_words, remedy
from digits.runtime.threads import in_thread

log = logging.getLogger(__name__)

# A submission that a limit refuses is repeated after this time.
LIMIT_SECONDS = 15.0
# A file of a run that Slurm reports as ended may not be visible here yet.
FILE_SECONDS = 10.0
# Time that a task gets to stop by itself, in addition to its grace period, before Slurm kills it.
INSIST_SECONDS = 30.0


class _Attempt(msgspec.Struct):
    """What the file of `batch` contains about the latest attempt."""

    token: str
    phase: Literal["running", "interrupted"]


@dataclass
class _Run:
    """A run that has not ended, and what is known about it.

    ``state`` is what `poll` returns. ``is_unsure``: Slurm may have a job that no listing has shown yet. Times are
    those of a monotonic clock.
    """

    folder: Path
    comment: str
    submission: Submission
    state: Exit | Waiting | None
    is_unsure: bool = False
    job: SlurmJob | None = None  # in the latest listing
    gone_since: float | None = None
    attempt_key: tuple[int, int] | None = None
    attempt_seen_at: float = 0.0
    stop_since: float | None = None
    is_killed: bool = False

    @property
    def number(self) -> int:
        return self.submission.run

    @property
    def is_to_stop(self) -> bool:
        """Whether the user has asked this run to stop, also before a restart of the server."""
        try:
            return (self.folder / batch.STOP_FILE).read_text() == str(self.number)
        except (OSError, ValueError):
            return False

    def wait(self, reason: str, expected_start: float | None = None) -> None:
        state = Waiting(reason, expected_start)
        if self.state != state:
            self.state = state


class SlurmExecutor:
    """Runs tasks of the jobs in ``jobs_folder`` as jobs of Slurm.

    See `LocalExecutor` for ``program``, ``pass_env`` and ``environment``. At most every ``list_seconds``, one `squeue`
    lists the jobs of all runs; a run that is neither in the queue nor has an exit record for ``lost_seconds`` is lost.
    """

    title = "Slurm"
    poll_seconds = 1.0
    stop_seconds = 45.0

    def __init__(
        self,
        jobs_folder: Path,
        *,
        program: Sequence[str] = (sys.executable, "-P", "-m", "digits.worker"),
        pass_env: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        list_seconds: float = 5.0,
        lost_seconds: float = 90.0,
    ) -> None:
        self.ledger: Ledger = OpenLedger()
        self._jobs_folder = Path(os.path.abspath(jobs_folder))
        server = hashlib.sha256(os.fsencode(self._jobs_folder)).hexdigest()[:8]
        self._mark = f"digits:{server}:"
        self._program = tuple(program)
        variables = os.environ if environment is None else environment
        self._environment = child_environment(variables, pass_env)
        self._commands = Commands(command_environment(variables))
        self._list_seconds, self._lost_seconds = list_seconds, lost_seconds
        self._runs: dict[Path, _Run] = {}
        self._ended: set[str] = set()  # comments of runs whose job may still be active
        self._listed_at = float("-inf")
        self._submit_at = 0.0
        self._others = 0
        self.queries = 0  # of the queue
        self._bell = Event()
        self._worker: gevent.Greenlet | None = None
        self._is_closed = False

    # Runs

    def start(self, folder: Path, placement: Placement, *, run: int = 1, owned: bool = False) -> Handle:
        """Submit the task in the background. An ``owned`` task is not supported: it would outlive its owner."""
        if owned:
            raise ValueError("a task on a cluster cannot end with the process that started it")
        comment, environment = self._comment(folder, run), node_environment(self._environment)
        submission = Submission.create(folder, run, placement.request, comment, self._program, environment)
        self._follow(_Run(folder, comment, submission, Waiting("it is being submitted to Slurm")))
        return _handle(folder, run)

    def find(self, folder: Path, run: int) -> Handle | None:
        """Find a run in its folder. Whether Slurm has its job is determined by the next listing."""
        return _handle(folder, run) if Submission.load(folder, run) else None

    def is_alive(self, handle: Handle) -> bool:
        folder, _ = _known(handle)
        return not isinstance(self.poll(folder, handle), Exit)

    def poll(self, folder: Path, handle: Handle | None) -> Exit | Waiting | None:
        _, number = _known(handle or {})
        run = self._adopt(folder, number)
        if run is None:
            return read_exit(folder, number) or Exit(lost=True)
        # Cheap while nothing happens, because thousands of runs may wait.
        if os.path.lexists(folder / supervisor.EXIT_FILE) and (ended := read_exit(folder, number)):
            run.state = ended
        else:
            self._notice_attempt(run)
        if isinstance(run.state, Exit):
            del self._runs[folder]
            self._ended.add(run.comment)
        return run.state

    def stop(self, handle: Handle) -> None:
        run = self._adopt(*_known(handle))
        if run is not None:
            files.write_bytes(run.folder / batch.STOP_FILE, str(run.number).encode())
            run.stop_since = run.stop_since or time.monotonic()
            self._bell.set()

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        for task_folder, number in map(_known, handles):
            if task_folder.is_relative_to(folder):
                self._adopt(task_folder, number)
        for run in [run for run in self._runs.values() if run.folder.is_relative_to(folder)]:
            handle = _handle(run.folder, run.number)
            if self.is_alive(handle):
                self.stop(handle)
                run.is_killed = True
        return not any(run.folder.is_relative_to(folder) for run in self._runs.values())

    def output(self, folder: Path, after: int = 0, limit: int = OUTPUT_LIMIT) -> tuple[str, int]:
        text, end = task_output.read(folder, after, limit)
        if end or after:
            return text, end
        # Nothing has run yet: Slurm's messages are all there is.
        try:
            return task_output.clean(
                files.read_bytes(folder / batch.LOG_FILE)[-limit:].decode(errors="replace")
            ), 0
        except files.UnreadableFile:
            return "", 0

    def warm_up(self) -> None:
        """Do nothing: there is nothing to prepare."""

    def is_warm(self) -> bool:
        return False

    def close(self) -> None:
        """Stop following the jobs, which keep running."""
        self._is_closed = True
        self._commands.close()
        if self._worker is not None:
            self._worker.kill()

    # The cluster

    def overview(self) -> Overview:
        try:
            return nodes.overview(self._commands)
        except Unreachable as error:
            raise OSError(str(error)) from error

    def check(self, folder: Path) -> Iterator[Finding]:
        return check(self._commands, folder, node_environment(self._environment))

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

    # The runs that have not ended

    def _comment(self, folder: Path, run: int) -> str:
        return f"{self._mark}{os.path.relpath(folder, self._jobs_folder)}:{run}"

    def _adopt(self, folder: Path, number: int) -> _Run | None:
        """Return a run that has not ended, also one that an earlier server submitted."""
        run = self._runs.get(folder)
        if run is not None and run.number == number:
            return run
        submission = Submission.load(folder, number)
        if submission is None or read_exit(folder, number):
            return None
        waiting = Waiting("Slurm has not been asked yet")
        run = _Run(folder, self._comment(folder, number), submission, waiting, is_unsure=True)
        self._notice_attempt(run)
        self._follow(run)
        return run

    def _follow(self, run: _Run) -> None:
        self._runs[run.folder] = run
        self._ended.discard(run.comment)
        self._bell.set()
        if not self._is_closed and (self._worker is None or self._worker.ready()):
            self._worker = gevent.spawn(self._work)

    def _notice_attempt(self, run: _Run) -> None:
        """Notice that `batch` has begun or interrupted an attempt, earlier than by a listing."""
        try:
            status = os.stat(run.folder / batch.ATTEMPT_FILE)
        except OSError:
            return
        key = status.st_ino, status.st_mtime_ns
        if key == run.attempt_key:
            return
        run.attempt_key = key
        try:
            attempt = files.read_json(run.folder / batch.ATTEMPT_FILE, _Attempt, below=run.folder)
        except files.UnreadableFile:
            return
        if attempt.token != run.submission.token:
            return
        run.attempt_seen_at = time.monotonic()
        if attempt.phase == "running":
            run.state = None
        else:
            run.wait("Slurm has interrupted it and will start it again")

    # The worker: one greenlet, which calls the commands in threads

    def _work(self) -> None:
        while self._runs and not self._is_closed:
            try:
                self._submit_new()
                self._stop_runs()
                if time.monotonic() >= self._listed_at + self._list_seconds and self._runs:
                    self._list()
            except Exception:
                log.exception("unexpected error while following Slurm jobs; continuing")
                gevent.sleep(1)
            self._bell.wait(max(0.0, min(1.0, self._listed_at + self._list_seconds - time.monotonic())))
            self._bell.clear()

    def _run_command(self, *command: str) -> tuple[int, str]:
        return in_thread(self._commands.run, *command)

    def _submit_new(self) -> None:
        """Submit the runs that Slurm does not have, in the order of their start."""
        if time.monotonic() < self._submit_at:
            return
        for run in list(self._runs.values()):
            if run.submission.is_accepted or run.is_unsure or isinstance(run.state, Exit):
                continue
            if run.is_to_stop:
                run.state = Exit(stopped=True, seconds=0.0)
            elif not self._submit(run):
                return

    def _submit(self, run: _Run) -> bool:
        """Submit ``run``; return False if no other one can be submitted now."""
        run.is_unsure = True  # a command that is killed may have reached Slurm
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

    def _postpone(self, run: _Run, reason: str) -> None:
        run.wait(reason)
        self._submit_at = time.monotonic() + self._list_seconds

    def _accept(self, run: _Run) -> None:
        run.submission.is_accepted, run.is_unsure = True, False
        run.gone_since = None
        run.submission.save(run.folder)

    def _stop_runs(self) -> None:
        """Ask the runs to stop that are asked to, and kill those that do not, once after each listing."""
        for run in list(self._runs.values()):
            if run.stop_since is not None and run.job is not None and run.job.is_active:
                job, run.job = run.job, None
                self._cancel(run, job, time.monotonic() - run.stop_since)

    def _cancel(self, run: _Run, job: SlurmJob, seconds: float) -> None:
        """Cancel the job of ``run``, which was asked to stop ``seconds`` ago."""
        ids = str(job.id)
        if run.is_killed or seconds > INSIST_SECONDS + _grace_seconds(run.folder):
            self._scancel(ids)
            self._scancel("--signal=KILL", "--full", ids)
            return
        if job.is_pending:
            self._scancel("--state=PENDING", ids)
        # Without a signal, Slurm would kill a task that needs longer to save its state.
        self._scancel("--signal=TERM", ids)

    def _scancel(self, *arguments: str) -> None:
        try:
            self._run_command("scancel", *arguments)
        except CommandFailed as error:
            log.warning("scancel %s failed: %s", " ".join(arguments), error)

    def _list(self) -> None:
        self._listed_at = time.monotonic()
        self.queries += 1
        try:
            listing = in_thread(list_jobs, self._commands, self._mark)
        except Unreachable as error:
            self._unreachable(str(error))
            return
        self._others = listing.others
        for run in list(self._runs.values()):
            self._apply(run, listing)
        strays = [str(job.id) for job in (*listing.replaced, *self._strays(listing)) if job.is_active]
        if strays:
            self._scancel(*strays)
        self._ended &= listing.jobs.keys()

    def _strays(self, listing: Listing) -> Iterator[SlurmJob]:
        """Yield the jobs of runs that have ended, such as one that the controller starts again after a crash."""
        running = {run.comment for run in self._runs.values()}
        for comment, job in listing.jobs.items():
            if comment not in running and job.is_active:
                place, _, number = comment.removeprefix(self._mark).rpartition(":")
                folder = self._jobs_folder / place
                if comment in self._ended or not folder.exists() or read_exit(folder, int(number)):
                    yield job

    def _unreachable(self, problem: str) -> None:
        """Keep what is known: a job that nobody can see may be running."""
        log.warning("Slurm does not answer: %s", problem)
        for run in self._runs.values():
            run.gone_since = None
            if isinstance(run.state, Waiting):
                run.wait("Slurm's controller does not answer; the job stays in its queue")

    def _apply(self, run: _Run, listing: Listing) -> None:
        """Update ``run`` from a listing."""
        job = listing.jobs.get(run.comment)
        if job is None:
            self._miss(run, listing)
            return
        if not run.submission.is_accepted:
            self._accept(run)
        run.job, run.is_unsure = job, False
        if run.stop_since is None and run.is_to_stop:  # asked of an earlier server
            run.stop_since = listing.began_at
        if not job.is_active:
            self._end(run, job, listing)
            return
        run.gone_since = None
        if not job.is_pending:
            if job.state != "COMPLETING":  # a job that is queued again completes first
                run.state = None
        elif run.attempt_seen_at < listing.began_at:
            run.wait(reason_in_words(job.reason, job.id), job.start)

    def _miss(self, run: _Run, listing: Listing) -> None:
        """Note that the queue does not contain ``run``."""
        if not run.submission.is_accepted:
            run.is_unsure = False  # submit it (again)
            return
        if run.gone_since is None:
            run.gone_since = listing.began_at
        elif time.monotonic() - run.gone_since > self._lost_seconds:
            hint = "The controller may have lost its state, or the node cannot write to the jobs folder. Resume it."
            run.state = Exit(
                failure=Failure("The job is no longer in Slurm's queue, and left no result.", hint)
            )

    def _end(self, run: _Run, job: SlurmJob, listing: Listing) -> None:
        """End ``run``, whose job has ended, unless its exit record appears in time."""
        if run.gone_since is None:
            run.gone_since = listing.began_at
        if run.stop_since is not None:
            run.state = Exit(stopped=True)
        elif listing.began_at - run.gone_since >= FILE_SECONDS:
            run.state = _exit_of(job)


def _exit_of(job: SlurmJob) -> Exit:
    """Return the end of a run of which only Slurm's state is known."""
    if job.state == "CANCELLED":
        failure = Failure("The job was canceled in Slurm, not here.", "Resume it to run it again.")
        return Exit(stopped=True, failure=failure)
    if job.state == "OUT_OF_MEMORY":
        return Exit(out_of_memory=True)
    state, reason = job.state.lower().replace("_", " "), f" ({job.reason})" if job.reason != "None" else ""
    return Exit(
        failure=Failure(
            f"Slurm job {job.id} ended without a result: {state}{reason}.",
            f"The end of {batch.LOG_FILE} in its folder may show why. The check of the compute target shows whether "
            "the nodes share the jobs folder and Python.",
        )
    )


def _grace_seconds(folder: Path) -> float:
    try:
        return min(float((folder / supervisor.STOP_SECONDS_FILE).read_text()), supervisor.MAX_GRACE_SECONDS)
    except (OSError, ValueError):
        return supervisor.GRACE_SECONDS


def _handle(folder: Path, run: int) -> Handle:
    return {"folder": str(folder), "run": run}


def _known(handle: Handle) -> tuple[Path, int]:
    """Return the folder and the number of the run that ``handle`` identifies; the number is 0 if it is damaged."""
    folder, number = handle.get("folder"), handle.get("run")
    if isinstance(folder, str) and isinstance(number, int):
        return Path(folder), number
    return Path(os.sep), 0
