"""Slurm's commands as `SlurmExecutor` uses them for many jobs: arrays, limits, and the text of `squeue`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.compute import Compute
from digits.core.job import DeviceRequest
from digits.core.status import Status
from digits.runtime.executors.node_job import ATTEMPT_FILE, EXIT_FILE
from digits.runtime.executors.queue_executor import Unreachable
from digits.runtime.executors.slurm.executor import MAX_FAILED_STARTS, SlurmExecutor
from digits.runtime.executors.slurm.queue import SlurmJob, array_limit, parse
from tests.runtime.executors.cluster_jobs import ClusterServer, message
from tests.runtime.toy_jobs import ToyJob

CONFIG = "MaxArraySize            = {}\nSchedulerParameters     = bf_interval=1,max_array_tasks={}\n"


class FakeSlurm:
    """Answers the commands of Slurm. ``limit`` is that of submitted jobs, ``sizes`` those of the accepted arrays."""

    def __init__(self) -> None:
        self.limit = self.max_array_size = 10_000
        self.is_up = True
        self.state = "PENDING|Priority"  # of new jobs
        self.sizes: list[int] = []
        self.lines: dict[str, str] = {}
        self.canceled: list[str] = []
        self.cancellations: list[list[str]] = []  # the arguments of each command

    def run(self, *command: str) -> tuple[int, str]:
        if not self.is_up:
            return 1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
        name, *arguments = command
        known: dict[str, Callable[[list[str]], tuple[int, str]]] = {
            "sbatch": self._sbatch,
            "squeue": lambda _: (0, "\n".join([*self.lines.values(), *self.canceled])),
            "scancel": self._scancel,
            "scontrol": lambda _: (0, CONFIG.format(self.max_array_size, self.max_array_size)),
        }
        return known[name](arguments)

    def close(self) -> None: ...

    def _sbatch(self, arguments: list[str]) -> tuple[int, str]:
        options = dict(re.findall(r"--([a-z-]+)=(.*)", "\n".join(arguments)))
        indexes = options["array"].split(",") if "array" in options else [None]
        if len(self.lines) + len(indexes) > self.limit:
            return (
                1,
                "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: "
                + ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"),
            )
        assert "array" not in options or len(indexes) <= self.max_array_size
        self.sizes.append(len(indexes))
        number = len(self.sizes)
        for index in indexes:
            name = str(number) if index is None else f"{number}_{index}"
            self.lines[name] = f"{name}|{number}|{self.state}|N/A|{options['comment']}"
        return 0, f"{number}\n"

    def _scancel(self, arguments: list[str]) -> tuple[int, str]:
        self.cancellations.append(arguments)
        for name in arguments:
            assert not name.startswith("-"), "further options cancel the whole array"
            line = self.lines.pop(name, None)
            number, _, index = name.partition("_")
            if line and index and not any(other.startswith(f"{number}_") for other in self.lines):
                self.canceled.append(f"{number}|{number}|CANCELLED|None|N/A|{line.rpartition('|')[2]}")
        return 0, ""


class FakeServer(ClusterServer):
    def __init__(self, folder: Path, slurm: FakeSlurm) -> None:
        self.slurm = SlurmExecutor(folder, list_seconds=0.05)
        self.slurm._commands = self.slurm._queue._commands = slurm  # type: ignore[assignment]
        super().__init__(folder, "slurm", self.slurm)

    def are_in_queue(self, jobs: list[ToyJob]) -> bool:
        return all("Slurm job" in job.waiting_for for job in jobs)


def end(*jobs: ToyJob) -> None:
    """Record that the programs of these jobs have ended."""
    for job in jobs:
        (job.folder / "toy" / EXIT_FILE).write_text('{"run": 1, "code": 1, "signal": null}')


def wait_for_listings(server: FakeServer, count: int) -> None:
    until = server.slurm.queries + count
    server.wait(lambda: server.slurm.queries > until)


def slurm_name(job: ToyJob) -> str:
    """Return the id of a waiting job in Slurm's commands."""
    found = re.search(r"\(Slurm job (\S+):", job.waiting_for)
    assert found
    return found[1]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setattr("digits.runtime.executors.slurm.executor.LIMIT_SECONDS", 0.0)
    # Other programs may keep the disk busy.
    monkeypatch.setattr("digits.runtime.executors.queue_executor.GATHER_SECONDS", 1.0)
    return FakeSlurm()


@pytest.fixture
def server(tmp_path: Path, slurm: FakeSlurm, caplog: pytest.LogCaptureFixture) -> Iterator[FakeServer]:
    with FakeServer(tmp_path / "jobs", slurm) as server:
        yield server
    assert "unexpected error" not in caplog.text


def test_a_sweep_is_one_array(server: FakeServer, slurm: FakeSlurm) -> None:
    jobs = server.sweep(30, "hangs")
    other = server.run("hangs", minutes=7)
    server.wait(lambda: server.are_in_queue([*jobs, other]))
    assert sorted(slurm.sizes) == [1, 30]
    reason = "other jobs are before it in the queue (Slurm job {}: Priority)"
    assert {job.waiting_for for job in [*jobs, other]} == {reason.format(name) for name in slurm.lines}


def test_an_array_may_be_canceled_in_the_queue(server: FakeServer, slurm: FakeSlurm) -> None:
    jobs = server.sweep(3, "hangs")
    other = server.run("hangs", minutes=7)
    server.wait(lambda: server.are_in_queue([*jobs, other]))
    for job in jobs:
        server.scheduler.abort(job)
        assert server.wait_for_end(job) is Status.ABORT
    assert slurm.canceled
    wait_for_listings(server, 2)
    assert server.are_in_queue([other])


def test_an_array_has_at_most_the_size_that_the_cluster_permits(server: FakeServer, slurm: FakeSlurm) -> None:
    slurm.max_array_size = 8
    jobs = server.sweep(20, "hangs")
    server.wait(lambda: server.are_in_queue(jobs))
    assert slurm.sizes == [8, 8, 4]


def test_a_cluster_without_arrays_gets_single_jobs(server: FakeServer, slurm: FakeSlurm) -> None:
    slurm.max_array_size = 0
    jobs = server.sweep(3, "hangs")
    server.wait(lambda: server.are_in_queue(jobs))
    assert slurm.sizes == [1, 1, 1] and all(
        "_" not in line.partition("|")[0] for line in slurm.lines.values()
    )


def test_a_job_that_no_node_can_start_is_submitted_again_until_it_fails(
    server: FakeServer, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.executors.queue_executor.FILE_SECONDS", 0.0)
    slurm.state = "FAILED|JobLaunchFailure"
    job = server.run("hangs")
    server.wait(lambda: job.status is Status.ERROR)
    assert len(slurm.sizes) == 1 + MAX_FAILED_STARTS
    assert "ended without a result: failed (JobLaunchFailure)" in message(job)


def test_jobs_beyond_the_limit_of_submitted_jobs_wait_with_that_reason(
    server: FakeServer, slurm: FakeSlurm
) -> None:
    slurm.limit = 5
    jobs = server.sweep(20, "hangs")
    words = "your limit of submitted jobs at Slurm is reached (QOSMaxSubmitJobPerUserLimit"
    server.wait(lambda: [words in job.waiting_for for job in jobs].count(True) == 15)
    assert len(slurm.lines) == 5
    assert all(job.status is Status.WAIT for job in jobs)
    aborted = next(job for job in jobs if words in job.waiting_for)
    server.scheduler.abort(aborted)
    assert server.wait_for_end(aborted) is Status.ABORT
    slurm.limit = 100
    jobs.remove(aborted)
    server.wait(lambda: server.are_in_queue(jobs))
    assert len(slurm.lines) == 19


def test_a_limit_that_others_use_up_is_waited_for_too(server: FakeServer, slurm: FakeSlurm) -> None:
    slurm.limit = 0
    job = server.run("hangs")
    server.wait(lambda: "limit of submitted jobs" in job.waiting_for)
    slurm.limit = 1
    server.wait(lambda: server.are_in_queue([job]))


def test_stopped_elements_leave_the_others_in_the_queue(server: FakeServer, slurm: FakeSlurm) -> None:
    jobs = server.sweep(6, "hangs")
    server.wait(lambda: server.are_in_queue(jobs))
    left = [name for name in slurm.lines if name != slurm_name(jobs[2])]
    server.scheduler.abort(jobs[2])
    assert server.wait_for_end(jobs[2]) is Status.ABORT
    assert list(slurm.lines) == left and len(left) == 5 and slurm.sizes == [6]


def test_jobs_that_are_stopped_together_are_canceled_by_one_command(
    server: FakeServer, slurm: FakeSlurm
) -> None:
    jobs = [server.run("hangs", minutes=number + 1) for number in range(5)]
    server.wait(lambda: server.are_in_queue(jobs))
    names = {slurm_name(job) for job in jobs}
    for job in jobs:
        server.scheduler.abort(job)
    for job in jobs:
        assert server.wait_for_end(job) is Status.ABORT
    assert [set(command) for command in slurm.cancellations] == [names]
    # Nothing asks Slurm again for a job that it has canceled, such as before the deletion.
    assert all(server.cluster.clear(job.folder) for job in jobs)


def test_an_element_that_is_canceled_in_the_queue_is_not_submitted_again(
    server: FakeServer, slurm: FakeSlurm
) -> None:
    """Slurm keeps no record of it."""
    jobs = server.sweep(3, "hangs")
    server.wait(lambda: server.are_in_queue(jobs))
    del slurm.lines[slurm_name(jobs[1])]
    assert server.wait_for_end(jobs[1]) is Status.ABORT
    assert message(jobs[1]).startswith("The job was canceled in Slurm, not here.") and slurm.sizes == [3]


def test_a_forgotten_array_is_submitted_again_once(server: FakeServer, slurm: FakeSlurm) -> None:
    jobs = server.sweep(3, "hangs")
    server.wait(lambda: server.are_in_queue(jobs))
    slurm.lines.clear()
    server.wait(lambda: slurm.sizes == [3, 3])
    server.wait(lambda: all("Slurm job 2_" in job.waiting_for for job in jobs))


@pytest.mark.integration
def test_a_restarted_server_finds_each_element(tmp_path: Path, slurm: FakeSlurm) -> None:
    server = FakeServer(tmp_path / "jobs", slurm)
    jobs = server.sweep(5, "hangs")
    server.wait(lambda: server.are_in_queue(jobs))
    server.stop()
    with FakeServer(tmp_path / "jobs", slurm) as again:
        found = [again.store.get(job.id, ToyJob) for job in jobs]
        again.wait(lambda: again.are_in_queue(found))
        assert [job.waiting_for for job in found] == [job.waiting_for for job in jobs]
        assert slurm.sizes == [5]


@pytest.mark.integration
def test_a_run_whose_server_was_killed_during_its_submission_is_interrupted_by_its_time_limit(
    tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killed server could not save that Slurm had accepted it."""
    monkeypatch.setattr("digits.runtime.executors.queue_executor.FILE_SECONDS", 0.1)
    slurm.state = "RUNNING|None"
    server = FakeServer(tmp_path / "jobs", slurm)
    job = server.run("hangs")
    server.wait(lambda: job.status is Status.RUN)
    server.stop()
    file = job.folder / "toy" / "slurm.json"
    submission = json.loads(file.read_text())
    file.write_text(json.dumps({**submission, "is_accepted": False}))
    attempt = {"token": submission["token"], "phase": "running"}
    (job.folder / "toy" / ATTEMPT_FILE).write_text(json.dumps(attempt))
    with FakeServer(tmp_path / "jobs", slurm) as server:
        found = server.store.get(job.id, ToyJob)
        wait_for_listings(server, 2)
        assert slurm.sizes == [1]
        slurm.lines = {
            name: line.replace("RUNNING|None", "TIMEOUT|TimeLimit") for name, line in slurm.lines.items()
        }
        server.wait(lambda: len(slurm.sizes) == 2 or not found.status.is_running)
        assert found.status.is_running, message(found)


@pytest.mark.integration
def test_elements_that_have_ended_are_canceled_if_slurm_takes_them_for_running(
    tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash of its controller. They get some time to end, also if the server starts again."""
    slurm.state = "RUNNING|None"
    with FakeServer(tmp_path / "jobs", slurm) as server:
        jobs = server.sweep(3, "hangs")
        server.wait(lambda: all(job.status is Status.RUN for job in jobs))
        end(*jobs)
        server.wait(lambda: not any(job.status.is_running for job in jobs))
        others = {
            "8_0": f"8_0|9|RUNNING|None|N/A|{server.slurm._mark}array/another",
            "9_1": "9_1|10|RUNNING|None|N/A|digits:another:array/1",
            "11": "11|11|RUNNING|None|N/A|(null)",
        }
        slurm.lines |= others
        wait_for_listings(server, 3)
        assert len(slurm.lines) == 6

    monkeypatch.setattr("digits.runtime.executors.queue_executor.FILE_SECONDS", 0.1)
    with FakeServer(tmp_path / "jobs", slurm) as server:
        server.wait(lambda: slurm.lines == others)


def test_a_job_that_another_program_has_submitted_again_is_not_canceled(
    server: FakeServer, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.executors.queue_executor.FILE_SECONDS", 0.0)
    slurm.state = "RUNNING|None"
    job = server.run("hangs")
    server.wait(lambda: job.status is Status.RUN)
    submission = job.folder / "toy" / "slurm.json"
    submission.write_text(submission.read_text().replace('"token": "', '"token": "another '))
    end(job)
    assert server.wait_for_end(job)
    wait_for_listings(server, 3)
    assert len(slurm.lines) == 1


@pytest.mark.integration
def test_a_server_without_runs_looks_at_the_queue_until_ended_jobs_are_gone(
    server: FakeServer, slurm: FakeSlurm
) -> None:
    slurm.state = "RUNNING|None"
    job = server.run("hangs")
    server.wait(lambda: job.status is Status.RUN)
    end(job)
    assert server.wait_for_end(job)
    wait_for_listings(server, 2)
    slurm.lines.clear()
    worker = server.slurm._worker
    assert worker
    server.wait(worker.ready)


def test_a_form_is_accepted_while_the_limit_is_reached(server: FakeServer, slurm: FakeSlurm) -> None:
    slurm.limit = 0
    request = DeviceRequest("training", compute=Compute(target="slurm"))
    assert server.cluster.refusal(server.store.folder, request) is None  # type: ignore[attr-defined]


@pytest.mark.integration
def test_a_job_that_was_asked_to_stop_is_canceled_when_the_server_ends(
    tmp_path: Path, slurm: FakeSlurm
) -> None:
    """As are background tasks, which end with their server."""
    server = FakeServer(tmp_path / "jobs", slurm)
    kept, stopped = server.sweep(2, "hangs")
    server.wait(lambda: server.are_in_queue([kept, stopped]))
    left = slurm_name(kept)
    server.cluster.stop(stopped.tasks[0].handle or {})
    server.stop()
    assert list(slurm.lines) == [left]


def test_the_reason_changes_with_the_queue(server: FakeServer, slurm: FakeSlurm) -> None:
    jobs = server.sweep(2, "hangs")
    server.wait(lambda: server.are_in_queue(jobs))
    name = slurm_name(jobs[1])
    slurm.lines[name] = slurm.lines[name].replace("Priority|N/A", f"Resources|{time.time() + 60:.0f}")
    server.wait(lambda: "all suitable nodes are in use" in jobs[1].waiting_for)
    assert jobs[1].expected_start and "Priority" in jobs[0].waiting_for
    # Slurm prints a year if it cannot know, as behind a job without a time limit.
    year = f"Resources|{time.time() + 365 * 86400:.0f}"
    slurm.lines[name] = re.sub(r"Resources\|\d+", year, slurm.lines[name])
    server.wait(lambda: jobs[1].expected_start is None)
    slurm.is_up = False
    server.wait(lambda: "does not answer" in jobs[0].waiting_for)
    slurm.is_up = True
    server.wait(lambda: "Resources" in jobs[1].waiting_for and "Priority" in jobs[0].waiting_for)


# Printed by Slurm 22.05.
LISTED = """\
7_4|7|PENDING|Resources|1827251752|digits:8bea9506:array/ddfadb9d00e94f67
7_5|7|PENDING|Priority|N/A|digits:8bea9506:array/ddfadb9d00e94f67
7_0|8|RUNNING|None|1795715152|digits:8bea9506:array/ddfadb9d00e94f67
1|1|COMPLETED|None|1795715052|digits:8bea9506:20261126-174021-9b9299/train:1
2|2|CANCELLED|Resources|1795715053|(null)
"""


def test_the_lines_of_squeue() -> None:
    jobs = [parse(line, "digits:8bea9506:") for line in LISTED.splitlines()]
    array = "digits:8bea9506:array/ddfadb9d00e94f67"
    assert jobs == [
        SlurmJob(7, 4, 7, "PENDING", "Resources", 1827251752.0, f"{array}:4"),
        SlurmJob(7, 5, 7, "PENDING", "Priority", None, f"{array}:5"),
        SlurmJob(7, 0, 8, "RUNNING", "None", 1795715152.0, f"{array}:0"),
        SlurmJob(
            1, None, 1, "COMPLETED", "None", 1795715052.0, "digits:8bea9506:20261126-174021-9b9299/train:1"
        ),
        SlurmJob(2, None, 2, "CANCELLED", "Resources", 1795715053.0, "(null)"),
    ]
    assert [job.name for job in jobs if job] == ["7_4", "7_5", "7_0", "1", "2"]
    assert [job.own_name for job in jobs if job] == ["7_4", "7_5", "8", "1", "2"]
    assert parse("slurm_load_jobs error: Unable to contact slurm controller", "digits:") is None


@pytest.mark.parametrize("name", ["4_[0,5,10,15,20,25,30,35,40,45,", "4_[0-9%3]", "4+1", "x"])
def test_a_line_of_ours_without_a_single_job_is_not_taken_for_a_missing_job(name: str) -> None:
    with pytest.raises(Unreachable, match="cannot be read"):
        parse(f"{name}|4|PENDING|Priority|N/A|digits:array/1", "digits:")
    assert parse(f"{name}|4|PENDING|Priority|N/A|another program", "digits:") is None


WORDS = st.text(st.characters(blacklist_characters="|", blacklist_categories=["C", "Z"]), max_size=20)


@given(
    number=st.integers(1, 2**31),
    index=st.none() | st.integers(0, 4_000_000),
    state=WORDS,
    reason=WORDS,
    start=st.none() | st.integers(0, 2**33),
    comment=st.text(st.characters(blacklist_categories=["C", "Z"]), min_size=1),
)
def test_each_line_is_read(
    number: int, index: int | None, state: str, reason: str, start: int | None, comment: str
) -> None:
    name = str(number) if index is None else f"{number}_{index}"
    job = parse(f"{name}|7|{state}|{reason}|{'N/A' if start is None else start}|{comment}\n", "digits:")
    end = "" if index is None else f":{index}"
    assert job == SlurmJob(number, index, 7, state, reason, start, comment + end) and job.name == name


@given(st.text())
def test_other_text_is_no_job(text: str) -> None:
    if not re.match(r"\s*\d", text):
        assert parse(text, "digits:") is None


def test_the_size_of_arrays_is_read_from_the_configuration() -> None:
    assert array_limit(CONFIG.format(1001, 500)) == 500
    assert array_limit("MaxArraySize            = 0\n") == 0
    assert array_limit("") == 1
