"""The embedding maps of models: the page, its JSON, and the start of a new map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flask import request, url_for

from digits.core.errors import BadRequest, NotFound
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.core.recipe import MAX_LAYER_NAME, MapEmbeddings
from digits.data.manifest import Manifest
from digits.data.models import embedding_map as maps
from digits.data.models.embedding_map import EmbeddingMap
from digits.data.records.search import Place
from digits.kinds import default_kind
from digits.kinds.forms.request_fields import whole
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views, views_of
from digits.runtime.offload import in_thread
from digits.web.evaluations.choices import (
    dataset_of,
    offered_splits,
    other_datasets,
    records_title,
    requested_records,
    split_fields,
    title_of,
)
from digits.web.jobs import serializers
from digits.web.jobs.activities import Activity
from digits.web.jobs.snapshots import snapshot_of
from digits.web.models import serializers as model_serializers
from digits.web.records.gallery import gallery_items
from digits.web.records.images import RecordImages, shown_size
from digits.web.request_limits import limited
from digits.web.resources.encoding import describe
from digits.web.resources.evaluations import MapResult, Maps
from digits.web.responses.representation import render_in_turns
from digits.web.services import services

METHOD_TITLES = {"tsne": "t-SNE", "pca": "PCA"}


@dataclass(frozen=True)
class Choices:
    """The records that the form offers: other ``datasets`` like that of the model, and the ``splits``."""

    datasets: list[DatasetJob]
    splits: Sequence[str]


def _recipe(job: ModelJob) -> MapEmbeddings:
    """Map the activations of a ``layer``, by default the last one before the output, for up to ``records`` records.

    ``snapshot_epoch``, ``dataset`` and ``split`` are those of evaluations.
    """
    if services().scheduler.task_state(job, job.tasks[0]).latent:
        raise BadRequest(
            f"“{job.name}” generates images from random vectors, so there are no activations of records."
        )
    dataset, split = requested_records(job)
    snapshot = snapshot_of(job, request.form.get("snapshot_epoch"))
    layer = request.form.get("layer", "").strip()
    if len(layer) > MAX_LAYER_NAME:
        raise BadRequest(f"The network has no layer called “{layer[:80]}…”.")
    other = "" if dataset.id == job.dataset_id else dataset.id
    return MapEmbeddings(
        **split_fields(job, snapshot, dataset, split),
        name=maps.name_of(snapshot.name, split, other, layer),
        layer=layer,
        records=limited("records"),
    )


def _choices(job: ModelJob) -> Choices:
    own = serializers.manifest_of(job)

    def is_alike(dataset: DatasetJob) -> bool:
        other = dataset.manifest()
        return own is not None and other is not None and _form_of(own) == _form_of(other)

    datasets = [dataset for dataset, reason in other_datasets(job) if not reason and is_alike(dataset)]
    return Choices(datasets, offered_splits(job, bool(datasets)))


def _form_of(manifest: Manifest) -> tuple[Any, ...]:
    return manifest.shape, manifest.dtype, manifest.target.names, manifest.target.feature


def _result(job: ModelJob) -> dict[str, Any]:
    results = in_thread(maps.load_all, job.folder)
    return {"maps": [describe(MapResult, item, partial=item.is_partial) for item in results]}


def _detail(job: ModelJob, state: Maps) -> Maps:
    """Add the ``points`` of the map with the ``name``."""
    if name := request.args.get("name", ""):
        state.points = in_thread(_load_points, job, _find(state.maps, name))
    return state


embeddings = Activity(
    name="embedding",
    path="embeddings",
    noun="embedding map",
    title="New map",
    job_type=ModelJob,
    task_folder="map-embeddings",
    pool="embedding",
    results=maps.FOLDER,
    recipe=_recipe,
    key=lambda recipe: recipe.name,
    task_title=lambda job, recipe: records_title(job, recipe.epoch, recipe.split, Path(recipe.dataset).name),
    resource=Maps,
    result=_result,
    detail=_detail,
    started=lambda job, recipe: {"name": recipe.name},
    choices=_choices,
    page=lambda job, recipe: url_for("embeddings.show", job_id=job.id),
    # A running one does not read the new data of its projector.
    ended=lambda site, job: site.tensorboards.stop(job.id),
)
blueprint = embeddings.blueprint


@blueprint.get("/models/<job_id>/embeddings")
def show(job_id: str) -> str:
    """Show the map with the ``name``, by default that of the latest epoch, and a ``record``."""
    job = services().store.get(job_id, ModelJob)
    panel = embeddings.panel(job)
    results, name = panel.state.maps, request.args.get("name", "")
    result = _find(results, name) if name or results else None
    shown_of = services().store.find(result.dataset_id) if result else None
    kind = shown_of.data_kind if isinstance(shown_of, DatasetJob) else serializers.data_kind(job)
    views = views_of(kind or default_kind())
    return render_in_turns(
        "embeddings.html",
        job=serializers.row(job),
        training=services().scheduler.task_state(job, job.tasks[0]),
        snapshots=model_serializers.snapshots(job),
        tensorboard_url=url_for("tensorboard.proxy", job_id=job.id),
        views=views,
        panel=panel,
        results=[(item.name, _title(item, job)) for item in results],
        result=result,
        **(_shown(job, result, views) if result else {}),
    )


def _shown(job: ModelJob, result: EmbeddingMap, views: Views[Any]) -> dict[str, Any]:
    """Return the parts of the page about a map."""
    dataset, current = services().store.find(result.dataset_id), dataset_of(result)
    parts: dict[str, Any] = {
        "title": _title(result, job),
        "dataset": serializers.row(dataset) if dataset else None,
        "methods": [(method, METHOD_TITLES[method]) for method in METHOD_TITLES if method in result.methods],
        "is_current": current is not None,
    }
    if current is None:
        return parts
    record, images = whole(request.args, "record", None, 0), RecordImages(*current)
    if record is not None:
        try:
            (parts["item"],) = gallery_items(*current, images, [Place(result.split, record)])
        except (UnreadableFile, IndexError) as error:
            raise NotFound(f"Record {record:,} cannot be read.", str(error)) from error
    # The scripts of the page replace the number.
    thumbnails = images.thumbnail(result.split, 0) if views.shows_images else ""
    return {**parts, "size": shown_size(*current), "thumbnails": thumbnails}


def _title(result: EmbeddingMap, job: ModelJob) -> str:
    return f"{title_of(result, job)}, layer {result.layer}"


def _find(results: list[MapResult], name: str) -> MapResult:
    match = next((item for item in results if not name or item.name == name), None)
    if match is None:
        raise NotFound("This embedding map does not exist.", "Compute it on the page of embedding maps.")
    return match


def _load_points(job: ModelJob, result: EmbeddingMap) -> dict[str, Any]:
    """Return the points of a map, by column; raises NotFound if they are damaged."""

    def column(name: str, decimals: int | None = None) -> list[Any]:
        array = maps.load_array(job.folder, result.name, name)
        numbers = array if decimals is None else array.astype(np.float64).round(decimals)
        values: list[Any] = numbers.tolist()
        return values

    try:
        points = {"records": column(maps.RECORDS_FILE)}
        points |= {method: column(f"{method}.npy", 4) for method in result.methods}
        folder = maps.folder_of(job.folder, result.name)
        for name, file in (("groups", maps.GROUPS_FILE), ("predicted", maps.PREDICTED_FILE)):
            if (folder / file).is_file():
                points[name] = column(file)
    except UnreadableFile as error:
        raise NotFound("This embedding map is damaged. Compute it again.", str(error)) from error
    return points
