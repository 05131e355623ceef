"""Jobs with an executor that does not use processes, through the scheduler and the task runner."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from digits.core.events import Failed, Finished, Measured, Progressed
from digits.core.job import DeviceRequest
from digits.core.status import Status
from digits.runtime.executors.executor import Executor
from tests.runtime.executors.thread_executor import ThreadExecutor, ThreadTask
from tests.runtime.toy_jobs import Server, ToyJob

pytestmark = pytest.mark.integration


def finishes(task: ThreadTask) -> int:
    task.say(f"on {task.devices}")
    for step in (1, 2, 3):
        task.log.append(Measured("train", step, step / 3, {"loss": 1 / step, "accuracy": 0.5}))
    task.log.append(Progressed(0.5), Finished())
    return 0


def waits(task: ThreadTask) -> int:
    task.stop.wait(60)
    return 143


def fails(task: ThreadTask) -> int:
    task.log.append(Failed("The shapes do not match.", line=7))
    return 1


def crashes(task: ThreadTask) -> int:
    raise ZeroDivisionError("of a thread")


PROGRAMS = {"finishes": finishes, "waits": waits, "fails": fails, "crashes": crashes}


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Executor:
    return ThreadExecutor(PROGRAMS, **getattr(request, "param", {}))


@pytest.fixture
def server(tmp_path: Path, executor: Executor) -> Iterator[Server]:
    with Server(tmp_path / "jobs", executor) as server:
        yield server


def test_a_finished_job_has_metrics_and_output(server: Server) -> None:
    job = server.submit("finishes")
    assert server.wait_for_end(job) is Status.DONE
    assert server.scheduler.metrics(job).train.steps == [1, 2, 3]
    assert server.executor.output(job.task_folder(job.tasks[0]))[0] == "on ['cpu']\n"
    assert job.summary.last_accuracy == 50.0
    assert server.ledger.holders() == {}


def test_a_job_fails_with_its_reason(server: Server) -> None:
    failed, crashed = server.submit("fails"), server.submit("crashes")
    assert server.wait_for_end(failed) is server.wait_for_end(crashed) is Status.ERROR
    assert failed.failure and (failed.failure.message, failed.failure.line) == ("The shapes do not match.", 7)
    assert crashed.failure and "ZeroDivisionError: of a thread" in crashed.failure.hint


def test_aborting_a_running_job_starts_the_next_one(server: Server) -> None:
    first, second = server.submit("waits"), server.submit("waits")
    server.wait(lambda: first.status is Status.RUN and second.status is Status.WAIT)
    assert server.ledger.holders() == {"cpu": "waits"}
    assert server.scheduler.abort(first)
    assert server.wait_for_end(first) is Status.ABORT
    server.wait(lambda: second.status is Status.RUN)


def test_a_running_job_is_deleted(server: Server) -> None:
    job = server.submit("waits", request=DeviceRequest("dataset"))
    server.wait(lambda: job.status is Status.RUN)
    server.scheduler.remove(job)
    assert not job.folder.exists()


# A cluster: it queues tasks, must not be asked often, and takes its time to stop them.

CLUSTER = pytest.mark.parametrize(
    "executor", [{"slots": 1, "poll_seconds": 0.2, "stop_seconds": 2.0}], indirect=True, ids=["cluster"]
)
UNLIMITED = DeviceRequest("of the cluster")


@CLUSTER
def test_a_job_waits_at_the_executor_and_then_runs(server: Server, executor: ThreadExecutor) -> None:
    first = server.submit("waits", request=UNLIMITED)
    server.wait(lambda: first.status is Status.RUN)
    second = server.submit("finishes", request=UNLIMITED)
    server.wait(lambda: second.waiting_for)
    assert second.status is Status.WAIT and second.elapsed == 0
    assert (second.waiting_at, second.waiting_for) == ("the executor", "all threads are in use")
    assert second.expected_start and second.expected_start > second.submitted
    saved = json.loads((second.folder / "job.json").read_text())
    assert saved["tasks"][0]["handle"] == second.tasks[0].handle  # so that a restarted server follows it
    server.scheduler.abort(first)
    assert server.wait_for_end(second) is Status.DONE
    assert (second.waiting_for, second.expected_start) == ("", None)


@CLUSTER
def test_a_job_that_waits_at_the_executor_is_aborted_and_deleted(server: Server) -> None:
    first = server.submit("waits", request=UNLIMITED)
    server.wait(lambda: first.status is Status.RUN)  # jobs start at the same time, in any order
    second, third = (server.submit("waits", request=UNLIMITED) for _ in range(2))
    server.wait(lambda: second.waiting_for and third.waiting_for)
    server.scheduler.abort(second)
    assert server.wait_for_end(second) is Status.ABORT
    assert second.elapsed == 0
    server.scheduler.remove(third)
    assert not third.folder.exists() and first.status is Status.RUN


@CLUSTER
def test_a_restarted_server_follows_a_job_that_waits_at_the_executor(
    tmp_path: Path, executor: ThreadExecutor
) -> None:
    server = Server(tmp_path, executor)
    first = server.submit("waits", request=UNLIMITED)
    server.wait(lambda: first.status is Status.RUN)
    second = server.submit("waits", request=UNLIMITED)
    server.wait(lambda: second.waiting_for)
    server.stop()
    with Server(tmp_path, executor) as server:
        first, second = (server.store.get(job.id, ToyJob) for job in (first, second))
        server.wait(lambda: second.waiting_for)
        server.scheduler.abort(first)
        server.wait(lambda: second.status is Status.RUN)


@CLUSTER
def test_a_job_that_the_executor_interrupts_waits_and_runs_again(
    server: Server, executor: ThreadExecutor
) -> None:
    job = server.submit("waits", request=UNLIMITED)
    server.wait(lambda: job.status is Status.RUN)
    executor.slots = 0
    executor.interrupt()
    server.wait(lambda: job.status is Status.WAIT)
    ran = job.elapsed
    assert job.waiting_for and ran > 0
    executor.slots = 1
    server.wait(lambda: job.status is Status.RUN)
    assert not job.waiting_for and job.elapsed >= ran


@CLUSTER
def test_the_executor_is_asked_no_more_often_than_it_permits(
    server: Server, executor: ThreadExecutor
) -> None:
    executor.polls.clear()
    began = time.monotonic()
    job = server.submit("waits", request=UNLIMITED)
    server.wait(lambda: job.status is Status.RUN and len(executor.polls) >= 3)
    assert len(executor.polls) <= 2 + (time.monotonic() - began) / executor.poll_seconds
