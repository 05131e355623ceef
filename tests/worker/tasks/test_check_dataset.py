"""The task that checks the health of a dataset, for classification datasets, from records to ``health.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core.events import EventLog, Progressed, read
from digits.core.recipe import CheckDataset, CreateDataset
from digits.data import manifest
from digits.data.health import health
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.worker.failure import UserFault
from digits.worker.tasks import check_dataset, create_dataset

pytestmark = pytest.mark.integration


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A dataset with two splits and a class with copies of an image: two in train, one in val."""
    random = np.random.default_rng(3)
    for split, names in (("train", "abcdefghijkl"), ("val", "mnop")):
        for group in ("cats", "dogs"):
            folder = tmp_path / split / group
            folder.mkdir(parents=True)
            for name in names:
                noise = random.integers(0, 255, (20, 30, 3), np.uint8)
                Image.fromarray(noise).save(folder / f"{name}.png")
    source = tmp_path / "train" / "cats" / "a.png"
    for copy in ("train/cats/copy.png", "val/cats/copy.png"):
        (tmp_path / copy).write_bytes(source.read_bytes())
    Image.new("RGBA", (500, 20), "red").save(tmp_path / "val" / "dogs" / "thin.png")
    made = tmp_path / "job"
    recipe = CreateClassification(
        train=FolderSplit(folder=str(tmp_path / "train")),
        val=FolderSplit(folder=str(tmp_path / "val")),
        width=16,
        height=16,
        processes=1,
    )
    run(create_dataset, recipe, made, "create")
    return made


def run(program: Any, recipe: CreateDataset | CheckDataset, job: Path, name: str) -> dict[str, Any]:
    (job / name).mkdir(parents=True)
    log = EventLog(job / name / "events.jsonl")
    try:
        result: dict[str, Any] = program.run(recipe, job / name, log)
        return result
    finally:
        log.close()


def test_findings_of_a_dataset_with_two_splits(job: Path) -> None:
    run(check_dataset, CheckDataset(dataset=str(job), processes=2), job, "check")
    made = manifest.load(job)
    result = health.load(job, made)
    assert result.images == 25 + 10 and result.content_hash == made.content_hash
    found = {item.id: item for item in result.findings}
    assert set(found) == {
        "exact_duplicates_across_splits",
        "exact_duplicates",
        "blank",
        "odd_aspect",
        "odd_mode",
    }
    leak = found["exact_duplicates_across_splits"]
    assert (leak.splits, leak.removable_count) == ({"train": 2, "val": 1}, 2)
    assert {split for split, _ in leak.removable} == {"train"}
    assert found["odd_mode"].records == found["odd_aspect"].records == found["blank"].records
    sizes = health.load_statistics(job, made, "val")
    assert sorted(set(zip(sizes["width"].tolist(), sizes["height"].tolist(), strict=True))) == [
        (30, 20),
        (500, 20),
    ]
    events = [event for event in read(job / "check" / "events.jsonl")[0] if isinstance(event, Progressed)]
    assert [event.fraction for event in events] == sorted(event.fraction for event in events)
    assert len(events) >= 2 and events[-1].fraction == 1
    assert not list(job.glob(".health*"))


def test_damaged_records_are_reported_and_leave_no_result(job: Path) -> None:
    shard = next(job.glob("val-*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[50] ^= 255
    shard.write_bytes(data)
    with pytest.raises(UserFault, match="damaged"):
        run(check_dataset, CheckDataset(dataset=str(job), processes=1), job, "check")
    assert not (job / "health.json").exists()


def test_shards_that_differ_from_the_manifest_are_named(job: Path) -> None:
    """The length before a record is not read with it; only the hash of the shard reveals this damage."""
    run(check_dataset, CheckDataset(dataset=str(job), processes=1), job, "intact")
    names = [shard for split in manifest.load(job).splits.values() for shard in split.shards]
    for name in names:
        data = bytearray((job / name).read_bytes())
        data[0] ^= 1
        (job / name).write_bytes(data)
    with pytest.raises(UserFault) as raised:
        run(check_dataset, CheckDataset(dataset=str(job), processes=1), job, "check")
    assert all(f"{name} does not match its SHA-256 hash" in raised.value.message for name in names)
    assert not (job / "health.json").exists()


def test_creating_the_dataset_again_removes_the_result(job: Path) -> None:
    run(check_dataset, CheckDataset(dataset=str(job), processes=1), job, "check")
    assert len(list(job.glob("health*"))) == 4
    manifest.remove_products(job)
    assert not list(job.glob("health*"))
