"""Images found by paths of other computers."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.data.image_finder import ImageFinder


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/upload/3/0a1b2c3d-rose.jpg", "flowers/rose.jpg"),
        ("http://localhost:8080/data/local-files/?d=flowers/rose.jpg", "flowers/rose.jpg"),
        ("/data/local-files/?d=a%20b/my%20cat.png", "a b/my cat.png"),
        ("..\\..\\media\\rose.jpg", "flowers/rose.jpg"),
        ("/elsewhere/one/same.png", "one/same.png"),
        ("/elsewhere/same.png", None),
        ("/elsewhere/12345678-tulip.jpg", "12345678-tulip.jpg"),
        ("missing.png", None),
        ("", None),
        ("http://[", None),
    ],
)
def test_a_path_is_found_by_its_end(tmp_path: Path, path: str, expected: str | None) -> None:
    names = ("flowers/rose.jpg", "a b/my cat.png", "one/same.png", "two/same.png", "tulip.jpg")
    for name in (*names, "12345678-tulip.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert ImageFinder(tmp_path).find(path) == expected


def test_a_missing_image_is_not_replaced_by_one_in_another_folder(tmp_path: Path) -> None:
    for folder in ("train", "val"):
        (tmp_path / folder).mkdir()
    (tmp_path / "train" / "1.png").touch()
    finder = ImageFinder(tmp_path)
    assert finder.find("val/1.png") is None
    assert finder.find("other/1.png") == "train/1.png"


def test_an_image_is_located_by_its_path_or_else_by_its_end(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rose.jpg").touch()
    finder = ImageFinder(tmp_path)
    for path in ("a/rose.jpg", "rose.jpg", "/elsewhere/rose.jpg"):
        assert finder.locate(path) == "a/rose.jpg"
    assert finder.locate("a/tulip.jpg") == "a/tulip.jpg"
    with pytest.raises(ValueError, match="outside"):
        finder.locate("../rose.jpg")
