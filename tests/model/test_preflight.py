"""What the step before a training has shown, in the folder of the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.model import preflight


def test_what_was_shown_is_kept(tmp_path: Path) -> None:
    step, job = tmp_path / "step", tmp_path / "job"
    for folder in (step, job):
        folder.mkdir()
    preflight.save(step, {"loss": 2.3, "chance_loss": None}, ["a warning"])
    (step / preflight.PICTURE_FILE).write_bytes(b"pixels")
    preflight.keep(step, job)
    assert preflight.kept(job) == {"result": {"loss": 2.3, "chance_loss": None}, "warnings": ["a warning"]}
    assert (job / preflight.PICTURE_FILE).read_bytes() == b"pixels"


def test_nothing_shown_is_nothing_kept(tmp_path: Path) -> None:
    preflight.keep(tmp_path / "forgotten", tmp_path)
    assert preflight.kept(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"result": 3}'])
def test_a_damaged_file_is_nothing_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / preflight.RESULT_FILE).write_text(text)
    assert preflight.kept(tmp_path) is None
