"""Summarize a folder of images and one of target images for the form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from digits.data.databases.folders import is_database
from digits.data.images.lists import ImageList, walk_images
from digits.data.sources.plan import UnusableSource, count_of, show
from digits.data.tables.tables import Row
from digits.kinds.forms.summary import SAMPLE_IMAGES, Overview, SourceSummary, Suggestion, joined
from digits.kinds.forms.table_summary import MAX_BYTES, RowSource, summarize_tables
from digits.kinds.sources.tables import SplitTable, tables_at
from digits.kinds.sources.target_image_recipe import CreateWithTargetImages, TargetImageFolders
from digits.kinds.sources.target_image_tables import TargetImageRows, open_target_images
from digits.kinds.sources.target_images import FoundTargetImages, Pair, list_database, pair_lists

Describe = Callable[[FoundTargetImages, SourceSummary], None]


class TargetImageOverview(Overview):
    """Images and target images in ``folders``.

    ``target`` is the word for a target image, ``pair`` pairs the files, and ``describe`` adds what the kind finds in
    the images and targets. ``note`` says where these are.
    """

    def __init__(
        self,
        folders: TargetImageFolders,
        target: str,
        describe: Describe,
        note: str,
        suggestion: Suggestion | None,
        pair: Pair = pair_lists,
    ) -> None:
        super().__init__(suggestion)
        self.start.facts += filter(None, [note])
        self._folders, self._target, self._describe, self._pair = folders, target, describe, pair
        self._lists = [ImageList(Path(folders.images))]
        self._is_concluded = False

    def read(self) -> Iterator[int]:
        for path, other in self._folders.each():
            for listed in [list_database(path)] if is_database(path) else walk_images(path, other):
                self._lists = [*(item for item in self._lists if item.root != listed.root), listed]
                yield sum(len(item.files) for item in self._lists)
        self.is_complete = True

    def conclude(self) -> tuple[str, list[str]]:
        pairs = self._pair(self._folders, self._lists)
        if self.is_complete:
            self._count(pairs)
        else:
            self.start.facts.insert(0, f"At least {self._listed()}.")
        if pairs.matches.names:
            self._describe(pairs, self.start)
        self._is_concluded = True
        return sampled_files(pairs)

    def _count(self, pairs: FoundTargetImages) -> None:
        pairs.need(self._target)
        count = len(pairs.matches.names)
        targets = f" with a {self._target}" if count == 1 else f" with {self._target}s"
        self.start.facts.insert(0, f"{count_of(count, 'image')}{targets if len(pairs.lists) > 1 else ''}.")
        self.start.facts += filter(None, [pairs.matches.note])
        self.start.problems += pairs.remarks(self._target)

    def describe(self, summary: SourceSummary) -> None:
        if not self._is_concluded:
            summary.facts.append(f"{self._listed()}…")

    def _listed(self) -> str:
        words = ("image", self._target)
        return joined(
            [count_of(len(item.files), word) for item, word in zip(self._lists, words, strict=False)]
        )


def sampled_files(pairs: FoundTargetImages) -> tuple[str, list[str]]:
    """Return the folder and the files of the images, of which a sample is examined; none for a database."""
    root = pairs.folders.images
    return root, [] if is_database(Path(root)) else [name for name, _ in pairs.matches.names]


def summarize_target_image_table(
    recipe: CreateWithTargetImages, describe: Callable[[TargetImageRows, list[Row[str]], SourceSummary], None]
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of the table of ``recipe``; the last one is finished.

    ``describe`` adds what the kind finds in the first usable rows. Raises UnusableSource.
    """
    assert recipe.table is not None
    tables = tables_at(recipe.table.table, recipe.table.folder)
    opened: list[TargetImageRows] = []
    parts: dict[int, SourceSummary] = {}

    def open_rows(table: SplitTable) -> RowSource[str]:
        rows = open_target_images(recipe, table, MAX_BYTES)
        opened.append(rows)
        word = recipe.target_word
        contents = f"an image and a {word} each" if rows.has_targets else "an image each"
        return RowSource.of(contents, rows, word)

    def describe_rows(rows: list[Row[str]], summary: SourceSummary) -> None:
        sample = rows[:SAMPLE_IMAGES]
        part = parts.get(len(sample))
        if part is None:
            part = parts[len(sample)] = SourceSummary()
            try:
                describe(opened[0], sample, part)
            except UnusableSource as error:
                part.problems.append(error.sentences)
        summary.facts += part.facts
        summary.problems += part.problems
        summary.bars_title, summary.bars, summary.bars_total = part.bars_title, part.bars, part.bars_total

    return summarize_tables(tables, open_rows, describe_rows, None)


def describe_sources(root: Path, images: Path, targets: Path) -> str:
    """Return a note about the paths of images and of targets that were found in ``root`` and are used."""
    if images == root == targets:
        return "The label images are beside the images."
    names = [f"{show(path.name)}/" if path.is_dir() else show(path.name) for path in (images, targets)]
    return f"Used: {joined(names if images != root else names[1:])}."


def suggest_mixing(images: Path, targets: Path) -> Suggestion:
    """Suggest to divide the images again, which lists divide by default."""
    return Suggestion(
        "Mix the images of all splits, and divide them again?",
        "Mix them",
        {"feature_folder": str(images), "label_folder": str(targets)},
    )


def spread(pairs: FoundTargetImages, count: int) -> list[tuple[str, str]]:
    """Return at most ``count`` evenly spaced images with their targets."""
    names = pairs.matches.names
    count = min(count, len(names))
    return [names[number * len(names) // count] for number in range(count)]
