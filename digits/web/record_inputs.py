"""Records, and inputs that the fields of a kind describe, as the images of batch predictions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from flask import request
from numpy.typing import NDArray

from digits.core.errors import BadRequest, NotAllowed, NotFound
from digits.core.model_job import ModelJob
from digits.data import images, predictions
from digits.data.data_roots import Roots
from digits.data.databases import FEATURES, is_database, is_database_file, open_arrays
from digits.data.manifest import Manifest
from digits.data.predictions import ListedImage
from digits.data.record_features import Features
from digits.data.record_files import paths_at
from digits.data.sources import count_of
from digits.data.tfrecords import examples
from digits.kinds.form_fields import resolve_files
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import InputRecord
from digits.web.inference_views import input_request
from digits.web.kind_routes import views_of
from digits.web.offload import in_thread
from digits.web.prediction_runs import FindSource, Source, limit_of_request, may_resize
from digits.web.services import services

# The maximum size of the inputs of one request, which are copied.
MAX_INPUT_BYTES = 2 * 10**9

# Longer names, such as texts, are cut off.
MAX_NAME = 500

# An input: its name, and a function that returns an image file, an array, or the paths of images on the server, which
# raises ValueError; and the index of the true class.
NamedInput = tuple[str, Callable[[], bytes | NDArray[Any] | Sequence[Path]], int | None]


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
        found = resolve_files(services().roots, text)
    except NotAllowed as error:
        raise BadRequest(error.message, error.hint) from error
    database = _database_at(Path(found))
    if database is not None:
        _check_takes_images(job, dataset, manifest)
        inputs = _in_database(database)
    else:
        read_record = partial(views_of(dataset.data_kind).read_record, dataset.kind_recipe)
        inputs = _in_records(paths_at(found), read_record)

    def find(folder: Path, labels: list[str]) -> Source:
        listed = in_thread(_save, inputs, folder / predictions.IMAGES_FOLDER, size, limit)
        return Source(os.path.basename(text.rstrip("/")), listed, [])

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
        listed = in_thread(_save, inputs, folder / predictions.IMAGES_FOLDER, None, limit)
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
    dataset = services().store.find(job.dataset_id)
    manifest = dataset.manifest() if isinstance(dataset, DatasetJob) else None
    if not isinstance(dataset, DatasetJob) or manifest is None:
        raise NotFound(f"The dataset of “{job.name}” no longer exists.")
    return dataset, manifest


def _check_takes_images(job: ModelJob, dataset: DatasetJob, manifest: Manifest) -> None:
    if manifest.dtype != "uint8" or not views_of(dataset.data_kind).takes_image:
        raise BadRequest(
            f"“{job.name}” does not predict from single images, but LMDB and HDF5 databases contain them.",
            "Set “db_path” to TFRecord files.",
        )


def _database_at(path: Path) -> Path | None:
    """Return the LMDB or HDF5 database at ``path``, that of the images for a split of a generic dataset, or None."""
    if path.is_dir():
        return next((folder for folder in (path, path / FEATURES) if is_database(folder)), None)
    return path if is_database_file(path) else None


def _in_records(
    paths: Iterable[Path], read_record: Callable[[Features], bytes | NDArray[Any]]
) -> Iterator[NamedInput]:
    for path in paths:
        for frame, features in examples(path):
            yield f"{path.name}:{frame.number}", partial(read_record, features), None


def _in_database(path: Path) -> Iterator[NamedInput]:
    """Yield the images of a database by their keys; raises UnusableSource."""
    database = open_arrays(path)
    try:
        for entry in database.entries():
            yield entry.name, partial(database.read, entry.name), None
    finally:
        database.close()


def _save(
    inputs: Iterable[NamedInput], folder: Path, size: tuple[int, int] | None, limit: int
) -> list[ListedImage]:
    """Save at most ``limit`` inputs in ``folder``; return their list.

    With a ``size``, images of other sizes cannot be used. Raises BadRequest if the inputs are too large.
    """
    folder.mkdir(mode=0o700)
    found: list[ListedImage] = []
    room = MAX_INPUT_BYTES
    for name, read, truth in islice(inputs, limit):
        target = folder / f"{len(found):06}"
        try:
            data = read()
            if size and isinstance(data, bytes) and (own := images.header(data)[1]) != size:
                raise ValueError(f"its image is {own[0]}×{own[1]} pixels, not {size[0]}×{size[1]}")
        except ValueError as error:
            found.append(ListedImage("", name, truth, error=f"The record cannot be used: {error}."))
            continue
        if not isinstance(data, (bytes, np.ndarray)):
            first, *more = map(str, data)
            found.append(ListedImage(first, name, truth, more=more))
            continue
        if isinstance(data, bytes):
            target.write_bytes(data)
            room -= len(data)
        else:
            target = target.with_suffix(predictions.ARRAY_SUFFIX)
            np.save(target, data, allow_pickle=False)
            room -= data.nbytes
        if room < 0:
            raise BadRequest(
                f"The first {len(found) + 1:,} records are larger than {MAX_INPUT_BYTES // 10**9} GB.",
                "Set “num_test_images” to a lower number.",
            )
        found.append(ListedImage(str(target), name, truth))
    return found
