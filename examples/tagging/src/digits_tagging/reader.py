"""The reader: from the source to the plan of a dataset. Runs in the worker; DIGITS opens the images later."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from digits.data.sources.plan import (
    ImageFolder,
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    choose,
    count_of,
    path_below,
)
from digits.data.targets.label_set import LabelSet
from digits_tagging.recipe import Recipe


def read(recipe: Recipe, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource with a message for the user."""
    progress.reading(f"Reading {recipe.table}")
    table = Path(recipe.table).resolve()
    tags_of = read_table(table)
    tags = sorted(set().union(*tags_of.values()))
    if not tags:
        raise UnusableSource(f"{recipe.table} has no tags.", "Add them to its column “tags”.")

    splits = recipe.shares(()).cut([choose(sorted(tags_of), recipe.seed)])
    values = {
        name: np.array([[tag in tags_of[file] for tag in tags] for file in chosen], np.float32)
        for name, chosen in splits.items()
    }
    return Plan(
        # Networks get zeros and ones of the shape [tags] as self.y. The page of the dataset shows a bar for each tag.
        # Its mean is the share of the training images that have each tag.
        target=LabelSet.of(tags).with_statistics(values["train"]),
        splits={
            name: SplitPlan(
                ImageFolder(table.parent),
                splits[name],
                targets=list(found),
                groups=[len(tags_of[file]) for file in splits[name]],
                source=recipe.table,
            )
            for name, found in values.items()
        },
        # Explore also filters by the number of tags.
        groups=[count_of(count, "tag") for count in range(max(map(len, tags_of.values())) + 1)],
    )


def read_table(path: Path) -> dict[str, set[str]]:
    """Return the tags of each image by its path relative to the table; raises UnusableSource."""
    tags_of: dict[str, set[str]] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if not {"image", "tags"} <= set(rows.fieldnames or ()):
                raise UnusableSource(f"{path.name} must have the columns “image” and “tags”.")
            for row in rows:
                image = path_below(str(path.parent), row["image"])
                tags_of.setdefault(image, set()).update((row["tags"] or "").split())
    except (ValueError, csv.Error) as error:
        raise UnusableSource(f"{path.name} cannot be used: {error}.", "Correct the table.") from error
    if not tags_of:
        raise UnusableSource(f"{path.name} has no rows.")
    return tags_of
