"""Small jobs on a cluster, and a server that runs them."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from pathlib import Path
from typing import Any

import psutil

from digits.core.compute import Compute
from digits.core.job import DeviceRequest
from digits.core.status import Status
from digits.runtime.executors.executor import Executor
from digits.runtime.executors.processes import processes_in
from tests.runtime.toy_jobs import Server, ToyJob

# Counts to 60, twenty a second, with a resume point after each step; saves and exits on SIGTERM, as a training does.
PROGRAM = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
name = json.loads((folder / 'recipe.json').read_text())['name']
rank, workers = int(os.environ.get('DIGITS_RANK', '0')), int(os.environ.get('DIGITS_WORKERS', '1'))
log = open(folder / 'events.jsonl', 'a')
def log_event(**event):
    log.write(json.dumps({'at': time.time(), **event}) + '\\n'); log.flush()
def stop(*_):
    if name == 'saves slowly': time.sleep(4)
    print('saved', flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print(f'rank {rank} of {workers}', os.environ.get('SLURMD_NODENAME', ''), repr(os.environ.get('CUDA_VISIBLE_DEVICES')), flush=True)
if name == 'finishes':
    if rank == 0: log_event(event='finished')
elif name.startswith('counts'):
    points = sorted(folder.parent.glob('*.resume.json'))
    first = int(points[-1].name.partition('.')[0]) if points else 0
    print('counts from', first, os.environ.get('DIGITS_RESTARTED', ''), flush=True)
    if first: log_event(event='resumed', step=first, epoch=first / 10)
    for step in range(first + 1, 61):
        time.sleep(0.05 if name == 'counts' or (folder / 'hurry').exists() else 2)
        log_event(event='measured', stage='train', step=step, epoch=step / 10, values={'loss': 1 / step})
        (folder.parent / f'{step:03}.resume.json').touch()
    log_event(event='finished')
elif name == 'never begins':
    time.sleep(300)
elif name == 'loses one' and rank == 1:
    time.sleep(1); sys.exit(3)
else:
    time.sleep(300)
"""


class ClusterServer(Server):
    """A server whose jobs run on the ``cluster`` that is its compute ``target``, by default with these ``resources``."""

    def __init__(self, folder: Path, target: str, cluster: Executor, **resources: Any) -> None:
        self.cluster = cluster
        self._resources = {"target": target, **resources}
        super().__init__(folder, others={target: cluster})

    def run(self, program: str, gpus: int = 0, **compute: Any) -> ToyJob:
        return self.submit(program, request=self._request(gpus, compute))

    def sweep(self, count: int, program: str, **compute: Any) -> list[ToyJob]:
        """Submit ``count`` jobs together."""
        jobs = [self.new(program, request=self._request(0, compute)) for _ in range(count)]
        self.scheduler.submit(*jobs)
        return jobs

    def _request(self, gpus: int, compute: dict[str, Any]) -> DeviceRequest:
        return DeviceRequest(
            "training",
            gpus * compute.get("workers", self._resources.get("workers", 1)),
            compute=Compute(**{**self._resources, **compute}),
        )

    def output(self, job: ToyJob) -> str:
        return self.cluster.output(job.folder / "toy")[0]

    def wait_for_output(self, job: ToyJob, words: str) -> None:
        self.wait(lambda: words in self.output(job))

    def steps(self, job: ToyJob) -> list[float]:
        return self.scheduler.metrics(job).train.steps

    def stop(self) -> None:
        super().stop()
        self.cluster.close()


def message(job: ToyJob) -> str:
    """Return why ``job`` failed, and what to do."""
    assert job.failure
    return f"{job.failure.message} {job.failure.hint}"


def kill_in_turn(server: ClusterServer, *programs: tuple[str, str]) -> None:
    """Kill the processes of a job whose command lines contain these two words in a row: it resumes each time."""
    job = server.run("counts slowly")
    for count, program in enumerate(programs, 1):
        server.wait(lambda: server.output(job).count("counts from") == count)  # noqa: B023
        steps = len(server.steps(job))
        server.wait(lambda: len(server.steps(job)) > steps)  # noqa: B023
        kill_programs(job, program)
    (job.folder / "toy" / "hurry").touch()
    assert server.wait_for_end(job) is Status.DONE
    assert server.steps(job) == list(range(1, 61))
    assert server.output(job).count("counts from") == len(programs) + 1


def kill_programs(job: ToyJob, program: tuple[str, str]) -> None:
    """Kill the processes of ``job`` whose command lines contain these two words in a row."""
    for pid in processes_in(job.folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            if program in itertools.pairwise(psutil.Process(pid).cmdline()):
                os.kill(pid, signal.SIGKILL)
