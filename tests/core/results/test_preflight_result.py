"""Preflight results in the folder of a training."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.core.results import preflight_result


def test_a_result_is_saved_and_loaded(tmp_path: Path) -> None:
    step, job = tmp_path / "step", tmp_path / "job"
    for folder in (step, job):
        folder.mkdir()
    preflight_result.save(step, {"loss": 2.3, "chance_loss": None}, ["a warning"])
    (step / preflight_result.PICTURE_FILE).write_bytes(b"pixels")
    preflight_result.copy_to_job(step, job)
    assert preflight_result.load(job) == {
        "result": {"loss": 2.3, "chance_loss": None},
        "warnings": ["a warning"],
    }
    assert (job / preflight_result.PICTURE_FILE).read_bytes() == b"pixels"


def test_an_empty_result_is_not_saved(tmp_path: Path) -> None:
    preflight_result.copy_to_job(tmp_path / "forgotten", tmp_path)
    assert preflight_result.load(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"result": 3}'])
def test_a_damaged_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / preflight_result.RESULT_FILE).write_text(text)
    assert preflight_result.load(tmp_path) is None


def test_terminal_output() -> None:
    result = {
        "verdict": "The loss is finite.",
        "memory_bytes": 5e8,
        "gpu_memory_bytes": None,
        "parameters": 1234,
    }
    lines = preflight_result.format_lines(result)
    assert lines == ["The loss is finite.", "memory             500 MB", "parameters         1,234"]
    timed = {
        "seconds_per_step": 0.01,
        "seconds_per_epoch": 10.0,
        "seconds_total": 50.0,
        "gpu_memory_bytes": 2e9,
    }
    assert preflight_result.format_lines({**result, **timed})[1:5] == [
        "time per step      0.01 s",
        "time per epoch     10 s",
        "estimated total    50 s",
        "GPU memory         2000 MB",
    ]
