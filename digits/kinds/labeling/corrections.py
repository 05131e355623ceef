"""Corrections of the labels that a dataset was made from, from changes of its records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import UNSET, structs

from digits.core.errors import BadRequest
from digits.data.manifest import Manifest
from digits.data.records.index import read_names
from digits.kinds.labeling.answers import Entry
from digits.kinds.labeling.images import read_images
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.labeling.log import LabelLog
from digits.kinds.versions.pending_edits import Change


def records_of(dataset: Path, manifest: Manifest, labels: Path, records: Iterable[str]) -> dict[int, str]:
    """Return the record, such as ``train/7``, of each image of the labels that is among the ``records``.

    ``dataset`` and ``labels`` are the folders of the jobs. Raises BadRequest for images that are not in the labels, and
    UnreadableFile.
    """
    names = {split: read_names(dataset, content) for split, content in manifest.splits.items()}
    of_paths: dict[str, str] = {}
    for record in records:
        split, _, number = record.partition("/")
        of_paths[os.fsdecode(names[split][int(number)])] = record
    found = {
        number: of_paths.pop(image.path)
        for number, image in enumerate(read_images(labels))
        if image.path in of_paths
    }
    if of_paths:
        raise BadRequest(f"{next(iter(of_paths))} is not an image of the labels.", "List their images again.")
    return found


def corrections_of(
    job: LabelsJob, log: LabelLog, until: int, names: list[str], changes: Mapping[int, Change | None]
) -> dict[int, tuple[Entry, Entry]]:
    """Return the latest entries of images before ``until``, each with what the change of its record makes of it.

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

    def corrected(image: int, change: Change | None) -> tuple[Entry, Entry]:
        base = next(log.history(image, until=until))
        return base, _corrected(base, change, id_of)

    return {image: corrected(image, change) for image, change in changes.items()}


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
