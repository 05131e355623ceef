"""Label images: how they encode classes, their pairs with images, splits, groups, and errors that name the file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from digits.data.images.images import Geometry, UnusableImage
from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.data.targets.mask import IGNORED
from digits.kinds.segmentation import reader
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageFolders

SIZE = (4, 3)
VOC = [(0, 0, 0), (128, 0, 0), (0, 128, 0)]


def picture(
    folder: Path, name: str, pixels: NDArray[np.uint8] | None = None, colors: list[int] | None = None
) -> None:
    """Save an image, by default a gray one of the usual size; ``colors`` are those of a palette."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.full(SIZE[::-1], 90, np.uint8) if pixels is None else pixels)
    if colors is not None:
        image = Image.fromarray(np.asarray(image), "P")
        image.putpalette(colors)
    image.save(path)


def rows(*values: int) -> NDArray[np.uint8]:
    """A mask with a value for each of its rows."""
    return np.repeat(np.array(values, np.uint8)[:, None], SIZE[0], axis=1)


def plan(root: Path, **settings: object) -> Plan:
    folders = TargetImageFolders(images=str(root / "images"), targets=str(root / "masks"))
    size = {"width": SIZE[0], "height": SIZE[1]}
    values = {"train": folders, "pct_val": 0.0, "processes": 1, **size, **settings}
    return reader.read(CreateSegmentation(**values), Progress())  # type: ignore[arg-type]


def masks(found: Plan, size: tuple[int, int] = SIZE) -> dict[str, list[list[int]] | str]:
    """The masks of the training images as lists, or the reason why one cannot be used."""
    split, result = found.splits["train"], {}
    for place, name in enumerate(split.files):
        try:
            features = found.features(split, place, Geometry(size, *size, "squash"))
            (data,) = features[found.target.feature]
            result[name] = np.asarray(Image.open(io.BytesIO(data))).tolist()
        except UnusableImage as error:
            result[name] = error.reason
    return result


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b/c"):
        picture(tmp_path / "images", f"{name}.jpg")
    return tmp_path


def test_indexes_are_classes_and_255_is_ignored(root: Path) -> None:
    picture(root / "masks", "a.png", rows(0, 1, 255))
    picture(root / "masks", "b/c.png", rows(3, 0, 0))
    found = plan(root)
    assert found.target.names == ["background", "class 1", "class 2", "class 3"]
    assert found.target.colors == []
    assert masks(found) == {"a.jpg": rows(0, 1, 255).tolist(), "b/c.jpg": rows(3, 0, 0).tolist()}
    assert any("class 2" in warning for warning in found.warnings)
    # The mean of the shares 1/2 and 2/3; ignored pixels do not count.
    np.testing.assert_allclose(found.target.mean, [7 / 12, 1 / 4, 0, 1 / 6])
    assert found.counts(found.splits["train"], range(2)).tolist() == [2, 1, 0, 1]
    assert sorted(found.groups) == ["class 1", "class 3"]


def test_a_palette_gives_the_colors(root: Path) -> None:
    colors = [channel for color in VOC for channel in color]
    picture(root / "masks", "a.png", rows(0, 2, 255), colors + [9] * 759)
    picture(root / "masks", "b/c.png", rows(0, 1, 1), colors)
    found = plan(root)
    assert found.target.colors == VOC
    assert masks(found)["a.jpg"] == rows(0, 2, 255).tolist()


def test_an_index_with_another_color_is_refused(root: Path) -> None:
    picture(root / "masks", "a.png", rows(0, 1, 2), [0, 0, 0, 128, 0, 0, 0, 128, 0])
    picture(root / "masks", "b/c.png", rows(0, 1, 1), [0, 0, 0, 0, 128, 0])
    assert "b/c.png: the index 1 has a different color" in str(masks(plan(root))["b/c.jpg"])


@pytest.mark.parametrize(("other", "shown"), [((1, 2, 3), "#010203"), ((250, 2, 3), "#fa0203")])
def test_a_color_map_translates_colors(root: Path, other: tuple[int, int, int], shown: str) -> None:
    (root / "map.txt").write_text("0 0 0\n128 0 0\n0, 128, 0\n")
    (root / "names.txt").write_text("sky\ncar\nroad\n")
    pixels = np.array([VOC[2], (224, 224, 192), VOC[1]], np.uint8)
    picture(root / "masks", "a.png", np.repeat(pixels[:, None], SIZE[0], axis=1))
    wrong = np.array([VOC[0], VOC[0], other], np.uint8)
    picture(root / "masks", "b/c.png", np.repeat(wrong[:, None], SIZE[0], axis=1))
    files = {"colormap_file": str(root / "map.txt"), "class_labels_file": str(root / "names.txt")}
    found = plan(root, **files)
    assert (found.target.names, found.target.colors) == (["sky", "car", "road"], VOC)
    assert masks(found) == {
        "a.jpg": rows(2, IGNORED, 1).tolist(),
        "b/c.jpg": f"label image b/c.png: the color {shown} is not in the color map",
    }
    with pytest.raises(UnusableSource, match="No label image can be used"):
        (root / "map.txt").write_text("9 9 9\n")
        plan(root, colormap_file=files["colormap_file"])


def test_unusable_label_images_are_named(root: Path) -> None:
    (root / "names.txt").write_text("sky\ncar\n")
    picture(root / "masks", "a.png", rows(0, 1, 2))
    picture(root / "masks", "b/c.png", np.zeros((3, 5), np.uint8))
    found = masks(plan(root, class_labels_file=str(root / "names.txt")))
    assert found["a.jpg"] == "label image a.png: the index 2 is not a class: there are 2"
    assert found["b/c.jpg"] == "label image b/c.png: it has 5×3 pixels, but the image has 4×3"


def photo(root: Path, name: str, turn: int, size: tuple[int, int] = (8, 6)) -> None:
    """Save a gray image of this stored size with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = turn
    (root / "images").mkdir(exist_ok=True)
    Image.new("L", size, 90).save(root / "images" / name, exif=exif)


@pytest.mark.parametrize("turn", range(1, 9))
def test_masks_of_the_file_are_turned_with_the_image(tmp_path: Path, turn: int) -> None:
    mask = np.arange(48, dtype=np.uint8).reshape(6, 8) % 5
    for name, orientation in (("a", 6), ("b", turn)):
        photo(tmp_path, f"{name}.png", orientation)
        picture(tmp_path / "masks", f"{name}.png", mask)
    found = plan(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = turn
    upright = Image.fromarray(mask)
    upright.getexif()[0x0112] = turn
    upright = ImageOps.exif_transpose(upright)
    assert masks(found, upright.size)["b.png"] == np.asarray(upright).tolist()
    assert any("turned with the image" in text and "a.png: 6×8" in text for text in found.warnings)


@pytest.mark.parametrize(("turn", "size"), [(6, (6, 8)), (3, (8, 6))])
def test_masks_of_upright_images_are_not_turned(tmp_path: Path, turn: int, size: tuple[int, int]) -> None:
    mask = np.arange(48, dtype=np.uint8).reshape(size[::-1]) % 5
    photo(tmp_path, "a.png", turn)
    picture(tmp_path / "masks", "a.png", mask)
    found = plan(tmp_path)
    assert masks(found, size) == {"a.png": mask.tolist()}
    assert any("used as those of the upright image (a.png)" in text for text in found.warnings) == (turn == 3)


@pytest.mark.parametrize("turn", [1, 8])
def test_masks_at_a_fraction_of_the_size_are_scaled(tmp_path: Path, turn: int) -> None:
    mask = np.arange(12, dtype=np.uint8).reshape(3, 4) % 3
    for name in "ab":
        photo(tmp_path, f"{name}.png", turn)
        picture(tmp_path / "masks", f"{name}.png", mask)
    found = plan(tmp_path)
    wanted = np.rot90(mask, turn == 8).repeat(2, axis=0).repeat(2, axis=1)
    assert masks(found, wanted.shape[::-1])["a.png"] == wanted.tolist()  # type: ignore[arg-type]
    assert any("2 images have 2 times the size of the mask" in text for text in found.warnings)


@pytest.mark.parametrize("size", [(7, 6), (8, 5), (9, 7)])
def test_masks_that_are_a_pixel_smaller_or_larger_are_scaled(tmp_path: Path, size: tuple[int, int]) -> None:
    mask = np.ones(size[::-1], np.uint8)
    for name in "ab":
        photo(tmp_path, f"{name}.png", 1)
        picture(tmp_path / "masks", f"{name}.png", mask)
    found = plan(tmp_path)
    assert masks(found, (8, 6)) == {f"{name}.png": [[1] * 8] * 6 for name in "ab"}
    assert any("masks are scaled" in text and f"{size[0]}×{size[1]}" in text for text in found.warnings)


def test_masks_at_different_fractions_are_refused_with_both_sizes(tmp_path: Path) -> None:
    for name, size in (("a", (4, 3)), ("b", (16, 12))):
        photo(tmp_path, f"{name}.png", 1)
        picture(tmp_path / "masks", f"{name}.png", np.zeros(size[::-1], np.uint8))
    reason = "label image {}: it has {} pixels, but the image has 8×6"
    assert masks(plan(tmp_path), (8, 6)) == {
        "a.png": reason.format("a.png", "4×3"),
        "b.png": reason.format("b.png", "16×12"),
    }


def test_surplus_files_are_named_and_left_out(root: Path) -> None:
    picture(root / "masks", "a_mask.png", rows(0, 1, 1))
    picture(root / "masks", "d.png", rows(0, 1, 1))
    found = plan(root)
    assert found.splits["train"].files == ["a.jpg"]
    warnings = " ".join(found.warnings)
    assert "1 image has no label image and cannot be used: b/c.jpg." in warnings
    assert "1 label image has no image and will not be used: d.png." in warnings
    for path in ("a.jpg", "b/c.jpg"):
        (root / "images" / path).unlink()
    picture(root / "images", "x.png")
    with pytest.raises(UnusableSource, match="No label image has the same name") as failure:
        plan(root)
    assert "The first image is x.png, the first label image a_mask.png" in failure.value.hint


@pytest.mark.parametrize(
    ("read", "text", "reason"),
    [
        (reader.read_class_names, "", "is empty"),
        (reader.read_class_names, "a\n\nb", "line 2, is empty"),
        (reader.read_class_names, "a\nb\na", "line 3, repeats “a” of line 1"),
        (reader.read_class_names, "\n".join(map(str, range(256))), "more than 255 lines"),
        (reader.read_color_map, "0 0 0\n0 0", "line 2 is not a color: “0 0”"),
        (reader.read_color_map, "0 0 0\n0 0 256", "line 2 is not a color"),
        (reader.read_color_map, "1 2 3\n4 5 6\n1 2 3", "line 3 repeats the color of line 1"),
        (reader.read_color_map, "\n".join(f"0 {n // 256} {n % 256}" for n in range(300)), "300 colors"),
    ],
)
def test_mistakes_in_class_labels_and_color_maps_name_the_line(
    tmp_path: Path, read: Callable[[str], object], text: str, reason: str
) -> None:
    (tmp_path / "lines.txt").write_text(text)
    with pytest.raises(UnusableSource, match=reason):
        read(str(tmp_path / "lines.txt"))


def test_a_padded_color_map_of_digits_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "map.txt"
    path.write_text("0 0 0\n128 0 0\n" + "0 0 0\n" * 254)
    assert reader.read_color_map(str(path)) == ([], [(0, 0, 0), (128, 0, 0)])


@pytest.mark.parametrize(
    "text",
    [
        "name,r,g,b\nthe sky,0,0,0\nCar 2,128,0,0\n",
        "0 0 0\tthe sky\n128 0 0\tCar 2\n",
        "# label:color_rgb:parts:actions\nthe sky:0,0,0::\nCar 2:128,0,0::\n",
        "the sky; 0; 0; 0\nCar 2; 128; 0; 0\n",
    ],
)
def test_a_color_map_can_have_names(tmp_path: Path, text: str) -> None:
    path = tmp_path / "class_dict.csv"
    path.write_text(text)
    assert reader.read_color_map(str(path)) == (["the sky", "Car 2"], [(0, 0, 0), (128, 0, 0)])


def test_several_processes_find_the_same_and_separate_folders_are_a_split(tmp_path: Path) -> None:
    for number in range(40):
        picture(tmp_path / "images", f"{number}.png")
        picture(tmp_path / "masks", f"{number}.png", rows(0, number % 2, 1))
    first, again = (plan(tmp_path, pct_val=25.0, pct_test=10.0, processes=count) for count in (1, 2))
    assert {name: split.files for name, split in first.splits.items()} == {
        name: split.files for name, split in again.splits.items()
    }
    assert first.target == again.target
    folders = TargetImageFolders(images=str(tmp_path / "images"), targets=str(tmp_path / "masks"))
    separate = plan(tmp_path, val=folders)
    assert {name: len(split) for name, split in separate.splits.items()} == {"train": 40, "val": 40}
