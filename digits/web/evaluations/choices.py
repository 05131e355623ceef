"""The records that requests choose for evaluations and embedding maps."""

from __future__ import annotations

from flask import request

from digits.core.errors import BadRequest
from digits.core.model_job import ModelJob
from digits.core.splits import SPLITS, Split
from digits.core.status import Status
from digits.data.manifest import Manifest
from digits.data.targets.target import UnfitDataset
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.web.evaluations.panel import fit_of
from digits.web.jobs import serializers
from digits.web.services import services


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
        fit = fit_of(trained_on, manifest)
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


def _manifest(dataset: DatasetJob) -> Manifest:
    manifest = dataset.manifest()
    if manifest is None:
        raise BadRequest(f"“{dataset.name}” is damaged.", "Clone it to create it again.")
    return manifest
