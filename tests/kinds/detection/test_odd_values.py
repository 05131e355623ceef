"""Numbers of any size, deep nesting and halves of characters in annotations have a reason, in all formats of JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from digits.core.errors import BadRequest
from digits.data.sources.plan import Progress, UnusableSource
from digits.kinds.detection import reader
from digits.kinds.detection.formats.formats import find_sources
from digits.kinds.detection.recipe import CreateDetection
from digits.kinds.segmentation import reader as segmentation
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageFolders
from tests.kinds.dataset_forms import Forms
from tests.kinds.detection import test_tools as tools
from tests.kinds.detection.formats import test_formats as formats

LONG = "1" + 400 * "0"
DEEP = 1500 * "[" + 1500 * "]"


def write_coco(root: Path) -> None:
    for name in formats.OBJECTS:
        tools.save(root / f"{name}.png")
    formats.write_coco(root)


def write_json_lines(root: Path) -> None:
    (root / "images").mkdir(parents=True)
    for name in formats.OBJECTS:
        Image.new("L", (formats.WIDTH, formats.HEIGHT)).save(root / "images" / f"{name}.png")
    formats.write_json_lines(root)


WRITERS: dict[str, Callable[[Path], object]] = {
    "coco": write_coco,
    "jsonl": write_json_lines,
    "labelme": tools.write_labelme,
    "label-studio": tools.write_label_studio,
    "json-min": tools.write_json_min,
    "vgg": tools.write_vgg,
    "supervisely": tools.write_supervisely,
}


def replaced(text: str) -> Iterator[str]:
    """Yield ``text`` with an odd value in the place of each number and text, and in a key that nobody reads."""
    for match in re.finditer(r'(?<![\w"/.-])-?\d+(\.\d+)?(?![\w"/.])', text):
        for odd in (LONG, "1e400", f'"{LONG}"', "1" + 5000 * "0", "NaN"):
            yield text[: match.start()] + odd + text[match.end() :]
    for match in re.finditer(r'(?<=[:\[] )"[^"]*"', text):
        yield text[: match.start()] + r'"\ud800"' + text[match.end() :]
    for odd in (DEEP, r'"\udc00 \ud83d"', LONG, "NaN"):
        yield text.replace("{", f'{{"odd": {odd}, ', 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_odd_values_are_skipped_or_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "data"
    WRITERS[name](root)
    path = min(path for path in root.rglob("*") if path.suffix in (".json", ".jsonl") and path.stem != "meta")
    (images, labels), *_ = (find_sources(root) or find_sources(root / "images")).values()
    sources: dict[str, Any] = {"images": str(images), "labels": str(labels)}
    shares: dict[str, Any] = {"pct_val": 0, "max_unusable_percent": 100}
    recipes: dict[Any, Any] = {
        reader: CreateDetection(**sources, **shares),
        segmentation: CreateSegmentation(
            train=TargetImageFolders(images=str(images), targets=str(labels)), **shares
        ),
    }
    tried, used = 0, 0
    for text in replaced(path.read_text()):
        path.write_text(text)
        tried += 1
        for kind, recipe in recipes.items():
            try:
                used += kind.read(recipe, Progress()) is not None
            except UnusableSource as error:
                assert str(error)
    assert tried > 10 and used


def test_an_unknown_format_is_an_error_of_its_field(tmp_path: Path) -> None:
    write_coco(tmp_path / "data")
    forms = Forms("image-object-detection", tmp_path / "data")
    fields = {"train_image_folder": tmp_path / "data", "format": "none" * 1000}
    assert "format" in forms.errors(**fields)
    assert "format" in forms.errors(**fields, train_label_folder=tmp_path / "data" / "labels.json")
    assert "format" in forms.errors(**fields, train_label_folder=tmp_path / "data")
    with pytest.raises(BadRequest, match=r"Format: "):
        forms.summary(**fields)
