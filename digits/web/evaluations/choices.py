"""The records of evaluations and embedding maps: those that requests choose, and those that pages offer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from flask import request, url_for

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob, epoch_label
from digits.core.recipe import Evaluate
from digits.core.snapshot_list import Snapshot
from digits.core.splits import SPLIT_TITLES, SPLITS, Split
from digits.core.status import Status
from digits.data.manifest import Manifest
from digits.data.models.embedding_map import EmbeddingMap
from digits.data.models.evaluation import Evaluation, name_of
from digits.data.targets.target import DatasetFit, UnfitDataset
from digits.kinds import Kind, kind_named
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.services import services

# The newest datasets among which a page looks for other records.
MAX_OTHERS = 25


def requested_records(job: ModelJob) -> tuple[DatasetJob, Split]:
    """Return the ``dataset`` and the ``split`` of the request; by default the validation split of the model's own.

    Raises NotFound and BadRequest.
    """
    dataset = services().store.get(request.form.get("dataset") or job.dataset_id, DatasetJob)
    if dataset.status is not Status.DONE:
        raise BadRequest(f"“{dataset.name}” cannot be used: it is {dataset.status.title}, not Done.")
    split = request.form.get("split", "val")
    if split not in SPLITS or split not in _manifest(dataset).splits:
        raise BadRequest(f"“{dataset.name}” has no split called “{split[:20]}”.")
    own = serializers.data_kind(job)
    if own is not None and own.name != dataset.data_kind.name:
        raise BadRequest(
            f"“{dataset.name}” is a dataset for {dataset.data_kind.title.lower()}, "
            f"but “{job.name}” is a model for {own.title.lower()}.",
            "Choose a dataset of the same kind.",
        )
    return dataset, split


def check_fits(job: ModelJob, dataset: DatasetJob, split: Split) -> None:
    """Raise BadRequest unless the model ``job`` can predict records of the ``split`` of ``dataset``."""
    trained_on = serializers.manifest_of(job)
    if trained_on is None:
        return
    manifest = _manifest(dataset)
    try:
        fit = _fit(trained_on, manifest)
    except UnfitDataset as error:
        raise BadRequest(
            f"“{dataset.name}” does not fit “{job.name}”: {error}.",
            "Choose another dataset on the page of the model.",
        ) from error
    counts = manifest.splits[split].counts
    if fit.has_unknown_records and len(counts) == len(fit.places):
        shared = sum(count for count, place in zip(counts, fit.places, strict=True) if place >= 0)
        if not shared:
            record = views_of(dataset.data_kind).record
            raise BadRequest(
                f"No {record} in the split “{split}” of “{dataset.name}” has a class of “{job.name}”.",
                "Choose another split or dataset.",
            )


def split_fields(job: ModelJob, snapshot: Snapshot, dataset: DatasetJob, split: Split) -> dict[str, Any]:
    """Return the fields of a `PredictSplit` for a split of ``dataset``, its own or another one, except the name."""
    return {
        "model": str(job.folder),
        "snapshot": snapshot.name,
        "epoch": snapshot.epoch,
        "trained_on": str(job.dataset_folder),
        "dataset": str(dataset.folder),
        "split": split,
    }


def evaluation_recipe(job: ModelJob, snapshot: Snapshot, dataset: DatasetJob, split: Split) -> Evaluate:
    """Return the recipe that evaluates ``snapshot`` of ``job`` on a split of ``dataset``, its own or another one."""
    other = "" if dataset.id == job.dataset_id else dataset.id
    name = name_of(snapshot.name, split, other)
    return Evaluate(**split_fields(job, snapshot, dataset, split), name=name)


def other_datasets(job: ModelJob) -> list[tuple[DatasetJob, str]]:
    """Return the newest other datasets of the kind of ``job``, those that fit first.

    Each has the reason why it does not fit, as a clause; "" if it does.
    """
    manifest = serializers.manifest_of(job)
    if manifest is None:
        return []
    of_kind = services().store.index.newest(DatasetJob, kind_named(manifest.kind).name)
    recent = (other for other in of_kind if other.status is Status.DONE and other.id != job.dataset_id)
    newest = list(itertools.islice(recent, MAX_OTHERS))
    read = in_thread(lambda: [(other, other.manifest()) for other in newest])
    found = [(other, _reason(manifest, records)) for other, records in read if records is not None]
    return sorted(found, key=lambda item: bool(item[1]))


def offered_splits(job: ModelJob, has_others: bool) -> Sequence[str]:
    """Return the splits that a form offers: those of the dataset of ``job``, or all if only other datasets have any."""
    if job.is_imported:
        return SPLITS if has_others else ()
    manifest = serializers.manifest_of(job)
    return tuple(manifest.splits) if manifest else ()


def _reason(manifest: Manifest, other: Manifest) -> str:
    try:
        _fit(manifest, other)
    except UnfitDataset as error:
        return str(error)
    return ""


def _fit(manifest: Manifest, other: Manifest) -> DatasetFit:
    """Return how the records of ``other`` map to those of ``manifest``, that of a model; raises UnfitDataset."""
    views = views_of(kind_named(manifest.kind))
    return manifest.fit(other, takes_image=views.takes_image and not views.has_input)


def _manifest(dataset: DatasetJob) -> Manifest:
    manifest = dataset.manifest()
    if manifest is None:
        raise BadRequest(f"“{dataset.name}” is damaged.", "Clone it to create it again.")
    return manifest


def title_of(result: Evaluation | EmbeddingMap, job: ModelJob) -> str:
    """Return the title of an evaluation or a map, such as ``Epoch 3, validation``."""
    return records_title(job, result.epoch, result.split, result.dataset_id)


def records_title(job: ModelJob, epoch: float, split: str, dataset_id: str) -> str:
    """Return the title of a task for a snapshot of ``job`` and the records of a split."""
    words = f"Epoch {epoch_label(epoch)}, {SPLIT_TITLES[split].lower()}"
    if dataset_id == job.dataset_id:
        return words
    other = services().store.find(dataset_id)
    return f"{words} of {other.name if other else 'a deleted dataset'}"


def records_url(job: ModelJob, result: Evaluation, kind: Kind, dataset_id: str) -> str:
    """Return the URL of the evaluated records of a dataset, those with the largest errors first."""
    return url_for(
        "explore.show",
        kind=kind,
        job_id=dataset_id,
        evaluation=f"{job.id}/{result.name}",
        db=result.split,
    )


def dataset_of(result: Evaluation | EmbeddingMap) -> tuple[DatasetJob, Manifest] | None:
    """Return the dataset of an evaluation or a map, unless it was deleted or changed."""
    data = serializers.finished_dataset(result.dataset_id)
    return data if data and data[1].content_hash == result.content_hash else None
