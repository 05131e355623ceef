"""Label images whose values are not class indexes: black and white, shades of gray, colors, and JPEG files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from digits.data.images.images import UnusableImage
from digits.data.images.masks import open_mask, pixels_of
from digits.data.sources.plan import UnusableSource, listed
from tests.kinds.dataset_forms import Created, Forms

WIDTH, HEIGHT, COUNT = 48, 32, 6
SIZE = {"resize_width": WIDTH, "resize_height": HEIGHT, "resize_channels": 1}
SQUARE = 10
# The pixels of one square per image, and of the background.
PIXELS = [COUNT * (WIDTH * HEIGHT - SQUARE**2), COUNT * SQUARE**2]

Draw = Callable[[int, NDArray[np.uint8]], Image.Image]


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms("image-segmentation", tmp_path / "own")


def square(number: int, scale: int = 1, *colors: int | tuple[int, ...]) -> NDArray[np.uint8]:
    """A square on black, of the next one of ``colors``, by default white."""
    channels = (3,) if colors and isinstance(colors[0], tuple) else ()
    pixels = np.zeros((HEIGHT * scale, WIDTH * scale, *channels), np.uint8)
    left, top = (2 + number * 7 % 34) * scale, (2 + number * 5 % 18) * scale
    side = SQUARE * scale
    pixels[top : top + side, left : left + side] = colors[number % len(colors)] if colors else 255
    return pixels


def write(forms: Forms, draw: Callable[[int], Image.Image], ending: str = "png") -> Path:
    for name in ("images", "masks"):
        (forms.data / name).mkdir(parents=True)
    for number in range(COUNT):
        Image.new("L", (WIDTH, HEIGHT), 40 * number).save(forms.data / "images" / f"{number}.png")
        draw(number).save(forms.data / "masks" / f"{number}.{ending}")
    return forms.data


def create(forms: Forms, **fields: object) -> Created:
    """Create the dataset; the form must have shown its classes and its notes."""
    fields = {"feature_folder": forms.data, "folder_pct_val": 0, "folder_pct_test": 0} | SIZE | fields
    shown = forms.summary(**fields)
    made = forms.create(**fields)
    assert not shown.problems
    names = made.manifest.target.names
    assert f"{len(names)} classes: {listed(names)}." in shown.facts
    for remark in made.remarks:
        assert remark in shown.facts
    return made


def count_pixels(made: Created) -> list[int]:
    """The number of pixels of each class in the dataset."""
    target = made.manifest.target
    total = np.zeros(256, np.int64)
    for record in made.records():
        total += np.bincount(record.target(target).ravel(), minlength=256)
    assert total[len(target.names) :].sum() == 0
    return [int(count) for count in total[: len(target.names)]]


@pytest.mark.parametrize(
    "draw",
    [
        lambda number: Image.fromarray(square(number)).convert("RGB"),
        lambda number: Image.fromarray(square(number)).convert("RGBA"),
        lambda number: Image.fromarray(square(number)).convert("LA"),
        lambda number: Image.fromarray(square(number)).convert("1"),
        lambda number: Image.fromarray(square(number)).convert("1" if number else "L"),
        lambda number: Image.fromarray(square(number).astype(np.uint16) * 257),
        # White squares on transparent white, as drawing programs save them.
        lambda number: Image.merge(
            "RGBA", [*[Image.new("L", (WIDTH, HEIGHT), 255)] * 3, Image.fromarray(square(number))]
        ),
    ],
    ids=["RGB", "RGBA", "LA", "bits", "bits and bytes", "16 bits", "transparent"],
)
def test_black_and_white_has_two_classes_in_every_mode(
    forms: Forms, draw: Callable[[int], Image.Image]
) -> None:
    write(forms, draw)
    made = create(forms)
    assert made.manifest.target.names == ["background", "foreground"]
    assert count_pixels(made) == PIXELS and not made.remarks


def smooth(number: int) -> Image.Image:
    return Image.fromarray(square(number, 8)).resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)


def blurred(number: int) -> Image.Image:
    large = Image.fromarray(square(number)).resize((WIDTH * 3, HEIGHT * 3), Image.Resampling.BICUBIC)
    return large.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


@pytest.mark.parametrize("draw", [smooth, blurred, lambda number: blurred(number).convert("RGB")])
def test_gray_edges_are_divided_and_noted(forms: Forms, draw: Callable[[int], Image.Image]) -> None:
    write(forms, draw)
    made = create(forms)
    assert made.manifest.target.names == ["background", "foreground"]
    assert count_pixels(made) == pytest.approx(PIXELS, rel=0.1)
    (note,) = made.remarks
    assert note.startswith("Smoothing changed the values at the edges") and "divided at 128" in note


@pytest.mark.parametrize(("mode", "quality"), [("L", 75), ("RGB", 40), ("L", 95)])
def test_jpeg_files_in_black_and_white_are_divided_and_noted(forms: Forms, mode: str, quality: int) -> None:
    write(forms, lambda number: Image.fromarray(square(number)).convert(mode), "jpg")
    # The quality of the files is what matters: they are saved again.
    for number in range(COUNT):
        path = forms.data / "masks" / f"{number}.jpg"
        Image.fromarray(square(number)).convert(mode).save(path, quality=quality)
    made = create(forms)
    assert made.manifest.target.names == ["background", "foreground"]
    assert count_pixels(made) == pytest.approx(PIXELS, rel=0.05)
    note = "JPEG changed the values of the label images: divided at 128 into background and foreground."
    assert made.remarks == [note]


def test_values_that_jpeg_changed_can_have_names(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(square(number)), "jpg")
    (forms.data / "names.txt").write_text("table\ncup\n")
    made = create(forms, class_labels_file=forms.data / "names.txt")
    assert made.manifest.target.names == ["table", "cup"]
    assert count_pixels(made) == pytest.approx(PIXELS, rel=0.05)
    assert made.remarks == ["JPEG changed the values of the label images: divided at 128 into table and cup."]


@pytest.mark.parametrize("values", [(128, 255), (127, 254), (85, 170, 255), (38, 75)])
def test_a_few_shades_of_gray_are_classes(forms: Forms, values: tuple[int, ...]) -> None:
    write(forms, lambda number: Image.fromarray(square(number, 1, *values)))
    made = create(forms)
    count = len(values) + 1
    assert made.manifest.target.names == ["background", "class 1", "class 2", "class 3"][:count]
    assert count_pixels(made) == [PIXELS[0], *[PIXELS[1] // len(values)] * len(values)]
    shades = ", ".join(map(str, (0, *values)))
    assert made.remarks == [f"{count} gray levels: taken as {count} classes ({shades})."]


def test_two_shades_are_background_and_foreground(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(square(number, 1, 100)))
    made = create(forms)
    assert made.manifest.target.names == ["background", "foreground"] and count_pixels(made) == PIXELS
    assert made.remarks == ["2 gray levels: taken as 2 classes (0, 100)."]


def test_one_and_255_can_both_be_the_foreground(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(square(number, 1, 1, 255)))
    made = create(forms)
    assert made.manifest.target.names == ["background", "foreground"] and count_pixels(made) == PIXELS
    assert made.remarks[0].startswith("Some label images use 1 for the foreground, others 255")


def test_255_has_no_class_beside_one(forms: Forms) -> None:
    def draw(number: int) -> Image.Image:
        pixels = square(number, 1, 1)
        pixels[0] = 255
        return Image.fromarray(pixels)

    write(forms, draw)
    made = forms.create(feature_folder=forms.data, folder_pct_val=0, **SIZE)
    target = made.manifest.target
    assert target.names == ["background", "class 1"] and not made.remarks
    for record in made.records():
        assert (record.target(target)[0] == 255).all() and (record.target(target)[1:] < 2).all()


def test_black_label_images_have_one_class(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(square(number, 1, 0)))
    made = forms.create(feature_folder=forms.data, folder_pct_val=0, **SIZE)
    assert made.remarks == ["All pixels of the label images have the value 0: there is one class."]


def test_thin_lines_of_two_shades_are_two_classes(forms: Forms) -> None:
    def draw(number: int) -> Image.Image:
        pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
        pixels[3 + number], pixels[20] = 128, 255
        return Image.fromarray(pixels)

    write(forms, draw)
    made = create(forms)
    assert count_pixels(made) == [COUNT * (HEIGHT - 2) * WIDTH, COUNT * WIDTH, COUNT * WIDTH]


def test_255_is_a_class_beside_a_single_one(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(np.maximum(square(number), 1)))
    made = create(forms)
    assert made.manifest.target.names == ["background", "foreground"] and count_pixels(made) == PIXELS
    assert made.remarks == ["2 gray levels: taken as 2 classes (1, 255)."]


def test_the_reason_is_named_if_no_label_image_can_be_used(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(square(number).astype(np.uint16) * 100))
    with pytest.raises(UnusableSource, match=r"\.png: an index is above 255"):
        forms.plan(feature_folder=forms.data, **SIZE)


def test_shades_can_have_names(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(square(number, 1, 127, 254)))
    (forms.data / "names.txt").write_text("floor\ntable\ncup\n")
    made = create(forms, class_labels_file=forms.data / "names.txt")
    assert made.manifest.target.names == ["floor", "table", "cup"]
    assert count_pixels(made) == [PIXELS[0], PIXELS[1] // 2, PIXELS[1] // 2]


def test_values_are_indexes_if_the_classes_have_names(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(square(number, 1, 127, 254)))
    (forms.data / "names.txt").write_text("".join(f"name {number}\n" for number in range(255)))
    made = forms.create(
        feature_folder=forms.data, class_labels_file=forms.data / "names.txt", folder_pct_val=0, **SIZE
    )
    pixels = count_pixels(made)
    assert len(made.manifest.target.names) == 255
    assert (pixels[0], pixels[127], pixels[254]) == (PIXELS[0], PIXELS[1] // 2, PIXELS[1] // 2)


@pytest.mark.parametrize("stray", [(200,), (250, 240, 251)])
def test_a_stray_label_image_does_not_change_indexes_with_names(forms: Forms, stray: tuple[int, ...]) -> None:
    def draw(number: int) -> Image.Image:
        pixels = square(number, 1, 1)
        if not number:
            pixels[: len(stray)] = np.array(stray)[:, None]
        return Image.fromarray(pixels)

    write(forms, draw)
    (forms.data / "names.txt").write_text("floor\ncup\n")
    names = {"class_labels_file": forms.data / "names.txt", "max_unusable_percent": 50}
    made = forms.create(feature_folder=forms.data, folder_pct_val=0, **names, **SIZE)
    (remark,) = made.remarks
    assert made.counts["train"] == COUNT - 1 and remark.startswith("1 image skipped: 0.png")
    assert count_pixels(made)[1] == (COUNT - 1) * SQUARE**2


def test_many_indexes_stay_indexes(forms: Forms) -> None:
    blocks = np.kron(np.arange(64).reshape(8, 8), np.ones((HEIGHT // 8, WIDTH // 8))).astype(np.uint8)
    write(forms, lambda number: Image.fromarray(blocks))
    made = create(forms)
    assert count_pixels(made) == [COUNT * HEIGHT * WIDTH // 64] * 64
    assert made.remarks == ["64 values: taken as class indexes, 0 to 63."]


@pytest.mark.parametrize(
    ("draw", "ending", "cause", "found"),
    [
        (lambda number: Image.fromarray(square(number, 1, 5, 9)), "jpg", "JPEG changed the values", "0 ("),
        (
            lambda number: Image.fromarray(square(number, 1, 128, 255)),
            "jpg",
            "JPEG changed the values",
            "0 (",
        ),
        (
            lambda number: Image.fromarray(
                np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH), np.uint8)
            ),
            "png",
            "The classes of the label images are unclear: 256 values",
            "pixels)",
        ),
        (
            lambda number: Image.fromarray(square(number, 1, (255, 0, 0), (0, 0, 255))),
            "jpg",
            "JPEG changed the colors",
            "#000000 (",
        ),
        (
            lambda number: Image.fromarray(
                np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
            ),
            "png",
            "The classes of the colors of the label images are not known",
            "pixels)",
        ),
    ],
    ids=["JPEG indexes", "JPEG shades", "noise", "JPEG colors", "colored noise"],
)
def test_unclear_values_are_listed(
    forms: Forms, draw: Callable[[int], Image.Image], ending: str, cause: str, found: str
) -> None:
    write(forms, draw, ending)
    (problem,) = forms.summary(feature_folder=forms.data).problems
    with pytest.raises(UnusableSource) as failure:
        forms.plan(feature_folder=forms.data, **SIZE)
    assert cause in problem and found in problem and "PNG files without smoothing" in problem
    assert failure.value.sentences == problem


def with_palette(number: int, *colors: tuple[int, int, int]) -> Image.Image:
    places = [colors.index((value,) * 3) for value in (0, 255)]
    image = Image.fromarray(np.array(places, np.uint8)[square(number) // 255], "P")
    image.putpalette([channel for color in colors for channel in color])
    return image


def test_palettes_of_black_and_white_can_have_any_order(forms: Forms) -> None:
    black, white = (0, 0, 0), (255, 255, 255)
    write(forms, lambda number: with_palette(number, *[(black, white), (white, black)][number % 2]))
    made = create(forms)
    assert made.manifest.target.names == ["background", "foreground"] and count_pixels(made) == PIXELS


def test_indexes_count_if_white_is_the_first_color(forms: Forms) -> None:
    write(forms, lambda number: with_palette(number, (255, 255, 255), (0, 0, 0)))
    made = create(forms)
    assert made.manifest.target.names == ["background", "class 1"] and count_pixels(made) == PIXELS[::-1]


def test_a_few_colors_are_classes(forms: Forms) -> None:
    colors = ((0, 255, 0), (255, 0, 0), (128, 128, 128))
    write(forms, lambda number: Image.fromarray(square(number, 1, *colors)))
    made = create(forms)
    target = made.manifest.target
    assert target.names == ["background", "#00ff00", "#808080", "#ff0000"]
    assert target.colors == [(0, 0, 0), (0, 255, 0), (128, 128, 128), (255, 0, 0)]
    assert count_pixels(made) == [PIXELS[0], *[PIXELS[1] // 3] * 3]
    assert made.remarks == ["4 colors: taken as 4 classes (#000000, #00ff00, #808080, #ff0000)."]


def test_the_most_frequent_color_is_the_background_without_black(forms: Forms) -> None:
    def draw(number: int) -> Image.Image:
        pixels = square(number, 1, (0, 255, 0), (255, 0, 0))
        pixels[~pixels.any(axis=2)] = (40, 50, 60)
        return Image.fromarray(pixels).convert("RGBA" if number else "RGB")

    write(forms, draw)
    made = create(forms)
    assert made.manifest.target.names == ["background", "#00ff00", "#ff0000"]
    assert count_pixels(made) == [PIXELS[0], PIXELS[1] // 2, PIXELS[1] // 2]


def test_transparent_pixels_of_any_color_are_background(forms: Forms) -> None:
    def draw(number: int) -> Image.Image:
        colors = Image.fromarray(square(number, 1, (255, 0, 0)))
        pixels = np.where(np.asarray(colors).any(axis=2, keepdims=True), np.asarray(colors), 255)
        return Image.merge("RGBA", [*Image.fromarray(pixels).split(), Image.fromarray(square(number))])

    write(forms, draw)
    made = create(forms)
    assert made.manifest.target.names == ["background", "#ff0000"] and count_pixels(made) == PIXELS


def test_colors_with_names_need_a_color_map(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(square(number, 1, (0, 255, 0), (255, 0, 0))))
    (forms.data / "names.txt").write_text("floor\ntable\ncup\n")
    fields = {"feature_folder": forms.data, "class_labels_file": forms.data / "names.txt"}
    (problem,) = forms.summary(**fields).problems
    assert "3 colors, #000000" in problem and "Enter a color map" in problem


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([0, 257, 65535], [0, 1, 255]),
        ([0, 0.5, 1], "fractions"),
        ([0, float("nan"), 1], "fractions"),
        ([-1, 0, 1], "above 255"),
        ([0, 300, 1], "above 255"),
    ],
)
def test_wide_values_must_be_class_indexes_or_shades(
    tmp_path: Path, values: list[float], expected: list[int] | str
) -> None:
    Image.fromarray(np.array([values], np.float32)).save(tmp_path / "mask.tif")
    image = open_mask(str(tmp_path / "mask.tif"))
    if isinstance(expected, list):
        assert pixels_of(image).tolist() == [expected]
    else:
        with pytest.raises(UnusableImage, match=expected):
            pixels_of(image)


def blocks(values: Sequence[int]) -> NDArray[np.uint8]:
    """Rectangles of the given values on black."""
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    for place, value in enumerate(values):
        left, top = 1 + place % 8 * 6, 1 + place // 8 * 8
        pixels[top : top + 6, left : left + 5] = value
    return pixels


def colored(values: Sequence[int], colors: int) -> Image.Image:
    table = np.random.default_rng(colors).integers(1, 256, (256, 3), np.uint8)
    table[0] = 0
    return Image.fromarray(table[blocks(values)])


def palette_of(values: Sequence[int]) -> Image.Image:
    image = Image.fromarray(blocks(values), "P")
    image.putpalette([37 * number % 256 for number in range(768)])
    return image


INSTANCES: dict[str, tuple[Callable[[int], Image.Image], str]] = {
    "numbered in each image": (lambda n: Image.fromarray(blocks(range(1, 4 + n))), "8 besides"),
    "of 16 bits": (lambda n: Image.fromarray(blocks(range(1, 4 + n)).astype(np.uint16)), "8 besides"),
    "with some left out": (
        lambda n: Image.fromarray(blocks([value for value in range(1, 12 + n) if value != 3 + n])),
        "16 besides",
    ),
    "numbered in the whole set": (
        lambda n: Image.fromarray(blocks(range(1 + 5 * n, 6 + 5 * n))),
        "30 besides",
    ),
    "in steps": (lambda n: Image.fromarray(blocks(range(20, 61 + 20 * n, 20))), "8 besides"),
    "with a palette": (lambda n: palette_of(range(1, 4 + n)), "8 besides"),
    "in colors of their own": (lambda n: colored(range(1, 5), n), "24 besides"),
    "in colors in order": (lambda n: colored(range(1, 4 + n), 0), "8 besides"),
}


@pytest.mark.parametrize("case", INSTANCES)
def test_values_of_single_objects_are_refused(forms: Forms, case: str) -> None:
    draw, count = INSTANCES[case]
    write(forms, draw)
    (problem,) = forms.summary(feature_folder=forms.data).problems
    with pytest.raises(UnusableSource) as failure:
        forms.plan(feature_folder=forms.data, **SIZE)
    assert failure.value.sentences == problem
    assert "single objects (instances), not of classes" in problem and count in problem


def test_two_class_labels_make_numbered_objects_the_foreground(forms: Forms) -> None:
    write(forms, INSTANCES["numbered in each image"][0])
    names = forms.data / "names.txt"
    names.write_text("background\ncell\n")
    made = create(forms, class_labels_file=names)
    assert made.manifest.target.names == ["background", "cell"]
    assert count_pixels(made)[1] == 30 * sum(3 + number for number in range(COUNT))
    assert made.remarks == ["The values number objects: those above 0 are “cell”."]
    names.write_text("".join(f"class {number}\n" for number in range(9)))
    assert len(create(forms, class_labels_file=names).manifest.target.names) == 9


def test_classes_in_some_images_are_no_objects(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(blocks([1, 2, 3, 4, 5 + number % 2][number % 3 :])))
    assert len(create(forms).manifest.target.names) == 7


def test_a_class_of_its_own_in_each_image_is_no_object(forms: Forms) -> None:
    write(forms, lambda number: Image.fromarray(blocks([1 + number] * 3)))
    assert len(create(forms).manifest.target.names) == 1 + COUNT
