"""Records, and inputs that the fields of a kind describe, as the images of batch predictions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flask import request
from numpy.typing import NDArray

from digits.core.errors import BadRequest, NotAllowed, NotFound
from digits.core.model_job import ModelJob
from digits.data.data_roots import Roots
from digits.data.databases.convert import FEATURES, format_of
from digits.data.manifest import Manifest
from digits.data.models import predictions
from digits.data.sources.plan import count_of
from digits.kinds.forms.fields import resolve_files
from digits.kinds.jobs import DatasetJob
from digits.kinds.predictions.record_inputs import Request, save, save_inputs
from digits.kinds.views import InputRecord, views_of
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.predictions.inputs import input_request
from digits.web.predictions.runs import FindSource, Source, limit_of_request, may_resize
from digits.web.services import services

# Longer names, such as texts, are cut off.
MAX_NAME = 500


def records_of_request(job: ModelJob) -> FindSource:
    """Return how the records at ``db_path`` become a list of images; raises an error for a bad path."""
    text = request.values.get("db_path", "").strip()
    if not text:
        raise BadRequest(
            "Enter the path of TFRecord files or of a database.",
            "Set “db_path” to a file, a folder or a pattern.",
        )
    dataset, manifest = _dataset_of(job)
    limit = limit_of_request()
    size = None if may_resize() else (manifest.width, manifest.height)
    try:
        path = resolve_files(services().roots, text)
    except NotAllowed as error:
        raise BadRequest(error.message, error.hint) from error
    database = _database_at(Path(path))
    if database is not None:
        _check_takes_images(job, dataset, manifest)
    recipe = dataset.kind_recipe.as_json()

    def find(folder: Path, labels: list[str]) -> Source:
        target = str(folder / predictions.IMAGES_FOLDER)
        reading = Request(str(database or path), database is not None, recipe, target, limit, size)
        return Source(os.path.basename(text.rstrip("/")), save(reading), [])

    return find


def inputs_of_request(job: ModelJob) -> FindSource | None:
    """Return how several inputs in the fields of the kind become a list of images; None if there is at most one."""
    dataset = services().store.find(job.dataset_id)
    if not isinstance(dataset, DatasetJob):
        return None
    limit = limit_of_request()
    views = views_of(dataset.data_kind)
    records = in_thread(views.read_inputs, dataset.kind_recipe, input_request())
    if records is None:
        return None
    roots = services().roots

    def find(folder: Path, labels: list[str]) -> Source:
        numbers = {label: number for number, label in enumerate(labels)}
        inputs = (
            (record.name[:MAX_NAME], partial(_content_of, record, roots), numbers.get(record.label))
            for record in records
        )
        saved = save_inputs(inputs, folder / predictions.IMAGES_FOLDER, None, limit)
        listed = in_thread(list, saved)
        return Source(count_of(len(listed), views.record), listed, [])

    return find


def _content_of(record: InputRecord, roots: Roots) -> NDArray[Any] | Sequence[Path]:
    """Return the pixels or the paths of a record; raises ValueError for paths outside of the data roots."""
    if isinstance(record.content, np.ndarray):
        return record.content
    for path in record.content:
        if not roots.contain(path):
            raise ValueError(f"{path} is outside the folders this server may read")
    return record.content


def _dataset_of(job: ModelJob) -> tuple[DatasetJob, Manifest]:
    data = serializers.finished_dataset(job.dataset_id)
    if data is None:
        raise NotFound(f"The dataset of “{job.name}” no longer exists.")
    return data


def _check_takes_images(job: ModelJob, dataset: DatasetJob, manifest: Manifest) -> None:
    if manifest.dtype != "uint8" or not views_of(dataset.data_kind).takes_image:
        raise BadRequest(
            f"“{job.name}” does not predict from single images, but LMDB and HDF5 databases contain them.",
            "Set “db_path” to TFRecord files.",
        )


def _database_at(path: Path) -> Path | None:
    """Return the LMDB or HDF5 database at ``path``, that of the images for a split of a generic dataset, or None."""
    if path.is_dir():
        return next(
            (folder for folder in (path / FEATURES, path) if folder.is_dir() and format_of(folder)), None
        )
    return path if format_of(path) else None
