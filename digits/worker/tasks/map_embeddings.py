"""Map the activations of a layer: compute them for records of a split, and reduce them to two dimensions."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from digits.core import recipe as recipes
from digits.core.events import EventLog, Progressed
from digits.core.model_job import TENSORBOARD_FOLDER
from digits.core.splits import Split
from digits.data.manifest import Manifest, SplitRecords
from digits.data.models import embedding_map as maps
from digits.data.models import projector
from digits.data.records.index import SplitIndex
from digits.data.records.records import Record, SplitReader
from digits.worker.failure import UserFault
from digits.worker.input import feeds
from digits.worker.input.damage import reporting_damage
from digits.worker.tasks import background
from digits.worker.training.models import trained
from digits.worker.training.models.layer_features import LayerFeatures

MIN_RECORDS = 3
# Activations that are kept, in numbers: 100 MB.
MAX_KEPT = 25_000_000
# t-SNE of more dimensions is slower and no better: van der Maaten and Hinton, 2008, “Visualizing Data using t-SNE”.
TSNE_DIMENSIONS = 50
PERPLEXITY = 30.0
# Fewer records have no neighborhoods that t-SNE could preserve.
MIN_TSNE_RECORDS = 10
SEED = 1


def run(recipe: recipes.MapEmbeddings, task_folder: Path, events: EventLog) -> dict[str, Any]:
    """Compute the map of ``recipe``, and write it to the model's folder, and for TensorBoard to its log folder.

    The map by PCA is published before t-SNE starts. Returns the number of ``records`` and ``dimensions``. Raises
    UserFault if the model cannot be loaded, does not fit the records, or has no such layer.
    """
    background.begin(events)
    with background.reporting_full_disk("the map"):
        return _run(recipe, task_folder, events)


def _run(recipe: recipes.MapEmbeddings, task_folder: Path, events: EventLog) -> dict[str, Any]:
    started = time.monotonic()
    dataset = Path(recipe.dataset)
    manifest = feeds.load_manifest(dataset)
    split = manifest.splits.get(recipe.split)
    count = split.count if split else 0
    if split is None or count < MIN_RECORDS:
        raise UserFault(
            f"The split “{recipe.split}” has {count} records, too few for a map.",
            f"Choose a split with at least {MIN_RECORDS} records.",
        )
    model = trained.load(Path(recipe.model), recipe.snapshot, Path(recipe.trained_on))
    features = LayerFeatures(model, manifest, recipe.layer)
    places = choose_places(count, recipe.records)
    values, predicted = _collect(features, dataset, manifest, recipe.split, places, events)

    events.append(Progressed(0.6, doing="Computing the map by PCA"))
    coordinates, variance = map_by_pca(values)
    arrays: dict[str, NDArray[Any]] = {
        maps.EMBEDDINGS_FILE: values,
        maps.RECORDS_FILE: places,
        "pca.npy": coordinates,
    }
    groups = SplitIndex(dataset, split).groups[places]
    if manifest.groups:
        arrays[maps.GROUPS_FILE] = groups
    if predicted.ndim == 1:
        arrays[maps.PREDICTED_FILE] = predicted
    result = maps.EmbeddingMap(
        name=recipe.name,
        snapshot=recipe.snapshot,
        epoch=recipe.epoch,
        dataset_id=dataset.name,
        content_hash=manifest.content_hash,
        split=recipe.split,
        layer=features.layer,
        shape=features.shape,
        dimensions=values.shape[1],
        records=len(places),
        total=count,
        groups=manifest.groups,
        methods=["pca"],
        variance=variance,
        remark=_obstacle(values),
        seconds=round(time.monotonic() - started, 3),
    )
    _publish(Path(recipe.model), task_folder, result, arrays)
    if not result.remark:
        events.append(Progressed(0.65, doing="Computing the map by t-SNE"))
        arrays["tsne.npy"] = map_by_tsne(values)
        seconds = round(time.monotonic() - started, 3)
        result = msgspec.structs.replace(result, methods=["pca", "tsne"], seconds=seconds)
        _publish(Path(recipe.model), task_folder, result, arrays)

    events.append(Progressed(0.9, doing="Writing the files for TensorBoard"))
    # The records of a text dataset are rows of one pixel in height, not images.
    with_images = manifest.height > 1
    shown, rows = _describe(dataset, split, manifest, places, groups, predicted, with_images)
    columns = ["Label", "Predicted", "Record", "File"]
    log_folder = Path(recipe.model) / TENSORBOARD_FOLDER
    reduced = _reduce(values, projector.MAX_DIMENSIONS)
    projector.write(log_folder, recipe.name, reduced, columns, rows, shown)
    return {"records": len(places), "dimensions": values.shape[1]}


def choose_places(total: int, wanted: int) -> NDArray[np.int64]:
    """Return the numbers of at most ``wanted`` of ``total`` records, evenly spaced, in ascending order."""
    count = min(total, wanted)
    places: NDArray[np.int64] = np.arange(count, dtype=np.int64) * total // count
    return places


def map_by_pca(values: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """Return the first two principal components of ``values`` [records, dimensions], float32 [records, 2].

    Also returns the fraction of the variance that they keep. Vectors of one dimension get a second coordinate of 0.
    """
    if not np.ptp(values, axis=0).any():
        return np.zeros((len(values), 2), np.float32), 1.0
    pca = PCA(min(2, *values.shape), random_state=SEED)
    coordinates = np.zeros((len(values), 2), np.float32)
    reduced = pca.fit_transform(values)
    coordinates[:, : reduced.shape[1]] = reduced
    return coordinates, min(1.0, float(pca.explained_variance_ratio_.sum()))


def map_by_tsne(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the map of ``values`` [records, dimensions] by t-SNE, float32 [records, 2]."""
    reduced = _reduce(values, TSNE_DIMENSIONS)
    if reduced.shape[1] == 1:
        reduced = np.pad(reduced, ((0, 0), (0, 1)))  # it starts from two principal components
    perplexity = min(PERPLEXITY, (len(values) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", learning_rate="auto", random_state=SEED)
    # Its threads busy-wait for each other, which makes it several times slower beside other processes.
    with threadpool_limits(1):
        coordinates: NDArray[np.float32] = tsne.fit_transform(reduced).astype(np.float32)
    return coordinates


def _reduce(values: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    """Reduce ``values`` [records, …] to the first principal components, at most as many as ``dimensions``."""
    if values.shape[1] <= dimensions:
        return values
    pca = PCA(min(dimensions, len(values)), random_state=SEED)
    reduced: NDArray[np.float32] = pca.fit_transform(values).astype(np.float32)
    return reduced


def _obstacle(values: NDArray[np.float32]) -> str:
    """Return why there is no map by t-SNE, or an empty text."""
    if len(values) < MIN_TSNE_RECORDS:
        return f"t-SNE needs at least {MIN_TSNE_RECORDS} records."
    if not np.ptp(values, axis=0).any():
        return "The activations of all records are equal, so there is nothing to map."
    return ""


def _collect(
    features: LayerFeatures,
    dataset: Path,
    manifest: Manifest,
    split: Split,
    places: NDArray[np.int64],
    events: EventLog,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return the activations and the predicted classes of the records at ``places``; raises UserFault."""
    records = feeds.Records(dataset, manifest, split, budget_bytes=0)
    values, predicted = np.zeros((0, 0), np.float32), []
    progress = background.ItemProgress(events, "Computing activations", len(places), share=0.6)
    try:
        for batch in features.read(records, places):
            if not progress.done:
                _check_size(features.layer, len(places), batch.values.shape[1])
                values = np.empty((len(places), batch.values.shape[1]), np.float32)
            values[progress.done : progress.done + len(batch.places)] = batch.values
            predicted.append(batch.predicted)
            progress.advance(len(batch.places))
    finally:
        records.close()
    return values, np.concatenate(predicted)


def _check_size(layer: str, records: int, dimensions: int) -> None:
    """Raise UserFault if the activations of a layer take too much memory."""
    if records * dimensions > MAX_KEPT:
        raise UserFault(
            f"The layer “{layer}” has {dimensions:,} outputs: too many for a map of {records:,} records.",
            f"Choose another layer, or at most {MAX_KEPT // dimensions:,} records.",
        )


def _publish(
    model: Path, task_folder: Path, result: maps.EmbeddingMap, arrays: dict[str, NDArray[Any]]
) -> None:
    """Publish the map in the place of an earlier one."""
    description = {"schema": 1, **msgspec.to_builtins(result)}
    background.publish(task_folder, maps.folder_of(model, result.name), arrays, {maps.FILE_NAME: description})


def _describe(
    dataset: Path,
    split: SplitRecords,
    manifest: Manifest,
    places: NDArray[np.int64],
    groups: NDArray[np.int32],
    predicted: NDArray[np.int32],
    with_images: bool,
) -> tuple[list[Image.Image], list[list[str]]]:
    """Return the thumbnails and the metadata of the records at ``places`` for TensorBoard."""
    thumbnails: list[Image.Image] = []
    rows = []
    names = manifest.target.names
    with reporting_damage(dataset), SplitReader(dataset, split) as reader:
        for row, place in enumerate(places.tolist()):
            record = reader.read(place)
            if with_images:
                thumbnails.append(_thumbnail(record, thumbnails, len(places)))
            label = manifest.groups[groups[row]] if groups[row] >= 0 and manifest.groups else ""
            guess = names[predicted[row]] if predicted.ndim == 1 and predicted[row] < len(names) else ""
            rows.append([label, guess, str(place), record.filename])
    return thumbnails, rows


def _thumbnail(record: Record, others: list[Image.Image], count: int) -> Image.Image:
    """Return a thumbnail of a record in the size of the ``others``."""
    with Image.open(
        io.BytesIO(record.as_thumbnail(projector.MAX_THUMBNAIL_PIXELS)), formats=["JPEG"]
    ) as image:
        size = others[0].size if others else projector.thumbnail_size(*image.size, count)
        return image.convert("RGB").resize(size)
