"""Odd numbers, texts and nesting anywhere in the files of a source have a reason, in all kinds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from digits.data.sources.plan import Progress, UnusableSource
from digits.kinds.recipes import read_source
from tests.kinds import small_sources

TEXTS = (".txt", ".csv", ".json", ".jsonl", ".xml", ".yaml")
LONG = "1" + 400 * "0"
ODD = (
    LONG,
    "1e400",
    "-inf",
    "nan",
    "1_0",
    "1" + 5000 * "0",
    3000 * "[",
    '"\\ud800"',
    "\\ud800",
    "\udcff",
    "\0",
)
# The number of values that are replaced in each file.
MAX_PLACES = 6


def replaced(text: str) -> Iterator[str]:
    """Yield ``text`` with an odd value in the place of words and numbers."""
    places = list(re.finditer(r"[^\s,;:<>\[\]{}\"]+", text))
    for place in places[:: max(1, len(places) // MAX_PLACES)]:
        for odd in ODD:
            yield text[: place.start()] + odd + text[place.end() :]


NAMES = """kitti,voc,yolo,text files,csv,metadata,multi-label,regression,labels in json,boxes,boxes in json,coco,
listed pairs,table of targets,texts""".replace("\n", "").split(",")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_odd_values_are_skipped_or_refused(tmp_path: Path, name: str) -> None:
    recipe: Any = small_sources.EVERY[name](small_sources.write_images(tmp_path / "images"))
    paths = [path for path in sorted(tmp_path.rglob("*")) if path.suffix in TEXTS]
    path, written = paths[0], paths[0].read_text()
    for text in replaced(written):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        try:
            read_source(recipe, Progress())
        except UnusableSource as error:
            assert str(error)
    path.write_text(written)
    assert read_source(recipe, Progress()).splits["train"].files
