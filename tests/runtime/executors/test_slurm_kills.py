"""Kills at random moments of tasks, nodes, Slurm's controller and the server, while jobs run on a real Slurm cluster.

``DIGITS_SLURM_KILLS`` sets the number of kills while small programs run, and ``DIGITS_SLURM_TRAINING_KILLS`` that while
trainings with one and with two workers do. The tests print a summary, and if they hang, the state of everything.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import gevent.util
import psutil
import pytest

from digits.core.status import Status
from digits.runtime.executors.node_job import MAX_FRUITLESS
from digits.runtime.executors.processes import processes_in
from digits.runtime.executors.slurm import batch
from tests.real_server import RealServer, create_dataset, rows, start_training, weights
from tests.runtime.executors.cluster_jobs import PROGRAM
from tests.runtime.executors.test_slurm import SlurmServer
from tests.runtime.executors.test_slurm_training import ON_SLURM
from tests.runtime.toy_jobs import ToyJob
from tests.site import bars
from tests.slurm_cluster import SlurmCluster, open_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.slow]

KILLS = int(os.environ.get("DIGITS_SLURM_KILLS", "8"))
TRAINING_KILLS = int(os.environ.get("DIGITS_SLURM_TRAINING_KILLS", "6"))
SEED = int(os.environ.get("DIGITS_SEED", "1"))
VICTIMS = ("task", "task", "supervisor", "job", "node", "controller", "server", "server")
KILLS_PER_ROUND = 12
PATIENCE_SECONDS = 300.0
STEPS = list(range(1, 61))
TRAINING = {"train_epochs": 60, "snapshot_interval": 3, "random_seed": 1, "select_gpu": "cpu"}
HAS_GIVEN_UP = f"was interrupted {MAX_FRUITLESS} times in a row"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    yield from open_cluster(tmp_path_factory.mktemp("slurm"))


class Programs:
    """Small programs that count, on a server in this process: jobs by their ids.

    ``longest_pause`` is that between two kills, in seconds; ``program`` is that of a task, after the interpreter.
    """

    longest_pause = 2.0
    program = ("-c", PROGRAM)

    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        self.folder, self._cluster = folder, cluster
        self.server = SlurmServer(folder, cluster)

    def start(self) -> list[str]:
        """Start the jobs of a round."""
        return [self.server.run("counts").id for _ in range(4)]

    def status(self, job: str) -> Status:
        return self._get(job).status

    def failure(self, job: str) -> str:
        return str(self._get(job).failure)

    def resume(self, job: str) -> None:
        self.server.scheduler.resume(self._get(job))

    def result(self, job: str) -> list[float]:
        """Return what is the same for a job that nobody disturbed."""
        return self.server.steps(self._get(job))

    def expected(self, job: str) -> list[int]:
        return STEPS

    def remove(self, job: str) -> None:
        self.server.scheduler.remove(self._get(job))

    def replace_server(self) -> None:
        # As abrupt as SIGKILL for its jobs: nothing is saved at the end.
        self.server.stop()
        self.server = SlurmServer(self.folder, self._cluster)

    def describe(self) -> str:
        return "\n".join(gevent.util.format_run_info())

    def _get(self, job: str) -> ToyJob:
        found = self.server.store.get(job, ToyJob)
        assert found is not None
        return found


class Trainings:
    """A training with one worker and one with two, on a server of its own."""

    longest_pause = 8.0
    program = ("-m", "digits.worker")

    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        self.folder, self._cluster = folder, cluster
        bars(folder / "data" / "bars")
        self.server = self._open()
        self._dataset = create_dataset(self.server)
        self._workers: dict[str, int] = {}
        self._expected: dict[int, Any] = {}
        for workers in (1, 2):
            undisturbed = start_training(self.server, self._dataset, **TRAINING, compute_workers=workers)
            wait_until(lambda: self.status(undisturbed) is Status.DONE, PATIENCE_SECONDS)  # noqa: B023
            self._expected[workers] = self.result(undisturbed)

    def _open(self) -> RealServer:
        return RealServer(self.folder, "--slurm", "--no-standby", environment=self._cluster.environment)

    def start(self) -> list[str]:
        for workers in (1, 2):
            fields = {**TRAINING, **ON_SLURM, "compute_workers": workers}
            self._workers[start_training(self.server, self._dataset, **fields)] = workers
        return list(self._workers)

    def status(self, job: str) -> Status:
        title = self.server.ask(f"/models/{job}/status")["status"]
        return next(status for status in Status if title in (status.title, status.label))

    def failure(self, job: str) -> str:
        return str(self.server.ask(f"/models/{job}.json"))

    def resume(self, job: str) -> None:
        self.server.ask(f"/models/{job}/resume", "POST")

    def result(self, job: str) -> Any:
        return rows(self.server, job), weights(self.server, job)

    def expected(self, job: str) -> Any:
        return self._expected[self._workers[job]]

    def remove(self, job: str) -> None:
        self.server.ask(f"/jobs/{job}", "DELETE")
        del self._workers[job]

    def replace_server(self) -> None:
        self.server.kill()
        self.server = self._open()

    def describe(self) -> str:
        return (self.folder / "digits.log").read_text()[-5000:]


Jobs = Programs | Trainings


class Victims:
    """Kills what is on a ``cluster`` and the server of its ``jobs``, and replaces what nothing else does."""

    def __init__(self, jobs: Jobs, cluster: SlurmCluster, chance: random.Random) -> None:
        self.jobs, self.cluster, self.chance = jobs, cluster, chance
        self.kills: Counter[str] = Counter()

    def kill(self, victim: str) -> None:
        """Kill ``victim`` if it exists."""
        if victim == "server":
            self.jobs.replace_server()
        elif victim == "controller":
            self.cluster.kill("controller")
            gevent.sleep(self.chance.uniform(0, 2))
            self.cluster.start_controller()
        elif victim == "node":
            name = self.chance.choice(self.cluster.nodes)
            self.cluster.kill_node(name)
            gevent.sleep(self.chance.uniform(0, 2))
            self.cluster.start_node(name)
        elif not self._kill_process(victim):
            return
        self.kills[victim] += 1

    def _kill_process(self, victim: str) -> bool:
        for pid in self.chance.sample(found := list(processes_in(self.jobs.folder)), len(found)):
            try:
                process = psutil.Process(pid)
                if self._kind(process.cmdline()) == victim:
                    process.kill()
                    return True
            except psutil.NoSuchProcess:
                pass
        return False

    def _kind(self, words: list[str]) -> str:
        if any(word.endswith("/supervisor.py") for word in words[:5]):
            return "supervisor"
        if batch.__name__ in words[:5]:
            return "job"
        return "task" if any(tuple(words[n : n + 2]) == self.jobs.program for n in (1, 2)) else ""

    def describe(self) -> str:
        """Return the state of everything."""
        parts = [f"kills: {dict(self.kills)}", self.cluster.describe(), self.jobs.describe()]
        for folder in sorted(self.jobs.folder.glob("**/slurm.sh")):
            files = [*folder.parent.glob("*.json"), *folder.parent.glob("*.log")]
            parts += [f"{file}: {file.read_bytes()[-1500:].decode(errors='replace')}" for file in files]
        return "\n".join(parts)


def disturb(jobs: Jobs, cluster: SlurmCluster, kills: int) -> None:
    """Kill processes at random, ``kills`` times; check that all jobs then end as undisturbed ones do."""
    victims = Victims(jobs, cluster, random.Random(SEED))
    try:
        with gevent.Timeout((kills // KILLS_PER_ROUND + 2) * PATIENCE_SECONDS):
            done, resumed = _disturb(victims, kills)
    except BaseException:
        print(victims.describe())
        raise
    print(
        f"\nseed {SEED}: {victims.kills.total()} kills of {done} jobs, all with the rows of an undisturbed one, "
        f"{resumed} resumed by hand: {dict(victims.kills)}"
    )


def _disturb(victims: Victims, kills: int) -> tuple[int, int]:
    jobs, chance = victims.jobs, victims.chance
    done = resumed = 0
    while victims.kills.total() < kills:
        ids = jobs.start()
        until = min(kills, victims.kills.total() + KILLS_PER_ROUND)
        while victims.kills.total() < until and not have_ended(jobs, ids):
            gevent.sleep(chance.uniform(0, jobs.longest_pause))
            victims.kill(chance.choice(VICTIMS))
        for id in ids:
            while wait_for_end(victims, id) is Status.ERROR and HAS_GIVEN_UP in jobs.failure(id):
                jobs.resume(id)
                resumed += 1
            assert jobs.status(id) is Status.DONE, jobs.failure(id)
            assert jobs.result(id) == jobs.expected(id)
            done += 1
        for id in ids:
            jobs.remove(id)
        wait_until(lambda: not list(processes_in(jobs.folder)))
        wait_until(lambda: not unfinished(victims.cluster))
    return done, resumed


def have_ended(jobs: Jobs, ids: list[str]) -> bool:
    return not any(jobs.status(id).is_running for id in ids)


def wait_for_end(victims: Victims, job: str) -> Status:
    """Wait until a job has ended, while nodes that Slurm drains are put back into service."""
    healed_at = 0.0

    def has_ended() -> bool:
        nonlocal healed_at
        if time.monotonic() - healed_at > 5:
            healed_at = time.monotonic()
            victims.cluster.heal()
        gevent.sleep(0.2)
        return not victims.jobs.status(job).is_running

    wait_until(has_ended, PATIENCE_SECONDS)
    return victims.jobs.status(job)


def unfinished(cluster: SlurmCluster) -> list[str]:
    cluster.heal()
    return cluster.jobs()


def test_no_kill_loses_or_repeats_a_step(tmp_path: Path, cluster: SlurmCluster) -> None:
    programs = Programs(tmp_path / "jobs", cluster)
    disturb(programs, cluster, KILLS)
    programs.server.stop()
    assert not list(processes_in(tmp_path))


@pytest.mark.tensorflow
def test_no_kill_changes_a_row_of_a_training(tmp_path: Path, cluster: SlurmCluster) -> None:
    trainings = Trainings(tmp_path, cluster)
    disturb(trainings, cluster, TRAINING_KILLS)
    trainings.server.stop()
    assert not list(processes_in(tmp_path))
