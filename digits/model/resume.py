"""Where a training was left, so that it can go on from there: ``resume.json`` in the job's folder.

The file is written whole after the snapshot that it names, so whatever a killed
training leaves behind, the two belong together.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from digits import schema
from digits.files import UnreadableFile, read_json, write_json
from digits.schema import Count

FILE_NAME = "resume.json"


@dataclass(frozen=True, kw_only=True)
class ResumePoint:
    """A training after ``step`` steps, ``epoch`` epochs. ``snapshot`` is a prefix in the job's folder.

    ``validated`` and ``saved`` are the steps of the latest validation and the latest
    snapshot of an epoch, -1 for none. ``seed``, ``records`` and ``step_records`` (records
    of the dataset, and of a step) give the place in the order of the records. ``watched``
    is what `digits.model.watch` remembers, ``random`` the state of Python's generators,
    ``curve`` what belongs to the next row of metrics already.
    """

    snapshot: str
    step: Count
    epoch: float
    seed: int
    records: int
    step_records: int
    validated: int = -1
    saved: int = -1
    wants_pictures: bool = False
    watched: dict[str, Any] = field(default_factory=dict)
    random: dict[str, Any] = field(default_factory=dict)
    curve: dict[str, Any] | None = None

    def save(self, job_folder: Path) -> None:
        """Put this point in the place of the one before."""
        write_json(job_folder / FILE_NAME, dataclasses.asdict(self))


def resume_point(job_folder: Path) -> ResumePoint | None:
    """Where the training in ``job_folder`` can go on; None when it has to begin anew."""
    try:
        point = schema.build(ResumePoint, read_json(job_folder / FILE_NAME))
    except (UnreadableFile, schema.Malformed):
        return None
    name = Path(point.snapshot).name
    if not (job_folder / f"{name}.index").is_file():
        return None
    return dataclasses.replace(point, snapshot=name)
