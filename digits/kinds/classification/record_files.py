"""Labeled images in TFRecord files."""

from __future__ import annotations

from pathlib import Path
from sys import intern

from digits.data.record_features import (
    INTEGERS,
    ClassFeature,
    ImageFeature,
    guess_image,
    guess_label,
    values_of,
)
from digits.data.record_files import RecordFiles, find_files
from digits.data.sources import Progress, UnusableSource, listed
from digits.kinds.classification.listing import Listing, read_names, sort_labels
from digits.kinds.classification.recipe import RecordSource
from digits.kinds.record_source import RecordSplits, first_record, need_feature


def find(source: RecordSource) -> RecordFiles:
    """Return the files of ``source``; raises UnusableSource."""
    return find_files(source.train, {"val": source.val, "test": source.test})


def map_features(files: RecordFiles, source: RecordSource) -> tuple[ImageFeature, ClassFeature, list[str]]:
    """Return the features of the image and of the label, and the names of the classes if they are known.

    Features that ``source`` does not name are those of the metadata, or else guessed from the first record. Raises
    UnusableSource.
    """
    features = first_record(files.splits["train"])
    image = need_feature(features, source.image_feature, files.image or guess_image(features), "an image")
    label = need_feature(
        features, source.label_feature, files.label or guess_label(features, image), "a label"
    )
    shape = tuple(source.shape) or (files.shape if image == files.image else ())
    names = read_names(Path(source.labels)) if source.labels else []
    if not names and label == files.label:
        names = files.classes
    if values_of(features, label)[0] != INTEGERS:
        names = []
    return ImageFeature.of(image, features, shape), ClassFeature(label, names), names


def read(source: RecordSource, progress: Progress) -> tuple[dict[str, Listing], list[str]]:
    """Return the images of each split, and the names of the classes; raises UnusableSource."""
    files = find(source)
    image, label, names = map_features(files, source)
    splits = RecordSplits(files, image, label.read)
    read = {name: splits.collect(name, progress) for name in files.splits}
    names = names or sort_labels(set(read["train"][1]))
    found: dict[str, Listing] = {}
    for name, (records, labels) in read.items():
        unknown = set(labels) - set(names)
        if unknown:
            raise UnusableSource(
                f"The {name} records have labels that no training record has: {listed(sorted(unknown))}."
            )
        found[name] = Listing(splits.images(name), splits.describe(name), records, list(map(intern, labels)))
    return found, names
