"""`SlurmExecutor` on stand-ins for Slurm's commands: many jobs, limits, and the text of `squeue`."""

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
from digits.runtime.executors.cluster import Unreachable
from digits.runtime.executors.cluster_queue import QueuedJob, Submission
from digits.runtime.executors.node_job import ATTEMPT_FILE, EXIT_FILE
from digits.runtime.executors.queued_run import MAX_STARTS
from digits.runtime.executors.slurm.executor import SlurmExecutor, parse
from tests.runtime.executors.cluster_jobs import ClusterServer, message
from tests.runtime.toy_jobs import ToyJob


class FakeSlurm:
    """Answers the commands of Slurm. ``limit`` is that of submitted jobs, ``submitted`` counts them."""

    def __init__(self) -> None:
        self.limit = 10_000
        self.is_up = True
        self.state = "PENDING|Priority"  # of new jobs
        self.submitted = 0
        self.lines: dict[str, str] = {}
        self.cancellations: list[list[str]] = []  # the arguments of each command

    def run(self, *command: str) -> tuple[int, str]:
        if not self.is_up:
            return 1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
        name, *arguments = command
        known: dict[str, Callable[[list[str]], tuple[int, str]]] = {
            "sbatch": self._sbatch,
            "squeue": lambda _: (0, "\n".join(self.lines.values())),
            "scancel": self._scancel,
        }
        return known[name](arguments)

    def close(self) -> None: ...

    def _sbatch(self, arguments: list[str]) -> tuple[int, str]:
        if len(self.lines) >= self.limit:
            return 1, (
                "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
                "accounting/QOS policy (job submit limit, user's size and/or time limits)"
            )
        self.submitted += 1
        (comment,) = (option for option in arguments if option.startswith("--comment="))
        self.lines[str(self.submitted)] = f"{self.submitted}|{self.state}|N/A|{comment.partition('=')[2]}"
        return 0, f"{self.submitted}\n"

    def _scancel(self, arguments: list[str]) -> tuple[int, str]:
        self.cancellations.append(arguments)
        for name in arguments:
            self.lines.pop(name, None)
        return 0, ""


class FakeServer(ClusterServer):
    def __init__(self, folder: Path, slurm: FakeSlurm) -> None:
        self.slurm = SlurmExecutor(folder, list_seconds=0.05)
        self.slurm._commands = slurm  # type: ignore[assignment]
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
def slurm() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
def server(tmp_path: Path, slurm: FakeSlurm, caplog: pytest.LogCaptureFixture) -> Iterator[FakeServer]:
    with FakeServer(tmp_path / "jobs", slurm) as server:
        yield server
    assert "unexpected error" not in caplog.text


def test_a_job_that_no_node_can_start_is_submitted_again_until_it_fails(
    server: FakeServer, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.executors.queued_run.FILE_SECONDS", 0.0)
    slurm.state = "FAILED|JobLaunchFailure"
    job = server.run("hangs")
    server.wait(lambda: job.status is Status.ERROR)
    assert slurm.submitted == MAX_STARTS
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


def test_jobs_that_are_stopped_together_are_canceled_by_one_command(
    server: FakeServer, slurm: FakeSlurm
) -> None:
    jobs = server.sweep(5, "hangs")
    server.wait(lambda: server.are_in_queue(jobs))
    names = {slurm_name(job) for job in jobs}
    for job in jobs:
        server.scheduler.abort(job)
    for job in jobs:
        assert server.wait_for_end(job) is Status.ABORT
    assert [set(command) for command in slurm.cancellations] == [names]
    # Nothing asks Slurm again for a job that it has canceled, such as before the deletion.
    assert all(server.cluster.clear(job.folder) for job in jobs)


@pytest.mark.integration
def test_a_job_that_waits_since_an_earlier_server_is_canceled_when_its_folder_is_cleared(
    tmp_path: Path, slurm: FakeSlurm
) -> None:
    """Although nobody has asked it to stop before."""
    server = FakeServer(tmp_path / "jobs", slurm)
    job = server.run("hangs")
    server.wait(lambda: server.are_in_queue([job]))
    server.stop()
    with FakeServer(tmp_path / "jobs", slurm) as server:
        server.wait(lambda: server.cluster.clear(job.folder))
        assert not slurm.lines


def test_a_forgotten_job_is_submitted_again_once(server: FakeServer, slurm: FakeSlurm) -> None:
    job = server.run("hangs")
    server.wait(lambda: server.are_in_queue([job]))
    slurm.lines.clear()
    server.wait(lambda: "Slurm job 2:" in job.waiting_for)
    wait_for_listings(server, 3)
    assert slurm.submitted == 2


@pytest.mark.integration
@pytest.mark.parametrize("has_reached_slurm", [False, True])
def test_a_run_whose_server_was_killed_during_its_submission_runs_and_starts_again(
    tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, has_reached_slurm: bool
) -> None:
    """The killed server could not note whether Slurm had accepted it; its program may have begun since."""
    monkeypatch.setattr("digits.runtime.executors.queued_run.FILE_SECONDS", 0.1)
    slurm.state = "RUNNING|None"
    server = FakeServer(tmp_path / "jobs", slurm)
    job = server.run("hangs")
    server.wait(lambda: job.status is Status.RUN)
    server.stop()
    saved = json.loads((job.folder / "toy" / "slurm.json").read_text())
    if has_reached_slurm:
        attempt = {"token": saved["token"], "phase": "running"}
        (job.folder / "toy" / ATTEMPT_FILE).write_text(json.dumps(attempt))
    else:
        slurm.lines.clear()
        slurm.submitted = 0
    with FakeServer(tmp_path / "jobs", slurm) as server:
        found = server.store.get(job.id, ToyJob)
        server.wait(lambda: slurm.submitted == 1)
        server.wait(lambda: found.status is Status.RUN)
        wait_for_listings(server, 2)
        assert slurm.submitted == 1
        slurm.lines = {
            name: line.replace("RUNNING|None", "TIMEOUT|TimeLimit") for name, line in slurm.lines.items()
        }
        server.wait(lambda: slurm.submitted == 2 or not found.status.is_running)
        assert found.status.is_running, message(found)
        again = json.loads((job.folder / "toy" / "slurm.json").read_text())
        assert again["token"] == saved["token"] and again["attempt"] > saved["attempt"]


@pytest.mark.integration
def test_jobs_that_have_ended_are_canceled_if_slurm_takes_them_for_running(
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
            "8": f"8|RUNNING|None|N/A|{server.slurm._mark}gone/toy:0:1",
            "9": "9|RUNNING|None|N/A|digits:another:job/toy:1",
            "11": "11|RUNNING|None|N/A|(null)",
        }
        slurm.lines |= others
        wait_for_listings(server, 3)
        assert len(slurm.lines) == 6

    monkeypatch.setattr("digits.runtime.executors.queued_run.FILE_SECONDS", 0.1)
    with FakeServer(tmp_path / "jobs", slurm) as server:
        server.wait(lambda: slurm.lines == others)


def test_a_job_that_another_program_has_submitted_is_not_canceled(
    server: FakeServer, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.executors.queued_run.FILE_SECONDS", 0.0)
    slurm.state = "RUNNING|None"
    job = server.run("hangs")
    server.wait(lambda: job.status is Status.RUN)
    end(job)
    assert server.wait_for_end(job)
    server.wait(lambda: not slurm.lines)
    # As `digits train` does with the next run.
    file = job.folder / "toy" / "slurm.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "run": 2, "token": "new", "attempt": 1}))
    name = server.slurm.name_of(job.folder / "toy", Submission(2, "new", job.request, attempt=1))
    slurm.lines["7"] = f"7|RUNNING|None|N/A|{name}"
    server.run("hangs")
    wait_for_listings(server, 3)
    assert "7" in slurm.lines


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
4|PENDING|Resources|1827251752|digits:8bea9506:20261126-174021-9b9299/train:1
3|PENDING|Priority|N/A|digits:8bea9506:20261126-174021-9b9299/evaluate:1
2|CANCELLED|Resources|1795715053|(null)
"""


def test_the_lines_of_squeue() -> None:
    job = "digits:8bea9506:20261126-174021-9b9299"
    assert [parse(line, "digits:8bea9506:") for line in LISTED.splitlines()] == [
        QueuedJob("4", f"{job}/train:1", "pending", "pending (Resources)", "Resources", 1827251752.0),
        QueuedJob("3", f"{job}/evaluate:1", "pending", "pending (Priority)", "Priority"),
        QueuedJob("2", "(null)", "canceled", "cancelled (Resources)", "Resources", 1795715053.0),
    ]
    assert parse("slurm_load_jobs error: Unable to contact slurm controller", "digits:") is None


@pytest.mark.parametrize("name", ["4_[0-9%3]", "4+1", "x"])
def test_a_line_of_ours_without_a_single_job_is_not_taken_for_a_missing_job(name: str) -> None:
    with pytest.raises(Unreachable, match="cannot be read"):
        parse(f"{name}|PENDING|Priority|N/A|digits:array/1", "digits:")
    assert parse(f"{name}|PENDING|Priority|N/A|another program", "digits:") is None


WORDS = st.text(st.characters(blacklist_characters="|", blacklist_categories=["C", "Z"]), max_size=20)


@given(
    number=st.integers(1, 2**31),
    state=WORDS,
    reason=WORDS,
    start=st.none() | st.integers(0, 2**33),
    comment=st.text(st.characters(blacklist_categories=["C", "Z"]), min_size=1),
)
def test_each_line_is_read(number: int, state: str, reason: str, start: int | None, comment: str) -> None:
    job = parse(f"{number}|{state}|{reason}|{'N/A' if start is None else start}|{comment}\n", "digits:")
    assert job and (job.id, job.reason, job.start, job.name) == (str(number), reason, start, comment)
