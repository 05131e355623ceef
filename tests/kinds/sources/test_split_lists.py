"""Sets that declare their splits by lists of images or by folders with any names."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.data.sources.plan import UnusableSource
from digits.kinds.sources.split_lists import divide
from tests.kinds.dataset_forms import Forms
from tests.kinds.detection.formats.test_formats import voc_file
from tests.kinds.detection.formats.test_yolo import BOX, SIZE, write

YAML = "names: [cat]\ntrain: {}\nval: {}\n"


def names(found: dict[str, object]) -> dict[str, list[str]]:
    return {split: sorted(Path(file).stem for file in part.files) for split, part in found.items()}  # type: ignore[attr-defined]


def splits_of(root: Path, **fields: object) -> tuple[dict[str, list[str]], list[str]]:
    """Return the names of the images of each split of the set in ``root``, and the warnings."""
    forms = Forms("image-object-detection", root)
    fields = {"train_image_folder": root, **SIZE, **fields}
    plan = forms.plan(**fields)
    for split in plan.splits.values():
        assert [len(boxes) for boxes in split.targets] == [1] * len(split)
    made = forms.create(**fields)
    assert made.counts == {name: len(split) for name, split in plan.splits.items()}
    shown = forms.summary(**fields)
    if shown.suggestion:
        assert any("The splits of the source are used" in text for text in shown.facts)
        mixed = forms.plan(**fields | shown.suggestion.fields, pct_val=0)
        assert len(mixed.splits["train"]) >= sum(map(len, plan.splits.values()))
    return names(plan.splits), made.remarks


def flat(root: Path, count: int = 6) -> Path:
    return write(root, {f"labels/{number}.txt": BOX for number in range(count)})


def texts(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


WANTED = {"train": ["0", "1", "2", "3"], "val": ["4", "5"]}


@pytest.mark.parametrize(
    ("files", "start", "ending"),
    [
        (("train.txt", "val.txt"), "./images/", ".png"),
        (("train.txt", "valid.txt"), "C:\\sets\\cats\\images\\", ".png"),
        (("lists/a.txt", "lists/b.txt"), "/home/me/cats/images/", ".png"),  # data.yaml
        (("darknet/one.txt", "darknet/two.txt"), "data/obj/", ".png"),  # obj.data
        (("ImageSets/Main/train.txt", "ImageSets/Main/val.txt"), "", ""),
        (("ImageSets/Main/trainval.txt", "ImageSets/Main/val.txt"), "", "  1"),
        (("ImageSets/train.txt", "ImageSets/val.txt"), "", ""),
    ],
)
def test_lists(tmp_path: Path, files: tuple[str, str], start: str, ending: str) -> None:
    root = flat(tmp_path / "data")
    for name, numbers in zip(files, (range(4), range(4, 6)), strict=True):
        texts(root, {name: "\n".join(f"{start}{number}{ending}" for number in numbers)})
    if files[0].startswith("lists/"):
        texts(root, {"data.yaml": YAML.format(*files)})
    if files[0].startswith("darknet/"):
        texts(root, {"obj.data": f"classes = 1\ntrain = {files[0]}\nvalid = {files[1]}\n"})
    found, remarks = splits_of(root)
    assert found == WANTED
    assert remarks[0].startswith("The splits of the source are used: ")


def test_lists_of_voc(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {f"labels/{number}.txt": BOX for number in range(6)}, "JPEGImages")
    for number in range(6):
        (root / "labels" / f"{number}.txt").unlink()
        texts(root, {f"Annotations/{number}.xml": voc_file([("cat", 10, 5, 20, 15)])})
    texts(root, {"ImageSets/Main/train.txt": "0\n1\n2\n3\n", "ImageSets/Main/val.txt": "4\n5\n"})
    texts(root, {"ImageSets/Main/cat_train.txt": "0 1\n1 -1\n", "ImageSets/Main/trainval.txt": "0\n4"})
    assert splits_of(root)[0] == WANTED


@pytest.mark.parametrize(
    "declared",
    [
        YAML.format("first/images", "second/images"),
        YAML.format("../first/images", "../second/images"),
        "path: .\n" + YAML.format("first", "second"),
        YAML.format("[first/images]", "[second/images]"),
    ],
)
def test_folders_of_a_yaml_file(tmp_path: Path, declared: str) -> None:
    labels = {f"first/labels/{number}.txt": BOX for number in range(4)}
    root = write(tmp_path / "data", labels | {f"second/labels/{number}.txt": BOX for number in range(2)})
    texts(root, {"data.yaml": declared})
    found, _ = splits_of(root)
    assert found == {"train": ["0", "1", "2", "3"], "val": ["0", "1"]}


def test_several_folders_of_a_split(tmp_path: Path) -> None:
    labels = {f"{name}/labels/{name}{number}.txt": BOX for name in "abc" for number in range(2)}
    root = write(tmp_path / "data", labels)
    texts(root, {"data.yaml": YAML.format("[a/images, b/images]", "c/images")})
    assert splits_of(root)[0] == {"train": ["a0", "a1", "b0", "b1"], "val": ["c0", "c1"]}


@pytest.mark.parametrize("place", ["", "set/"])
def test_folders_of_images_with_labels_in_one_folder(tmp_path: Path, place: str) -> None:
    root = flat(tmp_path / "data" / place)
    for split, numbers in (("train", range(4)), ("val", range(4, 6))):
        (root / "images" / split).mkdir()
        for number in numbers:
            (root / "images" / f"{number}.png").rename(root / "images" / split / f"{number}.png")
    texts(tmp_path / "data", {"README.md": "About this set."})
    if place:
        texts(root, {"data.yaml": YAML.format("images/train", "images/val")})
    assert splits_of(tmp_path / "data")[0] == WANTED


def test_images_in_several_lists_or_in_none(tmp_path: Path) -> None:
    root = flat(tmp_path / "data", 8)
    texts(root, {"train.txt": "0.png\n1.png\n2.png\n5.png\n9.png", "val.txt": "5.png\n6.png\n"})
    found, remarks = splits_of(root)
    assert found == {"train": ["0", "1", "2"], "val": ["5", "6"]}
    assert "1 image in the lists of several splits: not used for training (5.png)." in remarks
    assert "3 images in no list of a split: not used (3.png, 4.png, 7.png)." in remarks
    assert "train.txt: 1 image not found: 9.png." in remarks


def test_lists_without_images_are_refused(tmp_path: Path) -> None:
    root = flat(tmp_path / "data")
    texts(root, {"train.txt": "0.png\n", "val.txt": "x.png\n"})
    with pytest.raises(UnusableSource, match=r"No image in val\.txt is usable in"):
        splits_of(root)


@pytest.mark.parametrize("folder", ["valid", "valid2", "/data/valid2"])
def test_images_of_other_folders_with_the_same_names_are_not_moved(tmp_path: Path, folder: str) -> None:
    files = ["train/0001.jpg", "train/0002.jpg", "valid/0003.jpg"]
    (tmp_path / "val.txt").write_text(f"{folder}/0001.jpg\n{folder}/0003.jpg\n")
    warnings: list[str] = []
    if folder != "valid":
        with pytest.raises(UnusableSource):
            divide({"val": str(tmp_path / "val.txt")}, tmp_path, files, warnings)
        return
    found = divide({"val": str(tmp_path / "val.txt")}, tmp_path, files, warnings)
    assert found == {"val": [2], "train": [0, 1]}
    assert "val.txt: 1 image not found: valid/0001.jpg." in warnings


def test_lists_that_declare_no_splits(tmp_path: Path) -> None:
    root = flat(tmp_path / "data")
    texts(root, {"data.yaml": YAML.format("images", "images"), "train.txt": "images/0.png"})
    assert splits_of(root, pct_val=0)[0] == {"train": ["0", "1", "2", "3", "4", "5"]}


def test_lists_that_are_entered(tmp_path: Path) -> None:
    root = flat(tmp_path / "data")
    texts(root, {"mine.txt": "4\n5"})
    fields = {"train_label_folder": root / "labels", "train_image_folder": root / "images"}
    plan = Forms("image-object-detection", root).plan(**fields, val_list=root / "mine.txt", **SIZE)
    assert names(plan.splits) == WANTED
    errors = Forms("image-object-detection", root).errors(**fields, val_list="/etc/passwd")
    assert list(errors) == ["val_list"]


def test_lists_outside_the_roots_are_not_read(tmp_path: Path) -> None:
    root = flat(tmp_path / "x" / "data")
    texts(tmp_path / "x", {"a.txt": "0.png", "b.txt": "1.png"})
    texts(root, {"data.yaml": YAML.format("../../x/a.txt", "../../x/b.txt")})
    assert splits_of(root, pct_val=0)[0] == {"train": ["0", "1", "2", "3", "4", "5"]}
