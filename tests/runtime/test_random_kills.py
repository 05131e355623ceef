"""Kills, aborts and deletions at random moments, through a real server with real trainings.

``DIGITS_KILLS`` and ``DIGITS_ABORTS`` set the numbers. The test prints summaries.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from urllib.error import HTTPError

import psutil
import pytest

from digits.runtime.executors.processes import supervisor_of
from tests.real_server import RealServer, assert_all_end, create_dataset, processes_of, rows, start_training
from tests.site import bars

pytestmark = pytest.mark.tensorflow

KILLS = int(os.environ.get("DIGITS_KILLS", "2"))
ABORTS = int(os.environ.get("DIGITS_ABORTS", "2"))
SEED = int(os.environ.get("DIGITS_SEED", "1"))
VICTIMS = ("server", "supervisor", "trainer", "fork server")
KILLS_PER_TRAINING = min(KILLS, 10)
LONGEST_PAUSE = 1.0
RUNNING = ("Initialized", "Waiting", "Running")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    bars(tmp_path / "data" / "bars")
    yield tmp_path
    for process in processes_of(tmp_path):
        process.kill()


class Victims:
    """Finds the processes of a server and of its trainings, and kills them."""

    def __init__(self, folder: Path) -> None:
        self.server = RealServer(folder)
        self.kills: Counter[str] = Counter()

    def kill(self, victim: str, model: str) -> bool:
        """Kill ``victim`` if it exists, and restart a killed server; return whether there was one."""
        if victim == "server":
            self.server.kill()
            self.server = RealServer(self.server.folder)
        else:
            process = self._find(victim, self.server.folder / "jobs" / model / "train")
            if process is None:
                return False
            process.kill()
        self.kills[victim] += 1
        return True

    def _find(self, victim: str, task_folder: Path) -> psutil.Process | None:
        try:
            if victim == "fork server":
                children = psutil.Process(self.server.process.pid).children()
                return next(
                    (child for child in children if "digits.worker.forkserver" in child.cmdline()), None
                )
            supervisor = supervisor_of(task_folder)
            if supervisor is None:
                return None
            process = psutil.Process(supervisor)
            return process if victim == "supervisor" else next(iter(process.children()), None)
        except psutil.NoSuchProcess:
            return None


def test_no_abort_or_deletion_is_lost_and_no_kill_loses_a_row_or_changes_an_outcome(folder: Path) -> None:
    chance = random.Random(SEED)
    victims = Victims(folder)
    dataset = create_dataset(victims.server)
    # The first one is still importing TensorFlow.
    abort_and_delete(victims.server, dataset, random.Random(SEED))

    def start() -> str:
        return start_training(victims.server, dataset, train_epochs=30, snapshot_interval=1, random_seed=1)

    victims.server.wait_until_warm()  # otherwise, the first training also imports TensorFlow
    whole = start()
    victims.server.wait_for_status(whole, "Done")
    expected = rows(victims.server, whole)
    assert len(expected) > 30
    # One of each kind first, then at random.
    order = chain(chance.sample(VICTIMS, len(VICTIMS)), iter(lambda: chance.choice(VICTIMS), None))
    trainings = 0
    while victims.kills.total() < KILLS:
        model = start()
        trainings += 1
        for _ in range(KILLS_PER_TRAINING):
            time.sleep(chance.uniform(0, LONGEST_PAUSE))
            victim = next(order)
            if victims.kill(victim, model) and victim in ("supervisor", "trainer"):
                # The training may be complete except for its exit.
                if (outcome := wait_for_end(victims.server, model)) != "Done":
                    assert outcome == "Error"
                    victims.server.ask(f"/models/{model}/resume", "POST")
            else:
                assert status(victims.server, model) in (*RUNNING, "Done")
        assert wait_for_end(victims.server, model) == "Done"
        assert rows(victims.server, model) == expected
        assert_all_end(processes_of(folder / "jobs" / model))
        victims.server.ask(f"/jobs/{model}", "DELETE")
    victims.server.stop()
    assert_all_end(processes_of(folder))
    print(f"{victims.kills.total()} kills in {trainings} trainings: {dict(victims.kills)}")


def abort_and_delete(server: RealServer, dataset: str, chance: random.Random) -> None:
    """Abort and delete trainings in turn, each after a random time."""
    folder = server.folder
    done: Counter[str] = Counter()
    for number in range(ABORTS):
        model = start_training(server, dataset, train_epochs=1000)
        time.sleep(chance.choice([0, chance.uniform(0, 0.1), chance.uniform(0, LONGEST_PAUSE)]))
        found = f"{status(server, model)} when asked to "
        if number % 2:
            insist(server, f"/models/{model}/abort", "POST")
            assert wait_for_end(server, model) == "Aborted"
            assert_all_end(processes_of(folder / "jobs" / model))
            done[found + "stop"] += 1
            server.ask(f"/jobs/{model}", "DELETE")
        else:
            insist(server, f"/jobs/{model}", "DELETE")
            done[found + "delete"] += 1
        assert not (folder / "jobs" / model).exists()
        assert_all_end(processes_of(folder / "jobs" / model))
    left = {path.name for path in (folder / "jobs").iterdir() if not path.name.startswith(".")}
    assert left == {dataset}
    print(f"{done.total()} aborts and deletions: {dict(done)}")


def status(server: RealServer, model: str) -> str:
    return str(server.ask(f"/models/{model}/status")["status"])


def wait_for_end(server: RealServer, model: str) -> str:
    """Return the status of the training that has ended."""
    server.wait(lambda: status(server, model) not in RUNNING)
    return status(server, model)


def insist(server: RealServer, path: str, verb: str) -> None:
    """Repeat a request while the server reports that it cannot accept it yet."""

    def is_accepted() -> bool:
        try:
            server.ask(path, verb)
        except HTTPError as error:
            error.close()
            assert error.code in (HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE)
            return False
        return True

    server.wait(is_accepted)
