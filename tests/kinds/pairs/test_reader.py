"""Pairs from CSV files and from folders of classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.pairs import reader
from digits.kinds.pairs.reader import PairSplit
from digits.kinds.pairs.recipe import CreatePairs
from tests.kinds.tables import write


def plan(source: Path, **options: object) -> Plan:
    folder = source if source.is_dir() else source.parent
    return reader.read(CreatePairs(**{"source": str(source), "folder": str(folder)} | options), Progress())


def pairs(plan: Plan, split: str) -> list[tuple[str, str, int]]:
    part = plan.splits[split]
    assert isinstance(part, PairSplit)
    return [(*names, label) for names, label in zip(part.pairs, part.targets, strict=True)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes with eight files each."""
    for name in ("a", "b", "c"):
        (tmp_path / "classes" / name / "deep").mkdir(parents=True)
        for number in range(8):
            (tmp_path / "classes" / name / "deep" / f"{number}.png").touch()
    (tmp_path / "classes" / "a" / "notes.txt").touch()
    return tmp_path / "classes"


@pytest.mark.parametrize(
    "text",
    [
        "one,two,same\na.png,b.png,1\nb.png,c.png,0\n",
        "a.png;b.png;same\r\nb.png;c.png;different\r\n",
        "\N{BYTE ORDER MARK}a.png\tb.png\t1.0\nb.png\tc.png\tno\n",
    ],
)
def test_a_table_lists_pairs(tmp_path: Path, text: str) -> None:
    made = plan(write(tmp_path, text), pct_val=0.0)
    assert sorted(pairs(made, "train")) == [("a.png", "b.png", 1), ("b.png", "c.png", 0)]
    assert made.target.names == ["different", "same"] and made.stacked == 2


def test_a_column_declares_the_splits(tmp_path: Path) -> None:
    rows = [f"{number}.png,b.png,{number % 2},{('train', 'test')[number > 5]}\n" for number in range(8)]
    path = write(tmp_path, "one,two,same,phase\n" + "".join(rows))
    made = plan(path, pct_val=0.0)
    assert sorted(pairs(made, "test")) == [("6.png", "b.png", 0), ("7.png", "b.png", 1)]
    assert len(pairs(made, "train")) == 6 and "The column “phase” declares the splits." in made.warnings
    divided = plan(path, pct_val=50.0, pct_test=25.0)
    assert {name: len(split) for name, split in divided.splits.items()} == {"train": 3, "val": 3, "test": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.png,b.png,1\na.png,b.png,2\na.png,,0\n", "2 lines .* line 2: the label “2” .*; line 3: the path"),
        ("a.png,../b.png,1\na.png,b.png,0\n", "line 1: .* outside the image folder"),
        ("a.png,b.png\n", "has 2 columns"),
        ("a.png,b.png,1\n", "have the same label"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UnusableSource, match=words):
        plan(write(tmp_path, text))


def test_half_of_the_drawn_pairs_match_and_no_image_is_in_two_splits(folder: Path) -> None:
    made = plan(folder, pairs=60, pct_val=25.0, pct_test=25.0, seed=3)
    assert {name: len(split) for name, split in made.splits.items()} == {"train": 60, "val": 30, "test": 30}
    images = {}
    for split in made.splits:
        found = pairs(made, split)
        assert sum(label for *_, label in found) == len(found) / 2
        assert all((left[0] == right[0]) == bool(label) and left != right for left, right, label in found)
        images[split] = {name for left, right, _ in found for name in (left, right)}
    assert not images["train"] & images["val"] and "a/deep" in min(images["train"])
    assert not images["test"] & (images["train"] | images["val"])
    assert pairs(plan(folder, pairs=60, pct_test=25.0, seed=3), "train") == pairs(made, "train")
    assert pairs(plan(folder, pairs=60, pct_test=25.0, seed=4), "train") != pairs(made, "train")


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_separate_folder_or_table_is_a_split(folder: Path, tmp_path: Path, split: str) -> None:
    options = {f"{split}_source": str(folder), "pct_val": 0.0}
    made = plan(folder, pairs=8, **options)
    assert {name: len(part) for name, part in made.splits.items()} == {"train": 8, split: 2}
    table = write(tmp_path, "a.png,b.png,1\nb.png,c.png,0\n")
    options[f"{split}_source"] = str(table)
    assert {name: len(part) for name, part in plan(table, **options).splits.items()} == {"train": 2, split: 2}


def test_folders_that_are_too_small_are_refused(tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "1.png").touch()
    with pytest.raises(UnusableSource, match="does not contain two classes of images"):
        plan(tmp_path)
