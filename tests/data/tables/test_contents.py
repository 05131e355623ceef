"""Columns of tables that can be neither labels nor boxes."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from digits.data.sources.plan import UnusableSource
from digits.data.tables.contents import has_run_lengths, refuse_contents
from digits.data.tables.tables import TableFile, has_no_image, open_table

FEATURES = " ".join(str(number / 7) for number in range(20))


def table(folder: Path, name: str, cells: list[str]) -> TableFile:
    path = folder / "table.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["image", name], *([f"{n}.png", cell] for n, cell in enumerate(cells))])
    return open_table(path, has_no_image)


@pytest.mark.parametrize(
    ("name", "cells", "message"),
    [
        ("EncodedPixels", ["1 3", "", "10 5 20 4"], "contains masks as run lengths .* COCO file"),
        ("rle_mask", ["1 3 9 2"], "run lengths"),
        ("mask", ["1 3 9 2", "4 5 100 3 20000 7"], "run lengths"),
        ("embedding", [FEATURES, FEATURES], "lists of numbers.* If they are features"),
        ("embedding", [str([0.5] * 20)], "lists of numbers"),
        ("pixels", ["0 255 " * 8 + "1"], "lists of numbers.* If they are pixels"),
        (
            "caption",
            ["A dog runs on the grass.", "Two cats in a box"],
            "sentences, such as “A dog runs on the",
        ),
    ],
)
def test_other_contents_are_named(tmp_path: Path, name: str, cells: list[str], message: str) -> None:
    with pytest.raises(UnusableSource, match=rf"The column “{name}” of table\.csv") as caught:
        refuse_contents(table(tmp_path, name, cells), [0, 1])
    assert re.search(message, caught.value.sentences)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("labels", ["1 2 4 5", "0 1 5 9"]),
        ("box", ["10 20 5 9", "4 5 20 9"]),
        ("labels", ["outdoor person dog grass", "indoor cat"]),
        ("label", ["golden retriever", "salt and pepper"]),
        ("text", ["", ""]),
        ("label", ["1", "2"]),
    ],
)
def test_labels_and_boxes_are_left_alone(tmp_path: Path, name: str, cells: list[str]) -> None:
    refuse_contents(table(tmp_path, name, cells), [0, 1])
    assert not has_run_lengths(table(tmp_path, name, cells), 1, above=1000)
