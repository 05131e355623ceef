"""What the executors of schedulers with queues of their own, such as Slurm and Ray, have in common.

The jobs folder must be on a file system that the nodes share, at the same path, and so must this package and its Python
interpreter. On the nodes, `digits.runtime.executors.node_job` runs a task under the same supervisor as locally. The
files in its folder decide what has happened; the scheduler only explains what no file can: why a job waits, or that it
is gone.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypedDict, TypeVar

import gevent
import msgspec
from gevent.event import Event
from msgspec import Struct

from digits.core import files
from digits.core.job import DeviceRequest
from digits.core.task import Failure, Handle
from digits.runtime import supervisor, task_output
from digits.runtime.executors import node_job, processes
from digits.runtime.executors.cluster import ClusterExecutor
from digits.runtime.executors.executor import OUTPUT_LIMIT, Exit, Ledger, OpenLedger, Placement, Waiting
from digits.runtime.executors.exit_record import read_exit, write_exit
from digits.runtime.executors.local import WORKER_PROGRAM, child_environment
from digits.runtime.threads import in_thread

log = logging.getLogger(__name__)

# A file of a run that the scheduler reports as ended may not be visible here yet, nor its end to the scheduler.
FILE_SECONDS = 10.0
# A job that has not begun is submitted again, once, if this many listings in a row do not contain it: a scheduler that
# crashes forgets its latest submissions.
FORGOTTEN_LISTINGS = 3
# Without runs, the queue is listed this many times less often, until the jobs of ended runs are gone from it.
IDLE_FACTOR = 6
# With many runs, each is polled less often, as thousands may wait.
POLLS_PER_SECOND = 300
# For canceling jobs at the end of the server.
CLOSE_SECONDS = 10.0
# Time that a task gets to stop by itself, in addition to its grace period, before the scheduler kills it.
INSIST_SECONDS = 30.0


class Unreachable(OSError):
    """The scheduler did not answer."""


class QueuedJob(Protocol):
    """A job of the scheduler. The ``comment`` identifies the run that it was submitted for.

    Its ``attempt`` is that of the submission, if the scheduler needs another id for each.
    """

    @property
    def comment(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""

    @property
    def is_pending(self) -> bool: ...

    @property
    def is_running(self) -> bool: ...


J = TypeVar("J", bound=QueuedJob)


@dataclass
class Listing(Generic[J]):
    """The jobs of one server by their comments, also recently ended ones, at ``began_at`` of a monotonic clock.

    Of several jobs with the same comment, the newest one counts; the others are ``replaced``. ``others`` is the number
    of the user's other unfinished jobs.
    """

    began_at: float
    jobs: dict[str, J] = field(default_factory=dict)
    replaced: list[J] = field(default_factory=list)
    others: int = 0

    def job_of(self, run: Run[J]) -> J | None:
        """Return the job of the latest submission of ``run``."""
        job = self.jobs.get(run.comment)
        return job if job is not None and job.attempt == run.submission.attempt else None


class Submission(Struct, kw_only=True):
    """What was submitted for a ``run``, as saved in `FILE` in the folder of its task.

    `SCRIPT` is the file that runs on a node, `LOG` the one with what the scheduler and `node_job` print. The ``token``
    distinguishes this submission from earlier ones, whose jobs may still start. Without ``is_accepted``, it is unknown
    whether the scheduler has the job. ``attempt`` counts the times that it was submitted, if each needs another id.
    """

    FILE: ClassVar[str]
    SCRIPT: ClassVar[str]
    LOG: ClassVar[str]

    run: int
    token: str
    is_accepted: bool = False
    attempt: int = 0

    @classmethod
    def load(cls, folder: Path, run: int | None = None) -> Self | None:
        """Return the submission in the folder of a task, if it is that of this ``run``, by default of any run."""
        try:
            saved = files.read_json(folder / cls.FILE, cls, below=folder.parent)
        except files.UnreadableFile:
            return None
        return saved if run in (saved.run, None) else None

    @classmethod
    def write_script(
        cls,
        folder: Path,
        run: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        prelude: Sequence[str] = (),
    ) -> None:
        """Write the script of a new submission, which becomes ``command`` after ``prelude``; raises OSError."""
        stale = (node_job.STOP_FILE, node_job.ATTEMPT_FILE, cls.LOG, supervisor.EXIT_FILE)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        variables = {**environment, processes.TASK_VARIABLE: str(folder), supervisor.RUN_VARIABLE: str(run)}
        exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        # A SIGTERM that came before the command handles it would end the job.
        lines = [
            "#!/bin/sh",
            "trap '' TERM",
            *prelude,
            *exports,
            f"exec {shlex.join(command)}",
        ]
        files.write_bytes(folder / cls.SCRIPT, "\n".join([*lines, ""]).encode())

    def save(self, folder: Path) -> None:
        """Write it into the folder; raises OSError."""
        files.write_json(folder / self.FILE, msgspec.to_builtins(self))


class _Attempt(Struct):
    """What the file of `node_job` contains about the latest attempt."""

    token: str
    phase: Literal["waiting", "running", "interrupted"]
    nodes: str = ""

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        try:
            return files.read_json(folder / node_job.ATTEMPT_FILE, cls, below=folder)
        except files.UnreadableFile:
            return None


@dataclass
class Run(Generic[J]):
    """A run that has not ended, and what is known about it.

    ``state`` is what `poll` returns. ``is_unsure``: the scheduler may have a job that no listing has shown yet.
    ``phase`` is that of the latest attempt. Times are those of a monotonic clock.
    """

    folder: Path
    comment: str
    submission: Submission
    state: Exit | Waiting | None
    is_unsure: bool = False
    job: J | None = None  # in the latest listing, if that was applied
    gone_since: float | None = None
    phase: str = ""
    attempt_key: tuple[int, int] | None = None
    attempt_seen_at: float = 0.0
    accepted_at: float = 0.0
    ended_at: float = 0.0
    stop_since: float | None = None
    is_killed: bool = False
    is_resubmitted: bool = False
    failed_starts: int = 0  # in a row: nodes could not start its program

    def __post_init__(self) -> None:
        self.exit_path = str(self.folder / supervisor.EXIT_FILE)
        self.attempt_path = str(self.folder / node_job.ATTEMPT_FILE)

    @property
    def number(self) -> int:
        return self.submission.run

    @property
    def has_begun(self) -> bool:
        """Whether the job that the scheduler accepted last has begun an attempt."""
        return self.attempt_seen_at > self.accepted_at

    def is_repeated(self) -> bool:
        """Whether another program has submitted a run with the same number for this task, such as `digits train`."""
        saved = type(self.submission).load(self.folder, self.number)
        return saved is not None and saved.token != self.submission.token

    @property
    def is_to_stop(self) -> bool:
        """Whether the user has asked this run to stop, also before a restart of the server."""
        try:
            return (self.folder / node_job.STOP_FILE).read_text() == str(self.number)
        except (OSError, ValueError):
            return False

    def wait(self, reason: str, expected_start: float | None = None) -> None:
        state = Waiting(reason, expected_start)
        if self.state != state:
            self.state = state


# A run with its job in the latest listing.
Listed = tuple[Run[J], J]


class QueueOptions(TypedDict, total=False):
    """The arguments that every `QueueExecutor` takes."""

    program: Sequence[str]
    pass_env: Sequence[str]
    environment: Mapping[str, str] | None
    list_seconds: float
    lost_seconds: float
    per_owner: int | None


class QueueExecutor(ClusterExecutor, Generic[J]):
    """Runs tasks of the jobs in ``jobs_folder`` as jobs of a scheduler.

    See `LocalExecutor` for ``program``, ``pass_env`` and ``environment``. At most every ``list_seconds``, one query
    lists the jobs of all runs; a run that is neither in the queue nor has an exit record for ``lost_seconds`` is lost.

    Subclasses implement the methods in the section “The scheduler”.
    """

    title: str
    stop_seconds = 45.0
    submissions: type[Submission]
    # The hint for users whose job is lost.
    lost_hint: str

    def __init__(
        self,
        jobs_folder: Path,
        *,
        program: Sequence[str] = WORKER_PROGRAM,
        pass_env: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        list_seconds: float = 5.0,
        lost_seconds: float = 90.0,
        per_owner: int | None = None,
    ) -> None:
        self.ledger: Ledger = OpenLedger(per_owner)
        self._jobs_folder = Path(os.path.abspath(jobs_folder))
        server = hashlib.sha256(os.fsencode(self._jobs_folder)).hexdigest()[:8]
        self._mark = f"digits:{server}:"
        self._program = tuple(program)
        self._variables = os.environ if environment is None else environment
        self._environment = _node_environment(child_environment(self._variables, pass_env))
        self._list_seconds, self._lost_seconds = list_seconds, lost_seconds
        self._runs: dict[Path, Run[J]] = {}
        self._ended: dict[str, Run[J]] = {}  # whose jobs are still listed, by their comments
        self._problem = f"{self.title} has not been asked yet"
        self._listed_at = float("-inf")
        self._submit_at = 0.0
        self._others = 0
        self.queries = 0  # of the queue
        self._bell = Event()
        self._worker: gevent.Greenlet | None = None
        self._is_closed = False

    @property
    def poll_seconds(self) -> float:
        return max(1.0, min(self._list_seconds, len(self._runs) / POLLS_PER_SECOND))

    # The scheduler. Except `_create`, these methods are called by the worker, which they may delay.

    def _create(self, folder: Path, run: int, request: DeviceRequest) -> Submission:
        """Write the files of a new submission into the ``folder`` of a task; raises OSError. Called in a thread."""
        raise NotImplementedError

    def _submit(self, run: Run[J]) -> None:
        """Submit ``run``.

        Afterwards it has been accepted, has ended, or can be submitted again. If the scheduler may have it, it stays
        ``is_unsure``.
        """
        raise NotImplementedError

    def _list_jobs(self) -> Listing[J]:
        """Return the jobs with the mark of this server, in one query; raises Unreachable. Called in a thread."""
        raise NotImplementedError

    def _waiting(self, run: Run[J], job: J) -> Waiting:
        """Return why the pending ``job`` of ``run`` waits."""
        raise NotImplementedError

    def _cancel(self, gently: Sequence[Listed[J]], at_once: Sequence[Listed[J]]) -> None:
        """Stop active jobs: some may save their state, others have had the time for that."""
        raise NotImplementedError

    def _discard(self, jobs: Sequence[J]) -> None:
        """End ``jobs`` whose runs are over, or that were replaced; some have ended already."""
        raise NotImplementedError

    def _end_of(self, run: Run[J], job: J) -> Exit | None:
        """Return how ``run`` ended, whose ``job`` ended without an exit record; None if it was interrupted."""
        raise NotImplementedError

    def _is_interrupted(self, run: Run[J], job: J) -> bool:
        """Return whether no exit record of the ended ``job`` can appear, because ``run`` starts again."""
        return False

    def _environment_of(self, request: DeviceRequest) -> dict[str, str]:
        """Return the environment variables of a task with this ``request``, which sees no GPUs unless it gets some."""
        hidden = {} if request.gpus_per_worker else {"CUDA_VISIBLE_DEVICES": ""}
        return {**self._environment, **hidden}

    # Runs

    def start(self, folder: Path, placement: Placement, *, run: int = 1, owned: bool = False) -> Handle:
        """Submit the task in the background. An ``owned`` task whose owner is killed runs to its end."""
        submission = in_thread(self._create, folder, run, placement.request)
        waiting = Waiting(f"it is being submitted to {self.title}")
        self._follow(Run(folder, self._comment(folder, run), submission, waiting))
        return _handle(folder, run)

    def find(self, folder: Path, run: int) -> Handle | None:
        """Find a run in its folder. Whether the scheduler has its job is determined by the next listing."""
        return _handle(folder, run) if self.submissions.load(folder, run) else None

    def is_alive(self, handle: Handle) -> bool:
        folder, _ = _known(handle)
        return not isinstance(self.poll(folder, handle), Exit)

    def poll(self, folder: Path, handle: Handle | None) -> Exit | Waiting | None:
        number = handle.get("run") if handle else None
        run = self._adopt(folder, number if isinstance(number, int) else 0)
        if run is None:
            return read_exit(folder, _known(handle or {})[1]) or Exit(lost=True)
        # Cheap while nothing happens, because thousands of runs may wait.
        if os.path.lexists(run.exit_path) and (ended := read_exit(folder, run.number)):
            run.state = ended
        else:
            self._notice_attempt(run)
        if isinstance(run.state, Exit):
            if not os.path.lexists(run.exit_path):  # so that nothing asks for this run again, or starts it
                write_exit(folder, run.number, run.state)
            del self._runs[folder]
            run.ended_at = time.monotonic()
            self._ended[run.comment] = run
        return run.state

    def stop(self, handle: Handle) -> None:
        run = self._adopt(*_known(handle))
        if run is not None:
            files.write_bytes(run.folder / node_job.STOP_FILE, str(run.number).encode())
            run.stop_since = run.stop_since or time.monotonic()
            self._bell.set()

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        for task_folder, number in map(_known, handles):
            if task_folder.is_relative_to(folder):
                self._adopt(task_folder, number)
        # Also a task of an earlier server, of which no handle is known.
        for file in (folder / self.submissions.FILE, *folder.glob(f"*/{self.submissions.FILE}")):
            if submission := self.submissions.load(file.parent):
                self._adopt(file.parent, submission.run)
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
        # Nothing has run yet: messages of the scheduler are all there is.
        try:
            data = files.read_bytes(folder / self.submissions.LOG)
        except files.UnreadableFile:
            return "", 0
        return task_output.clean(data[-limit:].decode(errors="replace")), 0

    def warm_up(self) -> None:
        """Follow the jobs in the background, and cancel those of runs that have ended."""
        self._bell.set()
        if not self._is_closed and (self._worker is None or self._worker.ready()):
            self._worker = gevent.spawn(self._work)

    def nodes(self, folder: Path) -> str:
        attempt = _Attempt.load(folder)
        return attempt.nodes if attempt else ""

    def close(self) -> None:
        """Stop following the jobs, which keep running, except those that were asked to stop."""
        self._is_closed = True
        if self._worker is not None:
            self._worker.kill()
        if any(run.stop_since is not None for run in self._runs.values()):
            with gevent.Timeout(CLOSE_SECONDS, False):
                self._list()
                self._stop_runs()

    # The runs that have not ended

    def _comment(self, folder: Path, run: int) -> str:
        return f"{self._mark}{os.path.relpath(folder, self._jobs_folder)}:{run}"

    def _adopt(self, folder: Path, number: int) -> Run[J] | None:
        """Return a run that has not ended, also one that an earlier server submitted."""
        run = self._runs.get(folder)
        if run is not None and run.number == number:
            return run
        submission = self.submissions.load(folder, number)
        if submission is None or read_exit(folder, number):
            return None
        waiting = Waiting(f"{self.title} has not been asked yet")
        run = Run(folder, self._comment(folder, number), submission, waiting, is_unsure=True)
        if run.is_to_stop:  # asked of an earlier server
            run.stop_since = time.monotonic()
        self._notice_attempt(run)
        self._follow(run)
        return run

    def _follow(self, run: Run[J]) -> None:
        self._runs[run.folder] = run
        self._ended.pop(run.comment, None)
        self.warm_up()

    def _notice_attempt(self, run: Run[J]) -> None:
        """Notice that `node_job` has begun or interrupted an attempt, earlier than by a listing."""
        try:
            status = os.stat(run.attempt_path)
        except OSError:
            return
        key = status.st_ino, status.st_mtime_ns
        if key == run.attempt_key:
            return
        run.attempt_key = key
        attempt = _Attempt.load(run.folder)
        if attempt is None or attempt.token != run.submission.token:
            return
        run.attempt_seen_at, run.phase, run.job = time.monotonic(), attempt.phase, None
        run.failed_starts = 0
        if attempt.phase == "running":
            run.state = None
        elif attempt.phase == "waiting":
            run.wait(f"{self.title} has not found enough free nodes yet")
        else:
            run.wait(f"{self.title} has interrupted it and will start it again")

    # The worker: one greenlet, which asks the scheduler in threads

    def _work(self) -> None:
        while (self._runs or self._ended or self._problem) and not self._is_closed:
            try:
                self._stop_runs()
                self._submit_new()
                if time.monotonic() >= self._list_at:
                    self._list()
            except Exception:
                log.exception("unexpected error while following jobs of %s; continuing", self.title)
                gevent.sleep(1)
            now = time.monotonic()
            due = min(self._list_at, self._submit_at if self._submit_at > now else now + 1)
            self._bell.wait(max(0.0, due - now))
            self._bell.clear()

    @property
    def _list_at(self) -> float:
        return self._listed_at + self._list_seconds * (1 if self._runs else IDLE_FACTOR)

    def _submit_new(self) -> None:
        """Submit the runs that the scheduler does not have, in the order of their start."""
        for run in self._unsubmitted():
            if time.monotonic() < self._submit_at:
                return
            if not run.is_unsure and run.stop_since is None and run.folder in self._runs:
                run.is_unsure = True  # a request without an answer may have reached the scheduler
                self._submit(run)

    def _unsubmitted(self) -> list[Run[J]]:
        """Return the runs that the scheduler has not accepted."""
        runs = self._runs.values()
        return [run for run in runs if not (run.submission.is_accepted or isinstance(run.state, Exit))]

    def _postpone(self, reason: str, seconds: float = 0.0) -> None:
        """Submit nothing more for some time: ``seconds``, if that is longer than the interval of the listings."""
        for run in self._unsubmitted():
            run.wait(reason)
        self._submit_at = time.monotonic() + max(seconds, self._list_seconds)

    def _accept(self, runs: Sequence[Run[J]], at: float | None = None) -> None:
        """Note that the scheduler has accepted ``runs``, by default now."""
        for run in runs:
            run.submission.is_accepted, run.is_unsure = True, False
            run.gone_since, run.accepted_at = None, time.monotonic() if at is None else at
        in_thread(save, runs)

    def _stop_runs(self) -> None:
        """Ask the runs to stop that are asked to, and kill those that do not, once after each listing."""
        gently: list[Listed[J]] = []
        at_once: list[Listed[J]] = []
        for run in self._unsubmitted():
            if run.stop_since is not None and not run.is_unsure:
                run.state = Exit(stopped=True, seconds=0.0)
        for run in self._runs.values():
            if run.stop_since is not None and run.job is not None and run.job.is_active:
                seconds = time.monotonic() - run.stop_since
                (at_once if self._is_to_kill(run, seconds) else gently).append((run, run.job))
                run.job = None
        if gently or at_once:
            self._cancel(gently, at_once)
            self._listed_at = float("-inf")  # those that waited are gone now

    def _canceled(self) -> Exit:
        """Return the end of a run that was canceled with the commands of the scheduler."""
        message = f"The job was canceled in {self.title}, not here."
        return Exit(stopped=True, failure=Failure(message, "Start it again."))

    def _is_to_kill(self, run: Run[J], seconds: float) -> bool:
        """Return whether a run that was asked to stop ``seconds`` ago has had enough time."""
        return run.is_killed or seconds > INSIST_SECONDS + _grace_seconds(run.folder)

    def _list(self) -> None:
        self._listed_at = time.monotonic()
        self.queries += 1
        try:
            listing = in_thread(self._list_jobs)
        except Unreachable as error:
            self._unreachable(str(error))
            return
        self._problem, self._others = "", listing.others
        if found := [run for run in self._unsubmitted() if run.is_unsure and listing.job_of(run)]:
            # Unlike after an answer, an attempt that has been seen may be that of this job.
            self._accept(found, at=0.0)
        for run in list(self._runs.values()):
            if not isinstance(run.state, Exit):
                self._apply(run, listing)
        if strays := [*listing.replaced, *self._strays(listing)]:
            self._discard(strays)

    def _strays(self, listing: Listing[J]) -> Iterator[J]:
        """Yield the jobs of runs that have ended, such as one that starts again after a crash of the scheduler."""
        others = listing.jobs.keys() - {run.comment for run in self._runs.values()}
        for run in in_thread(self._find_ended, others - self._ended.keys()):
            run.ended_at = listing.began_at
            self._ended[run.comment] = run
        for comment, run in list(self._ended.items()):
            job = listing.jobs.get(comment)
            if job is None:
                if run.ended_at < listing.began_at:
                    self._ended.pop(comment, None)
            elif not job.is_active or (
                listing.began_at - run.ended_at >= FILE_SECONDS and not in_thread(run.is_repeated)
            ):
                yield job

    def _find_ended(self, comments: Iterable[str]) -> list[Run[J]]:
        """Return the runs with these ``comments`` whose folders say that they have ended. Called in a thread."""
        ended = []
        for comment in comments:
            place, _, number = comment.removeprefix(self._mark).rpartition(":")
            folder = self._jobs_folder / place
            # Not if the folder is missing: its file system may be.
            saved = self.submissions.load(folder, int(number))
            if saved and (state := read_exit(folder, saved.run)):
                ended.append(Run[J](folder, comment, saved, state))
        return ended

    def _unreachable(self, problem: str) -> None:
        """Keep what is known: a job that nobody can see may be running."""
        if problem != self._problem:
            log.warning("%s does not answer: %s", self.title, problem)
        self._problem = problem
        for run in self._runs.values():
            run.gone_since = run.job = None
            if isinstance(run.state, Waiting):
                run.wait(f"{self.title} does not answer; the job stays in its queue")

    def _apply(self, run: Run[J], listing: Listing[J]) -> None:
        """Update ``run`` from a listing."""
        job = listing.job_of(run)
        if job is None:
            self._miss(run, listing)
            return
        if job is run.job and job.is_active:
            return  # thousands may wait, most of them as before
        if not run.submission.is_accepted:
            return  # not submitted yet: it is the job of an earlier run
        run.job, run.is_unsure = job, False
        if not job.is_active:
            self._end(run, job, listing)
            return
        run.gone_since, run.is_resubmitted = None, False
        if job.is_running and run.phase != "waiting":
            run.state = None
        elif job.is_pending and run.attempt_seen_at >= listing.began_at:
            run.job = None  # outdated
        elif job.is_pending:
            waiting = self._waiting(run, job)
            run.wait(waiting.reason, waiting.expected_start)

    def _miss(self, run: Run[J], listing: Listing[J]) -> None:
        """Note that the queue does not contain ``run``."""
        if not run.submission.is_accepted:
            run.is_unsure = False  # submit it (again)
            return
        if run.gone_since is None:
            run.gone_since = listing.began_at
            return
        seconds = listing.began_at - run.gone_since
        self._notice_attempt(run)
        is_lost = seconds > (FILE_SECONDS if run.phase == "interrupted" else self._lost_seconds)
        is_forgotten = not run.has_begun and seconds >= FORGOTTEN_LISTINGS * self._list_seconds
        if run.stop_since is not None and (not run.has_begun or seconds >= FILE_SECONDS):
            run.state = Exit(stopped=True)
        elif (is_forgotten or is_lost) and not run.is_resubmitted:
            log.warning("%s has forgotten the job of %s; submitting it again", self.title, run.folder)
            run.submission.is_accepted, run.is_resubmitted = False, True
        elif is_lost:
            message = f"The job is no longer in {self.title}'s queue, and left no result."
            run.state = Exit(failure=Failure(message, f"{self.lost_hint} Start it again."))

    def _end(self, run: Run[J], job: J, listing: Listing[J]) -> None:
        """End ``run``, whose job has ended, or start it again, unless its exit record appears in time."""
        if run.gone_since is None:
            run.gone_since = listing.began_at
        if run.stop_since is not None:
            run.state = Exit(stopped=True)
        elif self._is_interrupted(run, job):
            self._start_again(run)
        elif listing.began_at - run.gone_since >= FILE_SECONDS:
            if ended := self._end_of(run, job):
                run.state = ended
            else:
                self._start_again(run)

    def _start_again(self, run: Run[J]) -> None:
        """Submit ``run`` again; `node_job` limits how often."""
        run.wait(f"{self.title} has interrupted it and will start it again")
        run.submission.is_accepted = False
        self._bell.set()


def save(runs: Sequence[Run[Any]]) -> None:
    """Write what was submitted into the folders of the runs; raises OSError."""
    for run in runs:
        run.submission.save(run.folder)


def _node_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environment`` that also apply on a node, where the scheduler assigns the GPUs."""
    kept = {
        name: value for name, value in environment.items() if name not in ("TMPDIR", "CUDA_VISIBLE_DEVICES")
    }
    return {**kept, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


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
