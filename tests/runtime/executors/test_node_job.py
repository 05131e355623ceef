"""How the program of a job on a cluster decides between the end of a run and another attempt."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from digits.runtime.executors import node_job
from digits.runtime.executors.node_job import EXIT_BUSY, EXIT_PARTNER_LOST, MAX_FRUITLESS, NodeJob, Record

STARTS_AGAIN = 77
DONE = {"code": 0, "stopped": False}
STOPPED = {"code": 143, "stopped": True}
FAILED = {"code": 3, "stopped": False}
KILLED = {"code": None, "signal": signal.SIGKILL, "stopped": False}
LOST_PARTNER = {"code": EXIT_PARTNER_LOST, "stopped": False}


class FakeJob(NodeJob):
    """A job whose nodes leave the given records, or none if they are lost."""

    title, advice = "Moon", "Ask the moon"
    records: list[dict[str, Any] | None]
    point = event = ""
    attempts = 0

    def _run_supervisors(self, command: list[str]) -> None:
        self._save("running")
        FakeJob.attempts += 1
        for node, record in enumerate(self.records):
            if record is not None:
                self._write(f"exit.{node}.json", {"signal": None, "at": 10.0 - node, "run": 1, **record})
        if self.point:
            Path(self._folder, "..", f"{self.point}.resume.json").touch()
        if self.event:
            log_event(Path(self._folder), self.event)

    def _start_again(self, record: Record | None) -> int:
        self._save("interrupted")
        return STARTS_AGAIN


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A job sets variables of its own process.
    monkeypatch.setattr(os, "environ", {**os.environ, node_job.RUN_VARIABLE: "1"})
    monkeypatch.setattr(FakeJob, "attempts", 0)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "moon.json").write_text('{"token": "new"}')
    return tmp_path / "train"


def log_event(folder: Path, event: str) -> None:
    with open(folder / "events.jsonl", "a") as log:
        log.write(json.dumps({"at": 1.0, "event": event}) + "\n")


def attempt(
    folder: Path, *records: dict[str, Any] | None, point: str = "", event: str = "", token: str = "new"
) -> int:
    """Run a job with one node for each record; return its exit code."""
    job = FakeJob(str(folder), token, str(len(records)), "true")
    job.records, job.point, job.event = list(records), point, event
    return job.main()


def record(folder: Path) -> dict[str, Any] | None:
    """Return the exit record of the run."""
    path = folder / "exit.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_a_run_ends_with_its_record_and_only_once(folder: Path) -> None:
    assert attempt(folder, DONE) == 0
    assert record(folder) == record(folder) | {"code": 0, "stopped": False, "run": 1, "rank": None}  # type: ignore[operator]
    assert attempt(folder, FAILED) == 0
    assert FakeJob.attempts == 1 and record(folder)["code"] == 0  # type: ignore[index]


def test_a_job_that_was_replaced_does_nothing(folder: Path) -> None:
    assert attempt(folder, DONE, token="old") == 0
    assert FakeJob.attempts == 0 and record(folder) is None


def test_a_run_that_the_user_stops_does_not_start_again(folder: Path) -> None:
    (folder / node_job.STOP_FILE).write_text("1")
    assert attempt(folder, STOPPED) == 0
    assert FakeJob.attempts == 0 and record(folder)["stopped"]  # type: ignore[index]


def test_a_stop_of_an_earlier_run_does_not_count(folder: Path) -> None:
    (folder / node_job.STOP_FILE).write_text("0")
    assert attempt(folder, STOPPED) == STARTS_AGAIN


@pytest.mark.parametrize(
    "records",
    [
        [STOPPED],
        [None],
        [KILLED],
        [STOPPED, STOPPED],
        [FAILED, None],
        [LOST_PARTNER, KILLED],
        [LOST_PARTNER, STOPPED],
    ],
    ids=["stopped", "lost", "killed", "gang", "one lost", "one killed", "one disconnected"],
)
def test_an_interrupted_run_starts_again(folder: Path, records: list[dict[str, Any] | None]) -> None:
    assert attempt(folder, *records) == STARTS_AGAIN
    assert record(folder) is None
    assert attempt(folder, *(DONE for _ in records)) == 0
    assert record(folder)["code"] == 0  # type: ignore[index]


def test_a_gang_ends_with_the_rank_that_failed_first_by_itself(folder: Path) -> None:
    assert attempt(folder, STOPPED, FAILED, {**FAILED, "code": 4}) == 1
    assert [record(folder)[key] for key in ("code", "rank")] == [4, 2]  # type: ignore[index]


@pytest.mark.parametrize(
    "record_of_end",
    [{**KILLED, "out_of_memory": True}, {**KILLED, "signal": signal.SIGSEGV}],
    ids=["out of memory", "crashed"],
)
def test_a_task_that_ends_itself_does_not_start_again(folder: Path, record_of_end: dict[str, Any]) -> None:
    assert attempt(folder, LOST_PARTNER, record_of_end) == 1
    assert record(folder)["signal"] == record_of_end["signal"]  # type: ignore[index]


def test_a_restarted_run_waits_while_a_lost_node_still_works_on_it(folder: Path) -> None:
    busy = {"code": EXIT_BUSY, "stopped": False}
    assert attempt(folder, None) == STARTS_AGAIN
    assert attempt(folder, busy) == STARTS_AGAIN
    assert attempt(folder, DONE) == 0


def test_a_run_that_is_busy_from_the_start_fails(folder: Path) -> None:
    assert attempt(folder, {"code": EXIT_BUSY, "stopped": False}) == 1
    assert record(folder)["code"] == EXIT_BUSY  # type: ignore[index]


def test_interruptions_without_progress_end_the_run(folder: Path) -> None:
    assert [attempt(folder, STOPPED) for _ in range(MAX_FRUITLESS)] == [STARTS_AGAIN] * (
        MAX_FRUITLESS - 1
    ) + [1]
    failure = record(folder)["failure"]  # type: ignore[index]
    assert failure["message"].startswith(f"The task was interrupted {MAX_FRUITLESS} times in a row")
    assert "Ask the moon, then start it again." in failure["hint"]


def test_a_new_resume_point_is_progress(folder: Path) -> None:
    for step in range(MAX_FRUITLESS * 2):
        assert attempt(folder, STOPPED, point=str(step // 2)) == STARTS_AGAIN
    assert record(folder) is None


def test_an_attempt_that_succeeded_before_its_program_was_killed_is_not_repeated(folder: Path) -> None:
    assert attempt(folder, DONE, FAILED) == 1
    (folder / "exit.json").unlink()
    assert attempt(folder, DONE, DONE) == 0
    (folder / "exit.json").unlink()
    assert attempt(folder, DONE, DONE) == 0
    assert FakeJob.attempts == 2 and record(folder)["code"] == 0  # type: ignore[index]


def test_an_attempt_whose_node_was_lost_with_its_program_counts(folder: Path) -> None:
    before = {"run": 1, "token": "new", "phase": "running", "fruitless": MAX_FRUITLESS - 1, "points": []}
    (folder / node_job.ATTEMPT_FILE).write_text(json.dumps(before))
    assert attempt(folder, DONE) == 1
    assert FakeJob.attempts == 0 and record(folder)["failure"]  # type: ignore[index]


@pytest.mark.parametrize("records", [[STOPPED], [KILLED], [None], [STOPPED, LOST_PARTNER], [DONE, KILLED]])
def test_a_signal_after_the_end_of_the_work_does_not_matter(
    folder: Path, records: list[dict[str, Any] | None]
) -> None:
    assert attempt(folder, *records, event="finished") == 0
    assert record(folder) == record(folder) | {"code": 0, "signal": None, "stopped": False}  # type: ignore[operator]


def test_the_end_of_an_earlier_run_or_other_events_are_not_the_end_of_this_one(folder: Path) -> None:
    log_event(folder, "finished")
    assert attempt(folder, STOPPED) == STARTS_AGAIN
    assert attempt(folder, KILLED) == STARTS_AGAIN
    assert attempt(folder, KILLED, event="resumed") == STARTS_AGAIN
    (folder / "events.jsonl").write_text((folder / "events.jsonl").read_text() + '{"event": "finis')
    assert attempt(folder, KILLED) == STARTS_AGAIN


def test_a_task_that_fails_after_its_last_event_has_failed(folder: Path) -> None:
    assert attempt(folder, FAILED, event="finished") == 1
    assert record(folder)["code"] == 3  # type: ignore[index]


def test_a_job_whose_program_was_killed_after_the_work_is_not_repeated(folder: Path) -> None:
    before = {"run": 1, "token": "new", "phase": "running", "fruitless": 0, "points": [], "log": 0}
    (folder / node_job.ATTEMPT_FILE).write_text(json.dumps(before))
    log_event(folder, "finished")
    assert attempt(folder, DONE) == 0
    assert FakeJob.attempts == 0 and record(folder)["code"] == 0  # type: ignore[index]
