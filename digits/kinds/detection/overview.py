"""Summarize annotations for the form: the format, the objects of each class, and invalid boxes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from digits.data.images.images import Size
from digits.data.records.features import ExampleFeatures
from digits.data.records.files import RecordFiles
from digits.data.sources.declared_splits import describe_splits
from digits.data.sources.plan import UnusableSource, count_of, first_lines, listed, show
from digits.kinds.detection.annotations import AnnotatedImage, Annotations, BoxChecks, none_usable
from digits.kinds.detection.class_names import NamesFile
from digits.kinds.detection.formats import box_table
from digits.kinds.detection.formats.box_table import COLUMNS, find_columns, open_boxes, role_of
from digits.kinds.detection.formats.format import AUTOMATIC, BoxTable
from digits.kinds.detection.formats.formats import find_format, open_annotations
from digits.kinds.detection.placement import Measured, measure_images, place_boxes
from digits.kinds.detection.reader import ClassChoice
from digits.kinds.detection.recipe import CreateDetection
from digits.kinds.detection.records import BOX_FIELD, EDGES, BoxMapping
from digits.kinds.forms.summary import Overview, SourceSummary, Suggestion, joined
from digits.kinds.forms.table_summary import MAX_BYTES, Preview
from digits.kinds.sources.split_lists import Lists


def source_fields(sources: dict[str, tuple[Path, Path]]) -> dict[str, str | bool]:
    """Return the values of the form fields for the images and the annotations of each split."""
    fields: dict[str, str | bool] = {}
    for split, (images, labels) in sources.items():
        fields |= {f"{split}_image_folder": str(images), f"{split}_label_folder": str(labels)}
    return fields


def describe_names(path: str) -> str:
    """Return a note about the file with the names of the classes."""
    return f"The names of the classes are those in {show(os.path.basename(path))}."


def suggest_names(files: Sequence[NamesFile]) -> Suggestion:
    """Ask which of several files has the names of the classes."""
    first = files[0]
    root = os.path.commonpath([file.path.parent for file in files])
    places = [f"{show(os.path.relpath(file.path, root))} ({listed(file.names.values())})" for file in files]
    name = show(os.path.relpath(first.path, root))
    return Suggestion(
        f"The classes have different names in {joined(places)}. Use {name}, or enter another one as “Class names”?",
        f"Use {name}",
        {"class_names_file": str(first.path)},
    )


def describe_annotations(root: Path, sources: dict[str, tuple[Path, Path]], lists: Lists) -> str:
    """Return a note about the annotations and the lists of splits in ``root`` that are used."""
    places = [show(os.path.relpath(labels, root)) for _, labels in sources.values() if labels != root]
    declared = {split: labels for split, (_, labels) in sources.items()} | {
        split: paths[0] for split, paths in lists.items()
    }
    if len(declared) > 1:
        return describe_splits(declared)
    return f"Annotations: {joined(places)}." if places else "The annotations are beside the images."


def suggest_mixing(fields: dict[str, str | bool]) -> Suggestion:
    """Suggest ``fields`` with which the images of all splits are divided again."""
    return Suggestion("Mix the images of all splits, and divide them again?", "Mix them", fields)


def _preview(path: Path, settings: BoxTable, summary: SourceSummary) -> None:
    """Show the first rows of a CSV file with the values in their columns, and offer the columns.

    They may be unknown. Raises UnusableSource.
    """
    table = open_boxes(path, settings, MAX_BYTES)
    try:
        places = find_columns(table, settings)
    except UnusableSource:
        places = {}
    Preview.of(table, {place: role_of(field) for field, place in places.items()}).add_to(summary)
    choices = [("", "Automatic"), *((name, show(name)) for name in table.columns)]
    summary.options |= dict.fromkeys(COLUMNS, choices)


class _Objects:
    """The objects of usable boxes by class, and the faults of others; only those of ``classes`` if there are any."""

    def __init__(self, classes: list[str]) -> None:
        self.choice = ClassChoice(classes)
        self._checks = BoxChecks()
        self._counts: Counter[str] = Counter()

    def add(self, image: AnnotatedImage, size: Size | None) -> None:
        """Count the objects of an image."""
        usable = self._checks.usable(image, size)
        names = (self.choice.find(box.name) for box in usable if not box.is_ignored)
        self._counts.update(name for name in names if name)

    def words(self) -> str:
        """Return the numbers of objects and of their classes."""
        return f"{count_of(self._counts.total(), 'object')} of {count_of(len(self._counts), 'class')}"

    def describe(self, summary: SourceSummary, declared: Iterable[str], remarks: Iterable[str] = ()) -> None:
        """Show the objects of each class, the ``declared`` ones first, and problems; ``remarks`` are among them."""
        if summary.finished and not self._counts:
            summary.problems.append(none_usable(self._checks.ignored).sentences)
        summary.problems += [*remarks, *self._checks.remarks()]
        order = dict.fromkeys([*self.choice.chosen, *declared, *sorted(self._counts)])
        summary.set_bars(
            "Objects per class", [(name, self._counts[name]) for name in order if self._counts[name]]
        )


class AnnotationOverview(Overview):
    """The annotations ``labels`` of the images below the folder ``images``, both real paths."""

    def __init__(
        self,
        images: Path,
        labels: Path,
        format_name: str,
        classes: list[str],
        suggestion: Suggestion | None = None,
        table: BoxTable = AUTOMATIC,
        names: str = "",
        note: str = "",
    ) -> None:
        super().__init__(suggestion)
        self._names, self._note = names, note
        self._root, self._labels, self._format, self._table = images, labels, format_name, table
        self._title = ""
        self._annotations: Annotations
        self._objects = _Objects(classes)
        self._measured: list[Measured] = []
        self._files: list[str] = []
        self._missing: list[str] = []

    def read(self) -> Iterator[int]:
        chosen = find_format(self._labels, self._format)
        self._title = chosen.title
        if chosen is box_table.FORMAT:
            _preview(self._labels, self._table, self.start)
        classes = self._objects.choice.chosen
        self._annotations = open_annotations(
            self._labels, self._root, chosen.name, classes, self._table, self._names
        )
        for count, item in enumerate(measure_images(self._annotations, self._root), 1):
            self._measured.append(item)
            (self._missing if item.size is None else self._files).append(item.image.file)
            yield count
        self.is_complete = True

    def conclude(self) -> tuple[str, list[str]]:
        for image, size in place_boxes(self._annotations, self._measured):
            self._objects.add(image, size)
        self._measured = []
        return str(self._root), [] if self._annotations.stored else self._files

    def describe(self, summary: SourceSummary) -> None:
        images = f"{self.at_least.lower()}{count_of(len(self._files), 'image')}"
        if self._measured:  # still being read
            summary.facts.append(f"{self._title} annotations: {images}.")
            return
        summary.facts.append(f"{self._title} annotations: {images} with {self._objects.words()}.")
        summary.facts += filter(None, [self._note, self._annotations.split_note])
        if self._names:
            summary.facts.append(describe_names(self._names))
        if self._missing:
            summary.problems.append(
                f"{count_of(len(self._missing), 'image')} not found or unreadable: {first_lines(self._missing)}."
            )
        faults = [f"{item.describe()} {item.hint}" for item in self._annotations.faults if item.count]
        summary.facts += [note for item in self._annotations.faults for note in item.notes]
        self._objects.describe(
            summary,
            self._annotations.classes,
            [*faults, *self._annotations.remarks, *self._annotations.box_remarks],
        )


class RecordOverview(BoxMapping):
    """The objects in TFRecord files, and their description; only the chosen classes are counted, if there are any."""

    def __init__(self, recipe: CreateDetection, files: RecordFiles, first: ExampleFeatures) -> None:
        super().__init__(recipe, files, first)
        self._objects = _Objects(recipe.classes)
        self._records = 0

    def check(self, features: ExampleFeatures) -> None:
        """Count the objects of a record; raises ValueError with a message."""
        size, boxes = self.read(features)
        name = f"record {self._records}"
        named = [replace(box, where=f"{name}, {box.where}") for box in boxes]
        self._objects.add(AnnotatedImage(name, named), size)
        self._records += 1

    def describe(self, summary: SourceSummary) -> None:
        """Add the objects of each class, and problems of boxes."""
        summary.facts += [f"{self._objects.words()}.", f"Boxes: {self.boxes.describe()}."]
        for field in {BOX_FIELD, *EDGES} - set(self.chosen):
            if field in summary.options:
                summary.options[field][0] = ("", "None")
        self._objects.describe(summary, self.classes)
