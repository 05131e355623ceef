"""Images and label images in layouts of other tools: the pairs, the classes, and the pixels of each class."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from digits.data.sources.plan import UnusableSource
from tests.kinds.dataset_forms import Forms
from tests.kinds.segmentation.test_mask_values import (
    COUNT,
    HEIGHT,
    PIXELS,
    SIZE,
    WIDTH,
    count_pixels,
    create,
    square,
)

SQUARE_PIXELS = PIXELS[1] // COUNT


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms("image-segmentation", tmp_path / "own")


def save(folder: Path, image: str, mask: str, *colors: int, numbers: range = range(COUNT)) -> None:
    """Write images with the names ``image`` and their label images, where ``{}`` is the number."""
    for number in numbers:
        for name, picture in (
            (image, Image.new("RGB", (WIDTH, HEIGHT), (40 * number, 9, 9))),
            (mask, Image.fromarray(square(number, 1, *colors))),
        ):
            path = folder / name.format(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.save(path)


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ("images/{}.png", "masks/{}_L.png"),
        ("images/{}.png", "masks/mask_{}.png"),
        ("images/{}.png", "masks/{}.png.mask.png"),
        ("leftImg8bit/ulm/a_{}_leftImg8bit.png", "gtFine/ulm/a_{}_gtFine_labelIds.png"),
    ],
)
def test_names_with_a_prefix_or_suffix_are_paired_and_noted(forms: Forms, image: str, mask: str) -> None:
    save(forms.data, image, mask, 1, 2)
    if "labelIds" in mask:
        save(forms.data, image, mask.replace("labelIds", "color"))
        (forms.data / "gtFine" / "ulm" / "a_0_gtFine_polygons.json").write_text("{}")
    names = [path.format(0).partition("/")[2] for path in (image, mask)]
    shown = forms.summary(feature_folder=forms.data)
    made = forms.create(feature_folder=forms.data, folder_pct_val=0, **SIZE)
    (note,) = [remark for remark in made.remarks if remark.startswith("Names are paired")]
    assert note.startswith(f"Names are paired as {names[0]} and {names[1]}.") and note in shown.facts
    assert count_pixels(made) == [PIXELS[0], PIXELS[1] // 2, PIXELS[1] // 2]


def test_names_that_do_not_match_are_explained(forms: Forms) -> None:
    save(forms.data, "images/photo{}.png", "masks/{}.png")
    for number in range(COUNT):
        path = forms.data / "masks" / f"{number}.png"
        path.rename(path.with_name(f"{number + 90}.png"))
    (problem,) = forms.summary(feature_folder=forms.data).problems
    assert "The first image is photo0.png, the first label image 90.png" in problem
    assert "except for the ending, and for a prefix or suffix such as _mask" in problem


def test_label_images_of_several_people_are_unclear(forms: Forms) -> None:
    for name in ("anna", "bert"):
        save(forms.data, "images/{}.png", f"masks/{{}}_{name}.png")
    (problem,) = forms.summary(feature_folder=forms.data).problems
    assert "Each image has several label images: 0_anna.png, 0_bert.png. Keep one of them." in problem


@pytest.mark.parametrize("mask", ["{}_mask.png", "{}_segmentation.png", "mask_{}.png", "{}.png"])
def test_images_and_masks_can_be_in_one_folder(forms: Forms, mask: str) -> None:
    save(forms.data, "{}.jpg", mask, 1)
    shown = forms.summary(feature_folder=forms.data)
    assert shown.facts[:2] == [
        f"{COUNT} images with label images.",
        "The label images are beside the images.",
    ]
    made = create(forms)
    assert made.manifest.target.names == ["background", "class 1"] and count_pixels(made) == PIXELS
    assert made.counts["train"] == COUNT


def test_folders_in_the_folder_can_contain_images_and_masks(forms: Forms) -> None:
    for name in ("benign", "normal"):
        save(forms.data, f"{name}/{name} ({{}}).png", f"{name}/{name} ({{}})_mask.png")
    save(forms.data, "benign/benign ({}).png", "benign/benign ({})_mask_1.png", numbers=range(1))
    made = forms.create(feature_folder=forms.data, folder_pct_val=0, **SIZE)
    assert count_pixels(made) == [2 * pixels for pixels in PIXELS]
    assert (
        made.remarks[-1] == "1 label image has no image and will not be used: benign/benign (0)_mask_1.png."
    )


def test_a_folder_of_images_only_has_no_masks(forms: Forms) -> None:
    save(forms.data, "{}.jpg", "{}_mask.png", 1)
    for path in forms.data.glob("*_mask.png"):
        path.unlink()
    for fields in ({}, {"label_folder": forms.data}):
        assert "label_folder" in forms.errors(feature_folder=forms.data, **SIZE, **fields)


@pytest.mark.parametrize("entered", ["root", "train", "both"])
def test_an_export_of_roboflow_has_the_names_of_its_classes(forms: Forms, entered: str) -> None:
    splits = {"train": range(COUNT), "valid": range(2)}
    for split, numbers in splits.items():
        save(forms.data / split, "{}_jpg.rf.0a1b.jpg", "{}_jpg.rf.0a1b_mask.png", 1, 2, numbers=numbers)
        text = "Pixel Value, Class\n0, background\n1, tile\n2, grout\n"
        (forms.data / split / "_classes.csv").write_text(text)
    train = forms.data / "train"
    fields = {
        "root": {"feature_folder": forms.data},
        "train": {"feature_folder": train, "folder_pct_val": 0},
        "both": {"feature_folder": train, "label_folder": train, "folder_pct_val": 0},
    }[entered]
    assert "3 classes: background, tile, grout." in forms.summary(**fields).facts
    made = forms.create(**fields, **SIZE)
    assert made.manifest.target.names == ["background", "tile", "grout"]
    assert count_pixels(made) == [PIXELS[0], PIXELS[1] // 2, PIXELS[1] // 2]
    assert made.counts == ({"train": COUNT, "val": 2} if entered == "root" else {"train": COUNT})


def test_a_list_of_labels_of_images_is_not_one_of_values(forms: Forms) -> None:
    save(forms.data, "{}.jpg", "{}_mask.png", 1)
    (forms.data / "_classes.csv").write_text("filename, tile, grout\n0.jpg, 1, 0\n")
    assert create(forms).manifest.target.names == ["background", "class 1"]


def test_values_without_a_name_get_one(forms: Forms) -> None:
    save(forms.data, "{}.jpg", "{}_mask.png", 1, 3)
    (forms.data / "_classes.csv").write_text("Pixel Value, Class\n0, background\n3, tile\n1, grout\n")
    made = forms.create(feature_folder=forms.data, folder_pct_val=0, **SIZE)
    assert made.manifest.target.names == ["background", "grout", "class 2", "tile"]


def test_a_list_of_values_names_its_mistakes(forms: Forms) -> None:
    save(forms.data, "{}.jpg", "{}_mask.png", 1)
    (forms.data / "_classes.csv").write_text("Pixel Value, Class\n0, background\nx, tile\n")
    (error,) = forms.errors(feature_folder=forms.data, **SIZE)["class_labels_file"]
    assert "_classes.csv: line 3 is not the value of a pixel" in error


@pytest.mark.parametrize("suffix", ["_labels", "annot", "_masks"])
def test_label_images_can_be_beside_the_folders_of_splits(forms: Forms, suffix: str) -> None:
    for split, numbers in (("train", range(COUNT)), ("val", range(2))):
        save(forms.data, f"{split}/{{}}.png", f"{split}{suffix}/{{}}_L.png", 1, numbers=numbers)
    for number in range(COUNT):
        for path in forms.data.glob(f"*{suffix}/{number}_L.png"):
            Image.merge(
                "RGB", [Image.fromarray(square(number)), *[Image.new("L", (WIDTH, HEIGHT))] * 2]
            ).save(path)
    (forms.data / "class_dict.csv").write_text("name, r, g, b\nRoad, 0, 0, 0\nCar, 255, 0, 0\n")
    made = forms.create(feature_folder=forms.data, **SIZE)
    assert made.counts == {"train": COUNT, "val": 2}
    assert made.manifest.target.names == ["Road", "Car"] and count_pixels(made) == PIXELS


@pytest.mark.parametrize(
    ("image", "mask"),
    [("Part1_Input", "Part1_GroundTruth"), ("images", "masks_png"), ("photos", "binary-mask")],
)
def test_one_of_two_folders_has_a_word_for_label_images(forms: Forms, image: str, mask: str) -> None:
    save(forms.data, f"{image}/ISIC_{{}}.jpg", f"{mask}/ISIC_{{}}_segmentation.png")
    made = create(forms)
    assert made.recipe.train.images == str(forms.data / image)
    assert made.recipe.train.targets == str(forms.data / mask) and count_pixels(made) == PIXELS


def test_one_folder_can_have_masks_beside_it(forms: Forms) -> None:
    save(forms.data, "train/{}.jpg", "train_masks/{}_mask.gif")
    (forms.data / "test").mkdir()
    made = create(forms)
    assert made.recipe.train.targets == str(forms.data / "train_masks")
    assert made.manifest.target.names == ["background", "foreground"] and count_pixels(made) == PIXELS


def test_a_folder_of_masks_for_each_class_is_combined(forms: Forms) -> None:
    save(forms.data, "images/{}.jpg", "masks/tile/{}.png")
    save(forms.data, "images/{}.jpg", "masks/grout/{}_mask.png", 1, numbers=range(3, 5))
    # The squares of other images overlap those of the tiles only partly.
    for number in (3, 4):
        (forms.data / "masks" / "tile" / f"{number}.png").write_bytes(
            (forms.data / "masks" / "tile" / f"{(number + 2) % 5}.png").read_bytes()
        )
    made = create(forms)
    assert made.manifest.target.names == ["background", "grout", "tile"]
    assert count_pixels(made)[1:] == [2 * SQUARE_PIXELS, COUNT * SQUARE_PIXELS]
    assert made.remarks[0] == "There is a folder of masks for each class: grout, tile."


def test_masks_of_classes_that_are_the_same_are_refused(forms: Forms) -> None:
    for name in ("tile", "grout"):
        save(forms.data, "images/{}.png", f"masks/{name}/{{}}.png")
    (problem,) = forms.summary(feature_folder=forms.data).problems
    assert "100% of the white pixels are white in the masks of several classes" in problem
    with pytest.raises(UnusableSource) as failure:
        forms.plan(feature_folder=forms.data, **SIZE)
    assert failure.value.sentences == problem


def test_folders_that_may_be_classes_or_parts_are_refused(forms: Forms) -> None:
    save(forms.data, "images/{}.png", "masks/tile/{}.png", numbers=range(3))
    save(forms.data, "images/{}.png", "masks/grout/{}.png", numbers=range(3, 6))
    (problem,) = forms.summary(feature_folder=forms.data).problems
    assert "one of the folders grout, tile: these may be classes or parts of the set" in problem
    (forms.data / "masks" / "tile").rename(forms.data / "masks" / "train")
    (forms.data / "masks" / "grout").rename(forms.data / "masks" / "val")
    assert create(forms).manifest.target.names == ["background", "foreground"]


def test_splits_share_the_classes_of_their_folders(forms: Forms) -> None:
    save(forms.data, "train/images/{}.png", "train/masks/tile/{}.png")
    save(forms.data, "train/images/{}.png", "train/masks/grout/{}.png", 0)
    save(forms.data, "val/images/{}.png", "val/masks/tile/{}.png")
    save(forms.data, "val/images/{}.png", "val/masks/apple/{}.png", 0)
    made = forms.create(feature_folder=forms.data, **SIZE)
    assert made.manifest.target.names == ["background", "grout", "tile", "apple"]
    assert count_pixels(made) == [PIXELS[0], 0, PIXELS[1], 0]
    assert {int(record.target(made.manifest.target).max()) for record in made.records("val")} == {2}


@pytest.mark.parametrize("folder", ["ImageSets/Segmentation", "ImageSets", "."])
def test_lists_of_splits_are_used(forms: Forms, folder: str) -> None:
    save(forms.data, "JPEGImages/{}.png", "SegmentationClass/{}.png")
    names = ("JPEGImages/{}.png" if folder == "." else "{}").format
    (forms.data / folder).mkdir(parents=True, exist_ok=True)
    for split, numbers in (("train", range(4)), ("val", range(4, 6))):
        (forms.data / folder / f"{split}.txt").write_text("\n".join(map(names, numbers)))
    made = forms.create(feature_folder=forms.data, **SIZE)
    assert made.counts == {"train": 4, "val": 2}
    used = "The splits of the source are used: train.txt for training, val.txt for validation."
    assert used in made.remarks
    assert sorted(record.filename for record in made.records("val")) == ["4.png", "5.png"]
    suggestion = forms.summary(feature_folder=forms.data).suggestion
    assert suggestion and suggestion.action == "Mix them"
    mixed = forms.create(**suggestion.fields, folder_pct_val=50, **SIZE)
    assert mixed.counts == {"train": 3, "val": 3}
