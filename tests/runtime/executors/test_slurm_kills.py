"""Kills at random moments of tasks, nodes, Slurm's controller and the server, while jobs run on a real Slurm cluster.

``DIGITS_SLURM_KILLS`` sets the number of kills; the test prints a summary.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from digits.core.job import Job
from digits.core.status import Status
from digits.runtime.executors.processes import processes_in
from tests.runtime.executors.test_slurm import PROGRAM, SlurmServer
from tests.runtime.toy_jobs import ToyJob
from tests.slurm_cluster import NODES, SlurmCluster, open_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.slow]

KILLS = int(os.environ.get("DIGITS_SLURM_KILLS", "8"))
SEED = int(os.environ.get("DIGITS_SEED", "1"))
VICTIMS = ("task", "task", "supervisor", "node", "controller", "server", "server")
JOBS = 4
KILLS_PER_ROUND = 12
LONGEST_PAUSE = 2.0
PATIENCE_SECONDS = 180.0
STEPS = list(range(1, 61))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    yield from open_cluster(tmp_path_factory.mktemp("slurm"))


class Victims:
    """Kills what is on a ``cluster`` and its ``server``, and replaces what nothing else does."""

    def __init__(self, folder: Path, cluster: SlurmCluster, chance: random.Random) -> None:
        self.folder, self.cluster, self.chance = folder, cluster, chance
        self.server = SlurmServer(folder, cluster)
        self.kills: Counter[str] = Counter()

    def kill(self, victim: str) -> None:
        """Kill ``victim`` if it exists."""
        if victim == "server":
            # As abrupt as SIGKILL for its jobs: nothing is saved at the end.
            self.server.scheduler.stop()
            self.server.runner.close()
            self.server.slurm.close()
            self.server.store.close()
            self.server = SlurmServer(self.folder, self.cluster)
        elif victim == "controller":
            self.cluster.kill("controller")
            time.sleep(self.chance.uniform(0, 2))
            self.cluster.start_controller()
        elif victim == "node":
            name = self.chance.choice(NODES)
            self.cluster.kill_node(name)
            time.sleep(self.chance.uniform(0, 2))
            self.cluster.start_node(name)
        elif not self._kill_process(victim):
            return
        self.kills[victim] += 1

    def _kill_process(self, victim: str) -> bool:
        for pid in self.chance.sample(found := list(processes_in(self.folder)), len(found)):
            try:
                process = psutil.Process(pid)
                words = process.cmdline()
                is_task = words[1:3] == ["-c", PROGRAM]
                is_supervisor = not is_task and any(word.endswith("/supervisor.py") for word in words[:5])
                if is_task if victim == "task" else is_supervisor:
                    process.kill()
                    return True
            except psutil.NoSuchProcess:
                pass
        return False


def test_no_kill_loses_or_repeats_a_step(tmp_path: Path, cluster: SlurmCluster) -> None:
    chance = random.Random(SEED)
    victims = Victims(tmp_path / "jobs", cluster, chance)
    finished = resumed = 0

    def jobs() -> list[ToyJob]:
        return sorted(victims.server.store.all(ToyJob), key=lambda job: job.id)

    while victims.kills.total() < KILLS:
        ids = {victims.server.run("counts").id for _ in range(JOBS)}
        until = victims.kills.total() + min(KILLS_PER_ROUND, KILLS - victims.kills.total())
        deadline = time.monotonic() + 60
        while victims.kills.total() < until and time.monotonic() < deadline:
            wait_a_little(chance.uniform(0, LONGEST_PAUSE))
            victims.kill(chance.choice(VICTIMS))
            if all(not job.status.is_running for job in jobs()):
                break
        for _ in range(20):
            cluster.heal()
            wait_until_settled(victims, jobs)
            failed = [job for job in jobs() if job.status is not Status.DONE]
            if not failed:
                break
            for job in failed:
                assert job.status is Status.ERROR, (job.status, job.failure)
                victims.server.scheduler.resume(job)
                resumed += 1
        for job in jobs():
            assert job.status is Status.DONE, job.failure
            assert victims.server.steps(job) == STEPS
            victims.server.scheduler.remove(job)
            finished += 1
        assert ids
        assert not list(processes_in(tmp_path))
    cluster.wait(lambda: not active_jobs(cluster))
    for job in victims.server.store.all(Job):
        victims.server.scheduler.remove(job)
    victims.server.stop()
    print(
        f"seed {SEED}: {victims.kills.total()} kills, {finished} jobs, resumed by the user {resumed} times: {dict(victims.kills)}"
    )


def wait_a_little(seconds: float) -> None:
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end)


def wait_until_settled(victims: Victims, jobs: object) -> None:
    """Wait until all jobs have ended, while nodes that Slurm drains are put back into service."""
    looked_at = time.monotonic()

    def have_ended() -> bool:
        nonlocal looked_at
        if time.monotonic() - looked_at > 5:
            looked_at = time.monotonic()
            victims.cluster.heal()
        return all(not job.status.is_running for job in victims.server.store.all(Job))

    try:
        wait_until(have_ended, PATIENCE_SECONDS)
    except AssertionError:
        print(victims.kills, victims.cluster.run("squeue", "-t", "all"), victims.cluster.states())
        print([(job.id, job.status, job.waiting_for) for job in victims.server.store.all(Job)])
        raise


def active_jobs(cluster: SlurmCluster) -> list[str]:
    cluster.heal()
    return cluster.jobs()
