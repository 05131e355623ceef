"""Folders of images: which files belong to which class, and how they are split."""

from __future__ import annotations

import os
import socket
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from digits.data.images.images import EXTENSIONS
from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.classification import reader
from digits.kinds.classification.reader import Bounds, ClassFolder, Scan
from digits.kinds.classification.recipe import CreateClassification, FolderSplit


def touch(root: Path, *names: str) -> Path:
    """Create empty files below ``root``; these tests do not open them."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def found(**classes: int) -> Scan:
    """Return a scan of classes with these numbers of images."""
    folders = [
        ClassFolder(name, reader.label_of(name), [f"{name}/{number}.png" for number in range(count)])
        for name, count in sorted(classes.items())
    ]
    return Scan(Path("/pictures"), folders)


def planned(scan: Scan, bounds: Bounds | None = None, **options) -> Plan:
    settings = {name: options.pop(name) for name in ("pct_val", "pct_test", "seed") if name in options}
    recipe = CreateClassification(train=FolderSplit(folder="/pictures"), **settings)
    return reader.plan(scan, bounds or Bounds(), recipe, Progress(), **options)


def counts(plan: Plan) -> dict[str, list[int]]:
    return {
        name: [split.groups.count(number) for number in range(len(plan.groups))]
        for name, split in plan.splits.items()
    }


def test_classes_are_sorted_by_folder_name(tmp_path: Path) -> None:
    touch(
        tmp_path, "red_cars/b.png", "red_cars/deep/er/a.JPG", "Blue/1.tiff", "Blue/notes.txt", "zero/x.webp"
    )
    scan = reader.scan(tmp_path)
    assert [(item.name, item.label, item.files) for item in scan.classes] == [
        ("Blue", "Blue", ["Blue/1.tiff"]),
        ("red_cars", "red_cars", ["red_cars/b.png", "red_cars/deep/er/a.JPG"]),
        ("zero", "zero", ["zero/x.webp"]),
    ]
    assert scan.count == 4


def test_extensions_are_case_insensitive_and_hidden_files_ignored(tmp_path: Path) -> None:
    names = [f"a/{n}{ending}" for n, ending in enumerate(EXTENSIONS)]
    names += [name.upper().replace("A/", "a/") for name in names]
    hidden = ["a/._1.png", ".git/1.png", "a/.thumbnails/1.png"]
    (folder,) = reader.scan(touch(tmp_path, *names, *hidden)).classes
    assert sorted(folder.files) == sorted(names)


def test_links_out_of_the_folder_and_link_cycles_are_not_followed(tmp_path: Path) -> None:
    outside = touch(tmp_path / "outside", "secret/1.png")
    root = touch(tmp_path / "root", "a/1.png", "a/inner/2.png", "b/3.png")
    (root / "c").symlink_to(outside / "secret")
    (root / "a" / "out.png").symlink_to(outside / "secret" / "1.png")
    (root / "a" / "up").symlink_to(root / "a")
    (root / "a" / "top").symlink_to(root)
    (root / "a" / "self").symlink_to(root / "a" / "self")
    (root / "a" / "broken.png").symlink_to(root / "nowhere")
    (root / "a" / "again").symlink_to(root / "a" / "inner")
    scan = reader.scan(root)
    assert {item.name: len(item.files) for item in scan.classes} == {"a": 2, "b": 1}
    assert scan.links == 7


def test_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    root = touch(tmp_path / "root", "a/1.png", "b/2.png")
    (root / "a" / "of_b.png").symlink_to(root / "b" / "2.png")
    (root / "c").symlink_to(root / "b")
    scan = reader.scan(root)
    assert {item.name: len(item.files) for item in scan.classes} == {"a": 2, "b": 1, "c": 1}
    assert scan.links == 0


def test_nested_links_are_followed_once(tmp_path: Path) -> None:
    # Each folder has ten links to the next one: following all of them would visit 10**12 folders.
    for depth in range(12):
        (tmp_path / "store" / str(depth)).mkdir(parents=True)
    for depth in range(11):
        for number in range(10):
            (tmp_path / "store" / str(depth) / f"l{number}").symlink_to(tmp_path / "store" / str(depth + 1))
    touch(tmp_path, "store/11/x.png")
    assert reader.scan(tmp_path).count == 1


def test_pipes_and_sockets_are_counted_but_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "a/1.png")
    os.mkfifo(tmp_path / "a" / "pipe.png")
    monkeypatch.chdir(tmp_path / "a")  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("socket.png")
        scan = reader.scan(tmp_path)
    assert (scan.count, scan.specials) == (1, 2)


def test_names_that_are_not_utf8_are_preserved(tmp_path: Path) -> None:
    for name in (b"caf\xe9", "naïve_\u202e".encode(), b"line\nbreak", b"x" * 250):
        os.makedirs(os.fsencode(tmp_path) + b"/" + name)
        with open(os.fsencode(tmp_path) + b"/" + name + b"/\xff \xf0\x9f\x98\x80.png", "wb"):
            pass
    scan = reader.scan(tmp_path)
    assert scan.count == 4
    labels = [item.label for item in scan.classes]
    assert labels == ["caf\\xe9", "line\\nbreak", "naïve_\\u202e", "x" * 250]
    assert all((tmp_path / item.files[0]).exists() for item in scan.classes)


def test_labels_are_the_names_of_folders_in_either_unicode_form(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "café")
    scan = reader.scan(touch(tmp_path, "a_b/1.png", "a b/1.png", "café/1.png", f"{decomposed}/2.png"))
    assert [(item.label, len(item.files)) for item in scan.classes] == [("a b", 1), ("a_b", 1), ("café", 2)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_unreadable_folders_are_named(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.png", "a/locked/2.png", "b/1.png")
    (tmp_path / "a" / "locked").chmod(0)
    scan = reader.scan(tmp_path)
    (tmp_path / "a" / "locked").chmod(0o700)
    assert (scan.count, scan.unreadable) == (2, ["a/locked"])


@pytest.mark.parametrize("function", ["scandir", "stat"])
def test_a_folder_that_fails_to_open_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    touch(tmp_path, "a/1.png", "a/locked/2.png", "b/1.png")
    original = getattr(os, function)

    def refuse(path: str, **options: bool) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return original(path, **options)

    monkeypatch.setattr(os, function, refuse)
    scan = reader.scan(tmp_path)
    assert (scan.count, scan.unreadable) == (2, ["a/locked"])
    warnings = planned(scan, Bounds(1), pct_val=0).warnings
    assert any("a/locked" in warning for warning in warnings)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableSource, match="nowhere cannot be read: No such file"):
        reader.scan(tmp_path / "nowhere")
    with pytest.raises(UnusableSource, match="Not a directory"):
        reader.scan(touch(tmp_path, "file") / "file")


def test_progress_is_reported_for_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PROGRESS_EVERY_FILES", 2)
    reported: list[str] = []

    class Reported(Progress):
        def reading(self, what: str) -> None:
            reported.append(what)

    reader.scan(touch(tmp_path, *(f"a/{n}.png" for n in range(5))), Reported())
    assert reported == [f"Reading {tmp_path}: {count} files" for count in (2, 4)]


def test_an_empty_folder_has_no_images(tmp_path: Path) -> None:
    with pytest.raises(UnusableSource) as caught:
        planned(reader.scan(touch(tmp_path, "a/readme.txt")))
    found = f"No images found in {tmp_path}: it contains 1 other file, such as a/readme.txt (looked for png, jpg, "
    assert caught.value.message.startswith(found)


def test_images_outside_class_folders_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UnusableSource, match=r"No folders with images .* 2 images directly in it"):
        planned(reader.scan(touch(tmp_path, "1.png", "2.png")))
    warnings = planned(reader.scan(touch(tmp_path, "a/1.png", "a/2.png", "b/1.png", "b/2.png"))).warnings
    assert any("2 images ignored directly in" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("scan", "val", "message", "hint"),
    [
        (found(cats=10), None, "Only one class with enough images was found in /pictures: cats", ""),
        (found(cats=10, dogs=1), None, "Only one class with enough images", "dogs (1)"),
        (found(cats=1, dogs=1), None, "No class in /pictures has enough images", ""),
        (found(a=10, b=10), found(x=5, y=5), "No folder in /pictures is named like a class", "a, b"),
        (found(a=10, b=10), found(), "No images found", ""),
    ],
)
def test_folders_without_classes_are_refused(scan: Scan, val: Scan | None, message: str, hint: str) -> None:
    with pytest.raises(UnusableSource, match=message) as caught:
        planned(scan, separate={"val": (val, Bounds(1))} if val else {})
    assert hint in caught.value.hint


def test_each_class_is_split_separately() -> None:
    plan = planned(found(a=10, b=100), pct_val=20, pct_test=10)
    assert counts(plan) == {"train": [7, 70], "val": [2, 20], "test": [1, 10]}
    everything = [path for split in plan.splits.values() for path in split.files]
    assert len(set(everything)) == len(everything) == 110


def test_small_classes_are_skipped_and_reported() -> None:
    plan = planned(found(a=10, b=10, rare=4), Bounds(minimum=5))
    assert plan.groups == ["a", "b"]
    assert plan.warnings == ["Excluded, because they have fewer than 5 images: rare (4)."]


def test_a_class_needs_an_image_for_every_split() -> None:
    assert planned(found(a=10, b=10, rare=2), Bounds(1), pct_test=25).groups == ["a", "b"]
    assert planned(found(a=10, b=10, rare=2), Bounds(1)).groups == ["a", "b", "rare"]


def test_images_up_to_the_maximum_are_sampled_from_all() -> None:
    plans = [planned(found(a=1000, b=1000), Bounds(maximum=10), pct_val=0, seed=seed) for seed in range(3)]
    assert all(counts(plan) == {"train": [10, 10]} for plan in plans)
    numbers = [int(path[2:-4]) for plan in plans for path in plan.splits["train"].files]
    assert max(numbers) > 500
    assert len({tuple(plan.splits["train"].files) for plan in plans}) == 3


def test_adding_a_class_does_not_change_the_sample_of_another() -> None:
    small = planned(found(a=50, b=50), Bounds(maximum=9), pct_val=0)
    large = planned(found(a=50, b=50, c=50), Bounds(maximum=9), pct_val=0)

    def of_a(plan: Plan) -> set[str]:
        return {path for path in plan.splits["train"].files if path.startswith("a/")}

    assert of_a(small) == of_a(large)


def test_records_are_shuffled_across_classes() -> None:
    labels = planned(found(a=100, b=100), pct_val=0).splits["train"].groups
    assert Counter(labels[:100])[0] in range(25, 76)


def test_a_separate_folder_replaces_the_split() -> None:
    separate = {"val": (found(a=4, b=6), Bounds(1)), "test": (found(a=3, b=3), Bounds(1))}
    plan = planned(found(a=10, b=20), pct_val=50, pct_test=40, separate=separate)
    assert counts(plan) == {"train": [10, 20], "val": [4, 6], "test": [3, 3]}
    assert plan.warnings == []


def test_class_folders_of_a_split_are_matched_by_name() -> None:
    separate = {"val": (found(b=2, stranger=5), Bounds(1))}
    plan = planned(found(a=10, b=10), separate=separate)
    assert counts(plan)["val"] == [0, 2]
    assert any("no class of that name" in warning and "stranger" in warning for warning in plan.warnings)
    assert "Classes without validation images: a." in plan.warnings


def test_dropping_a_class_of_a_split_does_not_affect_others() -> None:
    separate = {"val": (found(a=1, b=9, c=9), Bounds(2, 5))}
    plan = planned(found(a=10, b=10, c=10), separate=separate)
    assert plan.groups == ["a", "b", "c"]
    assert counts(plan)["val"] == [0, 5, 5]


def test_unusual_class_names_cause_a_warning() -> None:
    assert any("upper and lower case: Cat, cat" in text for text in planned(found(Cat=5, cat=5)).warnings)


def test_folders_of_splits_are_not_classes() -> None:
    with pytest.raises(UnusableSource, match="contains splits instead of classes: test, train"):
        planned(found(train=5, test=5))
    assert planned(found(train=5, bus=5)).groups == ["bus", "train"]
