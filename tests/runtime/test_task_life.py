"""Submit, start, abort, resume and delete tasks and kill the server, in any order.

The production executor has failpoints around its methods: in each of these windows, the job may be aborted or
deleted, the start may fail, or the server may die. ``DIGITS_LIFE_EXAMPLES`` sets the number of examples.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from digits.core.errors import DigitsError
from digits.core.job import Job
from digits.core.status import Status
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.processes import processes_in
from tests.runtime.toy_jobs import PROGRAMS, Server, ToyJob

pytestmark = pytest.mark.integration

EXAMPLES = int(os.environ.get("DIGITS_LIFE_EXAMPLES", "4"))
METHODS = ("find", "start", "poll", "stop")
WINDOWS = [f"{when} {method}" for when in ("before", "after") for method in METHODS]
ACTIONS = ["abort", "delete", "die", "fail"]


def add_failpoints(executor: LocalExecutor, reach: Callable[[str], None]) -> None:
    """Call ``reach`` with the name of the window before and after each call of a method of ``executor``."""

    def within(name: str, method: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        reach(f"before {name}")
        result = method(*arguments, **keywords)
        reach(f"after {name}")
        return result

    for name in (*METHODS, "clear"):
        setattr(executor, name, functools.partial(within, name, getattr(executor, name)))


class TaskLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.executor = LocalExecutor(standby=False, program=[sys.executable, "-c", PROGRAMS])
        add_failpoints(self.executor, self.reach)
        self.armed: tuple[str, str, str] | None = None  # window, action, job
        self.is_dead = False
        self.requests: list[gevent.Greenlet] = []
        self.aborted: set[str] = set()
        self.deleted: set[str] = set()
        self.server = self.new_server()

    def new_server(self) -> Server:
        return Server(Path(self.folder.name) / "jobs", self.executor)

    # Actions in windows

    def reach(self, window: str) -> None:
        if self.is_dead:
            raise gevent.GreenletExit
        if self.armed is None or self.armed[0] != window:
            return
        _, action, job_id = self.armed
        self.armed = None
        if action == "die":
            self.is_dead = True
            raise gevent.GreenletExit
        if action == "fail":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        job = self.server.store.find(job_id)
        if job is not None:
            self.request(self.abort_job if action == "abort" else self.delete_job, job)
            gevent.sleep(0.01)

    def request(self, act: Callable[[Job], None], job: Job) -> None:
        """Run the action of a request in its own greenlet."""
        self.requests.append(gevent.spawn(act, job))

    def abort_job(self, job: Job) -> None:
        if self.server.scheduler.abort(job) and not self.is_dead:
            self.aborted.add(job.id)

    def delete_job(self, job: Job) -> None:
        try:
            self.server.scheduler.remove(job)
        except DigitsError:
            return
        self.deleted.add(job.id)

    def settle(self, seconds: float = 0.02) -> None:
        """Let the server run, and replace it if it has died."""
        gevent.sleep(seconds)
        if self.is_dead:
            gevent.killall(self.requests)
            self.requests.clear()
            self.server.stop()
            self.is_dead = False
            self.server = self.new_server()

    def folders(self) -> set[str]:
        return {path.name for path in self.server.store.folder.iterdir() if path.is_dir()}

    def jobs(self) -> list[ToyJob]:
        return self.server.store.all(ToyJob)

    # Rules

    @rule(
        program=st.sampled_from(["hangs", "hangs", "finishes", "fails"]),
        window=st.sampled_from(WINDOWS),
        action=st.sampled_from(ACTIONS),
    )
    def submit(self, program: str, window: str, action: str) -> None:
        job = self.server.submit(program)
        self.armed = window, action, job.id
        self.settle()

    @rule(seconds=st.floats(0.0, 0.2))
    def wait(self, seconds: float) -> None:
        self.settle(seconds)

    @rule(number=st.integers(0, 9))
    def abort(self, number: int) -> None:
        if job := self.pick(number, self.jobs()):
            self.request(self.abort_job, job)
        self.settle()

    @rule(number=st.integers(0, 9))
    def delete(self, number: int) -> None:
        if job := self.pick(number, self.jobs()):
            self.request(self.delete_job, job)
        self.settle()

    @rule(number=st.integers(0, 9))
    def resume(self, number: int) -> None:
        gevent.joinall(self.requests, timeout=10)
        ended = [job for job in self.jobs() if job.status in (Status.ABORT, Status.ERROR)]
        if job := self.pick(number, ended):
            self.aborted.discard(job.id)
            self.server.scheduler.resume(job)
        self.settle()

    def pick(self, number: int, jobs: list[ToyJob]) -> ToyJob | None:
        """Pick one of ``jobs``. The drawn value must not depend on them, because they depend on timing."""
        return jobs[number % len(jobs)] if jobs else None

    @rule()
    def kill_the_server(self) -> None:
        self.is_dead = True
        self.settle()

    # Invariants

    @invariant()
    def deleted_jobs_stay_deleted(self) -> None:
        for job_id in self.deleted:
            assert self.server.store.find(job_id) is None
            assert not (self.server.store.folder / job_id).exists()

    def teardown(self) -> None:
        try:
            self.armed = None
            self.settle()
            gevent.joinall(self.requests, timeout=15)
            for job in self.jobs():
                if job.id in self.aborted:
                    status = self.server.wait_for_end(job)
                    assert status is Status.ABORT or job.program != "hangs"
            for job in self.jobs():
                self.server.scheduler.abort(job)
                self.server.wait_for_end(job)
                log = job.task_folder(job.tasks[0]) / "events.jsonl"
                started = log.read_text().count('"measured"') if log.exists() else 0
                assert job.program != "hangs" or started <= job.tasks[0].run
            self.deleted_jobs_stay_deleted()
            self.server.wait(lambda: self.server.ledger.offer().slots == {"dataset": 1, "training": 1})
            # Folders of deleted jobs are renamed at once and deleted in the background.
            self.server.wait(lambda: self.folders() == {job.id for job in self.jobs()})
            # The process of a deleted job was asked to stop, and may take a moment.
            self.server.wait(lambda: not list(processes_in(self.server.store.folder)))
        finally:
            self.server.stop()
            self.folder.cleanup()


TestTaskLife = TaskLife.TestCase
TestTaskLife.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=10,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
