"""Folders that are wrong or odd for a kind: what the form says about them, and which other kinds it offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from PIL import Image

from digits.kinds.forms import scanning

CLASSES, BOXES, MASKS, NUMBERS = (
    *("image-classification", "image-object-detection", "image-segmentation", "image-regression"),
)
# The field of the source of each kind.
FIELDS = {
    CLASSES: "folder_train",
    BOXES: "train_image_folder",
    MASKS: "feature_folder",
    NUMBERS: "table_train",
    "image-multilabel": "table_train",
    "image-pairs": "pair_source",
    "text-classification": "train_data_file",
    "generic": "record_train",
}


def pictures(folder: Path, count: int = 8, mode: str = "RGB") -> None:
    """Write images to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.new(mode, (24, 16), number % 2 if mode == "L" else (number * 9, 80, 80)).save(
            folder / f"{number}.png"
        )


def classes(folder: Path, *names: str) -> None:
    for name in names or ("cat", "dog"):
        pictures(folder / name)


def masks(folder: Path) -> None:
    pictures(folder / "images")
    pictures(folder / "masks", mode="L")


def splits_of_masks(folder: Path) -> None:
    for split in ("train", "val"):
        pictures(folder / "images" / split)
        pictures(folder / "masks" / split, mode="L")


def boxes(folder: Path) -> None:
    pictures(folder / "images")
    text(folder / "labels", **{f"{number}.txt": "0 0.5 0.5 0.2 0.2\n" for number in range(8)})


def splits_of_boxes(folder: Path) -> None:
    for split in ("train", "val"):
        pictures(folder / "images" / split)
        text(folder / "labels" / split, **{f"{number}.txt": "0 0.5 0.5 0.2 0.2\n" for number in range(8)})


def words(folder: Path) -> None:
    pictures(folder)
    rows = [f"{number}.png,{'cat' if number % 2 else 'dog'}" for number in range(8)]
    text(folder, **{"train.csv": "\n".join(["image,label", *rows])})


def text(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)


def numbers(folder: Path, *names: str, columns: str = "image,angle") -> None:
    pictures(folder / "images")
    table = "\n".join([columns, *(f"images/{number}.png,{number / 4}" for number in range(8))])
    text(folder, **dict.fromkeys(names, table))


def each(folder: Path, make: Callable[[Path], None], *names: str) -> None:
    for name in names:
        make(folder / name)


def data_root(folder: Path) -> None:
    classes(folder / "flowers", "rose", "tulip")
    each(folder / "pets", classes, "train", "test")
    boxes(folder / "cars")
    masks(folder / "roads")
    numbers(folder, "ages.csv")


def links(folder: Path) -> None:
    classes(folder.parent / "outside")
    folder.mkdir()
    for name in ("cat", "dog"):
        (folder / name).symlink_to(folder.parent / "outside" / name)


def unreadable(folder: Path) -> None:
    text(folder / "cat", **{"a.jpg": "no image", "b.jpg": "no image"})
    text(folder / "dog", **{"a.jpg": "no image", "b.jpg": "no image"})


def one_broken(folder: Path) -> None:
    classes(folder)
    (folder / "cat" / "0.png").write_bytes(b"")


def two_tables(folder: Path) -> None:
    numbers(folder, "left.csv")
    numbers(folder, "right.csv", columns="image,size")


def competition(folder: Path) -> None:
    numbers(folder, "train.csv")
    text(folder, **{"test.csv": "image\nimages/0.png\n"})


@dataclass(frozen=True)
class Case:
    """A folder that ``make`` writes, entered in the form of a ``kind`` with a path ``below`` it.

    The form ``says`` some words and not others (``never``), and offers ``others``; the dataset ``works`` or not.
    """

    name: str
    kind: str
    make: Callable[[Path], None]
    says: Sequence[str] = ()
    never: Sequence[str] = ()
    others: Sequence[str] = ()
    below: str = ""
    works: bool = False


NOT_CLASSES = ("8 images in", "16 images in")
CASES = [
    Case("classes", CLASSES, classes, ["16 images in 2 classes"], works=True),
    Case("masks for classes", CLASSES, masks, ["images and masks", "not classes"], NOT_CLASSES, [MASKS]),
    Case("boxes for classes", CLASSES, boxes, ["images and labels", "not classes"], NOT_CLASSES, [BOXES]),
    Case("splits of masks for classes", CLASSES, lambda root: each(root, masks, "train", "val"), ["not classes"], NOT_CLASSES, [MASKS]),
    Case("splits of boxes for classes", CLASSES, lambda root: each(root, boxes, "train", "test"), ["not classes"], NOT_CLASSES, [BOXES]),
    Case("a data root for classes", CLASSES, data_root, ["not classes but datasets: cars, flowers, pets, roads"], ["images in"]),
    Case("super-classes", CLASSES, lambda root: each(root, classes, "animals", "plants"), ["32 images in 2 classes"], works=True),
    Case("numbers for classes", CLASSES, lambda root: numbers(root, "table.csv"), ["table.csv may list the images"], others=[NUMBERS]),
    Case("one class", CLASSES, lambda root: classes(root, "cat"), ["only “cat”"], ["No folders"]),
    Case("the folder of a class", CLASSES, lambda root: classes(root, "cat"), ["none, and 8 images directly in it"], ["No folders"], below="cat"),
    Case("only images", CLASSES, pictures, ["none, and 8 images directly in it"], ["No images"]),
    Case("empty", CLASSES, lambda root: root.mkdir(), ["it contains no files", "Enter the folder that contains"], ["images in", "none"]),
    Case("other files", CLASSES, lambda root: text(root / "a", **{"notes.md": ""}), ["1 other file, such as a/notes.md"], ["images in"]),
    Case("classes in the only folders", CLASSES, lambda root: classes(root / "data" / "photos"), ["16 images in 2 classes", "Used: data/photos/."], ["Only one class"], works=True),
    Case("classes of the validation only", CLASSES, lambda root: classes(root / "val"), ["16 images in 2 classes", "Used: val/."], works=True),
    Case("splits with a mistake", CLASSES, lambda root: each(root, classes, "train", "tset"), ["not classes but parts of a dataset: train, tset"], ["images in"]),
    Case("too few images", CLASSES, lambda root: [pictures(root / name, 1) for name in ("a", "b")], ["No class", "Add images, or lower the minimum"]),
    Case("one class in a link", CLASSES, lambda root: (pictures(root / "cat"), (root / "dog").symlink_to("/etc")), ["Only one class", "1 link ignored"]),
    Case("boxes in splits for classes", CLASSES, lambda root: splits_of_boxes(root), ["not classes"], NOT_CLASSES, [BOXES]),
    Case("a photo", CLASSES, classes, ["is not a folder. Enter a folder, such as"], below="cat/0.png"),
    Case("a photo for numbers", NUMBERS, classes, ["is an image, not a table"], ["UTF-8"], below="cat/0.png"),
    Case("classes in a table", CLASSES, lambda root: words(root), ["train.csv may list the images"], others=[CLASSES, "image-multilabel"]),
    Case("classes in a table for numbers", NUMBERS, lambda root: words(root), ["contains text, such as “dog”", "create a dataset of classes"], others=["image-classification"]),
    Case("only images for boxes", BOXES, pictures, ["No annotations found", "draw the boxes first"]),
    Case("empty for boxes", BOXES, lambda root: root.mkdir(), ["No images found"], ["No annotations"]),
    Case("empty classes", CLASSES, lambda root: each(root, lambda path: path.mkdir(parents=True), "a", "b"), ["No images found"]),
    Case("links out of it", CLASSES, links, ["link"], ["16 images in"]),
    Case("only unreadable files", CLASSES, unreadable, ["not an image", "At most 5%"], ["are skipped"]),
    Case("one broken image of 16", CLASSES, one_broken, ["1 of 16 images examined", "limit of 5%"], ["are skipped", "cannot be created"]),
    Case("a table as a folder", CLASSES, lambda root: numbers(root, "ages.csv"), ["is not a folder"], others=[NUMBERS], below="ages.csv"),
    Case("an archive", CLASSES, lambda root: text(root, **{"cats.zip": ""}), ["is an archive. Unpack it", "“Files…”"], ["not a folder"], below="cats.zip"),
    Case("an archive of masks", MASKS, lambda root: text(root, **{"a.TAR.gz": ""}), ["is an archive"], below="a.TAR.gz"),
    Case("an archive of boxes", BOXES, lambda root: text(root, **{"a.zip": ""}), ["is an archive"], below="a.zip"),
    Case("an archive of tables", NUMBERS, lambda root: text(root, **{"a.tgz": ""}), ["is an archive"], below="a.tgz"),
    Case("an archive of labels", "image-multilabel", lambda root: text(root, **{"a.zip": ""}), ["is an archive"], below="a.zip"),
    Case("an archive of pairs", "image-pairs", lambda root: text(root, **{"a.zip": ""}), ["is an archive"], below="a.zip"),
    Case("an archive of texts", "text-classification", lambda root: text(root, **{"a.zip": ""}), ["is an archive"], below="a.zip"),
    Case("an archive of records", "generic", lambda root: text(root, **{"a.zip": ""}), ["is an archive"], below="a.zip"),
    Case("a folder called like an archive", CLASSES, lambda root: classes(root / "a.zip"), ["16 images in"], ["archive"], below="a.zip", works=True),
    Case("outside", CLASSES, lambda root: classes(root), ["is outside the folders", "To allow it, restart the server with --data-root", "DIGITS_DATA_ROOTS"], below="../../.."),
    Case("a name with a mistake", CLASSES, lambda root: classes(root / "small_crops"), ["does not exist", "Did you mean", "small_crops"], below="small_crp"),
    Case("classes for boxes", BOXES, classes, ["No annotations found"], others=[CLASSES]),
    Case("masks for boxes", BOXES, masks, ["No annotations found"], others=[MASKS]),
    Case("numbers for boxes", BOXES, lambda root: numbers(root, "ages.csv"), [], ["objects"], [NUMBERS]),
    Case("splits of classes for boxes", BOXES, lambda root: each(root, classes, "train", "test"), ["No annotations"], others=[CLASSES]),
    Case("classes for masks", MASKS, classes, ["neither a pair"], others=[CLASSES]),
    Case("boxes for masks", MASKS, boxes, [], ["8 images with"], [BOXES]),
    Case("the images beside their masks", MASKS, masks, ["8 images with label images"], below="images", works=True),
    Case("the masks beside their images", MASKS, masks, ["8 images with label images", "Used: images/ and masks/"], below="masks", works=True),
    Case("the training images beside their masks", MASKS, splits_of_masks, ["8 images with", "Used: masks/train/.", "Also used: val/"], below="images/train", works=True),
    Case("the training masks beside their images", MASKS, splits_of_masks, ["8 images with", "Used: images/train/ and masks/train/.", "Also used: val/"], below="masks/train", works=True),
    Case("masks for numbers", NUMBERS, masks, ["contains no"], others=[MASKS]),
    Case("classes for numbers", NUMBERS, classes, ["contains no"], others=[CLASSES]),
    Case("tables of splits for numbers", NUMBERS, lambda root: numbers(root, "train.csv", "test.csv"), ["8 rows"], ["contains no"], works=True),
    Case("tables of a competition", NUMBERS, competition, ["8 rows"], ["contains no"], works=True),
    Case("two tables for numbers", NUMBERS, two_tables, ["left.csv", "right.csv"], ["contains no"]),
    Case("classes for labels", "image-multilabel", classes, ["contains no"], others=[CLASSES]),
    Case("masks for pairs", "image-pairs", masks, ["not classes"], NOT_CLASSES, [MASKS]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_was_found_is_said(tmp_path: Path, case: Case) -> None:
    root = tmp_path / "data" / "set"
    root.parent.mkdir()
    case.make(root)
    assert not untrue(case, root)


def untrue(case: Case, root: Path) -> list[str]:
    """Return what is wrong with what the form says about the folder ``root``."""
    fields = [(FIELDS[case.kind], str(root / case.below) if case.below else str(root)), ("beside", "y")]
    last = scanning._summarize(scanning.Request(case.kind, fields, [str(root.parent)]), lambda summary: None)
    errors = [text for texts in last.errors.values() for text in texts]
    offered = [last.suggestion, *last.remedies]
    said = " ".join(
        [last.refused, *errors, *last.facts, *last.problems, *(item.text for item in offered if item)]
    )
    wrong = [f"missing: {words}" for words in case.says if words not in said]
    wrong += [f"untrue: {words}" for words in case.never if words in said]
    others = [other["kind"] for other in asdict(last).get("others", [])]
    wrong += [f"not offered: {kind}" for kind in case.others if kind not in others]
    wrong += [f"offered: {kind}" for kind in others if not case.others]
    wrong += ["offered: masks for boxes"] if BOXES in case.others and MASKS in others else []
    is_usable = not (last.refused or errors or any(item.stops for item in last.remedies))
    wrong += [f"usable: {is_usable}"] if is_usable is not case.works else []
    return [f"{text} (said: {said})" for text in wrong]
