"""Versions of a dataset: excluded, relabeled and moved records, shares, new splits and sizes."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from digits.core import events
from digits.data.images import images
from digits.data.manifest import CHANGES_FILE, SplitRecords, load
from digits.data.records import records
from digits.data.records.index import find_names
from digits.data.records.records import Record, SplitReader
from digits.data.sources.plan import Progress, UnusableSource
from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import IGNORED, Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.kinds.recipes import build_recipe
from digits.kinds.versions import versions
from digits.kinds.versions.additions import Additions, divide, find
from digits.kinds.versions.versions import CreateVersion, Edits
from digits.worker.creation.report import Report
from digits.worker.failure import UserFault
from tests.datasets import manifest_of, photos
from tests.kinds.dataset_forms import create

CLASSES = ["cat", "dog", "owl"]
SIDE = 8
KINDS = {
    ClassIndex: "image-classification",
    LabelSet: "image-multilabel",
    Numbers: "image-regression",
    Boxes: "image-object-detection",
    Mask: "image-segmentation",
}


def dataset(folder: Path, spec: Target, features: Any, counts: dict[str, int]) -> Path:
    """Write a dataset whose image ``number`` of each split is uniformly gray, and return its folder."""
    folder.mkdir()
    splits = {}
    for split, count in counts.items():
        name = records.shard_name(split, 0, 1)
        groups = [number % 3 for number in range(count)] if spec.classes else []
        with records.ShardWriter(folder / name) as writer:
            for number in range(count):
                data = images.encode(np.full((SIDE, SIDE, 1), number * 5 + len(split), np.uint8), "png")
                source = {"source_size": (100, 90), "source_mode": "P"}
                image_name = f"{split}{number}.png".encode()
                record = Record(data, "png", SIDE, SIDE, 1, features(number), image_name, **source)
                writer.add(records.encode_example(record), groups[number] if groups else -1)
        per_group = [groups.count(group) for group in range(3)] if groups else []
        splits[split] = SplitRecords(count=count, counts=per_group, bytes=writer.size_bytes, shards=[name])
    about = {"kind": KINDS[type(spec)], "groups": spec.labels, "splits": splits}
    manifest_of(spec, side=SIDE, **about).save(folder)
    return folder


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    def features(number: int) -> dict[str, Any]:
        return {"image/class/label": [number % 3], "image/class/text": [CLASSES[number % 3].encode()]}

    return dataset(tmp_path / "animals", ClassIndex.of(CLASSES), features, {"train": 30, "val": 9})


def make(tmp_path: Path, parent: Path, edits: Edits | None = None, **options: Any) -> Path:
    """Create a version of ``parent`` and return its folder."""
    folder = tmp_path / "version"
    folder.mkdir()
    if edits:
        (folder / "edits.json").write_bytes(msgspec.json.encode(edits))
        options["edits"] = str(folder / "edits.json")
    settings = {"width": SIDE, "height": SIDE, "channels": 1, "encoding": "png", "processes": 2} | options
    create(
        CreateVersion(kind=load(parent).kind, parent=str(parent), parent_name="animals", **settings), folder
    )
    return folder


def contents(folder: Path) -> dict[str, dict[str, Record]]:
    found = {}
    for name, split in load(folder).splits.items():
        with SplitReader(folder, split) as reader:
            found[name] = {(record := reader.read(number)).filename: record for number in range(len(reader))}
    return found


def labels(found: dict[str, Record]) -> dict[str, int]:
    return {name: int(record.features["image/class/label"][0]) for name, record in found.items()}


def test_an_unchanged_version_has_the_same_records(tmp_path: Path, animals: Path) -> None:
    manifest = load(animals)
    manifest.padding = (20, 30)  # of the source images
    manifest.save(animals)
    version = make(tmp_path, animals)
    assert contents(version) == contents(animals)
    assert load(version).padding == (20, 30)


def test_the_names_of_records_are_found(tmp_path: Path, animals: Path) -> None:
    folder = make(tmp_path, animals)
    manifest = load(folder)
    assert len(find_names(folder, manifest.splits["train"], "train2")) == 11
    assert len(find_names(folder, manifest.splits["val"], "val")) == 9
    assert not len(find_names(folder, manifest.splits["train"], "/"))


def test_edits_change_single_records(tmp_path: Path, animals: Path) -> None:
    edits = Edits(
        exclude=[("train", 4), ("val", 0)],
        relabel=[("train", 1, 2), ("val", 2, 0)],
        move=[("train", 6, "val"), ("train", 7, "test"), ("val", 2, "train")],
    )
    assert edits.describe() == "2 images excluded, 2 images relabeled, 3 images moved"
    folder = make(tmp_path, animals, edits)
    before, after = contents(animals), contents(folder)
    left = {"train4.png", "train6.png", "train7.png"}
    assert set(after["train"]) == set(before["train"]) - left | {"val2.png"}
    assert set(after["val"]) == set(before["val"]) - {"val0.png", "val2.png"} | {"train6.png"}
    assert set(after["test"]) == {"train7.png"}
    everything = {name: record for split in before.values() for name, record in split.items()}
    expected = labels(everything) | {"train1.png": 2, "val2.png": 0}
    for split in after.values():
        for name, record in split.items():
            assert record.data == everything[name].data
            assert record.features["image/class/text"] == [CLASSES[expected[name]].encode()]
        assert labels(split) == {name: expected[name] for name in split}
    manifest = load(folder)
    counts = Counter(labels(after["train"]).values())
    assert manifest.splits["train"].counts == [counts[place] for place in range(3)]
    mean = np.mean([record.as_array() for record in after["train"].values()])
    assert manifest.mean_pixel == pytest.approx([mean])
    assert versions.read_changes(folder, 3) == [
        ("train", 1, "train1.png", "relabeled", "dog", "owl"),
        ("train", 4, "train4.png", "excluded", "dog", ""),
        ("train", 6, "train6.png", "moved", "train", "val"),
    ]
    assert len(versions.read_changes(folder, 100)) == 7


def one_thing() -> bytes:
    """A mask with a thing at the top left."""
    pixels = np.zeros((SIDE, SIDE, 1), np.uint8)
    pixels[:4, :2] = 1
    return images.encode(pixels, "png")


def half_ignored(number: int) -> dict[str, Any]:
    """Half of the pixels of the first image are things, but only a quarter of those that remain of it."""
    pixels = np.zeros((SIDE, SIDE, 1), np.uint8)
    pixels[:, : 4 if number == 0 else 0] = 1
    pixels[:, 6:] = IGNORED if number == 1 else pixels[:, 6:]
    return {"image/segmentation/class/encoded": [images.encode(pixels, "png")]}


NONE = [-1] * 5
# The left and the right quarter of each image are cut off: half of the first box remains, and nothing of the others.
CROPPED = {
    0: [[0, 0, 4, 8, 0], [3, 2, 5, 6, 1]],
    1: [[0, 0, 2, 8, 1], [0, 1, 8, 7, 0], [1, 0, 3, 1, -2]],
    2: [[6, 0, 8, 8, 1]],
}
CAR = Boxes.of(["car", "van"], 3)
FILLED = np.full((32, 16), IGNORED)
FILLED[8:24] = 0
FILLED[8:16, :4] = 1


@dataclass
class Case:
    """A dataset with a target, a version of it, and the values that the version has."""

    target: Target
    features: Any
    counts: dict[str, int]
    edits: Edits | None = None
    options: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # by image
    groups: tuple[list[str], list[int]] | None = None  # and their counts
    class_counts: list[int] | None = None
    statistics: tuple[list[float], list[float]] | None = None  # mean and standard deviation


CASES = {
    # All records have the label a; those with an even number also have b. Records are grouped by the rarest label.
    "labels": Case(
        LabelSet.of(["a", "b", "c"], [1, 0.5, 0], [0, 0.5, 0]),
        lambda number: {"target/labels": [1.0, float(number % 2 == 0), 0.0]},
        {"train": 4},
        Edits(
            add_labels=[("train", 0, 2), ("train", 1, 1)],
            remove_labels=[("train", 0, 1), ("train", 3, 0), ("train", 3, 2)],
        ),
        values={f"train{n}.png": row for n, row in enumerate([[1, 0, 1], [1, 1, 0], [1, 1, 0], [0, 0, 0]])},
        groups=(["b", "c", "no label"], [2, 1, 1]),
        class_counts=[3, 2, 1, 1],
    ),
    "frequencies of labels": Case(
        LabelSet.of(["a", "b"], [1, 0.5], [0, 0.5]),
        lambda number: {"target/labels": [1.0, float(number % 2 == 0)]},
        {"train": 4},
        Edits(exclude=[("train", 0), ("train", 2)]),
        statistics=([1, 0], [0, 0]),
    ),
    "numbers": Case(
        Numbers.of(["x", "y"], [0, 0], [1, 1]),
        lambda number: {"target/numbers": [number / 2, -1.0]},
        {"train": 4, "val": 2},
        Edits(set_numbers=[("train", 1, 0, -3.5), ("train", 1, 1, 2), ("val", 0, 1, 0.25)]),
        values={"train1.png": [-3.5, 2], "train2.png": [1, -1], "val0.png": [0, 0.25]},
        groups=(["-3.5", "0", "0.5", "1", "1.5"], [1, 1, 0, 1, 1]),
    ),
    "statistics of numbers": Case(
        Numbers.of(["x", "y"], [1.5, 7], [1.118, 0]),
        lambda number: {"target/numbers": [float(number), 7.0]},
        {"train": 4, "val": 2},
        Edits(exclude=[("train", 3)], set_numbers=[("train", 2, 0, 8)], move=[("val", 1, "train")]),
        statistics=([2.5, 7], [float(np.std([0, 1, 8, 1])), 0]),
    ),
    "masks": Case(
        Mask.of(["background", "thing"], SIDE, SIDE),
        lambda number: {"image/segmentation/class/encoded": [one_thing()]},
        {"train": 2},
        options={"width": 16, "height": 32, "resize_mode": "fill"},
        values={"train0.png": FILLED.tolist()},
    ),
    "shares of classes": Case(
        Mask.of(["sky", "thing"], SIDE, SIDE, mean=[0.75, 0.25], std=[0.25, 0.25]),
        half_ignored,
        {"train": 2},
        Edits(exclude=[("train", 1)]),
        {"width": 4, "height": 8, "resize_mode": "crop"},
        groups=(["sky"], [1]),
        class_counts=[1, 1, 0],
        statistics=([0.5, 0.5], [0, 0]),
    ),
    "boxes": Case(
        Boxes.of(["car", "van"], 2),
        lambda number: {"target/boxes": [2.0, 0, 6, 8, 1, *NONE]},
        {"train": 2},
        options={"width": 16, "height": 4},
        values={"train1.png": [[4, 0, 12, 4, 1], NONE]},
    ),
    "cropped boxes": Case(
        CAR,
        lambda number: CAR.encode(np.array(CROPPED[number], np.float32), SIDE, SIDE),
        {"train": 3},
        options={"width": 8, "height": 16, "resize_mode": "crop"},
        values={
            "train0.png": [[0, 0, 4, 16, 0], [2, 4, 6, 12, 1], NONE],
            "train1.png": [[0, 2, 8, 14, 0], [0, 0, 2, 2, -2], NONE],
            "train2.png": [NONE] * 3,
        },
        groups=(["car", "van", "no objects"], [1, 1, 1]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_targets_are_edited_and_resized_with_their_images(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    folder = make(
        tmp_path,
        dataset(tmp_path / "parent", case.target, case.features, case.counts),
        case.edits,
        **case.options,
    )
    manifest, found = (
        load(folder),
        {name: r for split in contents(folder).values() for name, r in split.items()},
    )
    assert {name: found[name].target(manifest.target).tolist() for name in case.values} == case.values
    train = manifest.splits["train"]
    if case.groups:
        assert (manifest.groups, train.counts) == case.groups
    if case.class_counts:
        assert train.class_counts == case.class_counts
    if case.statistics:
        assert (manifest.target.mean, manifest.target.std) == tuple(map(pytest.approx, case.statistics))
    if name == "labels":
        assert case.edits and case.edits.describe() == "3 images relabeled"
    if name == "masks":
        assert manifest.target.shape == [32, 16]
    if name == "cropped boxes":
        first = found["train0.png"].features
        assert list(first["image/object/bbox/xmax"]) == [0.5, 0.75]
        assert list(first["image/object/class/text"]) == [b"car", b"van"]
        log = events.read(folder / "create" / "events.jsonl")[0]
        counted = [event for event in log if isinstance(event, events.Counted)]
        assert {(*event.labels, *event.counts) for event in counted} == {("car", "van", 2, 1)}


def test_a_share_of_each_class_is_kept(tmp_path: Path, animals: Path) -> None:
    manifest = load(make(tmp_path, animals, keep=50.0))
    assert manifest.splits["train"].counts == [5, 5, 5]
    assert manifest.splits["val"].counts == [2, 2, 2]


def test_all_records_are_divided_again_and_resized(tmp_path: Path, animals: Path) -> None:
    folder = make(tmp_path, animals, pct_val=0, pct_test=50, width=12, height=5, encoding="none")
    counts = {name: split.counts for name, split in load(folder).splits.items()}
    assert counts == {"train": [7, 7, 7], "test": [6, 6, 6]}
    found = contents(folder)
    assert len(found["train"]) + len(found["test"]) == 39 and not set(found["train"]) & set(found["test"])
    assert any(name.startswith("val") for name in found["train"])
    # The same records in every release.
    moved = [f"train{number}.png" for number in (0, 1, 15, 16, 17, 2, 3, 4, 5, 6, 7, 8)]
    assert sorted(found["test"]) == [*moved, *(f"val{number}.png" for number in range(6))]
    pixels = found["test"]["train3.png"].as_array()
    assert pixels.shape == (5, 12, 1) and (pixels == 20).all()


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (Edits(exclude=[("train", 30)]), "no record 30 in the split “train”"),
        (Edits(move=[("test", 0, "train")]), "no record 0 in the split “test”"),
        (Edits(relabel=[("train", 0, 3)]), "no class 3"),
        (Edits(add_labels=[("train", 0, 1)]), "Labels can be added"),
        (Edits(set_numbers=[("train", 0, 0, 1)]), "Numbers can be set"),
        (Edits(exclude=[("train", number) for number in range(30)]), "No training image is left"),
    ],
)
def test_impossible_edits_are_refused(tmp_path: Path, animals: Path, edits: Edits, message: str) -> None:
    with pytest.raises(UserFault, match=message):
        make(tmp_path, animals, edits)


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (Edits(relabel=[("train", 0, 0)]), "one class each"),
        (Edits(set_numbers=[("train", 0, 2, 0)]), "no number 2"),
        (Edits(set_numbers=[("train", 9, 0, 0)]), "no record 9"),
        (Edits(set_numbers=[("train", 0, 0, 1e39)]), "out of range"),
    ],
)
def test_impossible_numbers_are_refused(tmp_path: Path, edits: Edits, message: str) -> None:
    parent = dataset(tmp_path / "numbers", Numbers.of(["x", "y"], [0, 0], [1, 1]), lambda _: {}, {"train": 4})
    with pytest.raises(UnusableSource, match=message):
        versions.check_edits(edits, load(parent))


def test_a_deleted_parent_is_named(tmp_path: Path, animals: Path) -> None:
    (animals / "dataset.json").unlink()
    recipe = CreateVersion(kind="image-classification", parent=str(animals), parent_name="my animals")
    log = events.EventLog(tmp_path / "events.jsonl")
    with closing(log), pytest.raises(UnusableSource, match="my animals cannot"):
        versions.read(recipe, Report(log))


def test_the_recipe_of_a_version_survives_a_file(animals: Path) -> None:
    recipe = CreateVersion(kind="image-classification", parent=str(animals), keep=10.0, pct_val=5)
    assert build_recipe(json.loads(json.dumps(recipe.as_json()))) == recipe


def added(folder: Path, **options: Any) -> Additions:
    return Additions(folder=str(folder), **options)


def test_added_images_extend_classes_and_leave_the_others_in_their_splits(
    tmp_path: Path, animals: Path
) -> None:
    folder = photos(
        tmp_path / "new", *(f"dog/{number}.png" for number in range(10)), "emu/1.png", "emu/2.png"
    )
    with pytest.raises(UnusableSource, match="does not have 1 class of the new images: emu"):
        find(added(folder), load(animals).target, Progress())
    version = make(tmp_path, animals, Edits(exclude=[("train", 0)]), added=added(folder, new_classes=True))
    before, after, manifest = contents(animals), contents(version), load(version)
    assert manifest.target.names == manifest.groups == [*CLASSES, "emu"]
    del before["train"]["train0.png"]
    for split, found in before.items():
        assert found.items() <= after[split].items()
    names = {split: sorted(after[split].keys() - before[split].keys()) for split in after}
    dogs = {split: sum(name.startswith("dog/") for name in found) for split, found in names.items()}
    assert dogs == {"train": 8, "val": 2}  # 10 and 3 before
    assert [name.startswith("emu/") for name in names["train"] + names["val"]].count(True) == 2
    assert labels(after["train"])[next(name for name in names["train"] if "emu" in name)] == 3
    rows = (version / CHANGES_FILE).read_text().splitlines()
    assert sum(",added,," in row for row in rows) == 12 and len(rows) == 14


def test_all_added_images_get_a_class_and_a_split(tmp_path: Path, animals: Path) -> None:
    folder = photos(tmp_path / "new", "1.png", "dog/2.png")
    shutil.copy(folder / "1.png", folder / "again.png")
    version = make(tmp_path, animals, added=added(folder, label="owl", split="test"))
    assert labels(contents(version)["test"]) == {"1.png": 2, "dog/2.png": 2}
    assert contents(version)["train"] == contents(animals)["train"]


def test_folders_of_added_images_are_labels_or_none(tmp_path: Path) -> None:
    def features(number: int) -> dict[str, Any]:
        return {"target/labels": [float(number % 2), 1.0, 0.0]}

    parent = dataset(tmp_path / "labels", LabelSet.of(CLASSES, [0, 0, 0], [1, 1, 1]), features, {"train": 4})
    folder = photos(tmp_path / "new", "owl/1.png", "2.png")
    found = contents(make(tmp_path, parent, added=added(folder)))["train"]
    assert found["owl/1.png"].features["target/labels"] == [0, 0, 1]
    assert found["2.png"].features["target/labels"] == [0, 0, 0]
    photos(folder, "emu/1.png")
    with pytest.raises(UnusableSource, match="not named like a label of the dataset: emu"):
        find(added(folder), load(parent).target, Progress())


@pytest.mark.parametrize(
    ("before", "count", "expected"),
    [
        ({"train": 75, "val": 25}, 4, {"train": 3, "val": 1}),
        ({"train": 7, "val": 1}, 1, {"train": 1}),  # validation images are rare in this class
        ({"train": 9}, 5, {"train": 5}),  # the class was not validated
        ({}, 4, {"train": 3, "val": 1}),  # a new class
        ({"val": 3}, 4, {"train": 3, "val": 1}),
        ({"train": 60, "val": 20, "test": 20}, 10, {"train": 6, "val": 2, "test": 2}),
    ],
)
def test_a_class_keeps_the_proportions_of_its_splits(
    before: dict[str, int], count: int, expected: dict[str, int]
) -> None:
    files = [str(number) for number in range(count)]
    assert Counter(divide(files, before, {"train": 300, "val": 100})) == expected


def test_images_are_added_only_to_datasets_of_classes_or_labels(tmp_path: Path) -> None:
    parent = dataset(
        tmp_path / "boxes", Boxes.of(CLASSES, 1), lambda number: {"target/boxes": [-1.0] * 5}, {"train": 2}
    )
    with pytest.raises(UserFault, match="only to datasets whose images have classes or labels"):
        make(tmp_path, parent, added=added(photos(tmp_path / "new", "dog/1.png")))
