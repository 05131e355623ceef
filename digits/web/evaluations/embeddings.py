"""The embedding maps of models: the page, its JSON, and the start of a new map."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Blueprint, Response, jsonify, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound, NotReady
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.core.recipe import MAX_LAYER_NAME, MapEmbeddings
from digits.core.snapshot_list import Snapshot
from digits.core.splits import SPLIT_TITLES, SPLITS, Split
from digits.data.manifest import Manifest
from digits.data.models import embedding_map as maps
from digits.data.models.embedding_map import EmbeddingMap
from digits.data.records.search import Place
from digits.kinds import default_kind
from digits.kinds.forms.request_fields import whole
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views, views_of
from digits.web.evaluations.choices import requested_records
from digits.web.evaluations.panel import dataset_of, other_datasets, title_of
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.models import serializers as model_serializers
from digits.web.models.snapshots import snapshot_of
from digits.web.offload import in_thread
from digits.web.records.gallery import gallery_items
from digits.web.records.images import RecordImages, shown_size
from digits.web.request_limits import limited
from digits.web.resources.encoding import describe
from digits.web.resources.evaluations import MapResult, Maps, MapState, Neighbor
from digits.web.resources.records import GalleryItem
from digits.web.resources.tasks import TaskProgress
from digits.web.responses.pages import render_in_turns
from digits.web.responses.representation import respond, returns, twin
from digits.web.services import require_tensorflow, services
from digits.web.services.background import state_of
from digits.web.services.background_recipes import split_fields

blueprint = Blueprint("embeddings", __name__)

NEIGHBORS = 12
METHOD_TITLES = {"tsne": "t-SNE", "pca": "PCA"}


@twin(blueprint, "/models/<job_id>/embeddings", MapState)
def start(job_id: str) -> AnyResponse:
    """Map the activations of a ``layer``, by default the last one before the output, for up to ``records`` records.

    ``snapshot_epoch``, ``dataset`` and ``split`` are those of evaluations.
    """
    require_tensorflow()
    job = services().store.get(job_id, ModelJob)
    check_owner(job)
    if services().scheduler.task_state(job, job.tasks[0]).latent:
        raise BadRequest(
            f"“{job.name}” generates images from random vectors, so there are no activations of records."
        )
    dataset, split = requested_records(job)
    snapshot = snapshot_of(job, request.form.get("snapshot_epoch"))
    recipe = _recipe(job, snapshot, dataset, split)
    if services().background["embedding"].state(job.id):
        raise NotReady(
            f"A map of “{job.name}” is being computed.", "Try again when the computation has finished."
        )
    services().background["embedding"].start(job, recipe)
    state = describe(MapState, _state(job), name=recipe.name)
    return respond(state, created=url_for("embeddings.show", job_id=job.id), status=202)


def _recipe(job: ModelJob, snapshot: Snapshot, dataset: DatasetJob, split: Split) -> MapEmbeddings:
    """Return the recipe for the ``layer`` and the ``records`` of the request; raises BadRequest."""
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


@blueprint.get("/models/<job_id>/embeddings.json")
@returns(Maps)
def show_json(job_id: str) -> Response:
    """Return the state of the current computation and all maps.

    With a ``name``, also the ``points`` of that map; with a ``record``, its nearest ``neighbors``.
    """
    job = services().store.get(job_id, ModelJob)
    results = in_thread(maps.load_all, job.folder)
    finished = [describe(MapResult, item, partial=item.is_partial) for item in results]
    body = describe(Maps, _state(job), maps=finished)
    name = request.args.get("name", "")
    if name:
        result = _find(results, name)
        body.points = in_thread(_load_points, job, result)
        if (record := _asked_record()) is not None:
            body.neighbors = in_thread(_load_neighbors, job, result, record)
    return jsonify(body)


@blueprint.get("/models/<job_id>/embeddings")
def show(job_id: str) -> str:
    """Show the map with the ``name``, by default that of the latest epoch, and the neighbors of a ``record``."""
    job = services().store.get(job_id, ModelJob)
    results = in_thread(maps.load_all, job.folder)
    name = request.args.get("name", "")
    result = _find(results, name) if name or results else None
    own = serializers.manifest_of(job)
    others = other_datasets(own, job.dataset_id) if own else []
    offered = (own.splits if own else ()) if not job.is_imported else SPLITS if others else ()
    shown_of = services().store.find(result.dataset_id) if result else None
    kind = shown_of.data_kind if isinstance(shown_of, DatasetJob) else serializers.data_kind(job)
    views = views_of(kind or default_kind())
    return render_in_turns(
        "embeddings.html",
        job=serializers.row(job),
        model=model_serializers.model_page(job),
        views=views,
        state=_state(job),
        results=[(item.name, _title(item, job)) for item in results],
        result=result,
        datasets=others,
        splits=[(split, SPLIT_TITLES[split]) for split in offered],
        **(_shown(job, result, views) if result else {}),
    )


def _shown(job: ModelJob, result: EmbeddingMap, views: Views[Any]) -> dict[str, Any]:
    """Return the parts of the page about a map."""
    dataset, current = services().store.find(result.dataset_id), dataset_of(result)
    record = _asked_record()
    neighbors = in_thread(_load_neighbors, job, result, record) if record is not None else []
    parts: dict[str, Any] = {
        "title": _title(result, job),
        "dataset": serializers.row(dataset) if dataset else None,
        "methods": [(method, METHOD_TITLES[method]) for method in METHOD_TITLES if method in result.methods],
        "record": record,
        "neighbors": neighbors,
        "is_current": current is not None,
        "items": [],
        "size": (1, 1),
        "thumbnails": "",
    }
    if current is None:
        return parts
    images = RecordImages(*current)
    parts["size"] = shown_size(*current)
    if views.shows_images:
        # The scripts of the page replace the number.
        parts["thumbnails"] = images.thumbnail(result.split, 0)
    if record is not None:
        places = [Place(result.split, each) for each in (record, *(item.record for item in neighbors))]
        parts["items"] = _load_items(*current, images, places)
    return parts


def _load_items(
    dataset: DatasetJob, manifest: Manifest, images: RecordImages, places: list[Place]
) -> list[GalleryItem]:
    try:
        return gallery_items(dataset, manifest, images, places)
    except (UnreadableFile, IndexError):  # IndexError: a damaged map
        return []


def _state(job: ModelJob) -> TaskProgress:
    return state_of(services().background["embedding"], job.id, (job.folder / maps.FOLDER).is_dir())


def _title(result: EmbeddingMap, job: ModelJob) -> str:
    return f"{title_of(result, job)}, layer {result.layer}"


def _asked_record() -> int | None:
    return whole(request.args, "record", None, 0)


def _find(results: list[EmbeddingMap], name: str) -> EmbeddingMap:
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
        raise _damaged(error) from error
    return points


def _load_neighbors(job: ModelJob, result: EmbeddingMap, record: int) -> list[Neighbor]:
    """Return the records of a map nearest to ``record`` in all dimensions.

    Raises NotFound if the record is not on the map, or the map is damaged.
    """
    try:
        records = maps.load_array(job.folder, result.name, maps.RECORDS_FILE)
        (rows,) = np.nonzero(records == record)
        if not len(rows):
            raise NotFound(
                f"Record {record:,} is not on this map.",
                f"It shows {result.records:,} of the {result.total:,} records of the split, evenly spaced.",
            )
        embeddings = maps.load_array(job.folder, result.name, maps.EMBEDDINGS_FILE)
    except UnreadableFile as error:
        raise _damaged(error) from error
    places, distances = maps.find_neighbors(embeddings, int(rows[0]), NEIGHBORS)
    return [
        Neighbor(number, distance)
        for number, distance in zip(records[places].tolist(), distances.tolist(), strict=True)
    ]


def _damaged(error: UnreadableFile) -> NotFound:
    return NotFound("This embedding map is damaged. Compute it again.", str(error))
