"""The task that lists the images to label: sizes as displayed, what cannot be decoded, copies, and splits."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.core.events import EventLog, Warned, read
from digits.core.recipe import ListImages
from digits.data.models.pretrained_catalog import FEATURES
from digits.kinds.labeling.images import IMAGES_FILE, ImageIndex, ListedImage, read_images, split_of
from digits.kinds.labeling.log import LABELS_FILE, LabelLog
from digits.kinds.labeling.ordering import BATCH, ORDER_FILE
from digits.worker.failure import UserFault
from digits.worker.tasks import list_images
from tests.labels import photo
from tests.worker.lazily import applications, tf

pytestmark = pytest.mark.integration


def save(path: Path, image: Image.Image, turn: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x112] = turn
    image.save(path, exif=exif)


def run(tmp_path: Path, **fields: Any) -> tuple[dict[str, Any], dict[str, ListedImage], list[str]]:
    """List the images in the folder ``pictures``; return the result, all images by path, and the warnings."""
    folder = tmp_path / "job" / "list"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = EventLog(folder / "events.jsonl")
    try:
        recipe = ListImages(**{"root": str(tmp_path / "pictures"), "target": str(folder.parent), **fields})
        result = list_images.run(recipe, folder, log)
    finally:
        log.close()
    warnings = [event.message for event in read(folder / "events.jsonl")[0] if isinstance(event, Warned)]
    return result, {image.path: image for image in read_images(folder.parent)}, warnings


def test_sizes_are_those_of_displayed_images(tmp_path: Path) -> None:
    for turn in range(1, 9):
        save(tmp_path / "pictures" / f"{turn}.jpg", photo(turn), turn)
    photo(9).convert("L").save(tmp_path / "pictures" / "gray.webp")
    _, images, warnings = run(tmp_path)
    sizes = {path: image.size for path, image in images.items()}
    assert sizes == {
        **{f"{turn}.jpg": (60, 40) if turn < 5 else (40, 60) for turn in range(1, 9)},
        "gray.webp": (60, 40),
    }
    assert [images[f"{turn}.jpg"].turn for turn in range(1, 9)] == [*range(1, 9)]
    assert warnings == []


def test_images_that_cannot_be_decoded_are_listed_with_the_reason(tmp_path: Path) -> None:
    save(tmp_path / "pictures" / "whole.jpg", photo(0))
    data = (tmp_path / "pictures" / "whole.jpg").read_bytes()
    (tmp_path / "pictures" / "cut.jpg").write_bytes(data[: len(data) // 2])
    (tmp_path / "pictures" / "text.png").write_text("not an image")
    (tmp_path / "pictures" / "empty.gif").touch()
    (tmp_path / "pictures" / "drawing.svg").write_text("<svg/>")
    result, images, warnings = run(tmp_path)
    assert {path for path, image in images.items() if image.reason} == {"cut.jpg", "text.png", "empty.gif"}
    assert result == {"images": 4, "new": 4, "unusable": 3}
    assert any("3 images cannot be decoded and will be skipped" in text for text in warnings)
    index = ImageIndex(tmp_path / "job")
    index.update()
    assert [index.read(number) for number in range(len(index))] == [*images.values()]
    assert [*index.unusable] == [bool(image.reason) for image in images.values()]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    with pytest.raises(UserFault, match="No images found"):
        run(tmp_path)


def test_images_that_look_the_same_are_in_one_set_and_split(tmp_path: Path) -> None:
    for number in range(40):
        save(tmp_path / "pictures" / "a" / f"{number:02}.png", photo(number))
        save(tmp_path / "pictures" / "b" / f"{number:02}.jpg", photo(number).resize((120, 80)))
    shutil.copy(tmp_path / "pictures" / "a" / "07.png", tmp_path / "pictures" / "z.png")
    for side in (20, 30):
        Image.new("RGB", (side, side)).save(tmp_path / "pictures" / f"black{side}.png")
    _, images, _ = run(tmp_path)
    names = [*images]
    for number in range(40):
        original, copy = images[f"a/{number:02}.png"], images[f"b/{number:02}.jpg"]
        assert original.set == copy.set == names.index(original.path)
        assert original.split == copy.split == split_of(original.digest)
    assert images["z.png"].set == images["a/07.png"].set
    # Nearly uniform images all look the same, but need not be copies.
    assert images["black20.png"].set != images["black30.png"].set


def test_a_second_list_appends_and_changes_nothing(tmp_path: Path) -> None:
    for number in range(12):
        save(tmp_path / "pictures" / f"m{number:02}.png", photo(number))
    _, before, _ = run(tmp_path)
    save(tmp_path / "pictures" / "a.jpg", photo(3).resize((90, 60)))
    save(tmp_path / "pictures" / "new.png", photo(99))
    (tmp_path / "pictures" / "m05.png").unlink()
    result, after, _ = run(tmp_path)
    assert result == {"images": 14, "new": 2, "unusable": 0}
    assert [*after.items()][:12] == [*before.items()] and [*after][12:] == ["a.jpg", "new.png"]
    assert (after["a.jpg"].set, after["a.jpg"].split) == (3, before["m03.png"].split)
    assert after["new.png"].set == 13
    # Without the file of how images look, they are read again.
    (tmp_path / "job" / list_images.APPEARANCE_FILE).unlink()
    save(tmp_path / "pictures" / "b.jpg", photo(4).resize((90, 60)))
    assert run(tmp_path)[1]["b.jpg"].set == 4
    assert run(tmp_path)[0]["new"] == 0


def test_imported_labels_are_of_the_images_that_a_repeated_list_finds(tmp_path: Path) -> None:
    """A task that was killed between the labels and the images leaves labels of images with other numbers."""
    for name in ("cat/b.jpg", "dog/c.jpg"):
        save(tmp_path / "pictures" / name, photo(len(name) + ord(name[0])))
    folders = {"folder": str(tmp_path / "pictures"), "min_per_class": 1}
    source = {"kind": "image-classification", "train": folders, "pct_val": 0}
    run(tmp_path, classes=["dog"], source=source)
    job = tmp_path / "job"
    (job / IMAGES_FILE).unlink()
    save(tmp_path / "pictures" / "a.jpg", photo(5))
    _, images, warnings = run(tmp_path, classes=["dog"], source=source)
    log = LabelLog(job)
    log.update()
    found = {path: log.latest(number) for number, path in enumerate(images)}
    assert {path: entry.label for path, entry in found.items() if entry} == {"cat/b.jpg": 1, "dog/c.jpg": 0}
    assert found["a.jpg"] is None
    assert len(warnings) == 1 and "1 image ignored directly in" in warnings[0]
    # Later, the labels are people's.
    size = (job / LABELS_FILE).stat().st_size
    save(tmp_path / "pictures" / "dog" / "d.jpg", photo(6))
    assert run(tmp_path, root="", source=source)[0]["new"] == 1
    assert (job / LABELS_FILE).stat().st_size == size


def test_labels_that_do_not_fit_their_image_are_left_out(tmp_path: Path) -> None:
    save(tmp_path / "pictures" / "a.jpg", photo(1))
    (tmp_path / "boxes.csv").write_text(
        "image,label,left,top,right,bottom\na.jpg,cat,0,0,5,0.5\nb.jpg,cat,0,0,5,5\n"
    )
    folder = str(tmp_path / "pictures")
    source = {
        "kind": "image-object-detection",
        "images": folder,
        "labels": str(tmp_path / "boxes.csv"),
        "pct_val": 0,
    }
    *_, warnings = run(tmp_path, source=source)
    assert "a.jpg (Object 1 is smaller than a pixel.)" in "\n".join(warnings) and "b.jpg" in "\n".join(
        warnings
    )


def test_splits_have_their_shares() -> None:
    digests = np.random.default_rng(0).integers(0, 2**63, 20_000)
    counts = Counter(split_of(f"{digest:016x}") for digest in digests.tolist())
    shares = {split: round(100 * count / len(digests)) for split, count in counts.items()}
    assert shares == {"train": 75, "val": 15, "test": 10}


COLORS = ("red", "lime", "blue", "yellow", "magenta", "cyan", "orange", "purple", "pink", "teal")


def in_colors(folder: Path) -> None:
    """Write 100 images with different patterns in ten colors, most of them in one."""
    random = np.random.default_rng(0)
    for number in range(100):
        pattern = Image.fromarray((random.random((8, 8)) < 0.9).astype(np.uint8) * 255)
        image = Image.new("RGB", (64, 64), "black")
        image.paste(COLORS[number if number < 10 else 0], mask=pattern.resize((64, 64)))
        save(folder / f"{number}.png", image)


def colors_of_first_images(tmp_path: Path, weights: str) -> set[str]:
    """Return the colors of the first images to label that are not held out."""
    _, images, _ = run(tmp_path, weights=weights)
    listed = [*images.values()]
    order = [listed[number] for number in np.load(tmp_path / "job" / ORDER_FILE)]
    first = [int(Path(image.path).stem) for image in order if image.split == "train"][:BATCH]
    return {COLORS[number if number < 10 else 0] for number in first}


def _write_weights(path: Path) -> None:
    tf.keras.utils.set_random_seed(1)
    applications.build(FEATURES, (64, 64, 3), include_top=False).save_weights(path)


def test_the_first_images_look_different_to_a_network(in_child: Any, tmp_path: Path) -> None:
    in_colors(tmp_path / "pictures")
    weights = tmp_path / "efficientnetlite.weights.h5"
    in_child(_write_weights, weights)
    colors, without = (in_child(colors_of_first_images, tmp_path, name) for name in (str(weights), ""))
    assert colors > without == {COLORS[0]}
    weights.write_bytes(b"damaged")
    assert in_child(colors_of_first_images, tmp_path, str(weights)) == without
