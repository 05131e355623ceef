"""Resume points in a job's folder: found if they are intact and have their snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from digits.core.resume_point import ResumePoint, resume_point, resume_points


def point(step: int, snapshot: str = "snapshot_1.ckpt") -> ResumePoint:
    return ResumePoint(snapshot=snapshot, step=step, epoch=step / 10, seed=1, records=100, step_records=10)


def save(folder: Path, saved: ResumePoint) -> Path:
    """Save a point and a file of its snapshot; return the file of the point."""
    saved.save(folder)
    (folder / f"{saved.snapshot}.index").touch()
    return folder / f"{saved.snapshot}.resume.json"


def test_a_resume_point_requires_its_snapshot(tmp_path: Path) -> None:
    point(5).save(tmp_path)
    assert resume_point(tmp_path) is None
    (tmp_path / "snapshot_1.ckpt.index").touch()
    assert resume_point(tmp_path) == point(5)
    assert resume_point(tmp_path / "nowhere") is None


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    for step in (10, 20):
        file = save(tmp_path, point(step))
        assert resume_point(tmp_path) == point(step)
    file.write_text(file.read_text().replace('"step": 20', '"step": 200'))
    points, faults = resume_points(tmp_path)
    assert not points
    assert list(faults) == ["snapshot_1.ckpt"]


@pytest.mark.parametrize(
    "damage",
    ["{", "[]", "{}", '{"sha256": "", "point": {"step": 9, "snapshot": "resume_9.ckpt"}}', '{"point": []}'],
)
def test_a_damaged_resume_point_is_ignored(tmp_path: Path, damage: str) -> None:
    save(tmp_path, point(5))
    save(tmp_path, point(9, "resume_9.ckpt")).write_text(damage)
    assert resume_point(tmp_path) == point(5)
    points, faults = resume_points(tmp_path)
    assert points == [point(5)] and list(faults) == ["resume_9.ckpt"]


def test_every_altered_byte_of_a_resume_point_is_detected(tmp_path: Path) -> None:
    path = save(tmp_path, point(5))
    whole = path.read_bytes()
    for place, byte in enumerate(whole):
        path.write_bytes(whole[:place] + bytes([byte ^ 1]) + whole[place + 1 :])
        points, faults = resume_points(tmp_path)
        assert points == [point(5)] or faults  # only white space may differ


def test_the_order_of_keys_in_a_resume_point_does_not_matter(tmp_path: Path) -> None:
    path = save(tmp_path, point(5))
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"point": dict(reversed(body["point"].items()))}))
    assert resume_point(tmp_path) == point(5)
