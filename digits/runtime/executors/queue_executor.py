"""What the executors of schedulers with queues of their own, such as Slurm and Ray, have in common.

The jobs folder must be on a file system that the nodes share, at the same path, and so must this package and its Python
interpreter. On the nodes, `digits.runtime.executors.node_job` runs a task under the same supervisor as locally.

The files in the folder of a task decide what has happened. Each listing of the queue is compared with them:

- a run with an exit record has ended;
- a run whose job is in the queue waits or runs;
- a run whose job is missing for some time, or has ended without an exit record, is submitted again, with the same
  token: a program on a node does nothing once the run is over;
- jobs that no run wants are canceled: their run is over, or was submitted again.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from digits.core import files
from digits.core.task import Handle
from digits.runtime import supervisor, task_output
from digits.runtime.executors import node_job, queued_run
from digits.runtime.executors.cluster import Finding, Unreachable
from digits.runtime.executors.cluster_queue import (
    ClusterQueue,
    LimitReached,
    QueuedJob,
    Refused,
    Submission,
    load_attempt,
)
from digits.runtime.executors.executor import OUTPUT_LIMIT, Exit, Ledger, OpenLedger, Placement, Waiting
from digits.runtime.executors.exit_record import read_exit, write_exit
from digits.runtime.executors.local import WORKER_PROGRAM
from digits.runtime.executors.probe import probe
from digits.runtime.executors.queued_run import QueuedRun
from digits.runtime.offload import in_thread

log = logging.getLogger(__name__)

# Without runs, the queue is listed this many times less often, until the jobs of ended runs are gone from it.
IDLE_FACTOR = 6
# With many runs, each is polled less often, as thousands may wait.
POLLS_PER_SECOND = 300
# For canceling jobs at the end of the server.
CLOSE_SECONDS = 10.0
# Time that a task gets to stop by itself, in addition to its grace period, before the scheduler kills it.
INSIST_SECONDS = 30.0


class QueueExecutor(ClusterQueue):
    """Runs tasks of the jobs in ``jobs_folder`` as jobs of a scheduler.

    See `LocalExecutor` for ``program``, and `ClusterQueue` for ``options``. Subclasses implement the methods of that.
    """

    stop_seconds = 45.0

    def __init__(
        self,
        jobs_folder: Path,
        *,
        program: Sequence[str] = WORKER_PROGRAM,
        per_owner: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(jobs_folder, **options)
        self.ledger: Ledger = OpenLedger(per_owner)
        self._program = tuple(program)
        self._runs: dict[Path, QueuedRun] = {}
        self._unwanted: dict[str, float] = {}  # names of jobs, with the time since which they are listed
        self._problem = f"{self.title} has not been asked yet"
        self._list_at = self._changed_at = 0.0
        self._settled_at = -1.0  # the latest listing without an active job that is unwanted
        self.queries = 0  # of the queue
        self._bell = Event()
        self._worker: gevent.Greenlet | None = None
        self._is_closed = False

    @property
    def poll_seconds(self) -> float:
        return max(1.0, min(self.list_seconds, len(self._runs) / POLLS_PER_SECOND))

    def check(self, folder: Path) -> Iterator[Finding]:
        title = f"{self.title} answers"
        try:
            cluster = self.overview()
        except Unreachable as error:
            yield Finding(title=title, is_ok=False, detail=str(error), remedy=self.setup_hint)
            return
        yield Finding(title=title, is_ok=True, detail=cluster.summary)
        yield from probe(self, folder, cluster)

    # Runs

    def start(self, folder: Path, placement: Placement, *, run: int = 1, owned: bool = False) -> Handle:
        """Submit the task in the background. An ``owned`` task whose owner is killed runs to its end."""
        new = Submission(run, secrets.token_hex(8), placement.request)
        in_thread(self.prepare, folder, new, [*self.command(folder, new), *self._program, str(folder)])
        self._follow(QueuedRun(self, folder, new, Waiting(f"it is being submitted to {self.title}")))
        return {"folder": str(folder), "run": run}

    def find(self, folder: Path, run: int) -> Handle | None:
        """Find a run in its folder. Whether the scheduler has its job is determined by the next listings."""
        return {"folder": str(folder), "run": run} if self.load(folder, run) else None

    def is_alive(self, handle: Handle) -> bool:
        return not isinstance(self.poll(_known(handle)[0], handle), Exit)

    def poll(self, folder: Path, handle: Handle | None) -> Exit | Waiting | None:
        number = _known(handle or {})[1]
        if (run := self._adopt(folder, number)) is None:
            return read_exit(folder, number) or Exit(lost=True)
        run.read_files()
        if isinstance(run.state, Exit):
            if not os.path.lexists(run.exit_path):  # so that nothing asks for this run again, or starts it
                write_exit(folder, number, run.state)
            del self._runs[folder]
            self._changed_at = time.monotonic()
        return run.state

    def stop(self, handle: Handle) -> None:
        run = self._adopt(*_known(handle))
        if run is not None and run.stop_since is None:
            files.write_bytes(run.folder / node_job.STOP_FILE, str(run.submission.run).encode())
            run.stop_since, self._list_at = time.monotonic(), 0.0
            self._bell.set()

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        for file in (self.path(folder, "json"), *folder.glob(f"*/{self.path(folder, 'json').name}")):
            if saved := self.load(file.parent):  # also of an earlier server
                self._adopt(file.parent, saved.run)
        for run in [run for run in self._runs.values() if run.folder.is_relative_to(folder)]:
            handle = {"folder": str(run.folder), "run": run.submission.run}
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
            data = files.read_bytes(self.path(folder, "log"))
        except files.UnreadableFile:
            return "", 0
        return task_output.clean(data[-limit:].decode(errors="replace")), 0

    def nodes(self, folder: Path) -> str:
        return load_attempt(folder).nodes

    def warm_up(self) -> None:
        """Follow the jobs in the background, and cancel those of runs that have ended."""
        self._bell.set()
        if not self._is_closed and (self._worker is None or self._worker.ready()):
            self._worker = gevent.spawn(self._work)

    def close(self) -> None:
        """Stop following the jobs, which keep running, except those that were asked to stop."""
        self._is_closed = True
        if self._worker is not None:
            self._worker.kill()
        if any(run.stop_since is not None for run in self._runs.values()):
            with gevent.Timeout(CLOSE_SECONDS, False):
                self._reconcile()

    def _adopt(self, folder: Path, number: int) -> QueuedRun | None:
        """Return a run that has not ended, also one that an earlier server submitted."""
        run = self._runs.get(folder)
        if run is not None and run.submission.run == number:
            return run
        saved = self.load(folder, number)
        if saved is None or read_exit(folder, number):
            return None
        now = time.monotonic()
        waiting = Waiting(f"{self.title} has not been asked yet")
        run = QueuedRun(self, folder, saved, waiting, seen_at=now if saved.attempt else None)
        if node_job.is_to_stop(str(folder), number):  # asked of an earlier server
            run.stop_since = now
        self._follow(run)
        return run

    def _follow(self, run: QueuedRun) -> None:
        self._runs[run.folder] = run
        self._list_at = min(self._list_at, time.monotonic() + self.list_seconds)
        self.warm_up()

    # The worker: one greenlet, which asks the scheduler in threads

    def _work(self) -> None:
        while (self._runs or self._settled_at <= self._changed_at) and not self._is_closed:
            try:
                if time.monotonic() >= self._list_at:
                    self._reconcile()
                self._submit_new()
            except Exception:
                log.exception("unexpected error while following jobs of %s; continuing", self.title)
                gevent.sleep(1)
            self._bell.wait(max(0.0, self._list_at - time.monotonic()))
            self._bell.clear()

    def _submit_new(self) -> None:
        """Submit the runs that the scheduler does not have, in the order of their start, until the next listing."""
        for run in [run for run in self._runs.values() if run.seen_at is None and not run.is_over]:
            if run.stop_since is not None:
                run.state = Exit(stopped=True, seconds=0.0)
            elif not self._problem and time.monotonic() < self._list_at:
                self._submit(run)

    def _submit(self, run: QueuedRun) -> None:
        new, folder = run.submission, run.folder
        new.attempt += 1
        in_thread(files.write_json, self.path(folder, "json"), new)
        run.name, run.seen_at, run.phase = self.name_of(folder, new), time.monotonic(), ""
        try:
            in_thread(self.send, folder, new)
        except Unreachable as error:  # the listings will show whether it was accepted
            self._unreachable(str(error))
        except LimitReached as error:
            run.seen_at, self._problem = None, str(error)  # until the next listing
            for other in self._runs.values():
                if other.seen_at is None and not other.is_over:
                    other.state = Waiting(str(error))
        except Refused as refused:
            run.state = Exit(failure=refused.failure, seconds=0.0)
        else:
            run.starts += 1
            run.wait("has accepted it")

    def _unreachable(self, problem: str) -> None:
        """Keep what is known: a job that nobody can see may be running."""
        if problem != self._problem:
            log.warning("%s does not answer: %s", self.title, problem)
        self._problem = problem
        for run in self._runs.values():
            if run.seen_at is not None:
                run.seen_at = time.monotonic()
            if isinstance(run.state, Waiting):
                run.wait(f"does not answer ({problem})")

    def _reconcile(self) -> None:
        """Compare the runs with the queue."""
        at = time.monotonic()
        self._list_at = at + self.list_seconds * (1 if self._runs else IDLE_FACTOR)
        self.queries += 1
        try:
            jobs = in_thread(self.list_jobs)
            self._problem = ""
            active: dict[str, QueuedRun] = {}
            for run in [run for run in self._runs.values() if run.seen_at is not None and not run.is_over]:
                job = jobs.get(run.name)
                if job is None or not job.is_active:
                    run.miss(job, at)
                else:
                    active[job.name] = run
                    run.see(job, at)
            self._stop_jobs([(run, jobs[name]) for name, run in active.items() if run.stop_since is not None])
            self._discard_unwanted({name: job for name, job in jobs.items() if name not in active}, at)
        except Unreachable as error:
            self._unreachable(str(error))

    def _stop_jobs(self, listed: Sequence[tuple[QueuedRun, QueuedJob]]) -> None:
        """Ask the jobs of runs to stop, and kill those that have had enough time."""
        gently: list[QueuedJob] = []
        at_once: list[QueuedJob] = []
        for run, job in listed:
            seconds = time.monotonic() - (run.stop_since or 0.0)
            is_late = run.is_killed or seconds > INSIST_SECONDS + supervisor.grace_seconds(str(run.folder))
            (at_once if is_late else gently).append(job)
        gone = in_thread(self.cancel, gently, at_once) if listed else ()
        for run, job in listed:
            if job in gone:
                run.state = Exit(stopped=True, seconds=0.0)
            elif job.is_pending:
                self._list_at = min(self._list_at, time.monotonic() + 1)  # it is gone then

    def _discard_unwanted(self, others: Mapping[str, QueuedJob], at: float) -> None:
        """End jobs of runs that are over, such as one that starts again after a crash of the scheduler."""
        known = {name: since for name, since in self._unwanted.items() if name in others}
        found = in_thread(self._find_unwanted, others.keys() - known.keys())
        self._unwanted = dict.fromkeys(found, at) | known
        listed = [(others[name], at - since) for name, since in self._unwanted.items()]
        if due := [job for job, age in listed if not job.is_active or age >= queued_run.FILE_SECONDS]:
            in_thread(self.cancel, (), due)
        if not any(job.is_active for job, _ in listed):
            self._settled_at = at

    def _find_unwanted(self, names: Collection[str]) -> list[str]:
        """Return those of ``names`` whose run is over or has a newer submission, as the files say."""
        found = []
        for name in names:
            folder = self._jobs_folder / name.removeprefix(self._mark).partition(":")[0]
            saved = self.load(folder)
            # Not if the folder is missing: its file system may be.
            if saved and (name != self.name_of(folder, saved) or read_exit(folder, saved.run)):
                found.append(name)
        return found


def _known(handle: Handle) -> tuple[Path, int]:
    """Return the folder and the number of the run that ``handle`` identifies; the number is 0 if it is damaged."""
    folder, number = handle.get("folder"), handle.get("run")
    if isinstance(folder, str) and isinstance(number, int):
        return Path(folder), number
    return Path(os.sep), 0
