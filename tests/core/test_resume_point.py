"""Resume points in a job's folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from msgspec import structs

from digits.core.resume_point import ResumePoint, resume_point, resume_points


def point(step: int) -> ResumePoint:
    return ResumePoint(
        snapshot="snapshot_1.ckpt", step=step, epoch=step / 10, seed=1, records=100, step_records=10
    )


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "snapshot_1.ckpt.index").touch()
    for step in (10, 20):
        point(step).save(tmp_path)
        assert resume_point(tmp_path) == point(step)
    file = tmp_path / "snapshot_1.ckpt.resume.json"
    file.write_text(file.read_text().replace('"step": 20', '"step": 200'))
    points, faults = resume_points(tmp_path)
    assert not points
    assert list(faults) == ["snapshot_1.ckpt"]


def test_points_of_earlier_versions_may_contain_many_random_numbers(tmp_path: Path) -> None:
    """They stored the states of Python's generators, which are no longer used."""
    body = {**structs.asdict(point(10)), "random": {"made": [[number] for number in range(30_000)]}}
    checksum = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    file = tmp_path / "snapshot_1.ckpt.resume.json"
    file.write_text(json.dumps({"sha256": checksum, "point": body}))
    assert resume_points(tmp_path) == ([point(10)], {})
