"""The task that creates a dataset, from recipe to files, and its errors."""

from __future__ import annotations

import csv
import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from digits.core import events
from digits.core.recipe import CreateDataset
from digits.data import manifest
from digits.data.images import images
from digits.data.records import records
from digits.data.samples.catalog import SAMPLES, Sample
from digits.data.samples.formats import LabeledImages
from digits.data.sources.plan import ImageFolder, Plan, SplitPlan
from digits.data.targets.class_index import ClassIndex
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.worker.creation import report, shards
from digits.worker.failure import UserFault
from digits.worker.run import run_task
from digits.worker.tasks import create_dataset
from tests.worker.lazily import tf

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_process_remains")]

COLOURS = {"red_cars": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


def make_source(root: Path, count: int = 8, size: tuple[int, int] = (12, 8)) -> Path:
    """Create three classes of plain images, each slightly different."""
    for name, color in COLOURS.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            image = Image.new("RGB", size, color)
            image.putpixel((number % size[0], number // size[0]), (number, number, 0))
            image.save(root / name / f"{number:03d}.png")
    return root


class Made:
    """The job folder of a finished task."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = manifest.load(folder)
        self.events = events.read(folder / "create" / "events.jsonl")[0]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def records(self, split: str) -> list[records.Record]:
        with records.SplitReader(self.folder, self.manifest.splits[split]) as reader:
            return [reader.read(number) for number in range(len(reader))]

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir()) if path.is_file()}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job" / "create").mkdir(parents=True)
    return tmp_path / "job"


def recipe(source: Path, **options: Any) -> CreateClassification:
    settings = {"width": 12, "height": 8, "processes": 2, "seed": 7} | options
    bounds = {name: settings.pop(name) for name in ("min_per_class", "max_per_class") if name in settings}
    return CreateClassification(train=FolderSplit(folder=str(source), **bounds), **settings)


def make(job: Path, task: CreateClassification) -> Made:
    (job / "create").mkdir(parents=True, exist_ok=True)
    log = events.EventLog(job / "create" / "events.jsonl")
    try:
        create_dataset.run(task, job / "create", log)
    finally:
        log.close()
    return Made(job)


def fault(job: Path, task: CreateClassification) -> UserFault:
    """Run the task and return its error; only the list of skipped images may remain."""
    with pytest.raises(UserFault) as caught:
        make(job, task)
    assert {path.name for path in job.iterdir()} <= {"create", manifest.SKIPPED_FILE}
    return caught.value


def skipped_rows(job: Path) -> list[dict[str, str]]:
    with open(job / manifest.SKIPPED_FILE, newline="") as file:
        return list(csv.DictReader(file))


def test_the_content_hash_identifies_the_records(job: Path, source: Path) -> None:
    first = make(job, recipe(source, processes=1)).manifest
    for split in first.splits.values():
        assert split.hashes == [
            hashlib.sha256((job / shard).read_bytes()).hexdigest() for shard in split.shards
        ]
    assert make(job, recipe(source, processes=2)).manifest.content_hash == first.content_hash
    assert make(job, recipe(source, seed=8)).manifest.content_hash != first.content_hash
    assert make(job, recipe(source, width=13)).manifest.content_hash != first.content_hash


def test_other_programs_can_read_all_features(job: Path, source: Path, in_child: Any) -> None:
    made = make(job, recipe(source))
    expected = made.records("train")[0]
    label = expected.features["image/class/label"][0]
    assert in_child(_first_record, job) == {
        "image/encoded": expected.data,
        "image/filename": expected.source,
        "image/format": b"png",
        "image/height": 8,
        "image/width": 12,
        "image/channels": 3,
        "image/class/label": label,
        "image/class/text": made.manifest.target.labels[label].encode(),
        "image/source/width": 12,
        "image/source/height": 8,
        "image/source/mode": b"RGB",
    }


def _first_record(folder: Path) -> dict[str, Any]:
    """Read a record as in the documentation."""
    spec = json.loads((folder / "feature_spec.json").read_text())
    features = {
        name: tf.io.VarLenFeature(item["dtype"])
        if None in item["shape"]
        else tf.io.FixedLenFeature(item["shape"], item["dtype"])
        for name, item in spec.items()
    }
    record = next(iter(tf.data.TFRecordDataset(tf.io.gfile.glob(str(folder / "train-*.tfrecord")))))
    found = tf.io.parse_single_example(record, features)
    return {name: value.numpy() for name, value in found.items()}


def test_a_dataset_is_created_from_a_folder(job: Path, source: Path) -> None:
    made = make(job, recipe(source))
    dataset = made.manifest
    assert dataset.target.labels == ["blue", "green", "red_cars"]
    assert dataset.shape == (8, 12, 3)
    assert {name: (split.count, split.counts) for name, split in dataset.splits.items()} == {
        "train": (18, [6, 6, 6]),
        "val": (6, [2, 2, 2]),
    }
    assert (job / "labels.txt").read_text() == "blue\ngreen\nred_cars\n"
    for record in made.records("train") + made.records("val"):
        original = Image.open(source / record.filename)
        assert np.array_equal(record.as_array(), np.asarray(original))
        name = record.filename.split("/")[0]
        assert record.features["image/class/text"] == [name.encode()]
        assert dataset.target.labels[record.features["image/class/label"][0]] == name
        assert (record.format, record.height, record.width, record.channels) == ("png", 8, 12, 3)
    assert dataset.splits["train"].bytes == sum(
        (job / name).stat().st_size for name in dataset.splits["train"].shards
    )


def test_the_mean_is_computed_from_training_images(job: Path, source: Path) -> None:
    made = make(job, recipe(source))
    expected = np.mean([record.as_array() for record in made.records("train")], axis=0, dtype=np.float64)
    mean = np.load(job / "mean.npy", allow_pickle=False)
    assert (mean.dtype, mean.shape) == (np.float32, (8, 12, 3))
    assert np.array_equal(mean, expected.astype(np.float32))
    assert np.array_equal(images.load(job / "mean.png", 3), np.rint(expected))
    assert made.manifest.mean_pixel == pytest.approx(expected.mean(axis=(0, 1)))


def test_plain_files_are_stored_unchanged(job: Path, source: Path) -> None:
    for record in make(job, recipe(source)).records("train"):
        assert record.data == (source / record.filename).read_bytes()


def test_jpeg_files_are_not_reencoded(job: Path, tmp_path: Path) -> None:
    source = make_source(tmp_path / "source")
    for path in list(source.rglob("*.png")):
        Image.open(path).save(path.with_suffix(".jpg"))
        path.unlink()
    for record in make(job, recipe(source, encoding="jpg")).records("train"):
        assert record.format == "jpeg"
        assert record.data == (source / record.filename).read_bytes()


def test_every_encoding_size_and_channel_count(tmp_path: Path, source: Path) -> None:
    formats = {"png": "png", "jpg": "jpeg", "none": "raw"}
    for number, (mode, encoding) in enumerate(itertools.product(images.RESIZE_MODES, formats)):
        channels = (1, 3)[number % 2]
        options = {"encoding": encoding, "channels": channels, "resize_mode": mode, "processes": 1}
        made = make(tmp_path / f"job-{number}", recipe(source, **options, width=5, height=9))
        assert (made.manifest.encoding, made.manifest.resize_mode) == (encoding, mode)
        for record in made.records("val"):
            assert record.format == formats[encoding]
            assert record.as_array().shape == (9, 5, channels)


def test_the_number_of_processes_does_not_affect_the_result(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RECORDS_PER_SHARD", 3)
    options = {"resize_mode": "fill", "width": 9, "height": 9}
    one, two, five = (
        make(tmp_path / f"job-{processes}", recipe(source, processes=processes, **options)).files()
        for processes in (1, 2, 5)
    )
    assert len(one) > 15
    assert one == two == five


def test_the_seed_changes_the_split(tmp_path: Path, source: Path) -> None:
    one, two = (make(tmp_path / f"job-{seed}", recipe(source, seed=seed)).records("val") for seed in (1, 2))
    assert {record.filename for record in one} != {record.filename for record in two}


def test_events_report_the_progress(job: Path, source: Path) -> None:
    (source / "blue" / "broken.png").write_bytes(b"not an image")
    made = make(job, recipe(source, pct_val=0))
    counted = made.of(events.Counted)
    assert [(event.split, event.counts) for event in counted] == [("train", [9, 8, 8]), ("train", [8, 8, 8])]
    progress = made.of(events.Progressed)
    assert progress[0].doing == f"Reading {source}"
    fractions = [event.fraction for event in progress]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert [(event.path, event.split, event.label) for event in made.of(events.Skipped)] == [
        ("blue/broken.png", "train", "blue")
    ]


def test_separate_folders_become_separate_splits(job: Path, tmp_path: Path) -> None:
    train = make_source(tmp_path / "train", 4)
    val = make_source(tmp_path / "val", 3)
    test = make_source(tmp_path / "test", 2)
    shutil.copytree(val / "blue", val / "strange")
    bounds = {"min_per_class": 1, "max_per_class": 1}
    task = recipe(train, val=FolderSplit(folder=str(val)), test=FolderSplit(folder=str(test), **bounds))
    made = make(job, task)
    assert {name: split.counts for name, split in made.manifest.splits.items()} == {
        "train": [4, 4, 4],
        "val": [3, 3, 3],
        "test": [1, 1, 1],
    }
    warnings = [event.message for event in made.of(events.Warned)]
    assert any("strange" in message for message in warnings)
    assert "9 validation images are identical to training images." in warnings


def truncated(path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (30, 30, 3), np.uint8)
    Image.fromarray(noise).save(path, "PNG")
    os.truncate(path, path.stat().st_size // 2)


def huge(path: Path) -> None:
    Image.new("1", (8000, 8000)).save(path)


BAD_FILES = {
    "empty.png": (lambda path: path.write_bytes(b""), "the file is empty"),
    "text.png": (lambda path: path.write_text("hello"), "not an image (it looks like text)"),
    "truncated.png": (truncated, "truncated: the file ends too early"),
    "huge.png": (
        huge,
        "8000×8000 pixels is more than the limit of 50,000,000 pixels; the setting max_image_pixels raises it",
    ),
    "svg.png": (lambda path: path.write_text("<svg/>"), "not an image (it looks like SVG)"),
}


def test_invalid_files_are_skipped_and_listed(job: Path, source: Path) -> None:
    for name, (spoil, _) in BAD_FILES.items():
        spoil(source / "green" / os.fsdecode(b"caf\xe9-" + name.encode()))
    made = make(job, recipe(source, max_unusable_percent=50))
    rows = skipped_rows(job)
    assert {row["path"]: row["reason"] for row in rows} == {
        f"green/caf\\xe9-{name}": reason for name, (_, reason) in BAD_FILES.items()
    }
    assert {row["label"] for row in rows} == {"green"} and {row["split"] for row in rows} <= {"train", "val"}
    assert made.manifest.skipped == len(rows) == len(BAD_FILES)
    assert sum(split.count for split in made.manifest.splits.values()) == 24


def test_images_of_every_format_are_accepted(job: Path, source: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("CMYK", (9, 9), (0, 255, 255, 0)).save(source / "blue" / "cmyk.jpg")
    Image.new("RGB", (8, 12)).save(source / "blue" / "turned.jpg", exif=turned)
    Image.new("RGBA", (9, 9), (0, 0, 0, 0)).save(source / "blue" / "clear.png")
    Image.fromarray(np.full((9, 9), 0x8000, np.uint16)).save(source / "blue" / "deep.png")
    frames = [Image.new("L", (9, 9), value) for value in (10, 200)]
    frames[0].save(source / "blue" / "moving.gif", save_all=True, append_images=frames[1:])
    made = make(job, recipe(source, pct_val=0))
    assert made.manifest.skipped == 0
    pixels = {record.filename: record.as_array() for record in made.records("train")}
    assert pixels["blue/clear.png"].min() == 255
    assert (pixels["blue/deep.png"] == 0x80).all()
    assert (pixels["blue/moving.gif"] == 10).all()
    assert pixels["blue/cmyk.jpg"][:, :, 0].min() > 240


def test_skipped_events_are_capped_but_the_list_is_complete(
    job: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MAX_SKIPPED_EVENTS", 4)
    for number in range(9):
        (source / "blue" / f"bad-{number}.png").touch()
    made = make(job, recipe(source, max_unusable_percent=50))
    assert len(made.of(events.Skipped)) == 4
    assert len(skipped_rows(job)) == made.manifest.skipped == 9


@pytest.mark.parametrize(
    ("bad", "percent", "is_refused"), [(30, 50, True), (2, 5, True), (2, 10, False), (30, 100, False)]
)
def test_a_dataset_with_too_many_unusable_images_is_refused(
    job: Path, source: Path, bad: int, percent: float, is_refused: bool
) -> None:
    for number in range(bad):
        (source / "blue" / f"bad-{number}.png").touch()
    task = recipe(source, max_unusable_percent=percent)
    if not is_refused:
        assert make(job, task).manifest.skipped == bad
        return
    refusal = fault(job, task)
    assert len(skipped_rows(job)) == bad
    assert refusal.message.startswith(
        f"{bad} of {24 + bad} images cannot be used, more than the limit of {percent}%: the file is empty: blue/bad-0.png, "
    )
    enough = int(refusal.remedy["max_unusable_percent"])
    assert f"Raise “Limit of unusable images” (max_unusable_percent) to {enough} to create" in refusal.hint
    assert make(job, recipe(source, max_unusable_percent=enough)).manifest.skipped == bad
    assert bad * 100 > (24 + bad) * (enough - 1)


def test_a_large_dataset_is_refused_before_all_images_are_read(
    job: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_dataset, "MAX_IMAGES_COUNTED", 20)
    for number in range(10):
        (source / "blue" / f"bad-{number}.png").touch()
    refusal = fault(job, recipe(source, max_unusable_percent=5))
    found = len(skipped_rows(job))
    assert found * 100 > 34 * 5
    assert refusal.message.startswith(
        f"At least {found} of 34 images cannot be used, more than the limit of 5%: "
    )
    assert "or more to create the dataset without them" in refusal.hint
    assert int(refusal.remedy["max_unusable_percent"]) > 5


def test_skipped_images_are_one_warning_by_cause(job: Path, source: Path) -> None:
    for number in range(5):
        (source / "blue" / f"bad-{number}.png").touch()
    (source / "green" / "text.png").write_text("hello")
    made = make(job, recipe(source, max_unusable_percent=50))
    assert (
        "6 images skipped: the file is empty (5 times): blue/bad-0.png, blue/bad-1.png, blue/bad-2.png and 2 more; "
        "green/text.png: not an image (it looks like text). Copy these files again from where they came from."
    ) in [event.message for event in made.of(events.Warned)]


def test_a_class_that_loses_all_images_is_named(job: Path, source: Path) -> None:
    for path in (source / "blue").iterdir():
        path.write_bytes(b"")
    made = make(job, recipe(source, max_unusable_percent=50))
    assert made.manifest.splits["train"].counts[0] == 0
    assert "No usable training image is left in: blue." in [event.message for event in made.of(events.Warned)]


def test_at_least_two_classes_must_remain(job: Path, source: Path) -> None:
    shutil.rmtree(source / "green")
    for path in list((source / "blue").iterdir())[2:]:
        path.unlink()
    for path in (source / "blue").iterdir():
        path.write_bytes(b"")
    assert "left in 1 of 2 classes" in fault(job, recipe(source, pct_val=0, max_unusable_percent=50)).message


def test_a_source_without_two_classes_is_refused(job: Path, source: Path, tmp_path: Path) -> None:
    for name in ("green", "blue"):
        shutil.rmtree(source / name)
    assert fault(job, recipe(source)).message.startswith("Only one class")
    (tmp_path / "empty").mkdir()
    assert "No images found in" in fault(job, recipe(tmp_path / "empty")).message
    assert "nowhere cannot be read" in fault(job, recipe(tmp_path / "nowhere")).message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "Expected `int` >= 1 - at `$.width`"),
        ({"height": 5000}, "Expected `int` <= 4096 - at `$.height`"),
        ({"channels": 2}, "Invalid enum value 2 - at `$.channels`"),
        ({"resize_mode": "stretch"}, "Invalid enum value 'stretch' - at `$.resize_mode`"),
        ({"encoding": "gif"}, "Invalid enum value 'gif' - at `$.encoding`"),
        ({"pct_val": 60, "pct_test": 40}, "nothing is left to train on"),
        ({"pct_val": -1}, "Expected `float` >= 0.0 - at `$.pct_val`"),
        ({"kind": "image-tones"}, "unknown kind of dataset 'image-tones'"),
    ],
)
def test_impossible_recipes_are_refused(job: Path, source: Path, options: dict, message: str) -> None:
    recipe(source, **options).save(job / "create")
    assert run_task(job / "create") == 1
    failed = events.read(job / "create" / "events.jsonl")[0][-1]
    assert isinstance(failed, events.Failed) and message in failed.message
    assert not (job / "dataset.json").exists()


def test_a_folder_that_disappears_is_named(job: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = ImageFolder.read

    def vanish(folder: ImageFolder, name: str) -> bytes:
        shutil.rmtree(source, ignore_errors=True)
        return read(folder, name)

    monkeypatch.setattr(ImageFolder, "read", vanish)
    assert f"The folder {source} disappeared" in fault(job, recipe(source)).message


def test_a_file_that_disappears_is_skipped(job: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = ImageFolder.read

    def vanish(folder: ImageFolder, name: str) -> bytes:
        if name == "blue/003.png":
            (folder.root / name).unlink()
        if name == "blue/004.png":
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return read(folder, name)

    monkeypatch.setattr(ImageFolder, "read", vanish)
    make(job, recipe(source, pct_val=0, max_unusable_percent=10))
    assert [(row["path"], row["reason"]) for row in skipped_rows(job)] == [
        ("blue/003.png", "the file does not exist"),
        ("blue/004.png", "cannot be read: Permission denied"),
    ]


def test_a_full_disk_is_reported_with_sizes(job: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: records.ShardWriter, *record: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records.ShardWriter, "add", full)
    refusal = fault(job, recipe(source))
    size = r"[\d.]+ [kMGT]?B(ytes)?"
    assert re.fullmatch(
        f"The disk is full: the dataset needs about {size}, {size} are free.", refusal.message
    )
    assert str(job) in refusal.hint


def test_raw_records_larger_than_the_free_space_are_refused_early(
    job: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(job)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    assert "The disk is full" in fault(job, recipe(source, encoding="none")).message


def test_a_killed_process_ends_the_task(job: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*arguments: Any, **options: Any) -> images.Picture:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    monkeypatch.setattr(images, "open_picture", die)
    assert "most likely ran out of memory" in fault(job, recipe(source)).message


def test_an_unexpected_error_leaves_no_files(
    job: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images.Picture, "resize", lambda *arguments, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(job, recipe(source, width=5))
    assert [path.name for path in job.iterdir()] == ["create"]


def test_a_second_run_replaces_the_first(job: Path, source: Path) -> None:
    make(job, recipe(source))
    (job / ".train-00000-of-00009.tfrecord.tmp").touch()
    (job / "train-00003-of-00009.index").touch()
    (job / "train-00003-of-00009.names").touch()
    made = make(job, recipe(source, pct_val=0))
    assert sorted(made.files()) == sorted(
        [
            "dataset.json",
            "feature_spec.json",
            "labels.txt",
            "mean.jpg",
            "mean.npy",
            "mean.png",
            "skipped.csv",
            "train-00000-of-00001.index",
            "train-00000-of-00001.names",
            "train-00000-of-00001.tfrecord",
        ]
    )


def test_the_number_of_shards_grows_with_the_data(tmp_path: Path) -> None:
    def plan(count: int) -> Plan:
        split = SplitPlan(ImageFolder(tmp_path), ["a"] * count, [0] * count, [0] * count)
        return Plan(ClassIndex.of(["a", "b"]), {"train": split}, ["a", "b"])

    task = CreateDataset(kind="image-classification", width=28, height=28, channels=1)
    sizes = {count: len(shards.divide(plan(count), task)) for count in (1, 128, 129, 60_000)}
    assert sizes == {1: 1, 128: 1, 129: 2, 60_000: 32}
    large = CreateDataset(kind="image-classification", width=1024, height=1024, channels=3)
    pieces = shards.divide(plan(20_000), large)
    assert len(pieces) == 235
    assert pieces[0].start == 0
    assert all(one.stop == two.start for one, two in itertools.pairwise(pieces))
    assert pieces[-1].stop == 20_000


@pytest.fixture
def tiny_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample dataset that needs no download."""

    class Source:
        name = "memory"

        def fetch(self, folder: Path, report: Any) -> dict[str, bytes]:
            return {}

    def read(files: dict[str, bytes]) -> dict[str, LabeledImages]:
        pixels = np.arange(20 * 4 * 4, dtype=np.uint8).reshape(20, 4, 4, 1)
        labeled = LabeledImages(pixels, np.arange(20) % 2)
        return {"train": labeled, "test": LabeledImages(pixels[:6], np.arange(6) % 2)}

    sample = Sample(
        id="tiny",
        title="Tiny",
        detail="",
        width=4,
        height=4,
        channels=1,
        labels=("even", "odd"),
        web=Source(),
        read=read,
    )
    monkeypatch.setitem(SAMPLES, "tiny", sample)


def test_a_sample_is_downloaded_first(job: Path, tmp_path: Path, tiny_sample: None) -> None:
    place = tmp_path / "samples" / "tiny"
    task = recipe(place / "train", sample="tiny", width=4, height=4, channels=1)
    made = make(job, task)
    assert {name: split.counts for name, split in made.manifest.splits.items()} == {
        "train": [10, 10],
        "val": [3, 3],
    }
    doing = [event.doing for event in made.of(events.Progressed)]
    assert doing[0] == "Downloading Tiny from memory"
    fractions = [event.fraction for event in made.of(events.Progressed)]
    assert fractions == sorted(fractions)


def test_a_failed_sample_download_is_an_error(job: Path, tmp_path: Path) -> None:
    (tmp_path / "place" / "train").mkdir(parents=True)
    task = recipe(tmp_path / "place" / "train", sample="mnist")
    assert "already contains train" in fault(job, task).message


def test_the_task_needs_only_its_recipe(job: Path, source: Path) -> None:
    recipe(source).save(job / "create")
    assert run_task(job / "create") == 0
    made = Made(job)
    assert made.events[-1].result == {"images": 24, "skipped": 0}


def test_a_stopped_task_leaves_no_files(job: Path, tmp_path: Path, root: Path) -> None:
    source = make_source(tmp_path / "large", 1500, (60, 60))
    recipe(source, width=300, height=300).save(job / "create")
    program = "import sys; from pathlib import Path; from digits.worker.run import run_task; "
    program += "sys.exit(run_task(Path(sys.argv[1])))"
    command = [sys.executable, "-c", program, str(job / "create")]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(root)}) as process:
        while not list(job.glob(".train-*.tmp")):
            assert process.poll() is None
            time.sleep(0.02)
        children = psutil.Process(process.pid).children()
        process.terminate()
        assert process.wait(20) == 143
    assert children
    assert not any(child.is_running() for child in children)
    assert sorted(path.name for path in job.iterdir()) == ["create"]
    names = [type(event).__name__ for event in events.read(job / "create" / "events.jsonl")[0]]
    assert "Failed" not in names
    assert "Finished" not in names


def test_the_task_does_not_import_tensorflow(job: Path, source: Path, root: Path) -> None:
    recipe(source).save(job / "create")
    program = (
        "import sys; from pathlib import Path; from digits.worker.run import run_task; "
        "code = run_task(Path(sys.argv[1])); "
        "sys.exit(code or ('tensorflow' in sys.modules) or ('flask' in sys.modules))"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(job / "create")],
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True,
    )


def test_no_thread_remains(job: Path, source: Path) -> None:
    before = threading.active_count()
    make(job, recipe(source))
    assert threading.active_count() == before
