"""Summarize a folder of images for the form: classes with counts, a sample of the images, and separate folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from digits.core.splits import SPLITS
from digits.data.sources.causes import Causes
from digits.data.sources.class_names import MAX_CLASSES, read_names, sort_labels
from digits.data.sources.dataset_folder import find
from digits.data.sources.declared_splits import split_folders
from digits.data.sources.named_classes import named_classes
from digits.data.sources.plan import UnusableSource, count_of, listed, show
from digits.data.tables import parquet
from digits.data.tables.tables import Row
from digits.kinds.classification.dataset_folder import metadata_rows
from digits.kinds.classification.listing import open_labels, text_rows
from digits.kinds.classification.reader import (
    Scan,
    large_enough,
    merge,
    need_two_classes,
    remarks,
    scan_steps,
)
from digits.kinds.classification.recipe import DatasetFolder, Tables
from digits.kinds.forms.summary import (
    MAX_FILES,
    Overview,
    SourceSummary,
    Suggestion,
    joined,
)
from digits.kinds.forms.table_summary import MAX_BYTES, RowSource, summarize_table

MAX_PARQUET_FILES = 20


class FolderOverview(Overview):
    """The folders ``roots``, real paths, with a folder for each class, or ``by_name`` the classes in file names."""

    def __init__(
        self,
        roots: list[Path],
        min_per_class: int,
        suggestion: Suggestion | None = None,
        *,
        by_name: bool = False,
    ) -> None:
        super().__init__(suggestion)
        self._by_name = by_name
        self._roots, self._min_per_class = roots, min_per_class
        self._scans: list[Scan] = []

    def read(self) -> Iterator[int]:
        for root in self._roots:
            self._scans.append(Scan(root))
            for found in scan_steps(root, MAX_FILES, self._by_name):
                self._scans[-1] = found
                yield sum(scan.seen for scan in self._scans)

    def conclude(self) -> tuple[str, list[str]]:
        scan = merge(self._scans)
        return str(scan.root), [name for item in scan.classes for name in item.files]

    def describe(self, summary: SourceSummary) -> None:
        merged = merge(self._scans)
        self.is_complete = merged.complete
        images, classes = count_of(merged.count, "image"), count_of(len(merged.classes), "class")
        summary.facts.insert(0, f"{self.at_least}{images} in {self.at_least.lower()}{classes}.")
        counts = [(item.label, len(item.files)) for item in merged.classes if item.files]
        summary.set_bars("Images per class", counts)
        if merged.complete:
            self._describe_classes(merged, counts, summary)
        named = (
            [] if merged.count else named_classes([name for scan in self._scans for name in scan.loose_names])
        )
        if named:
            summary.suggestion = Suggestion(
                f"The names of the images contain {len(named):,} classes: {listed(named)}. Use these?",
                "Use them",
                {"classes_from_names": True},
            )

    def _describe_classes(self, scan: Scan, counts: list[tuple[str, int]], summary: SourceSummary) -> None:
        summary.problems += remarks(scan)
        try:
            kept = large_enough(scan, max(self._min_per_class, 1), summary.problems)
            need_two_classes(scan, kept, summary.problems)
        except UnusableSource as error:
            summary.problems.append(error.sentences)
        fewest, most = min(counts, key=_count, default=None), max(counts, key=_count, default=None)
        if fewest and most and fewest[1] < most[1]:
            summary.facts.append(
                f"The smallest class is “{fewest[0]}” with {count_of(fewest[1], 'image')}, "
                f"the largest “{most[0]}” with {most[1]:,}."
            )


def summarize_tables(path: Path, settings: Tables, root: Path) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of the CSV file ``path`` of images below ``root``."""

    def open_rows() -> RowSource[str]:
        opened = open_labels(path, settings, root, MAX_BYTES)
        source = RowSource.of("a label each", opened, "label")
        source.images = source.images or opened.pixels
        return source

    return summarize_table(root, open_rows, _describe_labels)


def summarize_text_files(images: Path, labels: Path | None, root: Path) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of a text file of images below ``root``, and of its ``labels``."""

    def open_rows() -> RowSource[str]:
        names = read_names(labels) if labels else range_of_indexes()
        is_whole = images.stat().st_size <= MAX_BYTES
        remarks: list[str] = []
        rows = text_rows(images, root, names, remarks, MAX_BYTES)
        return RowSource("the index of a class each", rows, is_whole, remarks=remarks)

    return summarize_table(root, open_rows, _describe_labels)


def range_of_indexes() -> list[str]:
    """Return names for the classes of a text file whose labels file is not known yet."""
    return [str(number) for number in range(MAX_CLASSES)]


def summarize_dataset_folder(path: str, settings: DatasetFolder) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of a Hugging Face dataset: a folder, a file, or a pattern."""
    try:
        contents = find(path)
    except UnusableSource as error:
        return iter([SourceSummary.unusable(error)])
    facts = [contents.describe()]
    train = contents.folders["train"] if contents.folders else contents.root
    if contents.tables and not contents.is_parquet:

        def open_rows() -> RowSource[str]:
            remarks: list[str] = []
            rows = metadata_rows(contents.tables["train"][0], settings, remarks)
            return RowSource("a label each", rows, True, remarks=remarks)

        return summarize_table(train, open_rows, _describe_labels, facts=facts)
    overview = (
        _ParquetOverview(contents.tables["train"][:MAX_PARQUET_FILES], settings)
        if contents.is_parquet
        else FolderOverview([train], 1)
    )
    overview.start.facts += facts
    return overview.summaries()


class _ParquetOverview(Overview):
    """The labels in the Parquet files ``paths``."""

    def __init__(self, paths: list[Path], settings: DatasetFolder) -> None:
        super().__init__()
        self._paths, self._settings = paths, settings
        self._columns: parquet.Columns
        self._counts: Counter[str] = Counter()
        self._faults = Causes()

    def read(self) -> Iterator[int]:
        settings = self._settings
        self._columns = columns = parquet.find_columns(
            self._paths[0], settings.image_column, settings.label_column
        )
        self.start.facts.append(f"Images: “{columns.image}”. Labels: “{columns.label}”.")
        for path in self._paths:
            for row, (label, fault) in enumerate(parquet.labels(path, columns), 1):
                if label is None:
                    self._faults.add(f"{show(path.name)}, row {row:,}", fault)
                else:
                    self._counts[label] += 1
                yield self._counts.total() + self._faults.count

    def describe(self, summary: SourceSummary) -> None:
        summary.list_faults("row", self._faults)
        order = list(self._columns.classes) or sort_labels(set(self._counts))
        summary.set_bars("Training images per class", [(name, self._counts[name]) for name in order])


def _describe_labels(rows: list[Row[str]], summary: SourceSummary) -> None:
    counts = Counter(row.value for row in rows if row.value is not None)
    summary.set_bars("Images per class", [(name, counts[name]) for name in sort_labels(set(counts))])
    if len(counts) < 2:
        summary.problems.append("Classification requires at least two classes.")


def _count(pair: tuple[str, int]) -> int:
    return pair[1]


def suggest_beside(root: Path, separate: set[str], is_allowed: Callable[[Path], bool]) -> Suggestion | None:
    """Suggest the folders of the other splits beside ``root``, if it is named like a training folder.

    ``separate`` contains the splits that already have a separate folder. ``is_allowed`` returns whether the server
    may read a path, which may be a link.
    """
    if not is_allowed(root.parent):
        return None
    found = split_folders(root.parent)
    if found.get("train") != root:
        return None
    beside = {
        split: path
        for split, path in found.items()
        if split != "train" and split not in separate and is_allowed(path)
    }
    if not beside:
        return None
    names = [f"{show(path.name)}/" for path in beside.values()]
    return Suggestion.use_separately(names, "folder", split_fields({"train": root, **beside}))


def suggest_mixing(folders: Mapping[str, Path]) -> Suggestion:
    """Suggest to mix the ``folders`` of splits, which are used separately by default."""
    train, *others = map(str, folders.values())
    names = joined([f"{show(path.name)}/" for path in folders.values()])
    return Suggestion(
        f"Mix the images of {names}, and divide them again?",
        "Mix them",
        {"folder_train": train, "folder_train_more": "\n".join(others)},
    )


def split_fields(folders: Mapping[str, Path]) -> dict[str, str | bool]:
    """Return the values of the form fields for the folders of the splits."""
    fields: dict[str, str | bool] = {"folder_train": str(folders["train"])}
    for split in SPLITS[1:]:
        if split in folders:
            fields |= {f"has_{split}_folder": True, f"folder_{split}": str(folders[split])}
    return fields
