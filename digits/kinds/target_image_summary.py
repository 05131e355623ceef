"""Summarize a folder of images and one of target images for the form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from digits.data.databases import is_database
from digits.data.image_lists import ImageList, walk_images
from digits.data.sources import UnusableSource, count_of, show
from digits.data.tables import Row
from digits.kinds.source_summary import SAMPLE_IMAGES, Pace, SourceSummary, Suggestion, joined, with_sample
from digits.kinds.table_source import SplitTable
from digits.kinds.table_summary import MAX_BYTES, RowSource, summarize_tables
from digits.kinds.target_image_source import FoundTargetImages, TargetImageFolders, list_database, match_lists
from digits.kinds.target_image_tables import TargetImageRows, TargetImageTable, open_target_images

Describe = Callable[[FoundTargetImages, SourceSummary], None]


def summarize_target_images(
    folders: TargetImageFolders, target: str, describe: Describe, suggestion: Suggestion | None
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of ``folders``; the last one is finished.

    ``target`` is the word for a target image, and ``describe`` adds what the kind finds in the images and targets.
    """
    pace, lists = Pace(), [ImageList(Path(folders.images))]
    complete = True
    try:
        for path, other in folders.each():
            for listing in [list_database(path)] if is_database(path) else walk_images(path, other):
                lists = [*(item for item in lists if item.root != listing.root), listing]
                if pace.is_over(sum(len(item.files) for item in lists)):
                    complete = False
                    break
                if pace.is_due():
                    yield SourceSummary(
                        facts=[f"{_counted(lists, target)}…"], suggestion=suggestion, finished=False
                    )
        found = FoundTargetImages(folders, match_lists(lists), lists)
        summary = _summarize(found, target, complete)
        summary.suggestion = suggestion
        if found.matches.names:
            describe(found, summary)
    except UnusableSource as error:
        summary = SourceSummary.unusable(error)
        summary.suggestion = suggestion
        yield summary
        return
    yield from with_examples(found, summary)


def summarize_target_image_table(
    source: TargetImageTable,
    describe: Callable[[TargetImageRows, list[Row[str]], SourceSummary], None],
    *,
    word: str,
    is_required: bool,
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of the tables of ``source``; the last one is finished.

    ``word`` is the word for a target image, which is required if ``is_required``. ``describe`` adds what the kind finds
    in the first usable rows.
    """
    try:
        tables = source.find()
    except UnusableSource as error:
        return iter([SourceSummary.unusable(error)])
    opened: list[TargetImageRows] = []
    parts: dict[int, SourceSummary] = {}

    def open_rows(table: SplitTable) -> RowSource[str]:
        found = open_target_images(table, source, MAX_BYTES, word=word, is_required=is_required)
        opened.append(found)
        has_targets = found.target != found.image
        contents = f"an image and a {word} each" if has_targets else "an image each"
        roles = {found.target: word} if has_targets else {}
        return RowSource.of(contents, found.table, found.rows, found.image, roles)

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


def with_examples(found: FoundTargetImages, summary: SourceSummary) -> Iterator[SourceSummary]:
    """Yield summaries like ``summary`` that also describe a sample of image files; the last one is finished."""
    facts, problems, suggestion = summary.facts, summary.problems, summary.suggestion

    def summarize() -> SourceSummary:
        again = SourceSummary(facts=list(facts), problems=list(problems), suggestion=suggestion)
        again.bars_title, again.bars, again.bars_total = summary.bars_title, summary.bars, summary.bars_total
        return again

    if is_database(Path(found.folders.images)):
        yield summary
        return
    yield from with_sample(found.folders.images, [name for name, _ in found.matches.names], summarize)


def suggest_sources(root: Path, images: Path, targets: Path) -> Suggestion:
    """Suggest the paths of images and of targets, which were found in ``root``."""
    names = [f"{show(path.name)}/" if path.is_dir() else show(path.name) for path in (images, targets)]
    return Suggestion(
        f"This folder contains {joined(names if images != root else names[1:])}. "
        f"Use {'them' if images != root else 'it'}?",
        "Use them" if images != root else "Use it",
        {"feature_folder": str(images), "label_folder": str(targets)},
    )


def spread(found: FoundTargetImages, count: int) -> list[tuple[str, str]]:
    """Return at most ``count`` evenly spaced images with their targets."""
    names = found.matches.names
    count = min(count, len(names))
    return [names[number * len(names) // count] for number in range(count)]


def _summarize(found: FoundTargetImages, target: str, complete: bool) -> SourceSummary:
    summary = SourceSummary()
    if not complete:
        summary.facts.append(f"At least {_counted(found.lists, target)}.")
        return summary
    found.need(target)
    count = len(found.matches.names)
    pair = (f" with a {target}" if count == 1 else f" with {target}s") if found.folders.has_targets else ""
    summary.facts.append(f"{count_of(count, 'image')}{pair}.")
    summary.problems += found.remarks(target)
    return summary


def _counted(lists: list[ImageList], target: str) -> str:
    words = ("image", target)
    return joined([count_of(len(item.files), word) for item, word in zip(lists, words, strict=False)])
