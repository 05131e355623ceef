"""Jobs folders with many finished jobs, written without running any task."""

from __future__ import annotations

import json
from pathlib import Path

from digits.core.job import Job, Summary
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.status import Status
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import DatasetJob


def write_jobs(folder: Path, datasets: int, models: int) -> None:
    """Write ``datasets`` named "birds 0" and so on, and ``models`` of the first one; the newest have the highest numbers."""
    recipe = CreateClassification(train=FolderSplit(folder="/data"))
    for number in range(datasets + models):
        own = folder / f"20260101-000000-{number:06x}"
        if number < datasets:
            _save(DatasetJob.create(own, name=f"birds {number}", recipe=recipe))
            continue
        job = ModelJob.create(
            own,
            name=f"net {number - datasets}",
            recipe=Train(dataset=str(folder / "20260101-000000-000000")),
            dataset_id="20260101-000000-000000",
            summary=Summary(sparkline=[3.0, 2.0, 1.0], last_accuracy=number % 7),
        )
        _save(job)
        for ending in ("index", "data-00000-of-00001"):
            (job.folder / f"snapshot_1.ckpt.{ending}").write_bytes(b"weights")


def _save(job: Job) -> None:
    for status in (Status.RUN, Status.DONE):
        job.tasks[0].move(status)
    job.tasks[0].devices = ["cpu"]
    job.update_status()
    job.folder.mkdir(parents=True)
    (job.folder / "network.py").write_text("class UserModel(Tower):\n    pass\n")
    (job.folder / "job.json").write_text(json.dumps(job.as_json()))
