"""Plan pairs of images, from a CSV file or from a folder of classes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from digits.data.image_lists import list_images
from digits.data.sources import (
    ImageFolder,
    Plan,
    Progress,
    SplitPlan,
    Unusable,
    UnusableSource,
    check_shares,
    choose,
    path_below,
    show,
    split_counts,
)
from digits.data.tables import (
    MAX_TABLE_BYTES,
    Cells,
    Faults,
    Row,
    is_image,
    one_line,
    open_table,
    usable_rows,
)
from digits.data.target import class_index
from digits.kinds.pairs.recipe import CreatePairs

# In the order of the labels 0 and 1.
NAMES = ["different", "same"]
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "different": 0, "same": 1, "no": 0, "yes": 1}

# The first image, the second one, and the label.
Pair = tuple[str, str, int]
ClassFiles = dict[str, list[str]]


@dataclass
class PairSplit(SplitPlan):
    """The pairs of a split; the names in ``files`` are those of both images."""

    pairs: list[tuple[str, str]] = field(default_factory=list)


class PairPlan(Plan):
    """A plan whose records consist of two images."""

    def names(self, split: SplitPlan, place: int) -> list[str]:
        assert isinstance(split, PairSplit)
        return list(split.pairs[place])


def read(recipe: CreatePairs, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``; raises UnusableSource and OSError."""
    share = 0.0 if recipe.val_source else recipe.pct_val
    check_shares(share, 0)
    progress.reading(f"Reading {show(recipe.source)}")
    parts: dict[str, list[Pair]] = {}
    warnings: list[str] = []
    unusable: list[Unusable] = []
    roots = {"train": Path(recipe.folder), "val": Path(recipe.val_folder or recipe.folder)}
    if os.path.isdir(recipe.source):
        parts, roots["train"] = _pairs_of_folder(recipe, share, warnings), Path(recipe.source)
        roots["val"] = roots["val"] if recipe.val_source else roots["train"]
    else:
        pairs = read_pairs(Path(recipe.source), roots["train"], unusable, recipe.max_unusable_percent)
        order = np.random.default_rng(recipe.seed).permutation(len(pairs))
        count, val_count, _ = split_counts(len(pairs), share, 0)
        parts["train"] = [pairs[place] for place in order[:count]]
        parts["val"] = [pairs[place] for place in order[count : count + val_count]]
    if recipe.val_source:
        progress.reading(f"Reading {show(recipe.val_source)}")
        if os.path.isdir(recipe.val_source):
            roots["val"] = Path(recipe.val_source)
            parts["val"] = draw_pairs(
                list_classes(roots["val"], warnings), max(2, recipe.pairs // 4), recipe.seed, "val"
            )
        else:
            parts["val"] = read_pairs(
                Path(recipe.val_source), roots["val"], unusable, recipe.max_unusable_percent, "val"
            )
    sources = {"train": recipe.source, "val": recipe.val_source or recipe.source}
    splits = {name: _split(pairs, roots[name], sources[name]) for name, pairs in parts.items() if pairs}
    return PairPlan(class_index(NAMES), dict(splits), NAMES, warnings, unusable, required_groups=2, stacked=2)


def read_pairs(
    path: Path, root: Path, unusable: list[Unusable], max_unusable_percent: float, split: str = "train"
) -> list[Pair]:
    """Read the pairs in the CSV file ``path``, whose images are below ``root``; raises UnusableSource.

    Skipped rows are added to ``unusable``.
    """
    rows, _ = read_rows(path, root, MAX_TABLE_BYTES)
    faults = Faults(path, max_unusable_percent, split)
    usable, values = usable_rows(rows, faults)
    unusable += faults.unusable
    pairs = [(row.file, *value) for row, value in zip(usable, values, strict=True)]
    if len({label for *_, label in pairs}) < 2:
        raise UnusableSource(
            f"All pairs in {show(path.name)} have the same label.", "Label matching pairs 1 and others 0."
        )
    return pairs


def read_rows(path: Path, root: Path, max_bytes: int) -> tuple[Iterator[Row[tuple[str, int]]], bool]:
    """Return the rows in the first ``max_bytes`` of a table, and whether these are all; raises UnusableSource.

    The columns are the two images and the label.
    """
    table = open_table(path, _is_header, max_bytes)
    if len(table.columns) < 3:
        raise UnusableSource(
            f"{show(path.name)} has {len(table.columns)} columns.", "Each line needs two images and a label."
        )
    table.need_paths(0)
    table.need_rows()
    inside = os.path.realpath(root)

    def parse(cells: Cells) -> tuple[str, int]:
        other = path_below(inside, one_line(cells[1]) if len(cells) > 1 else "")
        label = one_line(cells[2]).lower() if len(cells) > 2 else ""
        if label not in _LABELS:
            raise ValueError(f"the label “{show(label)}” is neither 0 nor 1")
        return other, _LABELS[label]

    return table.parse(root, 0, parse), table.is_whole


def list_classes(root: Path, warnings: list[str]) -> ClassFiles:
    """List the images below each sub-folder of ``root``, sorted; raises UnusableSource.

    Sentences about files that were ignored are added to ``warnings``.
    """
    found = list_images(root)
    found.need_images()
    warnings += found.remarks()
    classes: ClassFiles = {}
    for file in found.files:
        name, separator, _ = file.partition("/")
        if separator:
            classes.setdefault(name, []).append(file)
    if len(classes) < 2 or max(map(len, classes.values())) < 2:
        raise UnusableSource(
            f"{show(str(root))} does not contain two classes of images.",
            "Each sub-folder must contain the images of a class.",
        )
    return dict(sorted(classes.items()))


def draw_pairs(classes: ClassFiles, count: int, seed: int, split: str) -> list[Pair]:
    """Draw ``count`` pairs, alternately of the same class and of different ones; raises UnusableSource."""
    chance = np.random.default_rng([seed, len(split), *split.encode()])
    names = list(classes)
    repeated = [name for name in names if len(classes[name]) > 1]
    if len(names) < 2 or not repeated:
        raise UnusableSource(
            f"There are too few images for pairs of the {split} split.",
            "At least two classes are needed, one of them with two images.",
        )
    pairs: list[Pair] = []
    for number in range(count):
        if number % 2:
            files = classes[repeated[chance.integers(len(repeated))]]
            first, second = chance.choice(len(files), 2, replace=False)
            pairs.append((files[first], files[second], 1))
        else:
            one, other = (classes[names[place]] for place in chance.choice(len(names), 2, replace=False))
            pairs.append((one[chance.integers(len(one))], other[chance.integers(len(other))], 0))
    return [pairs[place] for place in chance.permutation(count)]


def _pairs_of_folder(recipe: CreatePairs, share: float, warnings: list[str]) -> dict[str, list[Pair]]:
    """Draw pairs for each split. The images of each class are divided first, so that no image is in two splits."""
    classes: dict[str, ClassFiles] = {"train": {}, "val": {}}
    for name, files in list_classes(Path(recipe.source), warnings).items():
        shuffled = choose(files, recipe.seed, name)
        count, _, _ = split_counts(len(files), share, 0)
        for split, part in (("train", shuffled[:count]), ("val", shuffled[count:])):
            if part:
                classes[split][name] = part
    counts = {
        "train": recipe.pairs,
        "val": max(2, round(recipe.pairs * share / (100 - share))) if share else 0,
    }
    return {
        split: draw_pairs(classes[split], count, recipe.seed, split)
        for split, count in counts.items()
        if count
    }


def _split(pairs: list[Pair], root: Path, source: str) -> PairSplit:
    labels = [label for *_, label in pairs]
    names = [f"{first} | {second}" for first, second, _ in pairs]
    images = [(first, second) for first, second, _ in pairs]
    return PairSplit(ImageFolder(root), names, labels, labels, source, images)


def _is_header(cells: Cells) -> bool:
    return not any(map(is_image, cells[:2]))
