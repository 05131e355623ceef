"""The splits of every kind of source: a seed gives the same ones in every release, so that clones are equal."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from digits.core.recipe import CreateDataset
from digits.core.splits import SPLITS
from digits.data.sources.plan import Plan, Progress
from digits.kinds import kind_named
from tests.kinds.small_sources import EVERY, with_validation, write_images


def plan(recipe: CreateDataset) -> Plan:
    made: Plan = kind_named(recipe.kind).load("reader").read(recipe, Progress())
    return made


def hash_of(name: str, made: Plan) -> str:
    """The number of records of a split, and the start of the hash of their names and groups, in order."""
    split = made.splits[name]
    content = repr((list(split.files), [made.groups[group] for group in split.groups]))
    return f"{name} {len(split)} {hashlib.sha256(content.encode()).hexdigest()[:6]}"


def described(plans: list[Plan]) -> str:
    """The number of records of each split of each plan, and the start of the hash of all."""
    counts = ("/".join(str(len(made.splits[name])) for name in SPLITS) for made in plans)
    hashes = "\n".join(", ".join(hash_of(name, made) for name in SPLITS) for made in plans)
    return f"{' and '.join(counts)}: {hashlib.sha256(hashes.encode()).hexdigest()[:10]}"


def targets_of(made: Plan) -> list[tuple[str, str]]:
    """The targets of all records, with their names."""
    splits = made.splits.values()
    return sorted(
        (file, repr(target))
        for split in splits
        for file, target in zip(split.files, split.targets, strict=True)
    )


# By source: the number of records for training, validation and testing without and with images of its own for
# validation, and the start of the hash of their names and groups.
EXPECTED = {
    "class folders": "8/4/4 and 12/16/4: 5a06b18eab",
    "kitti": "9/4/3 and 13/16/3: f100540684",
    "voc": "9/4/3 and 13/16/3: 7c6e8b3404",
    "yolo": "9/4/3 and 13/16/3: 2f28eb93e1",
    "masks": "9/4/3 and 13/16/3: f973551660",
    "image to image": "9/4/3 and 13/16/3: 2f0a098381",
    "auto-encoder": "9/4/3 and 13/16/3: 2f0a098381",
    "random pairs": "60/27/22 and 60/15/15: a94a22a63d",
    "text files": "8/4/4 and 12/16/4: 41c39a7aac",
    "csv": "8/4/4 and 12/16/4: 41c39a7aac",
    "metadata": "8/4/4: 94e4e302a2",
    "parquet": "8/4/4: 5661fc4a71",
    "multi-label": "9/4/3 and 13/16/3: 5f5c93f7f5",
    "regression": "9/4/3 and 13/16/3: a46668db97",
    "numbers in parquet": "9/4/3 and 13/16/3: f13899e46e",
    "labels in json": "9/4/3 and 13/16/3: 5f5c93f7f5",
    "boxes": "9/4/3 and 13/16/3: 7c6e8b3404",
    "boxes in json": "9/4/3 and 13/16/3: 7c6e8b3404",
    "coco": "9/4/3 and 13/16/3: 7c6e8b3404",
    "listed pairs": "9/4/3 and 13/16/3: fd3d7639c4",
    "labeled records": "9/4/3 and 13/16/3: 91988c7734",
    "records of labels": "9/4/3 and 13/16/3: 02611eafe8",
    "records of numbers": "9/4/3 and 13/16/3: 7b7eb29b04",
    "records of boxes": "9/4/3 and 13/16/3: d7a2550e05",
    "records of masks": "9/4/3 and 13/16/3: e04b1389f5",
    "table of targets": "9/4/3: 91ae6d48e6",
    "generic": "9/4/3 and 13/16/3: 1e125fc2c7",
    "texts": "9/4/3 and 13/16/3: 3dc3aedea0",
}


@pytest.mark.parametrize("source", EVERY)
def test_a_seed_gives_the_same_splits_in_every_release(tmp_path: Path, source: str) -> None:
    recipe: Any = EVERY[source](write_images(tmp_path / "images"))
    recipe.pct_val, recipe.pct_test = 25.0, 20.0
    plans = [plan(recipe)]
    if with_validation(recipe):
        plans.append(plan(recipe))
    assert described(plans) == EXPECTED[source]


# Pairs are drawn for each split, and small boxes of KITTI are ignored in validation images.
@pytest.mark.parametrize("source", [name for name in EVERY if name not in ("random pairs", "kitti")])
def test_records_keep_their_targets_and_the_seed_chooses_their_split(tmp_path: Path, source: str) -> None:
    recipe: Any = EVERY[source](write_images(tmp_path / "images"))
    recipe.pct_val = recipe.pct_test = 0.0
    whole = plan(recipe)
    recipe.pct_val, recipe.pct_test = 25.0, 20.0
    divided = plan(recipe)
    assert targets_of(divided) == targets_of(whole)
    recipe.seed = 2
    assert described([plan(recipe)]) != described([divided])
