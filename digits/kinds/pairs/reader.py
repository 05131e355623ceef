"""Plan pairs of images, from a CSV file or from a folder of classes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from digits.core.splits import SPLITS, Split
from digits.data.images.lists import list_images
from digits.data.sources.plan import (
    ImageFolder,
    Plan,
    Progress,
    SplitPlan,
    UnusableSource,
    choose,
    count_of,
    show,
)
from digits.data.sources.shares import Shares, permute
from digits.data.tables.tables import (
    Cells,
    Faults,
    Row,
    SourceNotes,
    TableFile,
    is_image,
    one_line,
    open_table,
    usable_rows,
)
from digits.data.targets.class_index import ClassIndex
from digits.kinds.pairs.recipe import CreatePairs

MAX_IMAGES_PROBED = 1000
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
    sources = recipe.sources()
    shares = recipe.shares(sources)
    notes = SourceNotes()
    splits: dict[str, SplitPlan] = {}
    for name, (source, folder) in sources.items():
        progress.reading(f"Reading {show(source)}")
        root = Path(source if os.path.isdir(source) else folder)
        parts: dict[Split, list[Pair]] = {}
        if not os.path.isdir(source):
            is_only = len(sources) == 1
            parts = read_pairs(recipe, Path(source), root, name, progress, notes, declares_splits=is_only)
            if name == "train":
                pairs, own = parts["train"], recipe.shares([*sources, *parts])
                parts |= own.cut([[pairs[place] for place in permute(len(pairs), recipe.seed)]])
        elif name == "train":
            parts = _pairs_of_folder(recipe, shares, progress, notes.warnings)
        else:
            classes = list_classes(root, progress, notes.warnings)
            # A quarter as many pairs as for training.
            parts = {name: draw_pairs(classes, max(2, recipe.pairs // 4), recipe.seed, name)}
        splits |= {split: _split(pairs, root, source) for split, pairs in parts.items()}
    target = ClassIndex.of(NAMES)
    return PairPlan(target, splits, NAMES, notes.warnings, notes.unusable, required_groups=2, stacked=2)


def read_pairs(
    recipe: CreatePairs,
    path: Path,
    root: Path,
    split: Split,
    progress: Progress,
    notes: SourceNotes,
    *,
    declares_splits: bool = False,
) -> dict[Split, list[Pair]]:
    """Read the pairs of ``split`` in the CSV file ``path``, whose images are below ``root``; raises UnusableSource.

    If it ``declares_splits``, return those of each split. Skipped rows are added to ``notes``.
    """
    rows, table = read_rows(path, root, progress.max_bytes, declares_splits=declares_splits)
    faults = Faults(path, recipe.max_unusable_percent, split)
    usable, values = usable_rows(progress.take(rows), faults)
    progress.is_partial |= not table.is_whole
    if split == "train":
        count = count_of(len(usable) + faults.count, "row")
        progress.say(f"{progress.at_least}{count} with two images and a label each.")
        missing = sum(not os.path.isfile(root / other) for other, _ in values[:MAX_IMAGES_PROBED])
        if missing:
            progress.say(f"{count_of(missing, 'second image')} not found.", is_problem=True)
    faults.notes = table.remarks
    notes.add(faults)
    parts: dict[Split, list[Pair]] = {}
    for row, value in zip(usable, values, strict=True):
        declared = next((name for name in SPLITS if name == row.split), split)
        parts.setdefault(declared, []).append((row.file, *value))
    if split not in parts:
        parts = {split: [pair for pairs in parts.values() for pair in pairs]}
    if len({label for *_, label in parts[split]}) < 2:
        raise UnusableSource(
            f"All pairs in {show(path.name)} have the same label.",
            "Label matching pairs with 1 and other pairs with 0.",
        )
    return parts


def read_rows(
    path: Path, root: Path, max_bytes: int, *, declares_splits: bool = True
) -> tuple[Iterator[Row[tuple[str, int]]], TableFile]:
    """Return the rows in the first ``max_bytes`` of a table, and the table; raises UnusableSource.

    The columns are the two images and the label. If it ``declares_splits``, others can be the splits of the rows.
    """
    table = open_table(path, is_header, max_bytes)
    if len(table.columns) < 3:
        raise UnusableSource(
            f"{show(path.name)} has {len(table.columns)} columns.", "Each line needs two images and a label."
        )
    table.need_paths(0)
    table.need_rows()
    if declares_splits:
        table.declare_splits(table.survey(range(3, len(table.columns))))

    def parse(cells: Cells) -> tuple[str, int]:
        if len(cells) < 2:
            raise ValueError("the path of the image is missing")
        label = one_line(cells[2]).lower() if len(cells) > 2 else ""
        if label not in _LABELS:
            raise ValueError(f"the label “{show(label)}” is neither 0 nor 1")
        return cells[1], _LABELS[label]

    return table.parse(root, 0, parse, [1]), table


def list_classes(root: Path, progress: Progress, warnings: list[str]) -> ClassFiles:
    """List the images below each sub-folder of ``root``, sorted; raises UnusableSource.

    Sentences about files that were ignored are added to ``warnings``.
    """
    images = list_images(root, progress)
    images.need_images()
    warnings += images.remarks()
    classes: ClassFiles = {}
    for file in images.files:
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


def _pairs_of_folder(
    recipe: CreatePairs, shares: Shares, progress: Progress, warnings: list[str]
) -> dict[Split, list[Pair]]:
    """Draw pairs for each split. The images of each class are divided first, so that no image is in two splits."""
    classes: dict[Split, ClassFiles] = {name: {} for name in SPLITS}
    found = list_classes(Path(recipe.source), progress, warnings)
    images = count_of(sum(map(len, found.values())), "image")
    progress.say(f"{progress.at_least}{images} in {len(found):,} classes.")
    for name, files in found.items():
        for split, part in shares.cut([choose(files, recipe.seed, name)]).items():
            classes[split][name] = part
    counts: dict[Split, int] = {"train": recipe.pairs}
    for split, share in shares.taken.items():
        counts[split] = max(2, round(recipe.pairs * share / shares.train))
    return {split: draw_pairs(classes[split], count, recipe.seed, split) for split, count in counts.items()}


def _split(pairs: list[Pair], root: Path, source: str) -> PairSplit:
    labels = [label for *_, label in pairs]
    names = [f"{first} | {second}" for first, second, _ in pairs]
    images = [(first, second) for first, second, _ in pairs]
    return PairSplit(ImageFolder(root), names, labels, labels, source, images)


def is_header(cells: Cells) -> bool:
    """Return whether the first row of a table contains the names of its columns."""
    return not any(map(is_image, cells[:2]))
