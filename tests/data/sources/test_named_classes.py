"""Classes in the names of image files."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.data.sources.class_folders import class_in_name, named_classes, named_classes_in


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("cat.0.jpg", "cat"),
        ("Abyssinian_12.jpg", "Abyssinian"),
        ("great_pyrenees_123.jpg", "great_pyrenees"),
        ("golden retriever (3).png", "golden retriever"),
        ("n01440764_10026.JPEG", "n01440764"),
        ("dog-2020-01-03.png", "dog"),
        ("cat12.png", "cat"),
        ("äpfel_1.png", "äpfel"),
        ("猫_1.png", "猫"),
        ("12345.jpg", ""),
        ("12_34.jpg", ""),
        ("cat.jpg", ""),
        ("0a1b2c3d.png", ""),
    ],
)
def test_the_class_is_what_a_name_contains_before_its_last_numbers(file: str, name: str) -> None:
    assert class_in_name(file) == name


@pytest.mark.parametrize(
    ("files", "classes"),
    [
        (["cat.0.jpg", "cat.1.jpg", "dog.0.jpg", "dog.1.jpg"], ["cat", "dog"]),
        ([f"IMG_{number}.jpg" for number in range(9)], []),
        (["ann_1.jpg", "bob_1.jpg", "cy_1.jpg"], []),
        (["cat.0.jpg", "cat.1.jpg", "dog.0.jpg", "dog.1.jpg", "README.png"], []),
        ([], []),
    ],
)
def test_names_are_classes_if_they_are_clear(files: list[str], classes: list[str]) -> None:
    assert named_classes(files) == classes


def test_the_names_in_a_folder_are_those_of_its_images(tmp_path: Path) -> None:
    for name in ("cat.0.jpg", "cat.1.jpg", "dog.0.jpg", "dog.1.jpg", ".fox.1.jpg", "notes_1.txt"):
        (tmp_path / name).touch()
    assert named_classes_in(str(tmp_path)) == ["cat", "dog"]
    assert named_classes_in(str(tmp_path / "missing")) == []
