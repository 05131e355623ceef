"""Images and labels in TFRecord files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from digits.data.records.features import (
    BYTES,
    FLOATS,
    LABEL_NAMES,
    ClassFeature,
    ExampleFeatures,
    best_named,
    is_no_label,
    named_like,
    needed_values,
    values_of,
)
from digits.data.records.files import RecordFiles
from digits.data.sources.class_names import read_names, sort_labels
from digits.data.sources.plan import Progress, SplitPlan, UnusableSource, count_of, first_lines, listed, show
from digits.data.tables.tables import SourceNotes
from digits.kinds.multilabel.recipe import MAX_LABELS, CreateMultilabel, LabelRecords, Layout
from digits.kinds.sources.records import RecordMapping, divide_records, need_feature, read_records

Labels = tuple[str, ...]
_FLAGS = {0: False, 1: True, -1: False}


class LabelSetMapping(RecordMapping):
    """How the records of ``files`` become images with labels.

    ``layout`` is ``list`` or ``columns``; see `LabelRecords`. ``names`` are those of the labels, if they are known
    before all records are read.
    """

    FEATURES = RecordMapping.FEATURES | {"label_features": "label_columns"}

    def __init__(self, recipe: Any, source: LabelRecords, files: RecordFiles, first: ExampleFeatures) -> None:
        super().__init__(recipe, source, files, first)
        self._features = [need_feature(first, name, "labels") for name in source.label_features or [""]]
        self.layout = source.layout
        self._classes = _class_names(source, files, self._features[0])
        self._list = ClassFeature(self._features[0], self._classes)
        if self.layout == "list" and len(self._features) > 1:
            raise UnusableSource(
                f"Several features may list the labels: {listed(self._features)}.",
                "Enter one feature, or choose the layout with 0 and 1 for each label.",
            )
        self.names = self._classes
        if self.layout == "columns":
            self._flags = {name: self._flag_names(name, first) for name in self._features}
            self.names = [label for names in self._flags.values() for label in names]
        if len(self.names) > MAX_LABELS:
            raise too_many(len(self.names))

    def read(self, features: ExampleFeatures) -> Labels:
        """Return the labels of a record; raises ValueError with a message."""
        if self.layout == "columns":
            return tuple(label for name in self._features for label in self._read_flags(name, features))
        return tuple(dict.fromkeys(filter(None, self._list.read_all(features))))

    def _flag_names(self, name: str, first: ExampleFeatures) -> list[str]:
        """Return the labels of a feature with 0 or 1, or with one such number for each class."""
        count = len(values_of(first, name)[1])
        if len(self._features) == 1 and self._classes:
            if len(self._classes) != count:
                raise UnusableSource(
                    f"“{show(name)}” has {count_of(count, 'number')}, but there are {len(self._classes):,} names.",
                    "Enter a file with one name for each number.",
                )
            return self._classes
        return [name] if count == 1 else [f"{name} {number}" for number in range(count)]

    def _read_flags(self, name: str, features: ExampleFeatures) -> Labels:
        labels = self._flags[name]
        kind, values = needed_values(features, name)
        if kind == BYTES:
            raise ValueError(f"“{show(name)}” is {kind} instead of 0 or 1")
        if len(values) != len(labels):
            raise ValueError(
                f"“{show(name)}” has {count_of(len(values), 'number')}, but {len(labels):,} in the first record"
            )
        try:
            return tuple(label for label, value in zip(labels, values, strict=True) if _FLAGS[value])
        except KeyError as error:
            raise ValueError(f"“{show(name)}” has the value {error.args[0]:g}, which is not 0 or 1") from None

    @classmethod
    def propose(cls, source: LabelRecords, files: RecordFiles, first: ExampleFeatures) -> LabelRecords:
        """Propose a feature with a usual name, or else all that are 0 or 1, and the layout."""
        source = super().propose(source, files, first)
        others = [name for name in sorted(first) if name != source.image_feature and not is_no_label(name)]
        usual = best_named(named_like(others, LABEL_NAMES), LABEL_NAMES)
        flags = [name for name in others if _are_flags(values_of(first, name), 1)]
        names = source.label_features or ([usual] if usual else flags)
        layout = _layout(first, names) if source.layout == "auto" else source.layout
        return structs.replace(source, label_features=names, layout=layout)


def _are_flags(stored: tuple[str, Sequence[Any]], count: int) -> bool:
    kind, values = stored
    return kind not in ("", BYTES) and len(values) == count and all(value in _FLAGS for value in values)


def _layout(first: ExampleFeatures, names: list[str]) -> Layout:
    """Return the layout of the features ``names``: that of lists unless all numbers are 0 or 1, some repeatedly."""
    if len(names) != 1:
        return "columns"
    kind, values = values_of(first, names[0])
    is_repeated = len(set(values)) < len(values)
    return (
        "columns" if kind == FLOATS or (is_repeated and _are_flags((kind, values), len(values))) else "list"
    )


def _class_names(source: LabelRecords, files: RecordFiles, name: str) -> list[str]:
    if source.labels:
        return read_names(Path(source.labels))
    return [label for _, label in sorted(files.names_of(name).items())]


def too_many(count: int, hint: str = "") -> UnusableSource:
    """Return the error for too many labels."""
    return UnusableSource(f"{count:,} labels are too many.", f"Use at most {MAX_LABELS:,}{hint}.")


def no_labels(noun: str, names: list[str]) -> str:
    """Return the sentence about the records called ``names`` without labels; each is one ``noun``."""
    verb = "has" if len(names) == 1 else "have"
    return f"{count_of(len(names), noun)} {verb} no labels: {first_lines(names)}."


def encode(labels: Sequence[str], of_images: Sequence[Collection[str]]) -> list[NDArray[np.float32]]:
    """Return zeros and ones for ``labels``, float32 [labels], for the labels of each image."""
    places = {label: index for index, label in enumerate(labels)}
    values = np.zeros((len(of_images), len(labels)), np.float32)
    for row, own in zip(values, of_images, strict=True):
        row[[places[label] for label in own]] = 1
    return list(values)


def read(
    recipe: CreateMultilabel, progress: Progress, notes: SourceNotes
) -> tuple[dict[str, SplitPlan], list[str]]:
    """Return the records of each split, and the labels; raises UnusableSource.

    Skipped records are added to ``notes``. The targets are zeros and ones for the labels, float32 [labels].
    """
    mapping, splits = read_records(recipe, LabelSetMapping, progress, notes)
    progress.say("A feature lists the labels." if mapping.layout == "list" else "0 and 1 for each label.")
    labels = mapping.names or sort_labels(
        {label for split in splits.values() for own in split.targets for label in own}
    )
    if not labels:
        raise UnusableSource("The records have no labels.", "Choose another feature.")
    if len(labels) > MAX_LABELS:
        raise too_many(len(labels))
    for name, split in splits.items():
        unlabeled = [show(file) for file, own in zip(split.files, split.targets, strict=True) if not own]
        if unlabeled:
            notes.warnings.append(no_labels(f"{name} image", unlabeled))
        split.targets = encode(labels, split.targets)
    return divide_records(splits, recipe), labels
