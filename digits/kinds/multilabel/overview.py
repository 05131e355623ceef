"""Summarize a table of images and labels for the form: the layout, and the images of each label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from digits.data.records.features import ExampleFeatures
from digits.data.records.files import RecordFiles
from digits.data.sources.class_names import sort_labels
from digits.data.sources.plan import count_of, listed, show
from digits.data.tables.tables import Row
from digits.kinds.forms.summary import SourceSummary
from digits.kinds.forms.table_summary import MAX_BYTES, RowSource
from digits.kinds.multilabel.reader import LabeledImages, Labels, open_labels
from digits.kinds.multilabel.recipe import MAX_LABELS, CreateMultilabel, Separator
from digits.kinds.multilabel.records import LabelSetMapping
from digits.kinds.sources.tables import SplitTable

SEPARATOR_NAMES: dict[Separator, str] = {
    "space": "spaces",
    "comma": "commas",
    "semicolon": "semicolons",
    "bar": "vertical bars",
}


class Overview:
    """The rows of a table of images, and their description."""

    def __init__(self, recipe: CreateMultilabel) -> None:
        self._recipe = recipe

    def open(self, table: SplitTable) -> RowSource[Labels]:
        """Open a table, whose paths are real ones, and detect its columns; raises UnusableSource."""
        rows = open_labels(self._recipe, table, MAX_BYTES)
        self._recipe = recipe = rows.recipe
        if recipe.layout == "columns":
            contents = "a column of 0 and 1 for each label"
        else:
            is_list = rows.have_brackets or recipe.separator == "auto"
            how = "as lists in brackets" if is_list else f"separated by {SEPARATOR_NAMES[recipe.separator]}"
            contents = f"labels in “{show(recipe.label_columns[0])}”, {how}"
        role = "label" if recipe.layout == "columns" else "labels"
        return RowSource.of(contents, rows, role)

    def describe(self, rows: list[Row[Labels]], summary: SourceSummary) -> None:
        """Add the labels and their number of images."""
        images = LabeledImages.combine(rows)
        counts = Counter(label for labels in images.labels_of.values() for label in labels)
        names = self._recipe.label_columns if self._recipe.layout == "columns" else list(counts)
        _describe(counts, names, len(images.labels_of), images.remarks(), summary)


class RecordOverview(LabelSetMapping):
    """The labels in TFRecord files, and their description."""

    def __init__(self, recipe: CreateMultilabel, files: RecordFiles, first: ExampleFeatures) -> None:
        super().__init__(recipe, files, first)
        self._counts: Counter[str] = Counter()
        self._images = self._unlabeled = 0

    def check(self, features: ExampleFeatures) -> None:
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
