"""Background tasks of one job: their order, their end, and how they are stopped."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from digits.core.job import Job
from digits.core.recipe import Recipe
from digits.runtime.background_tasks import BackgroundTasks
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.pools import Executors
from digits.runtime.task_runner import TaskRunner
from tests.runtime.toy_jobs import PROGRAMS, ToyJob, ToyRecipe
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


class Site:
    """Background tasks with one slot, and the job to which they belong."""

    def __init__(self, folder: Path) -> None:
        self.job = ToyJob(id="20200101-000000-abcdef", folder=folder / "job", name="job", tasks=[])
        self.job.folder.mkdir()
        ledger = DeviceLedger({"toy": 1})
        self.executor = LocalExecutor(ledger, standby=False, program=[sys.executable, "-c", PROGRAMS])
        self.runner = TaskRunner(Executors(self.executor))
        self.runner.serve()
        self.reported: set[tuple[str, str]] = set()
        self.tasks = BackgroundTasks(self.runner, "toy", "toys", "toy", self._report)

    def _report(self, job: Job, key: str) -> None:
        self.reported.add((job.id, key))

    def start(self, program: str, key: str) -> None:
        self.tasks.start(self.job, toy(program), key)

    @property
    def keys(self) -> list[tuple[str, bool]]:
        """The keys of the tasks, and whether they are waiting."""
        return [(task.key, task.is_waiting) for task in self.tasks.tasks(self.job.id)]

    def is_running(self, key: str) -> bool:
        task = self.tasks.task(self.job.id, key)
        return task is not None and task.state.cursor > 0


def toy(program: str) -> Recipe:
    return ToyRecipe(name=program)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.runner.close()
    wait_until(lambda: site.executor.clear(site.job.folder))


def test_the_tasks_of_a_job_run_one_after_another(site: Site) -> None:
    site.start("hangs", "first")
    wait_until(lambda: site.is_running("first"))
    site.start("fails", "second")
    site.start("finishes", "third")
    site.start("finishes", "second")  # is waiting already
    assert site.keys == [("first", False), ("second", True), ("third", True)]
    waiting = site.tasks.task(site.job.id, "third")
    assert waiting and waiting.state.doing == "Waiting for other toys"

    site.tasks.stop(site.job.id, "first")
    wait_until(lambda: not site.keys)
    assert site.tasks.failure(site.job.id, "first") is None
    failure = site.tasks.failure(site.job.id, "second")
    assert failure and failure.message == "Wrong shape."
    assert site.tasks.failure(site.job.id, "third") is None
    # The failure remains known until the next tasks start.
    assert site.tasks.failure(site.job.id) == failure
    site.start("finishes", "fourth")
    assert site.tasks.failure(site.job.id) is None and site.tasks.failure(site.job.id, "second") == failure
    wait_until(lambda: not site.keys)


def test_a_waiting_task_is_removed_and_a_running_one_is_listed_until_it_ends(site: Site) -> None:
    site.start("hangs", "first")
    site.start("hangs", "second")
    wait_until(lambda: site.is_running("first"))
    waiting = site.tasks.task(site.job.id, "second")
    site.tasks.stop(site.job.id, "second")
    assert site.keys == [("first", False)]
    # Only the task with this key is stopping.
    assert waiting and waiting.state.doing == "Stopping"
    first = site.tasks.task(site.job.id, "first")
    assert first and not first.is_stopping and first.state.doing != "Stopping"

    site.tasks.stop(site.job.id)
    running = site.tasks.task(site.job.id, "first")
    assert running and running.is_stopping and running.state.doing == "Stopping"
    # A task with the same key waits for its end.
    site.start("finishes", "first")
    assert site.keys == [("first", False), ("first", True)]
    wait_until(lambda: not site.keys)
    assert site.tasks.state(site.job.id) is None and site.tasks.failure(site.job.id) is None
    assert site.reported == {(site.job.id, "first")}


@pytest.mark.parametrize(
    ("program", "message", "hint"),
    [
        ("fills the disk", "The disk is full.", "no space"),
        ("crashes", "The task crashed (signal 11, SIGSEGV).", "Segmentation fault"),
        ("ends early", "The task ended early: something called exit before all work was done.", "bye"),
    ],
)
def test_a_task_that_could_not_log_its_failure_is_explained(
    site: Site, program: str, message: str, hint: str
) -> None:
    site.start(program, "only")
    wait_until(lambda: not site.keys)
    failure = site.tasks.failure(site.job.id, "only")
    assert failure and failure.message == message and hint in failure.hint


def test_a_task_that_the_disk_cannot_hold_is_explained(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ToyRecipe, "save", fail)
    site.start("finishes", "only")
    wait_until(lambda: not site.keys)
    failure = site.tasks.failure(site.job.id, "only")
    assert failure and failure.message == "The toy could not be started: The disk is full."
    assert "Free up space" in failure.hint
