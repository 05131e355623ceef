"""Pairs of images and targets by their names."""

from __future__ import annotations

import pytest

from digits.data.sources.target_images import match

NUMBERS = [f"{number:04d}" for number in range(12)]


@pytest.mark.parametrize(
    ("image", "target"),
    [
        ("{}.png", "{}_L.png"),
        ("{}.jpg", "mask_{}.png"),
        ("{}.png", "{}.png.mask.png"),
        ("{}.png", "{}L.png"),
        ("{}.png", "{}_segmentation.png"),
        ("{}.png", "{}-label.png"),
        ("town/a_{}_leftImg8bit.png", "town/a_{}_gtFine_labelIds.png"),
        ("{}_sat.jpg", "{}_mask.png"),
        ("img_{}.png", "mask_{}.png"),
        ("image{}.png", "annotation{}.png"),
        ("img_{}_a.png", "target-{}-b.png"),
        ("x/IMG_{}.JPG", "x/img_{}.png"),
        ("train/{}.jpg", "{}.png"),
        ("{}.jpg", "masks/{}_manual1.gif"),
        ("ne\u0301_{}.png", "n\u00e9_{}.png"),
    ],
)
def test_names_differ_by_a_prefix_or_suffix(image: str, target: str) -> None:
    images, targets = ([form.format(number) for number in NUMBERS] for form in (image, target))
    found = match(images, targets)
    assert found.names == list(zip(images, targets, strict=True))
    assert not (found.without_target or found.without_image)


def test_the_label_indexes_of_cityscapes_are_used() -> None:
    images = [f"town/a_{number}_leftImg8bit.png" for number in NUMBERS]
    names = ("color", "instanceIds", "labelIds", "labelTrainIds")
    targets = [f"town/a_{number}_gtFine_{name}.png" for number in NUMBERS for name in names]
    found = match(images, targets)
    assert found.names[3] == ("town/a_0003_leftImg8bit.png", "town/a_0003_gtFine_labelIds.png")
    assert len(found.names) == len(NUMBERS)
    assert found.note == (
        "Names are paired as town/a_0000_leftImg8bit.png and town/a_0000_gtFine_labelIds.png. "
        "Other names are not used."
    )
    assert not found.remarks("label image")


def test_one_rule_pairs_all_names() -> None:
    found = match(["1.png", "10.png", "a.png"], ["1.png", "10.png", "1_L.png", "a_mask.png"])
    assert found.names == [("1.png", "1.png"), ("10.png", "10.png")]
    assert found.without_target == ["a.png"]
    assert found.without_image == ["1_L.png", "a_mask.png"] and not found.note


def test_targets_of_missing_images_are_not_used() -> None:
    assert not match(["a/1.png", "a/2.png"], ["b/1.png", "c/2.png"]).names
    found = match(["a/1.png", "a/2.png"], ["a/1.png", "b/2.png"])
    assert found.names == [("a/1.png", "a/1.png")] and found.without_image == ["b/2.png"]


def test_different_names_of_the_same_target_are_unclear() -> None:
    found = match(["1.png", "2.png"], ["1.png", "1_mask.png", "2_mask.png"])
    assert not found.names and found.unclear == ["1_mask.png", "1.png"]


def test_several_targets_of_each_image_are_unclear() -> None:
    targets = [f"{number}_{name}.png" for number in NUMBERS for name in ("anna", "bert")]
    found = match([f"{number}.png" for number in NUMBERS], targets)
    assert not found.names and found.unclear == ["0000_anna.png", "0000_bert.png"]


@pytest.mark.parametrize(
    ("images", "targets"),
    [
        ([f"{number}.png" for number in range(1, 10)], [f"{number}.png" for number in range(10, 100)]),
        (["cat.png", "dog.png"], ["category.png", "doge.png"]),
        (["a/1.png", "b/1.png"], ["c/1.png", "d/1.png"]),
        ([f"img_{number}.png" for number in range(5)], [f"mask_{number}.png" for number in range(5, 10)]),
    ],
)
def test_other_names_are_not_paired(images: list[str], targets: list[str]) -> None:
    found = match(images, targets)
    assert not found.names and not found.unclear
    assert found.without_target == images and found.without_image == targets
