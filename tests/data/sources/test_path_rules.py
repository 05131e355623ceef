"""Images found by the paths in lists, tables and annotations of other computers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from digits.data.sources.path_rules import AmbiguousPaths, ImageTree, PathMatches, match_names
from digits.data.sources.plan import UnusableSource

DECOMPOSED, COMPOSED = "cafe\u0301", "caf\xe9"
Match = Callable[[Sequence[str], Sequence[str]], PathMatches]


@pytest.fixture
def match(tmp_path: Path) -> Match:
    """Return the images of paths below a folder ``images`` with some files."""

    def match(files: Sequence[str], paths: Sequence[str]) -> PathMatches:
        make(tmp_path / "images", files)
        return ImageTree(tmp_path / "images").match(paths)

    return match


def make(root: Path, files: Sequence[str]) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


IMAGES = ["cat/1.png", "cat/2.png", "dog/1.png"]


@pytest.mark.parametrize(
    ("form", "rule"),
    [
        ("{}", ""),
        ("./{}", ""),
        ("images/{}", "without “images”"),
        ("data/images/{}", "without “data/images”"),
        ("/home/ann/images/{}", "without “/home/ann/images”"),
        (r"C:\Users\ann\Desktop\images\{}", "without “/Users/ann/Desktop/images”"),
        (r"\\server\share\{}", "without “/server/share”"),
        ("file:///C:/my%20data/{}", "without “/my data”"),
        ("https://example.com/images/{}?size=2", "without “/images”"),
        ("/data/local-files/?d=images/{}", "without “images”"),
        ("../other/{}", "without “../other”"),
        ('"{}"', ""),
    ],
)
def test_paths_begin_with_other_folders(match: Match, form: str, rule: str) -> None:
    paths = [form.format(file.replace("/", "\\") if "\\" in form else file) for file in IMAGES]
    found = match(IMAGES, paths)
    assert [found.resolve(path) for path in paths] == [(file, True) for file in IMAGES]
    assert found.rule == rule


def test_paths_are_found_below_a_folder(match: Match) -> None:
    files = [f"pets/{file}" for file in IMAGES]
    assert list(match(files, IMAGES).files.values()) == files
    paths = [f"C:\\ann\\{file}".replace("/", "\\") for file in IMAGES]
    found = match(files, paths)
    assert list(found.files.values()) == files and found.rule == "without “/ann”, below “pets”"
    assert found.remarks("a.csv") == [
        "3 paths of a.csv differ from those of the images, such as “C:\\ann\\cat\\1.png” for pets/cat/1.png: without "
        "“/ann”, below “pets”."
    ]


@pytest.mark.parametrize(
    ("files", "paths"),
    [
        (["cat/1.PNG", "dog/2.png"], ["Cat/1.png", "dog/2.png"]),
        ([f"{DECOMPOSED}/1.png", "a/2.png"], [f"{COMPOSED}/1.png", "a/2.png"]),
        (["a/my dog.png", "a/2.png"], ["a/my%20dog.png", "a/2.png"]),
        (["a/1.jpg", "b/2.jpeg"], ["a/1", "b/2"]),
        (["a/1.jpg", "b/2.jpg"], ["a/1.png", "b/2.png"]),
        (["a/v1.2.jpg", "b/v1.3.jpg"], ["a/v1.2", "b/v1.3"]),
        (["a/1.jpg", "b/2.jpg"], ["1", "2"]),
        (["0009.png", "0010.png", "0100.png"], ["9", "10", "100"]),
        (["0009.png", "0010.png", "0100.png"], ["9.0", "10.0", "100.0"]),
        (["9.png", "10.png", "100.png"], ["0009", "0010", "0100"]),
        (["img_09.png", "img_10.png"], ["9", "10"]),
        (["a/x_small.png", "b/y_small.png"], ["a/x.png", "b/y.png"]),
        (["a/img_x.png", "b/img_y.png"], ["a/x", "b/y"]),
        (["rose.jpg", "a/tulip.jpg"][1:], ["/data/upload/3/0a1b2c3d-tulip.jpg"]),
        (
            ["f/rose.jpg", "f/tulip.jpg"],
            ["/data/upload/3/0a1b2c3d-rose.jpg", "/data/upload/4/1a1b2c3d-tulip.jpg"],
        ),
        (["a.jpg", "b.jpg", "c/d.jpg"], ["a.jpg", "b.jpg", "d.jpg"]),
        (["12345678-tulip.jpg", "tulip.jpg"], ["/data/12345678-tulip.jpg", "/data/tulip.jpg"]),
    ],
)
def test_names_are_spelled_in_another_way(match: Match, files: list[str], paths: list[str]) -> None:
    found = match(files, paths)
    assert [found.files.get(path) for path in paths] == files
    assert not found.faults


def test_a_file_as_written_comes_first(match: Match) -> None:
    files = ["a\\1.png", "a/1.png", "1.PNG", "1.png", "images/1.png"]
    found = match(files, files)
    assert [found.resolve(file) for file in files] == [(file, True) for file in files]
    assert not found.rule and not found.remarks("a.csv")


@pytest.mark.parametrize(
    ("files", "paths"),
    [
        (["cats/0.jpg"], ["/data/dogs/0.jpg"]),
        (["flowers/rose.jpg"], ["..\\..\\media\\rose.jpg"]),
        (["train/1.png"], ["other/1.png"]),
        (["train/cat/1.png"], ["/data/val/cat/1.png"]),
        (["a/00.jpg", "a/01.jpg"], ["/b/00.jpg", "/b/01.jpg"]),
    ],
)
def test_images_of_other_folders_are_not_used(match: Match, files: list[str], paths: list[str]) -> None:
    """The folder that would make them the images is named."""
    with pytest.raises(UnusableSource, match=r"is in another folder") as caught:
        match(files, paths)
    assert str(Path("images", files[0]).parent) in caught.value.hint


@pytest.mark.parametrize(
    ("files", "paths", "used"),
    [
        # The images of a folder that is missing are those of no other folder.
        (["seqA/0.jpg", "seqA/1.jpg"], ["seqA/0.jpg", "seqA/1.jpg", "seqB/0.jpg"], 2),
        (["seqA/0.jpg", "seqA/1.jpg"], ["seqA/0", "seqA/1", "seqB/0"], 2),
        (["cat/1.png", "1.png", "cat/3.png"], ["cat/1.png", "cat/2.png", "cat/3.png"], 2),
        (["cat/0.png", "1.png"], ["cat/0.png", "cat/1.png"], 1),
        # Neither do other endings, other numbers or other cases replace a missing image.
        (["1.jpg", "2.jpg", "3.png"], ["1.jpg", "2.jpg", "3.jpg"], 2),
        (["1.jpg", "a.jpg"], ["1.jpg", "a.jpg", "A.jpg"], 2),
    ],
)
def test_missing_images_are_not_replaced(match: Match, files: list[str], paths: list[str], used: int) -> None:
    found = match(files, paths)
    assert len(found.files) == used
    for path in paths:
        if path not in found.files:
            assert path in found.faults or found.resolve(path) == (path, False)


@pytest.mark.parametrize(
    ("files", "paths"),
    [
        (["one/same.png", "two/same.png"], ["same.png"]),
        (["one/same.png", "two/same.png"], ["same"]),
        (["one/a/1.png", "two/a/1.png"], ["C:\\x\\a\\1.png"]),
        (["img_01.png", "img_02.png", "mask_01.png", "mask_02.png"], ["1", "2"]),
        (["a_x.png", "b_x.png", "a_y.png", "b_y.png"], ["a", "b"]),
    ],
)
def test_paths_of_several_images_are_refused(match: Match, files: list[str], paths: list[str]) -> None:
    with pytest.raises(AmbiguousPaths, match=r"“.*” can be .*\.png or .*\.png\."):
        match(files, paths)


def test_an_image_belongs_to_one_path(match: Match) -> None:
    paths = ["/data/cats/1.png", "/data/dogs/1.png"]
    with pytest.raises(AmbiguousPaths, match=r"“.*cats/1.png” and “.*dogs/1.png” .* the image 1.png"):
        match(["1.png"], paths)
    found = match(["a.png", "b.png"], ["a.tif", "a.jpg", "b.jpg"])
    assert found.files == {"b.jpg": "b.png"}
    with pytest.raises(ValueError, match=r"“a.tif” and “a.jpg” are different paths, .* image: a.png"):
        found.resolve("a.tif")


def test_the_name_of_the_root_decides_between_folders(tmp_path: Path) -> None:
    make(tmp_path / "cats", ["1.png"])
    found = ImageTree(tmp_path / "cats").match(["/data/cats/1.png", "/data/dogs/1.png"])
    assert found.files == {"/data/cats/1.png": "1.png"}


def test_a_path_in_a_folder_beside_the_root_is_another_image(tmp_path: Path) -> None:
    make(tmp_path, ["train/1.png", "other/2.png"])
    tree = ImageTree(tmp_path / "train")
    assert tree.match(["train/1.png"]).locate("train/1.png") == "1.png"
    for path in ("other/1.png", r"C:\data\other\1.png", "val/1.png"):
        assert not tree.match([path]).files


def test_links_out_of_the_root_are_not_found(tmp_path: Path) -> None:
    root = tmp_path / "images"
    make(root, ["1.png"])
    (tmp_path / "secret.png").touch()
    (root / "inside.png").symlink_to(root / "1.png")
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "folder").symlink_to(tmp_path)
    tree = ImageTree(root)
    for path in ("LINK.PNG", r"C:\x\link", "secret", r"folder\secret.png", "FOLDER/secret.png", "\0", ""):
        assert not tree.match([path]).files
    for path in ("link.png", "../secret.png", "folder/secret.png", "/etc/passwd"):
        with pytest.raises(ValueError, match="outside the image folder"):
            tree.match([path]).resolve(path)
    assert tree.match(["INSIDE.png"]).files == {"INSIDE.png": "inside.png"}


def test_files_as_written_are_no_evidence_for_another_rule(tmp_path: Path) -> None:
    make(tmp_path, ["0.png", "b/m_0.png", "00.png"])
    found = ImageTree(tmp_path).match(["00.png", "labels/b/00.png"], ("images", "labels"))
    assert found.files == {"00.png": "00.png"}
    make(tmp_path / "set", ["3.png", "img_4.png", "img_5.png"])
    assert ImageTree(tmp_path / "set").match(["3", "4", "5"]).files == {"3": "3.png"}


def test_folders_of_images_and_labels_may_differ(tmp_path: Path) -> None:
    make(tmp_path, ["train/images/1.jpg", "val/images/1.jpg"])
    paths = ["train/labels/1", "val/labels/1", "test/labels/1"]
    found = ImageTree(tmp_path).match(paths, ("images", "labels"))
    assert found.files == {paths[0]: "train/images/1.jpg", paths[1]: "val/images/1.jpg"}


def test_names_differ_by_a_prefix_or_suffix() -> None:
    numbers = range(4)
    images = [f"town/a_{number}_sat.png" for number in numbers]
    masks = [f"town/a_{number}_mask.png" for number in numbers]
    assert match_names(masks, images) == dict(zip(masks, images, strict=True))
    others = [f"town/a_{number}_old.png" for number in numbers]
    with pytest.raises(AmbiguousPaths):
        match_names(masks + others, images)
