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


@pytest.mark.parametrize("path", ["/elsewhere/same.png", "same", "SAME.PNG", "same.png"])
def test_a_path_of_several_images_names_them(tmp_path: Path, path: str) -> None:
    for name in ("one/same.png", "two/same.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"“.*” can be several images: one/same\.png, two/same\.png"):
        ImageFinder(tmp_path).find(path)


DECOMPOSED, COMPOSED = "cafe\u0301", "caf\xe9"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("cat\\1.png", "cat/1.png"),
        ("images\\cat\\1.png", "cat/1.png"),
        ("images/cat/1.png", "cat/1.png"),
        ("data/images/cat/1.png", "cat/1.png"),
        (r"C:\Users\ann\Desktop\images\cat\1.png", "cat/1.png"),
        (r"D:\backup\CAT\1.PNG", "cat/1.png"),
        (r"\\server\share\dog\1.png", "dog/1.png"),
        (".\\cat\\1.png", "cat/1.png"),
        ("Cat/1.PNG", "cat/1.png"),
        ("dog/1", "dog/1.png"),
        ("dog\\1", "dog/1.png"),
        ("0000bec180eb", "cat/0000bec180eb.jpg"),
        ("my%20dog.png", "dog/my dog.png"),
        ("file:///C:/data/my%20dog.png", "dog/my dog.png"),
        ("https://example.com/images/dog/1.png?size=2", "dog/1.png"),
        (f"{COMPOSED}/1.png", f"{DECOMPOSED}/1.png"),
        (f"{DECOMPOSED}\\1", f"{DECOMPOSED}/1.png"),
        ("other/0000bec180eb.jpg", None),
        ("cat/2", None),
        ("cat", None),
        ("", None),
        ("\0", None),
    ],
)
def test_a_path_of_a_table_is_resolved(tmp_path: Path, path: str, expected: str | None) -> None:
    root = tmp_path / "images"
    for name in ("cat/1.png", "cat/0000bec180eb.jpg", "dog/1.png", "dog/my dog.png", f"{DECOMPOSED}/1.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    finder = ImageFinder(root)
    if expected:
        assert finder.resolve(path) == (expected, True, True)
        assert finder.resolve(expected) == (expected, True, False)
        assert ImageFinder(tmp_path).resolve(path)[0] == f"images/{expected}"
    else:
        assert finder.find(path, by_name=False) is None


def test_a_file_as_written_comes_first(tmp_path: Path) -> None:
    for name in ("a\\1.png", "a/1.png", "1.PNG", "1.png", "images/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    finder = ImageFinder(tmp_path)
    for name in ("a\\1.png", "a/1.png", "1.PNG", "1.png", "images/1.png"):
        assert finder.resolve(name) == (name, True, False)


def test_paths_with_contradicting_folders_are_not_the_same_image(tmp_path: Path) -> None:
    (tmp_path / "1.png").touch()
    finder = ImageFinder(tmp_path)
    assert finder.resolve("cat/1.png")[0] == "1.png"
    assert finder.resolve("pets/cat/1.png")[0] == "1.png"
    with pytest.raises(ValueError, match=r"“dog/1\.png” .* the image 1\.png has another path"):
        finder.resolve("dog/1.png")


def test_a_path_in_a_folder_beside_the_root_is_another_image(tmp_path: Path) -> None:
    for name in ("train/1.png", "test/2.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    finder = ImageFinder(tmp_path / "train")
    assert finder.resolve("train/1.png") == ("1.png", True, True)
    for path in ("test/1.png", r"C:\data\test\1.png"):
        assert finder.find(path) is None
    assert finder.find(r"C:\data\photos\train\1.png") == "1.png"


def test_links_out_of_the_root_are_not_found(tmp_path: Path) -> None:
    root = tmp_path / "images"
    root.mkdir()
    (tmp_path / "secret.png").touch()
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "folder").symlink_to(tmp_path)
    finder = ImageFinder(root)
    for path in (
        "LINK.PNG",
        r"C:\x\link",
        "secret",
        r"folder\secret.png",
        r"..\secret.png",
        "FOLDER/secret.png",
    ):
        assert finder.find(path) is None
    for path in ("link.png", "../secret.png", "folder/secret.png", "/etc/passwd"):
        with pytest.raises(ValueError, match="outside the image folder"):
            finder.resolve(path)


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


def test_only_a_path_that_is_located_is_found_by_its_name_alone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rose.jpg").touch()
    finder = ImageFinder(tmp_path)
    assert finder.resolve("b/rose.jpg") == ("b/rose.jpg", False, False)
    assert finder.locate("b/rose.jpg") == "a/rose.jpg"
