"""After a power loss at any moment, a training resumes with all metrics up to its resume point."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from digits.core import events, snapshot_list
from digits.core.events import Resumed
from digits.core.metrics.series import Metrics
from digits.core.resume_point import resume_point
from tests.power_loss import Recording, write
from tests.worker import networks
from tests.worker.conftest import snapshot
from tests.worker.training.weights.test_resume import same

SETTINGS: dict[str, Any] = {
    "epochs": 2,
    "val_interval": 0.75,
    "snapshot_interval": 0.5,
    "best_metric": "loss",
    "snapshots_kept": 2,
}


def test_every_state_has_all_rows_up_to_the_resume_step(
    often: None,
    model: Any,
    start: Any,
    resume: Any,
    in_own_child: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task_folder = model(networks.LINEAR, **SETTINGS)
    recording = Recording(task_folder.parent, tmp_path / "recording")
    with monkeypatch.context() as patched:
        recording.start(patched)
        outcome = start(task_folder).wait()
    assert outcome.code == 0, outcome.output
    steps = in_own_child(_resumed_steps, recording, task_folder.parent, tmp_path / "states")
    certain = [step for step, *_ in steps]
    assert certain == sorted(certain) and certain[-1] == 16  # resume points are never lost
    assert len(set(certain)) > 5
    assert all(step >= others[0] for others in steps for step in others)
    states = len(list((tmp_path / "states").iterdir()))
    again = resume(tmp_path / "states" / str(states // 2) / "train").wait()
    assert again.code == 0, again.output
    assert 0 < again.of(Resumed)[0].step < 16
    same(outcome, again, "snapshot_2.ckpt")


def _resumed_steps(recording: Recording, finished: Path, place: Path) -> list[list[int]]:
    """Return the resume step in each possible state after a power loss, for each moment."""
    chance, rows, known = random.Random(1), _events(finished), {}
    place.mkdir()
    steps = []
    for moment in recording.moments():
        steps.append([])
        for state in recording.states(moment, chance):
            key = hash(frozenset(state.items()))
            if key not in known:
                known[key] = _resumed_step(state, rows, place / str(len(known)))
            steps[-1].append(known[key])
    return steps


def _resumed_step(state: dict[str, bytes | None], rows: list[events.Event], job: Path) -> int:
    """Return the resume step in ``state``, whose log must contain all ``rows`` up to it."""
    write(state, job)
    point = resume_point(job)
    if best := snapshot_list.read(job).best:
        assert snapshot(job, best.name)
    if point is None:
        return 0
    assert snapshot(job, point.snapshot)["global_step"] == point.step
    assert _curves(_events(job), point.step) == _curves(rows, point.step), (job, point.step)
    return point.step


def _events(job: Path) -> list[events.Event]:
    return events.read(job / "train" / "events.jsonl")[0]


def _curves(happened: list[events.Event], step: int) -> dict[str, Any]:
    metrics = Metrics()
    for event in (*happened, Resumed(step, 0.0)):
        metrics.add(msgspec.structs.replace(event, at=0.0))
    return metrics.as_json()
