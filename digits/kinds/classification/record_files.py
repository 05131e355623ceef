"""Labeled images in TFRecord files."""

from __future__ import annotations

from pathlib import Path
from sys import intern

from msgspec import structs

from digits.data.records.features import INTEGERS, ClassFeature, ExampleFeatures, guess_label, values_of
from digits.data.records.files import RecordFiles
from digits.data.sources.class_names import read_names
from digits.data.sources.plan import Plan, Progress
from digits.data.tables.tables import SourceNotes
from digits.kinds.classification.listing import plan_listings
from digits.kinds.classification.recipe import CreateClassification, LabeledRecords
from digits.kinds.sources.records import RecordMapping, need_feature, read_records


class ClassMapping(RecordMapping):
    """How the records of ``files`` become images with a label each. ``names`` are those of the classes, if known."""

    FEATURES = RecordMapping.FEATURES | {"label_feature": "label_feature"}

    def __init__(
        self, recipe: CreateClassification, source: LabeledRecords, files: RecordFiles, first: ExampleFeatures
    ) -> None:
        super().__init__(recipe, source, files, first)
        name = need_feature(first, source.label_feature, "a label")
        names = read_names(Path(source.labels)) if source.labels else []
        if not names and name == files.label:
            names = files.classes
        self.names = names if values_of(first, name)[0] == INTEGERS else []
        self.label = ClassFeature(name, self.names)

    def read(self, features: ExampleFeatures) -> str:
        """Return the class of a record; raises ValueError with a message."""
        return intern(self.label.read(features))

    @classmethod
    def propose(cls, source: LabeledRecords, files: RecordFiles, first: ExampleFeatures) -> LabeledRecords:
        source = super().propose(source, files, first)
        label = source.label_feature or files.label or guess_label(first, source.image_feature)
        return structs.replace(source, label_feature=label)


def plan(recipe: CreateClassification, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``, whose records are read in order; raises UnusableSource."""
    notes = SourceNotes()
    mapping, splits = read_records(recipe, ClassMapping, progress, notes)
    return plan_listings(splits, mapping.names, recipe, notes, is_shuffled=False, noun="record")
