"""The queue, devices and end of short tasks. Here the text of a network is the program that runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from digits.core.errors import Unavailable
from digits.core.job import DeviceRequest
from digits.core.recipe import Preflight
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import place
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.pools import Executors
from digits.runtime.short_tasks import ShortTaskResult, ShortTasks
from digits.runtime.store import Store
from digits.runtime.task_runner import TaskRunner
from tests.shared_executor import ON_CPU
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

PROGRAM = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
def log_event(**event):
    with open(folder / "events.jsonl", "a") as events:
        events.write(json.dumps({"at": time.time(), **event}) + "\\n")
exec((folder.parent / "network.py").read_text())
"""
FINISHES = "log_event(event='finished', result={'devices': os.environ['CUDA_VISIBLE_DEVICES']})"
HANGS = "log_event(event='progressed', fraction=0.5, doing='Building')\ntime.sleep(60)"
WAITS_FOR_A_FILE = "while not os.path.exists(folder.parent / 'go'): time.sleep(0.01)\n" + FINISHES
ON_GPU = DeviceRequest("training", gpu_count=1)
ENDS_EARLY = "print('bye')"


class Site:
    """Short tasks with one slot, on a machine with one GPU."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "previews"
        self.store = Store(folder / "jobs", {})
        self.ledger = DeviceLedger({"short": 1}, gpus=lambda: ["0"])
        self.executor = LocalExecutor(self.ledger, standby=False, program=[sys.executable, "-c", PROGRAM])
        self.runner = TaskRunner(Executors(self.executor))
        self.runner.serve()

    def tasks(self, queue_seconds: float = 30) -> ShortTasks:
        return ShortTasks(self.folder, self.runner, self.store.discard, queue_seconds)

    def is_idle(self) -> bool:
        return self.ledger.offer().slots == {"short": 1} and self.executor.clear(self.folder)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.runner.close()
    wait_until(lambda: site.executor.clear(site.folder))
    site.store.close()


def preflight(tasks: ShortTasks, network: str, watch: str = "") -> ShortTaskResult:
    return tasks.preflight(network, Preflight(dataset="/nowhere"), ON_GPU, watch)


def test_tasks_beyond_the_limit_wait_for_a_slot(site: Site) -> None:
    tasks = site.tasks()
    first = gevent.spawn(tasks.visualize, WAITS_FOR_A_FILE, Path("/nowhere"), None)
    wait_until(lambda: site.ledger.offer().slots == {"short": 0})
    second = gevent.spawn(preflight, tasks, FINISHES, watch="second")
    wait_until(lambda: tasks.watched("second"))
    waiting = tasks.watched("second")
    assert waiting and waiting.doing == "Waiting for other checks"
    (folder,) = (path.parent for path in site.folder.glob("*/visualize"))
    (folder / "go").touch()
    assert first.get(timeout=30).state.is_finished
    assert second.get(timeout=30).state.is_finished
    assert tasks.watched("second") is None
    wait_until(site.is_idle)


def test_a_task_that_waits_too_long_raises_and_never_runs(site: Site) -> None:
    first = gevent.spawn(site.tasks().visualize, HANGS, Path("/nowhere"), None)
    wait_until(lambda: site.ledger.offer().slots == {"short": 0})
    before = set(site.folder.iterdir())
    with pytest.raises(Unavailable, match=r"waited 0\.2 seconds for its turn"):
        site.tasks(queue_seconds=0.2).visualize(FINISHES, Path("/nowhere"), None)
    assert set(site.folder.iterdir()) == before
    assert not first.ready()


def test_a_preflight_reserves_its_gpu_or_falls_back_to_the_cpu(site: Site) -> None:
    tasks = site.tasks()
    first = gevent.spawn(preflight, tasks, WAITS_FOR_A_FILE)
    wait_until(lambda: site.ledger.holders() == {"0": "Check of a network"})
    assert site.ledger.offer().gpus == []
    (task_folder,) = site.folder.glob("*/preflight")
    assert json.loads((task_folder / "recipe.json").read_text())["devices"] == ["0"]
    (task_folder.parent / "go").touch()
    assert first.get(timeout=30).state.result == {"devices": "0"}
    wait_until(site.is_idle)
    training = place(site.ledger, ON_GPU)
    assert training is not None
    assert preflight(tasks, FINISHES).state.result == {"devices": ""}
    site.ledger.release(training)
    assert site.ledger.offer().gpus == ["0"]


def test_a_network_that_exits_fails_with_its_last_output(site: Site) -> None:
    failure = site.tasks().visualize(ENDS_EARLY, Path("/nowhere"), None).state.failure
    assert failure and "ended the program" in failure.message and "bye" in failure.hint


def test_tasks_end_with_the_server(site: Site) -> None:
    tasks = site.tasks()
    running = gevent.spawn(tasks.visualize, HANGS, Path("/nowhere"), None)
    wait_until(lambda: list(site.folder.glob("*/visualize/events.jsonl")))
    waiting = gevent.spawn(tasks.visualize, FINISHES, Path("/nowhere"), None)
    gevent.sleep(0.05)
    site.runner.close()
    for request in (running, waiting):
        with pytest.raises(Unavailable, match="shutting down"):
            request.get(timeout=30)
    site.tasks().clear()  # as the next server does
    assert not site.folder.exists()
    assert site.executor.clear(site.folder)


def test_leftovers_of_an_earlier_server_are_stopped_and_removed(site: Site) -> None:
    task_folder = site.folder / "preview-0123456789ab" / "visualize"
    task_folder.mkdir(parents=True)
    (task_folder.parent / "network.py").write_text(HANGS)
    handle = site.executor.start(task_folder, ON_CPU)  # not owned: it would keep running
    wait_until((task_folder / "events.jsonl").exists)
    site.tasks().clear()
    assert not site.folder.exists()
    assert not site.executor.is_alive(handle)
