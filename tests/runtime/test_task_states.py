"""States of tasks are read in time slices, and restored from saved states."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from digits.core import events
from digits.core.saved_state import STATE_FILE
from digits.core.status import Status
from digits.core.task import EVENTS_FILE, Task
from digits.runtime import task_states
from digits.runtime.task_states import STATES_KEPT, TaskStates
from tests.runtime.toy_jobs import Server, ToyJob

TAIL_BYTES = 8192


def job_with_log(folder: Path, rows: int = 300) -> ToyJob:
    """A job with a log of about 100 bytes per row."""
    (folder / "toy").mkdir(parents=True)
    append(folder, range(1, rows + 1))
    return ToyJob(id=folder.name, folder=folder, name="job", tasks=[Task(name="toy", title="Toy")])


def append(folder: Path, steps: range) -> None:
    with open(folder / "toy" / EVENTS_FILE, "ab") as log:
        for step in steps:
            log.write(events.encode(events.Measured("train", step, step, {"loss": 1 / step})))


def poison(log: Path) -> None:
    """Replace all but the end of ``log`` with noise of the same length."""
    with open(log, "r+b") as file:
        file.write(b"x" * (log.stat().st_size - TAIL_BYTES))


@pytest.fixture
def saved_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_states, "SAVE_BYTES", 1000)


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read one line per time slice."""
    monkeypatch.setattr(events, "TURN_SECONDS", 0.0)
    return


def new_states() -> TaskStates:
    return TaskStates(lambda job, task: False)


@pytest.mark.integration
@pytest.mark.usefixtures("short_turns")
def test_other_greenlets_run_while_a_long_log_is_read(tmp_path: Path) -> None:
    job, ticks = job_with_log(tmp_path / "job"), 0

    def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            gevent.sleep(0)

    other = gevent.spawn(tick)
    state = new_states().get(job, job.tasks[0])
    other.kill()
    assert state.metrics.train.steps == list(range(1, 301))
    assert ticks >= 300


@pytest.mark.usefixtures("short_turns")
def test_two_readers_of_the_same_log_apply_each_event_once(tmp_path: Path) -> None:
    job, states = job_with_log(tmp_path / "job"), new_states()
    with open(job.folder / "toy" / EVENTS_FILE, "ab") as log:
        log.write(events.encode(events.Skipped("a", "b")) * 30)
    gevent.joinall([gevent.spawn(states.get, job, job.tasks[0]) for _ in range(3)], raise_error=True)
    assert job.tasks[0].state.skipped == 30


@pytest.mark.usefixtures("saved_often")
def test_only_the_rest_of_a_log_is_read_again(tmp_path: Path) -> None:
    job = job_with_log(tmp_path / "job")
    new_states().get(job, job.tasks[0])
    poison(job.folder / "toy" / EVENTS_FILE)
    append(job.folder, range(301, 321))
    again = ToyJob(id=job.id, folder=job.folder, name="job", tasks=[Task(name="toy", title="Toy")])
    assert new_states().get(again, again.tasks[0]).metrics.train.steps == list(range(1, 321))


def test_short_logs_are_not_saved(tmp_path: Path) -> None:
    job = job_with_log(tmp_path / "job")
    new_states().get(job, job.tasks[0])
    assert not (job.folder / "toy" / STATE_FILE).exists()


@pytest.mark.usefixtures("saved_often")
def test_a_state_that_cannot_be_saved_is_still_read(tmp_path: Path) -> None:
    job = job_with_log(tmp_path / "job")
    (job.folder / "toy" / STATE_FILE).mkdir()
    assert len(new_states().get(job, job.tasks[0]).metrics.train.steps) == 300


@pytest.mark.usefixtures("saved_often")
def test_only_recent_states_stay_in_memory(tmp_path: Path) -> None:
    states = new_states()
    made = [job_with_log(tmp_path / f"job{number}", 20) for number in range(STATES_KEPT + 3)]
    for job in made:
        states.get(job, job.tasks[0])
    in_memory = [job.id for job in made if job.tasks[0].state.cursor]
    assert in_memory == [job.id for job in made[3:]]
    assert states.get(made[0], made[0].tasks[0]).metrics.train.steps == list(range(1, 21))


@pytest.mark.integration
@pytest.mark.usefixtures("saved_often")
def test_a_restarted_server_reads_only_the_rest_of_a_running_task(tmp_path: Path) -> None:
    first = Server(tmp_path / "jobs")
    job = first.submit("slow")
    log = job.task_folder(job.tasks[0]) / EVENTS_FILE
    first.wait(lambda: len(job.tasks[0].state.metrics.train.steps) > 120)
    first.stop()
    poison(log)
    second = Server(tmp_path / "jobs")
    again = second.store.get(job.id, ToyJob)
    assert again.status is Status.RUN
    assert again.tasks[0].state.metrics.train.steps[0] == 1
    assert second.wait_for_end(again) is Status.DONE
    assert second.scheduler.metrics(again).train.steps == list(range(1, 200))
    second.stop()
