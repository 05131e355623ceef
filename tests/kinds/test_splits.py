"""The splits of every kind of source: a seed gives the same ones in every release, so that clones are equal."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from digits.core.recipe import CreateDataset
from digits.data.sources import Plan, SplitPlan
from digits.kinds import kind_named
from tests.kinds.small_sources import EVERY, with_validation, write_images
from tests.kinds.tables import Silent


def plan(recipe: CreateDataset) -> Plan:
    made: Plan = kind_named(recipe.kind).load("reader").read(recipe, Silent())
    return made


def described(made: Plan) -> str:
    """The number of records of each split, in order, and the start of the hash of their names and groups."""

    def one(name: str, split: SplitPlan) -> str:
        content = repr((list(split.files), [made.groups[group] for group in split.groups]))
        return f"{name} {len(split)} {hashlib.sha256(content.encode()).hexdigest()[:6]}"

    return ", ".join(one(name, made.splits[name]) for name in ("train", "val", "test"))


# By source: the splits of a source without, and of one with images of its own for validation.
EXPECTED = {
    "class folders": [
        "train 8 c910f9, val 4 2fa318, test 4 96fee9",
        "train 12 916fc7, val 16 dea7af, test 4 96fee9",
    ],
    "kitti": ["train 9 8686f3, val 4 c70e52, test 3 6c87dc", "train 13 47904e, val 16 1fd97d, test 3 6c87dc"],
    "voc": ["train 9 3d0510, val 4 80504f, test 3 f84521", "train 13 06e3a3, val 16 3e615f, test 3 f84521"],
    "yolo": ["train 9 918f4b, val 4 1f9fab, test 3 e1fb5a", "train 13 e81db4, val 16 ba24eb, test 3 e1fb5a"],
    "masks": ["train 9 3d48d2, val 4 825edf, test 3 5b3cce", "train 13 2edc58, val 16 ae1833, test 3 5b3cce"],
    "image to image": [
        "train 9 706d6e, val 4 175aa9, test 3 bd2956",
        "train 13 803a97, val 16 fb05c4, test 3 bd2956",
    ],
    "auto-encoder": [
        "train 9 706d6e, val 4 175aa9, test 3 bd2956",
        "train 13 803a97, val 16 fb05c4, test 3 bd2956",
    ],
    "random pairs": [
        "train 60 8929de, val 27 427bd3, test 22 f62bca",
        "train 60 a175e3, val 15 db8d8c, test 15 01d6e8",
    ],
    "text files": [
        "train 8 c4ee03, val 4 e75799, test 4 1fb557",
        "train 12 ca5ca1, val 16 339a08, test 4 1fb557",
    ],
    "csv": ["train 8 c4ee03, val 4 e75799, test 4 1fb557", "train 12 ca5ca1, val 16 339a08, test 4 1fb557"],
    "metadata": ["train 8 c4ee03, val 4 e75799, test 4 1fb557"],
    "parquet": ["train 8 64b069, val 4 fe8097, test 4 bfdfff"],
    "multi-label": [
        "train 9 fa0fcf, val 4 9a4546, test 3 e8a9f2",
        "train 13 27ca38, val 16 339a08, test 3 e8a9f2",
    ],
    "regression": [
        "train 9 2a69d3, val 4 f25318, test 3 1560f8",
        "train 13 8f748c, val 16 850f75, test 3 1560f8",
    ],
    "numbers in parquet": [
        "train 9 84a0f7, val 4 84bf76, test 3 28b04d",
        "train 13 992078, val 16 44021d, test 3 28b04d",
    ],
    "labels in json": [
        "train 9 fa0fcf, val 4 9a4546, test 3 e8a9f2",
        "train 13 27ca38, val 16 339a08, test 3 e8a9f2",
    ],
    "boxes": ["train 9 3d0510, val 4 80504f, test 3 f84521", "train 13 06e3a3, val 16 3e615f, test 3 f84521"],
    "boxes in json": [
        "train 9 3d0510, val 4 80504f, test 3 f84521",
        "train 13 06e3a3, val 16 3e615f, test 3 f84521",
    ],
    "coco": ["train 9 3d0510, val 4 80504f, test 3 f84521", "train 13 06e3a3, val 16 3e615f, test 3 f84521"],
    "listed pairs": [
        "train 9 1545ea, val 4 eed4db, test 3 ec9929",
        "train 13 0bdb76, val 16 773ae2, test 3 ec9929",
    ],
    "labeled records": [
        "train 9 7121de, val 4 0c2c87, test 3 cd8824",
        "train 13 b9b573, val 16 820ba3, test 3 cd8824",
    ],
    "records of labels": [
        "train 9 36aacc, val 4 46cdc2, test 3 442b65",
        "train 13 397080, val 16 e0fc91, test 3 442b65",
    ],
    "records of numbers": [
        "train 9 54d1dc, val 4 408e58, test 3 2de8d7",
        "train 13 fd4d27, val 16 90340f, test 3 2de8d7",
    ],
    "records of boxes": [
        "train 9 ced598, val 4 540273, test 3 a09485",
        "train 13 74951a, val 16 91fb4c, test 3 a09485",
    ],
    "records of masks": [
        "train 9 24d9ed, val 4 cdcad2, test 3 ca5131",
        "train 13 55253e, val 16 4b44c6, test 3 ca5131",
    ],
    "table of targets": ["train 9 01b5a3, val 4 a4bd0b, test 3 3f43e8"],
    "generic": [
        "train 9 ab9be4, val 4 97f989, test 3 6fe1da",
        "train 13 c7b6b0, val 16 afe018, test 3 6fe1da",
    ],
    "texts": ["train 9 4e3577, val 4 c86557, test 3 d900bc", "train 13 6c984c, val 16 29a418, test 3 d900bc"],
}


@pytest.mark.parametrize("source", EVERY)
def test_a_seed_gives_the_same_splits_in_every_release(tmp_path: Path, source: str) -> None:
    recipe: Any = EVERY[source](write_images(tmp_path / "images"))
    recipe.pct_val, recipe.pct_test = 25.0, 20.0
    found = [described(plan(recipe))]
    if with_validation(recipe):
        found.append(described(plan(recipe)))
    assert found == EXPECTED[source]
