"""Labeled images in TFRecord files."""

from __future__ import annotations

from pathlib import Path
from sys import intern

from digits.data.records.features import (
    INTEGERS,
    ClassFeature,
    ExampleFeatures,
    guess_image,
    guess_label,
    values_of,
)
from digits.data.records.files import RecordFiles
from digits.data.sources.class_names import read_names
from digits.data.sources.plan import Plan, Progress
from digits.data.tables.tables import SourceNotes
from digits.kinds.classification.listing import plan_listings
from digits.kinds.classification.recipe import CreateClassification
from digits.kinds.sources.records import RecordMapping, need_feature, read_records


class ClassMapping(RecordMapping):
    """How the records of ``files`` become images with a label each.

    Features without a name in the recipe are those of the metadata, or else guessed from the ``first`` record.
    ``names`` are those of the classes, if they are known. Raises UnusableSource.
    """

    def __init__(self, recipe: CreateClassification, files: RecordFiles, first: ExampleFeatures) -> None:
        super().__init__(recipe, files, first)
        source = recipe.records
        assert source is not None
        name = need_feature(
            first, source.label_feature, files.label or guess_label(first, self.image.name), "a label"
        )
        names = read_names(Path(source.labels)) if source.labels else []
        if not names and name == files.label:
            names = files.classes
        self.names = names if values_of(first, name)[0] == INTEGERS else []
        self.label = ClassFeature(name, self.names)
        self.chosen["label_feature"] = name

    def read(self, features: ExampleFeatures) -> str:
        """Return the class of a record; raises ValueError with a message."""
        return intern(self.label.read(features))

    @staticmethod
    def guess(recipe: CreateClassification, files: RecordFiles, first: ExampleFeatures) -> dict[str, str]:
        image = files.image or guess_image(first)
        named = recipe.records.image_feature if recipe.records else ""
        label = files.label or guess_label(first, named or image)
        return {"image_feature": image, "label_feature": label}


def plan(recipe: CreateClassification, progress: Progress) -> Plan:
    """Plan the dataset of ``recipe``, whose records are read in order; raises UnusableSource."""
    notes = SourceNotes()
    mapping, splits = read_records(recipe, ClassMapping, progress, notes)
    return plan_listings(splits, mapping.names, recipe, notes, is_shuffled=False, noun="record")
