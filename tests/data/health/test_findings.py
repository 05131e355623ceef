"""Findings from the statistics of records, and the files that contain them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.core.files import UnreadableFile
from digits.data.health import findings as health_findings
from digits.data.health import health
from digits.data.health.findings import Result
from digits.data.images.statistics import MODES, SHAPE_LENGTH, STATISTICS_DTYPE
from digits.data.manifest import Manifest, SplitRecords
from digits.data.targets.class_index import ClassIndex
from tests import datasets


def rows(*changes: dict[str, Any]) -> Any:
    """Return statistics of ordinary, different images, with ``changes``."""
    found = np.zeros(len(changes), STATISTICS_DTYPE)
    random = np.random.default_rng(len(changes))
    found["pixels_hash"], found["perceptual_hash"] = random.integers(1 << 60, size=(2, len(changes)))
    found["brightness"], found["contrast"], found["low"], found["high"] = 120, 50, 10, 240
    found["width"], found["height"], found["mode"] = 32, 32, MODES.index("RGB")
    for row, change in zip(found, changes, strict=True):
        for name, value in change.items():
            row[name] = value
    return found


def manifest_of(counts: dict[str, list[int]], names: list[str], skipped: int = 0) -> Manifest:
    splits = {
        name: SplitRecords(count=sum(own), counts=own, bytes=1, shards=[]) for name, own in counts.items()
    }
    about = {"groups": names, "splits": splits, "skipped": skipped}
    return datasets.manifest_of(ClassIndex.of(names), side=32, channels=3, **about)


def find(
    manifest: Manifest, splits: dict[str, Any], groups: dict[str, Any] | None = None, **options: bool
) -> Result:
    """Return the findings of records whose perceptual hashes decide on their shapes, by default of one group."""
    random = {
        number: np.random.default_rng(number).normal(0, 20, SHAPE_LENGTH).clip(-127, 127)
        for found in splits.values()
        for number in found["perceptual_hash"].tolist()
    }
    shapes = {
        name: np.array([random[number] for number in found["perceptual_hash"].tolist()]).astype(np.int8)
        for name, found in splits.items()
    }
    groups = groups or {name: np.zeros(len(found), np.int32) for name, found in splits.items()}
    return health_findings.find(manifest, splits, shapes, groups, **options)


def check(**splits: Any) -> Result:
    return find(manifest_of({name: [len(found), 0] for name, found in splits.items()}, ["a", "b"]), splits)


def finding(result: Result, finding_id: str) -> health.Finding:
    return next(item for item in result.health.findings if item.id == finding_id)


def test_ordinary_images_have_no_findings() -> None:
    result = check(train=rows(*[{}] * 20), val=rows(*[{}] * 21))
    assert {item.id for item in result.health.findings} == {"few_images", "imbalance"}


def test_records_that_are_not_photos_are_only_compared() -> None:
    dark = {"pixels_hash": 7, "perceptual_hash": 9, "high": 3, "contrast": 0.1, "brightness": 1}
    similar = {"perceptual_hash": 9}
    splits = {"train": rows(dark, dark, similar, similar)}
    found = find(manifest_of({"train": [4, 0]}, ["a", "b"]), splits, appearance=False)
    assert {item.id for item in found.health.findings} == {"exact_duplicates", "few_images"}
    assert not found.health.histograms


def test_counts_of_groups_are_judged_if_wanted_and_drawn_if_many() -> None:
    names = [f"group {number}" for number in range(11)] + ["Group 1"]
    manifest = manifest_of({"train": [40, 20, *[1] * 10]}, names)
    splits = {"train": rows(*[{}] * 70)}
    judged = find(manifest, splits)
    assert {item.id for item in judged.health.findings} == {"few_images", "imbalance", "similar_names"}
    (counts,) = (item for item in judged.health.histograms if item.title == "Training images per group")
    assert (sum(counts.counts), counts.edges[-1]) == (12, 41)
    found = find(manifest, splits, counts=False)
    assert {item.id for item in found.health.findings} == {"similar_names"}


def test_equal_values_are_a_bin_without_width() -> None:
    result = check(train=rows({}, {}, {"brightness": 7}))
    shown = {item.filter: (item.edges, item.counts) for item in result.health.histograms}
    assert shown["source_size"] == ([32.0, 32.0], [3]) and shown["aspect"] == ([1.0, 1.0], [3])
    assert sum(shown["brightness"][1]) == 3 and len(shown["brightness"][1]) > 1


def test_a_copy_in_two_splits_is_removed_from_train() -> None:
    copy = {"pixels_hash": 7, "perceptual_hash": 9}
    result = check(train=rows({}, copy, copy), val=rows(copy, {}, {}, {}))
    leak = finding(result, "exact_duplicates_across_splits")
    assert leak.severity == "error" and result.health.findings[0] is leak
    assert leak.records == [("train", 1), ("train", 2), ("val", 0)]
    assert leak.removable == [("train", 1), ("train", 2)]
    assert finding(result, "exact_duplicates").removable == [("train", 2)]
    ids = {item.id for item in result.health.findings}
    assert not ids & {"near_duplicates", "near_duplicates_across_splits", "conflicting_targets"}


def test_near_duplicates_look_the_same_but_have_different_pixels() -> None:
    near = {"perceptual_hash": 9}
    result = check(train=rows(near, {}, near), val=rows({}, {}, {}, near))
    assert finding(result, "near_duplicates").removable == [("train", 2)]
    across = finding(result, "near_duplicates_across_splits")
    assert across.removable == [("train", 0), ("train", 2)] and across.has_sets and across.sets == 1
    flat = {"perceptual_hash": 9, "contrast": 2.0}
    assert "near_duplicates" not in {item.id for item in check(train=rows(flat, flat)).health.findings}


def test_copies_with_different_targets_are_all_removable() -> None:
    result = check(train=rows({"pixels_hash": 7, "target_hash": 1}, {}, {"pixels_hash": 7, "target_hash": 2}))
    conflict = finding(result, "conflicting_targets")
    assert conflict.removable == conflict.records == [("train", 0), ("train", 2)]


def test_sets_are_in_the_order_of_their_first_records() -> None:
    result = check(train=rows(*({"pixels_hash": number} for number in (9, 3, 9, 3, 5))))
    assert finding(result, "exact_duplicates").records == [("train", number) for number in (0, 2, 1, 3)]
    assert result.records["set"].tolist()[:4] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("finding_id", "change"),
    [
        ("blank", {"contrast": 0.0}),
        ("dark", {"high": 40}),
        ("bright", {"low": 250, "contrast": 3.0}),
        ("low_contrast", {"contrast": 3.0}),
        ("tiny_sources", {"width": 15, "height": 15}),
        ("odd_aspect", {"width": 400, "height": 32}),
        ("odd_mode", {"mode": MODES.index("CMYK")}),
    ],
)
def test_unusual_images_are_found(finding_id: str, change: dict[str, Any]) -> None:
    result = check(train=rows({}, change, {}))
    found = finding(result, finding_id)
    assert found.records == [("train", 1)] and found.splits == {"train": 1}
    single = {"blank", "dark", "bright", "low_contrast", "tiny_sources", "odd_aspect", "odd_mode"}
    assert single & {item.id for item in result.health.findings} == {finding_id}


def test_unknown_source_sizes_are_not_findings() -> None:
    result = check(train=rows({"width": 0, "height": 0, "mode": 0}))
    assert not {"tiny_sources", "odd_aspect", "odd_mode"} & {item.id for item in result.health.findings}
    assert [item.filter for item in result.health.histograms] == ["brightness"]


def test_groups_are_compared() -> None:
    names = ["Cat", "dog", "cat ", "bird"]
    manifest = manifest_of({"train": [500, 30, 12, 2]}, names, skipped=3)
    groups = np.repeat(np.arange(4, dtype=np.int32), [500, 30, 12, 2])
    result = find(manifest, {"train": rows(*[{}] * 544)}, {"train": groups})
    assert [group.name for group in finding(result, "similar_names").groups] == ["Cat", "cat "]
    few = finding(result, "few_images")
    assert [(group.name, group.count) for group in few.groups] == [("bird", 2)]
    assert few.records == [("train", 542), ("train", 543)] and few.removable == []
    assert [group.name for group in finding(result, "imbalance").groups] == ["Cat", "bird"]
    assert finding(result, "skipped").count == 3


def test_classes_that_images_can_share_are_counted_in_all_of_them() -> None:
    manifest = manifest_of({"train": [4, 30, 2]}, ["background", "cell", "dust"])
    manifest.splits["train"].class_counts = [36, 30, 2, 0]
    groups = np.repeat(np.arange(3, dtype=np.int32), [4, 30, 2])
    few = finding(find(manifest, {"train": rows(*[{}] * 36)}, {"train": groups}), "few_images")
    assert [(group.name, group.count) for group in few.groups] == [("dust", 2)]
    assert few.records == [("train", 34), ("train", 35)]


def test_results_are_saved_and_loaded(tmp_path: Path) -> None:
    statistics = {"train": rows(*[{"pixels_hash": 1}] * 1500), "val": rows({}, {})}
    manifest = manifest_of({"train": [1500, 0], "val": [2, 0]}, ["a", "b"])
    result = find(manifest, statistics)
    health.save(tmp_path, result.health, result.records, statistics)
    loaded = health.load(tmp_path, manifest)
    assert loaded == result.health
    found = finding(result, "exact_duplicates")
    assert (found.count, len(found.records)) == (1500, health.MAX_LISTED)
    assert (found.removable_count, len(found.removable)) == (1499, health.MAX_LISTED)
    assert len(health.load_records(tmp_path, loaded, "exact_duplicates")) == 1500
    removable = health.removable_records(tmp_path, loaded, ["exact_duplicates", "unknown"])
    assert removable == [("train", number) for number in range(1, 1500)]
    assert np.array_equal(health.load_statistics(tmp_path, manifest, "val"), statistics["val"])
    other = manifest_of({"train": [1500, 0]}, ["a", "b"])
    with pytest.raises(UnreadableFile, match="other records"):
        health.load(tmp_path, other)
