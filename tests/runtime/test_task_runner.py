"""The queue, time limits and end of runs, with tasks in threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import pytest

from digits.core.job import DeviceRequest
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import Exit
from digits.runtime.executors.pools import Executors
from digits.runtime.short_tasks import Holder
from digits.runtime.task_runner import Phase, TaskRun, TaskRunner
from tests.runtime.executors.thread_executor import ThreadExecutor, ThreadTask
from tests.waiting import wait_until


class Site:
    """A runner with one slot, whose tasks run until they are stopped or `finish` is called."""

    def __init__(self, folder: Path, *, serves: bool) -> None:
        self.folder = folder
        self.done = threading.Event()
        self.executor = ThreadExecutor({"waits": self.wait_for_end})
        self.executor.ledger = self.ledger = DeviceLedger({"short": 1})
        self.runner = TaskRunner(Executors(self.executor))
        self.phases: list[tuple[str, Phase]] = []
        if serves:
            self.runner.serve()

    def wait_for_end(self, task: ThreadTask) -> int:
        while not (self.done.is_set() or task.stop.is_set()):
            self.done.wait(0.01)
        return 0

    def run(
        self, name: str, follow: Callable[[TaskRun], object] = lambda run: None, **changes: object
    ) -> TaskRun:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)

        def note(run: TaskRun) -> object:
            result = follow(run)
            if result is not False:
                self.phases.append((name, run.phase))
            return result

        arguments = {
            "folder": folder,
            "request": DeviceRequest("short"),
            "prepare": lambda devices: (folder / "recipe.json").write_text(json.dumps({"name": "waits"})),
            "follow": note,
            "poll_seconds": 0.01,
        }
        return TaskRun(**{**arguments, **changes})  # type: ignore[arg-type]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, serves=True)
    yield site
    site.done.set()
    site.runner.close()
    wait_until(lambda: site.executor.clear(site.folder))


def test_runs_wait_for_a_slot_in_order(site: Site) -> None:
    runs = [site.runner.submit(site.run(name)) for name in "abc"]
    wait_until(lambda: runs[0].phase is Phase.RUNNING)
    assert [run.phase for run in runs[1:]] == [Phase.QUEUED, Phase.QUEUED]
    site.runner.stop(runs[1])  # before it started
    assert runs[1].exit == Exit(stopped=True) and runs[1].handle is None
    site.runner.stop(runs[0])
    wait_until(lambda: runs[2].phase is Phase.RUNNING)
    assert runs[0].exit and runs[0].exit.stopped
    assert ("b", Phase.RUNNING) not in site.phases
    assert site.phases.count(("a", Phase.ENDED)) == site.phases.count(("b", Phase.ENDED)) == 1


def test_a_run_waits_for_an_earlier_run_in_its_folder(site: Site) -> None:
    free = {"request": DeviceRequest("unlimited")}
    first = site.runner.submit(site.run("same", **free))
    wait_until(lambda: first.phase is Phase.RUNNING)
    second = site.runner.submit(site.run("same", **free))
    gevent.sleep(0.1)
    assert second.phase is Phase.QUEUED
    site.runner.stop(first)
    wait_until(lambda: second.phase is Phase.RUNNING)
    assert first.has_ended


def test_queue_time_and_running_time_are_limited(site: Site) -> None:
    first = site.runner.submit(site.run("first", seconds=0.3))
    second = site.runner.submit(site.run("second", queue_seconds=0.1))
    site.runner.wait(second)
    assert (second.timed_out, second.has_ended) == (Phase.QUEUED, True)
    site.runner.wait(first)
    assert first.timed_out is Phase.RUNNING
    wait_until(lambda: first.has_ended)
    assert site.ledger.offer().slots == {"short": 1}


def test_an_end_that_cannot_be_processed_is_reported_again(site: Site) -> None:
    failures = [OSError("too many open files")] * 3

    def follow(run: TaskRun) -> None:
        if run.has_ended and failures:
            raise failures.pop()

    run = site.runner.submit(site.run("a", follow))
    site.done.set()
    wait_until(lambda: run.has_ended and not failures)
    assert site.phases.count(("a", Phase.ENDED)) == 1
    assert site.ledger.offer().slots == {"short": 1}


def test_a_run_ends_only_when_its_user_has_read_everything(site: Site) -> None:
    turns = [False] * 3

    def follow(run: TaskRun) -> bool:
        return not run.has_ended or not turns or turns.pop()

    run = site.runner.submit(site.run("a", follow))
    site.done.set()
    wait_until(lambda: run.is_settled)
    assert not turns
    assert site.phases.count(("a", Phase.ENDED)) == 1
    assert site.ledger.offer().slots == {"short": 1}


def test_a_run_that_cannot_be_prepared_ends_with_the_error(site: Site) -> None:
    def fail(devices: object) -> None:
        raise OSError("the disk is full")

    run = site.runner.submit(site.run("a", prepare=fail))
    site.runner.wait(run)
    assert run.has_ended and str(run.error) == "the disk is full"
    assert site.ledger.offer().slots == {"short": 1}


def test_closing_stops_only_owned_runs_and_wakes_their_callers(site: Site) -> None:
    owned = site.runner.submit(site.run("owned"))
    waiting = site.runner.submit(site.run("waiting"))
    other = site.runner.submit(site.run("other", owned=False, request=DeviceRequest("unlimited")))
    wait_until(lambda: owned.phase is other.phase is Phase.RUNNING)
    users = [gevent.spawn(site.runner.wait, run) for run in (owned, waiting)]
    gevent.sleep(0.01)
    site.runner.close()
    gevent.joinall(users, timeout=10, raise_error=True)
    assert all(user.ready() for user in users)
    assert (owned.stop_requested, other.stop_requested) == (True, False)
    late = site.runner.submit(site.run("late"))
    assert late.exit == Exit(stopped=True) and late.is_settled


def test_waiting_polls_if_no_loop_runs(tmp_path: Path) -> None:
    site = Site(tmp_path, serves=False)
    run = site.run("a")
    timer = threading.Timer(0.1, site.done.set)
    timer.start()
    site.runner.submit(run)
    site.runner.wait(run)
    timer.join()
    assert run.exit == Exit(code=0)


def test_no_run_starts_while_the_runner_is_paused(tmp_path: Path) -> None:
    site = Site(tmp_path, serves=False)
    allowed = [False]
    runner = TaskRunner(Executors(site.executor), may_run=lambda: allowed[0])
    calls: list[str] = []
    runner.every_round.append(lambda: calls.append("round"))
    runner.tick()
    assert calls == []
    allowed[0] = True
    runner.tick()
    assert calls == ["round"]


def test_a_run_starts_once_and_within_the_limit_if_listing_devices_takes_time(site: Site) -> None:
    def list_gpus() -> list[str]:
        gevent.sleep(0.02)
        return ["0"]

    site.ledger = site.executor.ledger = DeviceLedger({"short": 1}, list_gpus)
    request = DeviceRequest("short", gpu_count=1, if_free=True)
    runs = [site.run(name, request=request, holder=Holder(name)) for name in "abc"]
    gevent.joinall([gevent.spawn(site.runner.submit, run) for run in runs], raise_error=True)
    site.runner.stop(runs[1])
    wait_until(lambda: any(run.phase is Phase.RUNNING for run in runs))
    gevent.sleep(0.1)
    assert sorted(run.phase.value for run in runs) == ["ended", "queued", "running"]
    assert list(site.ledger.holders()) == ["0"]
    site.done.set()
    wait_until(lambda: all(run.has_ended for run in runs))
    assert site.ledger.holders() == {}
    assert [name for name, phase in site.phases if phase is Phase.ENDED].count("a") == 1


def test_many_runs_are_polled_less_often(tmp_path: Path) -> None:
    site = Site(tmp_path, serves=False)
    site.executor.ledger = DeviceLedger({})
    runs = [site.runner.submit(site.run(name)) for name in "abc"]
    site.runner._poll_cost = 2.0
    site.runner.tick()
    site.phases.clear()
    site.done.set()
    wait_until(lambda: site.executor.clear(site.folder))
    site.runner.tick()
    assert site.phases == []  # each is polled once in 30 s, so that polls take a fifth of the time
    site.runner.stop(runs[0])
    wait_until(lambda: site.runner.tick() or runs[0].has_ended)
    assert [run.has_ended for run in runs] == [True, False, False]
    site.runner.close()
