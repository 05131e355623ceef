"""Corrections of the labels that a dataset was made from, from changes of its records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import UNSET, structs

from digits.core.errors import BadRequest
from digits.data.manifest import Manifest
from digits.data.records.index import read_names
from digits.kinds.labeling.answers import Entry
from digits.kinds.labeling.images import read_images
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.labeling.log import Correction, LabelLog
from digits.kinds.versions.pending_edits import Change

Changes = Mapping[str, Change | None]


def images_of(dataset: Path, manifest: Manifest, labels: Path, changes: Changes) -> dict[int, str]:
    """Return the record, such as ``train/7``, of each image whose record changes.

    ``dataset`` and ``labels`` are the folders of the jobs. Raises BadRequest for images that are not in the labels, and
    UnreadableFile.
    """
    of_split: dict[str, list[bytes]] = {}
    records: dict[str, str] = {}
    for record in changes:
        split, _, number = record.partition("/")
        if split not in of_split:
            of_split[split] = read_names(dataset, manifest.splits[split])
        records[os.fsdecode(of_split[split][int(number)])] = record
    images = {
        number: records.pop(image.path)
        for number, image in enumerate(read_images(labels))
        if image.path in records
    }
    if records:
        raise BadRequest(f"{next(iter(records))} is not an image of the labels.", "List their images again.")
    return images


def corrections_of(
    job: LabelsJob, log: LabelLog, until: int, names: list[str], changes: Mapping[int, Change | None]
) -> dict[int, Correction]:
    """Return the corrections of images by the changes of their records.

    ``until`` is the place in the log up to which the dataset contains it, and ``names`` are those of its classes.
    Raises BadRequest for classes that the labels do not have, and UnreadableFile.
    """
    ids = {item.name: item.id for item in job.shown_classes}

    def id_of(index: int) -> int:
        if names[index] not in ids:
            raise BadRequest(
                f"The labels have no {job.form.noun} “{names[index]}” any more.",
                "Create a new dataset from them.",
            )
        return ids[names[index]]

    corrections = {}
    for image, change in changes.items():
        base = next(log.history(image, until=until))
        corrections[image] = Correction(base, _corrected(base, change, id_of))
    return corrections


def _corrected(base: Entry, change: Change | None, id_of: Callable[[int], int]) -> Entry:
    """Return an entry after the change of its record; splits of labels never change."""
    if change is None:
        return base
    if change.exclude:
        return structs.replace(base, state="skipped")
    if not change.changes_target:
        return base
    new = structs.replace(base, state="labeled")
    if change.label is not UNSET:
        new.label = id_of(change.label)
    if change.labels:
        own = set(base.labels or ())
        for index, is_added in change.labels.items():
            (own.add if is_added else own.discard)(id_of(int(index)))
        new.labels = sorted(own)
    if change.numbers:
        values = {str(id_of(int(index))): value for index, value in change.numbers.items()}
        new.numbers = {**(base.numbers or {}), **values}
    return new
