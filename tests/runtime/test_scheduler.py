"""The scheduler's decisions, as pure functions, and their effects, with real processes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core import events, schema
from digits.core import job as jobs
from digits.core.compute import Compute
from digits.core.errors import InUse
from digits.core.events import Failed, Removed, Resumed, Saved, Warned, encode
from digits.core.job import DeviceRequest
from digits.core.recipe import Recipe
from digits.core.status import LEGAL_STEPS, Status, worst
from digits.core.task import EXIT_DISK_FULL, Failure, Task, TaskState
from digits.runtime.executors.device_ledger import Resources
from digits.runtime.executors.executor import Exit
from digits.runtime.scheduler import Candidate, Choice, choose
from digits.runtime.store import Store, StoreInUse
from digits.runtime.task_outcome import verdict
from tests.failing_disk import failing_disk
from tests.runtime.toy_jobs import Server, ToyJob

pytestmark = pytest.mark.integration


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "jobs") as server:
        yield server


@pytest.mark.parametrize("turn_seconds", [events.TURN_SECONDS, 0.0], ids=["long turns", "a line each turn"])
def test_a_finished_job_is_done_and_announced(
    server: Server, monkeypatch: pytest.MonkeyPatch, turn_seconds: float
) -> None:
    monkeypatch.setattr(events, "TURN_SECONDS", turn_seconds)
    job = server.submit("finishes")
    assert server.wait_for_end(job) is Status.DONE
    assert job.progress == 1.0
    assert (job.folder / "half").exists()
    rows = [
        row
        for room, _, body in server.messages
        if room == job.id and body["update"] == "metrics"
        for row in body["rows"]
    ]
    assert [row["step"] for row in rows] == list(range(1, 11))
    assert server.scheduler.metrics(job).train.steps == list(range(1, 11))
    assert job.summary.last_accuracy == 50.0
    statuses = [
        body["status"] for room, _, body in server.messages if room == job.id and body["update"] == "status"
    ]
    assert statuses[-2:] == ["Running", "Done"]
    assert [job.id] == [body["job_id"] for _, _, body in server.messages if body["update"] == "added"]
    lines = [body["data"] for _, _, body in server.messages if body["update"] == "sparkline"]
    assert lines and lines[0][0] == 1.0


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("fails", "Wrong shape."),
        ("ends early", "ended early: something called exit"),
        ("crashes", "signal 11, SIGSEGV"),
        ("dies mid-line", "exit code 1"),
    ],
)
def test_a_failed_job_reports_why(server: Server, program: str, words: str) -> None:
    job = server.submit(program)
    assert server.wait_for_end(job) is Status.ERROR
    assert job.failure is not None
    assert words in job.failure.message
    assert not (job.folder / "half").exists()
    kept = jobs.load(job.folder, {"model": ToyJob})
    assert kept.status is Status.ERROR
    assert kept.failure == job.failure


def test_a_failed_job_resumes(server: Server) -> None:
    job = server.submit("fails at first")
    assert server.wait_for_end(job) is Status.ERROR
    server.scheduler.resume(job)
    assert job.status is Status.INIT
    assert job.failure is None
    assert job.progress == 0.25
    assert server.wait_for_end(job) is Status.DONE
    assert server.scheduler.metrics(job).train.steps == [1, 2]
    assert "".join(status.value for status, _ in job.history).replace("W", "") == "IREIRD"
    assert job.elapsed == pytest.approx(job.tasks[0].seconds_run)


def test_malformed_log_lines_are_ignored(server: Server) -> None:
    job = server.submit("writes noise")
    assert server.wait_for_end(job) is Status.DONE
    assert server.scheduler.metrics(job).train.steps == [1]


def test_abort_works_while_waiting_and_while_running(server: Server) -> None:
    first, second = server.submit("slow"), server.submit("slow")
    server.wait(lambda: second.status is Status.WAIT and first.status is Status.RUN)
    assert "CPU" in second.waiting_for
    assert server.scheduler.abort(second)
    assert server.wait_for_end(second) is Status.ABORT
    assert server.scheduler.abort(first)
    assert server.wait_for_end(first) is Status.ABORT
    assert not server.scheduler.abort(first)
    assert first.failure is None


def test_a_job_that_waits_for_a_device_is_shown_but_not_saved(server: Server) -> None:
    first, second = server.submit("runs"), server.submit("runs")
    server.wait(lambda: first.status is Status.RUN and second.status is Status.WAIT)
    saved = {job.id: json.loads((job.folder / "job.json").read_text())["tasks"][0] for job in (first, second)}
    assert saved[first.id]["history"][-1][0] == "R"
    assert [status for status, _ in saved[second.id]["history"]] == ["I"]
    assert server.store.index.select(ToyJob, "waiting") == [second]


def test_a_decision_examines_only_waiting_jobs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = server.submit("runs"), server.submit("runs")
    server.wait(lambda: first.status is Status.RUN and second.status is Status.WAIT)
    examined: list[ToyJob] = []
    startable = server.scheduler._startable
    monkeypatch.setattr(server.scheduler, "_startable", lambda job: examined.append(job) or startable(job))
    for _ in range(2):  # the first round notices that the other one runs
        examined.clear()
        server.scheduler._reconsider()
        server.wait(lambda: examined)
    assert set(examined) == {second}
    assert server.scheduler.abort(first)
    server.wait(lambda: second.status is Status.RUN)


def test_a_job_waits_for_its_dataset(server: Server) -> None:
    dataset = server.submit("finishes", request=DeviceRequest("dataset"))
    model = server.submit("finishes", needed=(dataset.id,))
    assert server.wait_for_end(model) is Status.DONE
    started = [at for status, at in model.history if status is Status.RUN]
    ended = [at for status, at in dataset.history if status is Status.DONE]
    assert started[0] >= ended[0]


def test_a_job_whose_dataset_failed_is_aborted_with_the_reason(server: Server) -> None:
    dataset = server.submit("fails", request=DeviceRequest("dataset"))
    model = server.submit("finishes", needed=(dataset.id,))
    assert server.wait_for_end(model) is Status.ABORT
    assert model.failure is not None
    assert "failed" in model.failure.message


def test_a_job_in_use_is_not_deleted(server: Server) -> None:
    dataset = server.submit("finishes", request=DeviceRequest("dataset"))
    model = server.submit("slow", needed=(dataset.id,))
    with pytest.raises(InUse, match="slow"):
        server.scheduler.remove(dataset)
    assert dataset.folder.is_dir()
    server.scheduler.remove(model)
    server.scheduler.remove(dataset)
    assert not dataset.folder.exists()
    server.wait(
        lambda: [path.name for path in server.store.folder.iterdir()] == [".lock"]
    )  # in the background


class FaultyJob(ToyJob, kw_only=True, eq=False):
    """A job whose code raises, as it may with unexpected files."""

    fails_in: str = ""

    def recipe_for(self, task: Task) -> Recipe:
        self._fail_in("recipe_for")
        return super().recipe_for(task)

    def needs(self) -> tuple[str, ...]:
        self._fail_in("needs")
        return super().needs()

    def device_request(self, task: Task) -> DeviceRequest:
        self._fail_in("device_request")
        return super().device_request(task)

    def clear_away(self) -> None:
        self._fail_in("clear_away")

    def task_folder(self, task: Task) -> Path:
        self._fail_in("task_folder")
        return super().task_folder(task)

    def _fail_in(self, name: str) -> None:
        if self.fails_in == name:
            raise ZeroDivisionError(name)


@pytest.mark.parametrize("fails_in", ["recipe_for", "needs", "device_request"])
def test_a_job_that_raises_does_not_affect_others(server: Server, fails_in: str) -> None:
    folder = server.store.new_folder()
    job = FaultyJob(id=folder.name, folder=folder, name="faulty", tasks=[Task(name="toy", title="Toy")])
    server.scheduler.submit(job)
    job.fails_in = fails_in
    other = server.submit("finishes")
    assert server.wait_for_end(other) is Status.DONE
    assert server.wait_for_end(job) is Status.ERROR
    assert job.failure and "ZeroDivisionError" in job.failure.message
    job.fails_in = ""


def test_a_job_with_too_many_workers_fails_alone(server: Server) -> None:
    job = server.submit("finishes", request=DeviceRequest("dataset", compute=Compute(workers=2)))
    assert server.wait_for_end(server.submit("finishes")) is Status.DONE
    assert server.wait_for_end(job) is Status.ERROR
    assert job.failure and "2 workers cannot share a task" in job.failure.message


def test_a_running_job_that_raises_is_stopped(server: Server) -> None:
    folder = server.store.new_folder()
    job = FaultyJob(
        id=folder.name, folder=folder, name="faulty", tasks=[Task(name="toy", title="Toy")], program="slow"
    )
    server.scheduler.submit(job)
    server.wait(lambda: job.status is Status.RUN)
    handle = job.tasks[0].handle
    job.fails_in = "task_folder"
    assert server.wait_for_end(job) is Status.ERROR
    job.fails_in = ""
    assert handle
    server.wait(lambda: not server.executor.is_alive(handle))
    assert server.wait_for_end(server.submit("finishes")) is Status.DONE


def test_a_job_status_is_corrected_to_match_its_tasks(tmp_path: Path) -> None:
    server = Server(tmp_path / "jobs")
    job = server.submit("finishes")
    server.wait_for_end(job)
    server.stop()
    body = json.loads((job.folder / "job.json").read_text())
    body["history"][-1][0] = "R"
    (job.folder / "job.json").write_text(json.dumps(body))
    again = Server(server.store.folder)
    try:
        (found,) = again.store.all(ToyJob)
        assert again.wait_for_end(found) is Status.DONE
    finally:
        again.stop()


@pytest.mark.parametrize(
    ("program", "shift"),
    [
        ("finishes", -86400.0),
        ("fails", 86400.0),
        ("slow", -3600.0),
        *(
            pytest.param(program, shift, marks=pytest.mark.nightly)
            for program, shift in [
                ("finishes", -3600.0),
                ("finishes", 86400.0),
                ("fails", -86400.0),
                ("fails", -3600.0),
                ("slow", -86400.0),
                ("slow", 86400.0),
            ]
        ),
    ],
)
def test_a_clock_change_does_not_affect_the_final_status(
    server: Server, monkeypatch: pytest.MonkeyPatch, program: str, shift: float
) -> None:
    """The task's clock is unchanged; the server's clock changes when the task starts."""
    clock, offset = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: clock() + offset[0])
    job = server.submit(program)
    server.wait(lambda: job.status is not Status.INIT)
    offset[0] = shift
    if program == "slow":
        server.scheduler.abort(job)
    ends = {"finishes": Status.DONE, "fails": Status.ERROR, "slow": Status.ABORT}
    assert server.wait_for_end(job) is ends[program]
    assert (job.failure is None) == (program != "fails")
    assert 0 <= job.elapsed < 30
    assert [at for _, at in job.history] == sorted(at for _, at in job.history)


def test_a_resumed_job_ignores_its_earlier_run_after_the_clock_was_set_back(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, offset = time.time, [86400.0]
    monkeypatch.setattr(time, "time", lambda: clock() + offset[0])
    job = server.submit("fails at first")
    assert server.wait_for_end(job) is Status.ERROR
    server.scheduler.resume(job)
    offset[0] = 0.0
    assert server.wait_for_end(job) is Status.DONE
    assert 0 <= job.elapsed < 30


def test_elapsed_time_of_a_task_is_never_negative() -> None:
    task = Task(name="t", title="T", history=[(Status.INIT, 9e9), (Status.RUN, 9e9)])
    assert 0 <= task.seconds_run < 5
    task.move(Status.DONE)
    assert 0 <= task.seconds_run < 5
    backwards = Task(
        name="t", title="T", history=[(Status.INIT, 100.0), (Status.RUN, 90.0), (Status.DONE, 10.0)]
    )
    assert backwards.seconds_run == 0


def test_a_forged_exit_neither_ends_a_job_nor_keeps_it_from_being_stopped(server: Server) -> None:
    job = server.submit("slow")
    server.wait(lambda: len(server.scheduler.metrics(job).train.steps) > 2)
    handle = job.tasks[0].handle
    (job.folder / "toy" / "exit.json").write_text('{"code": 1, "signal": null, "run": 1}')
    seen = len(server.scheduler.metrics(job).train.steps)
    server.wait(lambda: len(server.scheduler.metrics(job).train.steps) > seen + 3)
    assert job.status is Status.RUN
    server.scheduler.remove(job)
    assert handle and not server.executor.is_alive(handle)
    assert not job.folder.exists()


def test_deleting_a_job_kills_its_remaining_processes(server: Server) -> None:
    job = server.submit("finishes")
    server.wait_for_end(job)
    environment = {**os.environ, "DIGITS_TASK": str(job.folder / "toy")}
    with subprocess.Popen(["sleep", "300"], env=environment) as left:
        while not Path(f"/proc/{left.pid}/environ").read_bytes():
            time.sleep(0.01)  # The kernel is still replacing the program.
        server.scheduler.remove(job)
        assert left.wait(timeout=10) == -9


def test_two_servers_do_not_share_a_jobs_folder(server: Server) -> None:
    with pytest.raises(StoreInUse, match="Another DIGITS server"):
        Store(server.store.folder, {"model": ToyJob})


# Decisions


def toy(tmp_path: Path, name: str, **arguments: Any) -> ToyJob:
    return ToyJob(
        id=name, folder=tmp_path / name, name=name, tasks=[Task(name="toy", title="Toy")], **arguments
    )


def chosen(jobs: list[ToyJob], free: Resources) -> Choice:
    return choose([Candidate(job, [(job.tasks[0], job.request)]) for job in jobs], lambda request: free)


def devices(choice: Choice) -> list[tuple[str, tuple[str, ...]]]:
    return [(start.job.id, start.placement.devices) for start in choice.start]


def test_gpus_are_allocated_in_order_of_submission(tmp_path: Path) -> None:
    gpu = DeviceRequest("training", gpu_count=1)
    jobs = [toy(tmp_path, str(number), request=gpu) for number in range(3)]
    choice = chosen(jobs, Resources({}, ["0", "1"], ("0", "1")))
    assert devices(choice) == [("0", ("0",)), ("1", ("1",))]
    assert choice.waiting == {"2": "a free GPU"}


def test_a_busy_chosen_gpu_is_awaited_and_an_unknown_one_is_an_error(tmp_path: Path) -> None:
    busy = toy(tmp_path, "busy", request=DeviceRequest("training", gpus=("1",)))
    unknown = toy(tmp_path, "unknown", request=DeviceRequest("training", gpus=("7",)))
    choice = chosen([busy, unknown], Resources({}, ["0"], ("0", "1")))
    assert choice.waiting == {"busy": "GPU 1"}
    assert "no GPU 7" in choice.unsatisfiable["unknown"].message


def test_without_gpus_a_training_runs_on_the_cpu(tmp_path: Path) -> None:
    jobs = [toy(tmp_path, str(number), request=DeviceRequest("training", gpu_count=1)) for number in range(2)]
    choice = chosen(jobs, Resources({"training": 1}, []))
    assert devices(choice) == [("0", ("cpu",))]
    assert choice.waiting == {"1": "the CPU, which trains another model"}


@pytest.mark.parametrize(
    ("ended", "state", "status", "words"),
    [
        (Exit(code=0), TaskState(result={}), Status.DONE, None),
        (Exit(code=143, stopped=True), TaskState(), Status.ABORT, None),
        (Exit(code=0, stopped=True), TaskState(result={}), Status.DONE, None),
        (Exit(code=143, stopped=True), TaskState(result={}), Status.DONE, None),
        (Exit(code=1), TaskState(failure=Failure("reported")), Status.ERROR, "reported"),
        (Exit(signal=9, out_of_memory=True), TaskState(), Status.ERROR, "memory"),
        (Exit(signal=9), TaskState(), Status.ERROR, "SIGKILL"),
        (Exit(signal=64), TaskState(), Status.ERROR, "signal 64"),
        (Exit(lost=True), TaskState(), Status.ERROR, "process is gone"),
        (Exit(code=0), TaskState(), Status.ERROR, "ended early"),
        (Exit(code=1), TaskState(result={}), Status.ERROR, "exit code 1"),
        (Exit(signal=9), TaskState(result={}), Status.DONE, None),
        (Exit(lost=True), TaskState(result={}), Status.DONE, None),
        (Exit(code=1, disk_full=True), TaskState(), Status.ERROR, "The disk is full"),
        (Exit(code=EXIT_DISK_FULL), TaskState(), Status.ERROR, "The disk is full"),
        (Exit(code=1, disk_full=True), TaskState(failure=Failure("reported")), Status.ERROR, "reported"),
        (Exit(code=75), TaskState(failure=Failure("of an earlier run")), Status.ERROR, "Another process"),
    ],
)
def test_verdict(ended: Exit, state: TaskState, status: Status, words: str | None) -> None:
    judged, failure = verdict(ended, state, ["last words"])
    assert judged is status
    assert (failure is None) == (words is None)
    if failure and words:
        assert words in failure.message


@given(st.lists(st.sampled_from(Status), max_size=6))
def test_a_status_only_makes_legal_transitions(steps: list[Status]) -> None:
    task = Task(name="t", title="T")
    for step in steps:
        before = task.status
        try:
            task.move(step)
        except ValueError:
            assert step not in LEGAL_STEPS[before]
        else:
            assert step is before or step in LEGAL_STEPS[before]
            assert task.status is step
    again = schema.decode(msgspec.json.encode(task), Task)
    assert again.history == task.history


def test_a_job_has_the_status_of_its_worst_task() -> None:
    assert worst([Status.DONE, Status.RUN, Status.ERROR]) is Status.ERROR
    assert worst([Status.DONE, Status.WAIT]) is Status.WAIT
    assert worst([]) is Status.INIT


def test_resuming_clears_the_failure() -> None:
    state = TaskState()
    before = [Saved(1, 8, "a"), Saved(2, 16, "b"), Failed("disk full")]
    for event in [*before, Resumed(8, 1), Saved(2, 16, "b"), Removed(1, "a")]:
        state.apply(event)
    assert state.failure is None and not state.is_finished
    assert state.snapshots == [(2, "b")]


@pytest.mark.parametrize("clock", [-86400.0, 0.0, 86400.0], ids=["set back", "right", "set forward"])
def test_a_new_run_ignores_the_failure_of_an_earlier_one(tmp_path: Path, clock: float) -> None:
    task, log = Task(name="t", title="T"), tmp_path / "events.jsonl"
    for status in (Status.RUN, Status.ERROR):
        task.move(status)
    log.write_bytes(encode(Failed("disk full")) + encode(Warned("kept")))
    task.read_events(log)
    assert task.state.failure
    task.restart(log.stat().st_size)
    task.read_events(log)
    assert task.state.failure is None and task.state.warnings == ["kept"]
    with open(log, "ab") as file:
        file.write(encode(Failed("again", at=time.time() + clock)))
    again = schema.decode(msgspec.json.encode(task), Task)
    for known in (task, again):
        known.read_events(log)
        assert known.state.failure == Failure("again")


def test_a_job_that_ended_without_a_server_keeps_its_end_time(tmp_path: Path) -> None:
    first = Server(tmp_path / "jobs")
    job = first.submit("slow")
    first.wait(lambda: job.status is Status.RUN)
    first.stop()
    exit_file = job.task_folder(job.tasks[0]) / "exit.json"
    exit_file.with_name("hurry").touch()
    first.wait(exit_file.exists)
    ended = json.loads(exit_file.read_text())["at"]
    second = Server(tmp_path / "jobs")
    (again,) = second.store.all(ToyJob)
    assert second.wait_for_end(again) is Status.DONE
    assert again.history[-1][1] == again.tasks[0].history[-1][1] == ended
    second.stop()


def test_a_task_whose_start_was_not_recorded_is_not_started_twice(tmp_path: Path) -> None:
    """The server is killed right after it starts the task."""
    first = Server(tmp_path / "jobs")
    job = first.submit("finishes")
    before = (job.folder / "job.json").read_bytes()
    assert first.wait_for_end(job) is Status.DONE
    first.stop()
    (job.folder / "job.json").write_bytes(before)
    second = Server(tmp_path / "jobs")
    (again,) = second.store.all(ToyJob)
    assert again.status is Status.INIT
    assert second.wait_for_end(again) is Status.DONE
    log = (again.task_folder(again.tasks[0]) / "events.jsonl").read_text()
    assert log.count('"finished"') == 1
    second.stop()


def test_saving_a_job_is_retried(server: Server) -> None:
    job = server.submit("finishes")  # it starts once this greenlet yields
    with failing_disk(server.store.folder, errno.EIO, chosen=lambda path: "job.json" in path):
        assert server.wait_for_end(job) is Status.DONE
        assert server.store.problem is not None
        assert "not saved yet" in server.store.problem.message
    server.wait(lambda: server.store.problem is None)
    assert json.loads((job.folder / "job.json").read_text())["history"][-1][0] == Status.DONE.value


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EMFILE])
def test_a_task_that_cannot_be_started_reports_why(server: Server, number: int) -> None:
    with failing_disk(
        server.store.folder, number, chosen=lambda path: path.endswith("/toy") or "/toy/" in path
    ):
        job = server.submit("finishes")
        assert server.wait_for_end(job) is Status.ERROR
    assert job.failure is not None
    words = {errno.ENOSPC: "The disk is full", errno.EROFS: "read-only", errno.EMFILE: "too many open files"}
    assert job.failure.message.startswith("The task could not be started.")
    assert words[number] in job.failure.message
    assert server.wait_for_end(server.submit("finishes")) is Status.DONE


def test_nothing_starts_in_a_missing_jobs_folder(server: Server) -> None:
    job = server.submit("finishes")
    away = server.store.folder.rename(server.store.folder.with_name("away"))
    gevent.sleep(0.2)
    assert job.status is Status.INIT
    away.rename(server.store.folder)
    assert server.wait_for_end(job) is Status.DONE
