"""Labeled images in TFRecord files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from sys import intern

from digits.data.class_names import read_names, sort_labels
from digits.data.record_features import (
    INTEGERS,
    ClassFeature,
    Features,
    guess_image,
    guess_label,
    values_of,
)
from digits.data.record_files import RecordFiles
from digits.data.sources import Progress, UnusableSource, listed
from digits.kinds.classification.listing import Listing
from digits.kinds.classification.recipe import LabeledRecords
from digits.kinds.record_source import RecordSplits, first_record, need_feature
from digits.kinds.source_summary import SourceSummary


class LabelMapping:
    """How the records of ``files`` become images with a label each; see `digits.kinds.record_summary.RecordMapping`.

    Features that ``source`` does not name are those of the metadata, or else guessed from the ``first`` record.
    ``names`` are those of the classes, if they are known. Raises UnusableSource.
    """

    def __init__(self, source: LabeledRecords, files: RecordFiles, first: Features) -> None:
        self.image = source.map_image(files, first)
        name = need_feature(
            first, source.label_feature, files.label or guess_label(first, self.image.name), "a label"
        )
        names = read_names(Path(source.labels)) if source.labels else []
        if not names and name == files.label:
            names = files.classes
        self.names = names if values_of(first, name)[0] == INTEGERS else []
        self.label = ClassFeature(name, self.names)
        self.chosen = {"image_feature": self.image.name, "label_feature": name}
        self.counts: Counter[str] = Counter()

    def check(self, features: Features) -> None:
        """Count the class of a record; raises ValueError with a message."""
        self.counts.update([self.label.read(features)])

    def describe(self, summary: SourceSummary) -> None:
        """Add the number of images of each class."""
        order = self.names or sort_labels(set(self.counts))
        summary.set_bars("Training images per class", [(name, self.counts[name]) for name in order])
        if summary.finished and len(self.counts) == 1:
            summary.problems.append("Classification requires at least two classes.")


def guess(source: LabeledRecords, files: RecordFiles, first: Features) -> dict[str, str]:
    """Return the feature that each field of the form has by default, or an empty string."""
    image = files.image or guess_image(first)
    return {
        "image_feature": image,
        "label_feature": files.label or guess_label(first, source.image_feature or image),
    }


def read(
    source: LabeledRecords, max_unusable_percent: float, progress: Progress
) -> tuple[dict[str, Listing], list[str]]:
    """Return the images of each split, and the names of the classes; raises UnusableSource."""
    files = source.find()
    mapping = LabelMapping(source, files, first_record(files.splits["train"]))
    splits = RecordSplits(files, mapping.image, mapping.label.read, max_unusable_percent)
    read = {name: splits.collect(name, progress) for name in files.splits}
    names = mapping.names or sort_labels(set(read["train"][1]))
    found: dict[str, Listing] = {}
    for name, (records, labels) in read.items():
        unknown = set(labels) - set(names)
        if unknown:
            raise UnusableSource(
                f"The {name} records have labels that no training record has: {listed(sorted(unknown))}."
            )
        found[name] = Listing(splits.images(name), splits.describe(name), records, list(map(intern, labels)))
    found["train"].unusable = splits.unusable
    return found, names
