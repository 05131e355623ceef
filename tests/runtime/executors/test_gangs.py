"""Several processes that work on one task, on this machine and with another executor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from digits.core.compute import Compute
from digits.core.events import Finished
from digits.core.job import DeviceRequest
from digits.core.status import Status
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import Executor, Exit, Placement
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.processes import processes_in
from tests.runtime.executors.test_local import wait_for_end
from tests.runtime.executors.thread_executor import ThreadExecutor, ThreadTask
from tests.runtime.toy_jobs import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

GANG = DeviceRequest("training", gpu_count=3, compute=Compute(workers=3))

# The same programs as processes and as threads.
PROCESS = """
import json, os, signal, sys, time
folder, rank = sys.argv[1], int(os.environ['DIGITS_RANK'])
name = json.load(open(folder + '/recipe.json'))['name']
print(rank, os.environ['DIGITS_WORKERS'], os.environ['CUDA_VISIBLE_DEVICES'], flush=True)
if name == 'finishes':
    if rank == 0: open(folder + '/events.jsonl', 'a').write('{"at": 1, "event": "finished"}\\n')
elif name == 'loses one' and rank == 1:
    sys.exit(3)
elif name == 'is killed' and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
else:
    time.sleep(300)
"""


def finishes(task: ThreadTask) -> int:
    task.say(f"{task.rank} {task.workers} {task.devices[task.rank]}")
    if task.rank == 0:
        task.log.append(Finished())
    return 0


def loses_one(task: ThreadTask) -> int:
    if task.rank == 1:
        return 3
    task.stop.wait(60)
    return 143


def hangs(task: ThreadTask) -> int:
    task.stop.wait(60)
    return 143


def executors() -> list[Executor]:
    return [
        LocalExecutor(standby=False, program=[sys.executable, "-c", PROCESS]),
        ThreadExecutor({"finishes": finishes, "loses one": loses_one, "hangs": hangs}),
    ]


@pytest.fixture(params=[0, 1], ids=["processes", "threads"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "jobs", executors()[request.param]) as server:
        server.executor.ledger = server.ledger = DeviceLedger({}, gpus=lambda: ["0", "1", "2"])
        yield server


def test_every_rank_has_its_number_and_its_gpu(server: Server) -> None:
    job = server.submit("finishes", request=GANG)
    assert server.wait_for_end(job) is Status.DONE
    output, _ = server.executor.output(job.task_folder(job.tasks[0]))
    assert sorted(output.splitlines()) == ["0 3 0", "1 3 1", "2 3 2"]
    assert job.tasks[0].devices == ["0", "1", "2"]
    server.wait(lambda: server.ledger.offer().gpus == ["0", "1", "2"])


def test_a_gang_that_loses_one_worker_ends_as_a_whole(server: Server) -> None:
    job = server.submit("loses one", request=GANG)
    assert server.wait_for_end(job) is Status.ERROR
    assert job.failure and job.failure.message == "Worker 1 of the task ended early with exit code 3."
    assert not list(processes_in(job.folder))


def test_all_workers_are_stopped_together(server: Server) -> None:
    job = server.submit("hangs", request=GANG)
    server.wait(lambda: job.status is Status.RUN)
    assert server.scheduler.abort(job)
    assert server.wait_for_end(job) is Status.ABORT
    assert not list(processes_in(job.folder))


def test_the_exit_of_a_gang_is_that_of_the_rank_that_failed_first(tmp_path: Path) -> None:
    run = LocalExecutor(standby=False, program=[sys.executable, "-c", PROCESS])
    (tmp_path / "recipe.json").write_text('{"name": "is killed"}')
    handle = run.start(tmp_path, Placement(DeviceRequest("training", compute=Compute(workers=2)), ("cpu",)))
    wait_until(lambda: run.output(tmp_path)[1] > 0)
    assert wait_for_end(run, tmp_path, handle) == Exit(signal=9, rank=1)
    assert not list(processes_in(tmp_path))
    # The other rank may have been stopped in the middle of its line.
    assert all("0 2 ".startswith(line) or line == "1 2 " for line in run.output(tmp_path)[0].splitlines())
