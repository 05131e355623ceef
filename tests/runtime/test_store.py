"""Jobs in their folders: saving and loading, damaged jobs, and the lock of the jobs folder."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from pathlib import Path

import pytest

from digits.core import job as jobs
from digits.core.errors import Damaged
from digits.core.job import DamagedJob, Job
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.status import Status
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import JOB_TYPES, DatasetJob
from digits.runtime.store import Store, StoreInUse, StoreLost
from tests.deep_folder import deep_folder
from tests.failing_disk import failing_disk
from tests.power_loss import Recording
from tests.waiting import wait_until


def dataset(store: Store, name: str = "pictures") -> DatasetJob:
    folder = store.new_folder()
    recipe = CreateClassification(train=FolderSplit(folder="/data"))
    job = DatasetJob.create(folder, name=name, recipe=recipe)
    store.add(job)
    return job


def model(store: Store, parent: DatasetJob) -> ModelJob:
    folder = store.new_folder()
    recipe = Train(dataset=str(parent.folder))
    job = ModelJob.create(folder, name="net", recipe=recipe, dataset_id=parent.id)
    store.add(job)
    return job


def reopened(store: Store) -> Store:
    store.close()
    again = Store(store.folder, JOB_TYPES)
    again.load()
    return again


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "jobs", JOB_TYPES)


def test_a_job_survives_a_power_cut_from_its_submission_to_its_deletion(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(store.folder, tmp_path / "recording")
    recording.start(monkeypatch)
    job = dataset(store)
    assert f"{job.id}/job.json" in recording.surviving()
    store.remove(job)
    assert job.id not in recording.surviving()
    store.close()


def test_jobs_are_the_same_after_a_restart(store: Store) -> None:
    first = dataset(store)
    second = model(store, first)
    first.notes, first.owner = "on a rainy day", "ada"
    first.tasks[0].move(Status.RUN)
    assert [first.update_status() for _ in range(2)] == [True, False]
    first.save()
    again = reopened(store)
    assert again.get(first.id, Job).as_json() == first.as_json()
    assert again.get(second.id, Job).as_json() == second.as_json()
    assert [child.id for child in again.children(again.get(first.id, Job))] == [second.id]
    again.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"schema": 1}',
        b'{"schema": 1, "type": "unknown"}',
        b"\xff\xfe",
        b'{"schema": 99, "type": "model"}',
    ],
)
def test_a_damaged_job_is_listed_and_left_alone(store: Store, content: bytes) -> None:
    job = dataset(store)
    (job.folder / "job.json").write_bytes(content)
    again = reopened(store)
    (damaged,) = again.all(DamagedJob)
    assert damaged.id == job.id and "job.json" in damaged.failure.message
    assert (job.folder / "job.json").read_bytes() == content
    with pytest.raises(Damaged, match=r"job\.json"):
        again.get(job.id, DatasetJob)
    with pytest.raises(Damaged):
        damaged.save()
    again.remove(damaged)
    assert not job.folder.exists()
    again.close()


def test_a_symlink_in_place_of_a_job_is_not_followed(store: Store, tmp_path: Path) -> None:
    job = dataset(store)
    content = (job.folder / "job.json").read_text()
    (job.folder / "job.json").unlink()
    (tmp_path / "elsewhere.json").write_text(content)
    (job.folder / "job.json").symlink_to(tmp_path / "elsewhere.json")
    again = reopened(store)
    assert [damaged.id for damaged in again.all(DamagedJob)] == [job.id]
    again.close()


def test_unknown_keys_are_ignored_and_missing_ones_have_defaults(store: Store) -> None:
    job = model(store, dataset(store))
    body = json.loads((job.folder / "job.json").read_text())
    body["color"] = "green"
    body["recipe"]["flavour"] = "sweet"
    del body["notes"], body["recipe"]["mean"], body["device"]
    (job.folder / "job.json").write_text(json.dumps(body))
    again = reopened(store)
    kept = again.get(job.id, ModelJob)
    assert (kept.notes, kept.recipe.mean, kept.device) == ("", "image", "cpu")
    again.close()


def test_no_two_jobs_share_a_folder(store: Store) -> None:
    folders = {store.new_folder() for _ in range(50)}
    assert len(folders) == 50
    assert all(jobs.is_id(folder.name) for folder in folders)
    store.close()


@pytest.mark.parametrize(
    "text", ["", "..", "20200101-000000-abcd/..", "20200101-000000-ABCD", "x", ".server"]
)
def test_invalid_job_ids_are_refused(text: str) -> None:
    assert not jobs.is_id(text)


def test_a_short_wait_is_not_recorded(store: Store) -> None:
    job = dataset(store)
    start = job.history[0][1]
    for status, after in ((Status.WAIT, 1.0), (Status.RUN, 1.5), (Status.DONE, 9.0)):
        job.tasks[0].move(status, start + after)
        job.update_status(start + after)
    assert [code for code, _ in job.history] == [Status.INIT, Status.RUN, Status.DONE]
    assert job.elapsed == pytest.approx(7.5)
    store.close()


def test_leftovers_of_a_killed_server_are_removed(store: Store) -> None:
    job = dataset(store)
    (job.folder / ".job.json.1234abcd.tmp").touch()
    doomed = store.folder / f".deleted-{jobs.new_id()}"
    (doomed / "train").mkdir(parents=True)
    (store.folder / ".deleted-file").touch()
    unborn, imported, damaged = store.new_folder(), store.new_folder(), dataset(store).folder
    (unborn / "network.py").touch()
    (imported / "train").mkdir()
    (imported / ".job.json.1234abcd.tmp").touch()
    (damaged / "train").mkdir()
    (damaged / "job.json").unlink()
    again = reopened(store)
    assert [found.id for found in again.all(DatasetJob)] == [job.id]
    assert [found.id for found in again.all(DamagedJob)] == [damaged.name]
    wait_until(lambda: {path.name for path in store.folder.iterdir()} == {job.id, damaged.name, ".lock"})
    assert [path.name for path in job.folder.iterdir()] == ["job.json"]
    again.close()


def test_a_leftover_that_cannot_be_deleted_stops_no_start(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    job = dataset(store)
    with deep_folder(store.folder / ".deleted-1") as doomed:
        with failing_disk(doomed, errno.EIO):
            again = reopened(store)
            assert [found.id for found in again.all(Job)] == [job.id]
            wait_until(lambda: caplog.records)
        assert f"{doomed} cannot be deleted, will retry" in caplog.text
        assert again.maintain()
        wait_until(lambda: not doomed.exists())
    again.close()


def test_a_moved_jobs_folder_trains_on_its_own_datasets(store: Store, tmp_path: Path) -> None:
    trained = model(store, dataset(store))
    store.close()
    moved = store.folder.rename(tmp_path / "elsewhere")
    again = Store(moved, JOB_TYPES)
    again.load()
    job = again.get(trained.id, ModelJob)
    assert job.recipe_for(job.tasks[0]).as_json()["dataset"] == str(moved / trained.dataset_id)
    again.close()


@pytest.mark.parametrize("end", [Status.ABORT, Status.ERROR])
def test_a_training_without_a_snapshot_can_restart(store: Store, end: Status) -> None:
    job = model(store, dataset(store))
    for status in (Status.RUN, end):
        assert not job.can_resume
        job.tasks[0].move(status)
        job.update_status()
    assert job.can_resume
    job.resume()
    assert job.tasks[0].status is Status.INIT and job.recipe.resume
    store.close()


def test_a_failed_dataset_keeps_its_list_of_skipped_images(store: Store) -> None:
    job = dataset(store)
    shard = "train-00000-of-00002"
    halves = [f".{shard}.tfrecord.tmp", f".{shard}.index.tmp", ".dataset.json.12ab.tmp"]
    for name in (*halves, f"{shard}.tfrecord", f"{shard}.index", "labels.txt", "mean.npy", "skipped.csv"):
        (job.folder / name).touch()
    job.clear_away()
    assert {path.name for path in job.folder.iterdir()} == {"job.json", "skipped.csv"}
    store.close()


def test_a_removed_jobs_folder_is_detected_and_writing_stops(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    job = dataset(store)
    assert store.maintain()
    shutil.rmtree(store.folder)
    second = Store(store.folder, JOB_TYPES)  # another server can start there
    for _ in range(2):
        assert not store.maintain()
    assert store.problem is not None and "removed or replaced" in store.problem.message
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    for write in (
        store.new_folder,
        lambda: store.edit(job, name="other"),
        lambda: store.remove(job),
        store.check,
    ):
        with pytest.raises(StoreLost, match="removed or replaced"):
            write()
    assert job.name == "pictures" and store.all(Job) == [job]
    assert [path.name for path in store.folder.iterdir()] == [".lock"]
    second.close()
    store.close()


def test_a_restored_jobs_folder_is_used_again(store: Store, tmp_path: Path) -> None:
    job = dataset(store)
    away = store.folder.rename(tmp_path / "away")
    assert not store.maintain()
    store.save(job)
    away.rename(store.folder)
    assert store.maintain()
    assert store.problem is None
    store.edit(job, name="other")
    store.close()


def test_a_removed_lock_file_is_recreated(store: Store) -> None:
    (store.folder / ".lock").unlink()
    assert store.maintain()
    with pytest.raises(StoreInUse):
        Store(store.folder, JOB_TYPES)
    store.close()


def test_a_lock_taken_by_another_server_is_detected(store: Store) -> None:
    (store.folder / ".lock").unlink()
    second = Store(store.folder, JOB_TYPES)
    assert not store.maintain()
    assert store.problem is not None and "another server" in store.problem.message
    second.close()
    assert store.maintain()  # This server owns the folder again.
    store.close()


def test_a_job_that_removes_its_folder_does_not_affect_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    lost, other = dataset(store), dataset(store)
    shutil.rmtree(lost.folder)
    for _ in range(3):
        store.save(lost)
    assert store.maintain() and store.problem is None
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    store.edit(other, name="other")
    store.remove(lost)
    assert store.all(Job) == [other]
    store.close()
