"""Jobs with an executor that does not use processes, through the scheduler and the task runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from digits.core.events import Failed, Finished, Measured, Progressed
from digits.core.job import DeviceRequest, Job
from digits.core.status import Status
from digits.runtime.executor import Executor
from tests.runtime.thread_executor import ThreadExecutor, ThreadTask
from tests.runtime.toy_jobs import Server

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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    programs = {"finishes": finishes, "waits": waits, "fails": fails, "crashes": crashes}
    executor: Executor = ThreadExecutor(programs)
    server = Server(tmp_path / "jobs", executor)
    yield server
    for job in server.store.all(Job):
        server.scheduler.abort(job)
        server.wait_for_end(job)
    server.stop()


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
    job = server.submit("waits", request=DeviceRequest(pool="create"))
    server.wait(lambda: job.status is Status.RUN)
    server.scheduler.remove(job)
    assert not job.folder.exists()
