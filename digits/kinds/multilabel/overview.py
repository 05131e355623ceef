"""Summarize a table of images and labels for the form: the layout, and the images of each label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from digits.data.class_names import sort_labels
from digits.data.record_features import Features
from digits.data.record_files import RecordFiles
from digits.data.sources import count_of, listed, show
from digits.data.tables import Row
from digits.kinds.multilabel.reader import Columns, LabeledImages, Labels, open_labels
from digits.kinds.multilabel.recipe import MAX_LABELS, LabelRecords, Separator
from digits.kinds.multilabel.records import LabelMapping
from digits.kinds.source_summary import SourceSummary
from digits.kinds.table_source import SplitTable
from digits.kinds.table_summary import MAX_BYTES, RowSource

SEPARATOR_NAMES: dict[Separator, str] = {
    "space": "spaces",
    "comma": "commas",
    "semicolon": "semicolons",
    "bar": "vertical bars",
}


class Overview:
    """The rows of a table of images, and their description."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def open(self, table: SplitTable) -> RowSource[Labels]:
        """Open a table, whose paths are real ones, and detect its columns; raises UnusableSource."""
        found = open_labels(table, self._columns, MAX_BYTES)
        self._columns = columns = found.columns
        if columns.layout == "columns":
            contents = "a column of 0 and 1 for each label"
        else:
            separator = SEPARATOR_NAMES[columns.separator]
            contents = f"labels in “{show(columns.labels[0])}”, separated by {separator}"
        role = "label" if columns.layout == "columns" else "labels"
        return RowSource.of(contents, found.table, found.rows, found.image, dict.fromkeys(found.labels, role))

    def describe(self, rows: list[Row[Labels]], summary: SourceSummary) -> None:
        """Add the labels and their number of images."""
        images = LabeledImages.combine(rows)
        counts = Counter(label for labels in images.labels_of.values() for label in labels)
        names = self._columns.labels if self._columns.layout == "columns" else tuple(counts)
        _describe(counts, names, len(images.labels_of), images.remarks(), summary)


class RecordOverview(LabelMapping):
    """The labels in TFRecord files, and their description."""

    def __init__(self, source: LabelRecords, files: RecordFiles, first: Features) -> None:
        super().__init__(source, files, first)
        self._counts: Counter[str] = Counter()
        self._images = self._unlabeled = 0

    def check(self, features: Features) -> None:
        """Count the labels of a record; raises ValueError with a message."""
        labels = self.read(features)
        self._counts.update(labels)
        self._images += 1
        self._unlabeled += not labels

    def describe(self, summary: SourceSummary) -> None:
        """Add the layout, the labels and their number of images."""
        is_list = self.layout == "list"
        summary.facts.append("A feature lists the labels." if is_list else "0 and 1 for each label.")
        unlabeled = count_of(self._unlabeled, "image")
        remarks = [f"{unlabeled} without labels."] if self._unlabeled else []
        names = self.names or sort_labels(set(self._counts))
        _describe(self._counts, names, self._images, remarks, summary)


def _describe(
    counts: Counter[str], names: Sequence[str], images: int, remarks: list[str], summary: SourceSummary
) -> None:
    each = counts.total() / max(1, images)
    summary.facts.append(f"{count_of(len(names), 'label')}, on average {each:.2g} per image.".capitalize())
    summary.problems += remarks
    if not counts:
        summary.problems.append("No image has a label.")
    elif unused := sorted(set(names) - set(counts)):
        summary.problems.append(f"Labels without images: {listed(unused)}.")
    if len(names) > MAX_LABELS:
        summary.problems.append(f"At most {MAX_LABELS:,} labels can be used. Check the separator.")
    summary.set_bars("Images per label", [(label, counts[label]) for label in sort_labels(set(names))])
