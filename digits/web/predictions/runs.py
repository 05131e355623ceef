"""Prepare batch predictions from lists, folders, archives, uploaded images and records, and read their results."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import gevent
import numpy as np
from flask import request
from msgspec.structs import replace
from werkzeug.datastructures import FileStorage

from digits.core.csv_cells import harmless
from digits.core.errors import BadRequest, DiskFull, NotReady
from digits.core.files import UnreadableFile, make_folder
from digits.core.model_job import ModelJob
from digits.core.recipe import Predict
from digits.data.archives.unpacking import Limits, Unpacking, content_folder
from digits.data.archives.zip_names import encoding_named
from digits.data.data_roots import Roots
from digits.data.images.lists import ImageList, walk_images
from digits.data.models import predictions
from digits.data.models.prediction_results import TOP, PredictionResults
from digits.data.models.predictions import MAX_IMAGES, BatchPrediction, ListedImage, Problem, Row
from digits.data.sources.path_rules import ImageTree
from digits.data.sources.plan import UnusableSource, count_of, show
from digits.kinds.forms.request_fields import flag
from digits.kinds.views import Views, views_of
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.jobs.snapshots import snapshot_of
from digits.web.request_limits import limited
from digits.web.services import services

# The maximum number of batch predictions kept per model; older ones are deleted.
KEPT = 20
UNPACKING_POLL_SECONDS = 0.05
ROWS_PER_TURN = 500


@dataclass(frozen=True)
class Source:
    """The images of a request, the problems found in its list, and a title."""

    title: str
    images: list[ListedImage]
    problems: list[Problem]


# Returns the images of this request; stores what it has to in a folder. The list contains the class names.
FindSource = Callable[[Path, list[str]], Source]


def prepare(job: ModelJob, find: FindSource | None = None, *, keeps_values: bool = False) -> Predict:
    """Return the recipe that predicts the images which ``find`` returns, by default `images_of_request`.

    With ``keeps_values``, the outputs of the network are saved. Raises BadRequest if there are no usable images,
    NotReady if too many batch predictions are waiting, and NotAllowed if this one would replace an older one and the
    user is not the owner of the model.
    """
    tasks = services().background["prediction"]
    snapshot = snapshot_of(job, request.values.get("snapshot_epoch"))
    if len(tasks.tasks(job.id)) >= KEPT:
        raise NotReady(
            f"{KEPT} batch predictions of “{job.name}” are waiting.", "Try again when some have finished."
        )
    if len(in_thread(predictions.load_all, job.folder)) >= KEPT:
        check_owner(job)
    labels = labels_of(job)
    parent = job.folder / predictions.FOLDER
    in_thread(make_folder, parent)
    prediction_id = predictions.new_id()
    # Not in the folder of the model before it is complete: a server that is killed leaves it.
    folder, unfinished = parent / prediction_id, services().new_upload()
    in_thread(unfinished.mkdir, mode=0o700)
    try:
        if find is None:
            _check_takes_images(job)
        source = (find or images_of_request)(unfinished, labels)
        if not source.images:
            reason = f" {source.problems[0].message}" if source.problems else ""
            raise BadRequest(f"{source.title} contains no images.{reason}", "Send at least one image.")
        about = BatchPrediction(
            id=prediction_id,
            title=source.title,
            snapshot=snapshot.name,
            epoch=snapshot.epoch,
            at=time.time(),
            total=len(source.images),
            problems=source.problems[: predictions.MAX_PROBLEMS],
            problem_count=len(source.problems),
        )
        images = (_moved(image, unfinished, folder) for image in source.images)
        in_thread(predictions.write, unfinished, about, images)
        unfinished.rename(folder)
    finally:
        services().store.discard(unfinished)
    for old in in_thread(predictions.load_all, job.folder)[KEPT:]:
        if not tasks.task(job.id, old.id):
            services().store.discard(parent / old.id)
    return Predict(
        model=str(job.folder),
        snapshot=snapshot.name,
        trained_on=str(job.dataset_folder),
        target=str(folder),
        keeps_values=keeps_values,
        resizes=may_resize(),
    )


def _moved(image: ListedImage, folder: Path, target: Path) -> ListedImage:
    """Return ``image`` with its files in ``target`` instead of ``folder``, if they are there."""
    old, new = f"{folder}/", f"{target}/"
    if not image.path.startswith(old):
        return image
    path, *more = (new + path.removeprefix(old) for path in image.paths)
    return replace(image, path=path, more=more)


def labels_of(job: ModelJob) -> list[str]:
    """Return the class names; empty for models that are not classifiers."""
    data = serializers.data_of(job)
    manifest = data.manifest() if data and views_of(data.data_kind).ranks_classes else None
    return list(manifest.target.labels) if manifest else []


def _check_takes_images(job: ModelJob) -> None:
    kind = serializers.data_kind(job)
    if kind is not None and not views_of(kind).takes_image:
        raise BadRequest(
            f"“{job.name}” does not predict from single images.",
            "Use the input fields on the page of the model.",
        )


def images_of_request(folder: Path, labels: list[str]) -> Source:
    """Return the images of this request: uploads, an archive, paths from a list, or a folder on the server."""
    limit = limit_of_request()
    archive = request.files.get("image_archive")
    if archive is not None and archive.filename:
        saved = folder / "archive"
        in_thread(archive.save, saved)
        try:
            images, problems = in_thread(_in_folder, _unpacked(saved, folder), labels, limit)
        finally:
            saved.unlink()
        return Source(os.path.basename(archive.filename), images, problems)
    uploads = [file for file in request.files.getlist("image_files") if file.filename]
    if uploads:
        title = count_of(len(uploads), "uploaded image")
        return Source(title, _uploaded(uploads[:limit], folder / predictions.IMAGES_FOLDER), [])
    roots, text = services().roots, request.values.get("image_folder", "").strip()
    listed = request.files.get("image_list")
    if listed is not None and listed.filename:
        images, problems = in_thread(_listed, listed.stream, text, labels, roots, limit)
        return Source(listed.filename, images, problems)
    if not text:
        raise BadRequest(
            "The request contains no images.",
            "Send image files (image_files), an archive (image_archive), a list of paths (image_list), or a folder or "
            "archive on the server (image_folder).",
        )
    below = roots.resolve(text, "any")
    title = show(below.name or str(below))
    if below.is_file():
        return Source(title, *in_thread(_in_folder, _unpacked(below, folder), labels, limit))
    return Source(title, *in_thread(_in_folder, below, labels, limit))


def may_resize() -> bool:
    """Return whether images may be resized to the network's input: not if this request has ``dont_resize``."""
    return not flag(request.values, "dont_resize")


def limit_of_request() -> int:
    """Return the largest number of images to predict. Raises BadRequest."""
    return limited("num_test_images") or MAX_IMAGES


def _uploaded(uploads: list[FileStorage], folder: Path) -> list[ListedImage]:
    folder.mkdir(mode=0o700)
    images = []
    for number, upload in enumerate(uploads):
        path = folder / f"{number:06}"
        in_thread(upload.save, path)
        images.append(ListedImage(str(path), os.path.basename(upload.filename or "") or path.name))
    return images


def _unpacked(archive: Path, folder: Path) -> Path:
    """Unpack ``archive`` into `IMAGES_FOLDER` of ``folder``, in a separate process. Raises BadRequest."""
    target = folder / predictions.IMAGES_FOLDER
    encoding = encoding_named(request.values.get("encoding", ""))
    with Unpacking(archive, target, Limits.of(services().settings), encoding) as unpacking:
        while not unpacking.has_ended:
            gevent.sleep(UNPACKING_POLL_SECONDS)
        progress = unpacking.progress
    if progress.error:
        raise (DiskFull if progress.lacks_space else BadRequest)(progress.error)
    return content_folder(target)


def _listed(
    file: IO[bytes], folder: str, labels: list[str], roots: Roots, limit: int
) -> tuple[list[ListedImage], list[Problem]]:
    lines = io.TextIOWrapper(file, "utf-8", "replace")
    named, problems = predictions.parse_list(lines, len(labels), limit)
    images = []
    matches = None
    if folder and roots.contain(Path(folder)):
        try:
            matches = ImageTree(folder).match(name for name, _ in named)
        except UnusableSource as error:
            problems.append(Problem(0, str(error)))
    for name, truth in named:
        path = Path(name if os.path.isabs(name) or not folder else os.path.join(folder, name))
        found = None
        if matches and not (os.path.exists(path) and roots.contain(path)):
            found = matches.files.get(name)
            if name in matches.faults:
                problems.append(Problem(0, f"{matches.faults[name]}."))
                continue
        if found:
            path = Path(os.path.realpath(folder), found)
        if "://" in name and not found:
            problems.append(Problem(0, f"{name[:200]}: URLs are not supported. Use a path on this server."))
        elif not path.is_absolute():
            problems.append(
                Problem(0, f"{name[:200]}: the path is relative. Set “image_folder”, or use absolute paths.")
            )
        elif not roots.contain(path):
            problems.append(Problem(0, f"{name[:200]} is outside the folders this server may read."))
        else:
            images.append(ListedImage(str(path), name, truth))
    return images, problems


def _in_folder(folder: Path, labels: list[str], limit: int) -> tuple[list[ListedImage], list[Problem]]:
    """Return the images below ``folder``, labeled by the name of their parent folder if it is a class name.

    Also returns the problems, such as links that lead out of the folder, which are not followed.
    """
    image_list = ImageList(folder)
    for image_list in walk_images(folder):
        if len(image_list.files) >= MAX_IMAGES:
            break
    numbers = {label: number for number, label in enumerate(labels)}
    images = [
        _listed_image(folder, name, numbers) for name in sorted(image_list.files, key=os.fsencode)[:limit]
    ]
    return images, [Problem(0, remark) for remark in image_list.remarks()]


def _listed_image(folder: Path, name: str, numbers: Mapping[str, int]) -> ListedImage:
    path = f"{folder}/{name}"
    try:
        path.encode()
    except UnicodeEncodeError:  # the list is UTF-8
        return ListedImage("", show(name), error="The path is not UTF-8. Rename the file or its folder.")
    return ListedImage(path, name, numbers.get(os.path.basename(os.path.dirname(path))))


@dataclass(frozen=True)
class Results:
    """The results of a batch prediction so far: their sums, and the rows with the conclusions of the model's kind."""

    sums: PredictionResults
    conclude: Callable[[Row], Row]

    def __len__(self) -> int:
        return len(self.sums)

    def read(self, places: Sequence[int] | None = None) -> Iterator[Row]:
        """Yield the rows with these numbers, by default all, in turns. Raises BadRequest if the file is damaged."""
        if places is None:
            places = range(len(self))
        with _explained():
            for start in range(0, len(places), ROWS_PER_TURN):
                rows = in_thread(list, self.sums.read(places[start : start + ROWS_PER_TURN]))
                yield from map(self.conclude, rows)

    @property
    def top5_accuracy(self) -> float | None:
        return self.sums.accuracy(TOP) if len(self.sums.labels) > TOP else None


def results_of(job: ModelJob, about: BatchPrediction) -> Results:
    """Return the results of a batch prediction so far. Raises BadRequest if their file is damaged."""
    views = serializers.job_views(job)
    metrics = next((item.metrics for item in services().snapshots_of(job) if item.name == about.snapshot), {})
    folder = predictions.folder_of(job.folder, about.id)
    with _explained():
        sums = services().prediction_results.update(folder, labels_of(job))
    return Results(sums, partial(_concluded, views=views, metrics=metrics))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except UnreadableFile as error:
        raise BadRequest(f"The predictions cannot be read: {error}.", "Predict the images again.") from error


def _concluded(row: Row, views: Views[Any], metrics: Mapping[str, float]) -> Row:
    concluded = row.predictions if row.error else views.conclude(row.predictions, metrics)
    return row if concluded is row.predictions else replace(row, predictions=concluded)


def best_of_classes(results: Results, classes: Sequence[int], count: int) -> list[list[tuple[int, float]]]:
    """Return the ``count`` most probable images so far for each of the ``classes``: pairs of index and percentage."""
    columns = np.array(classes, int)
    best, places = np.zeros((0, len(columns)), np.float32), np.zeros((0, len(columns)), int)
    start, total = 0, len(results)
    for block in predictions.read_probabilities(results.sums.folder):
        if block.shape[1] <= max(classes, default=0):
            break
        probabilities = np.nan_to_num(block[: total - start, columns], nan=-1.0)
        numbers = np.arange(start, start + len(probabilities))[:, None].repeat(len(columns), axis=1)
        best, places = np.concatenate([best, probabilities]), np.concatenate([places, numbers])
        order = np.argsort(-best, axis=0, kind="stable")[:count]
        best, places = np.take_along_axis(best, order, 0), np.take_along_axis(places, order, 0)
        start += len(block)
    return [
        [(int(place), 100 * float(value)) for value, place in zip(*pair, strict=True) if value >= 0]
        for pair in zip(best.T, places.T, strict=True)
    ]


def as_csv(rows: Iterable[Row], labels: list[str]) -> Iterator[str]:
    """Yield the results as CSV rows: image, true class, predictions (up to five for classifiers) and error."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    numbered = [text for index in range(1, 6) for text in (f"prediction_{index}", f"percent_{index}")]
    writer.writerow(["image", "true_class", *(numbered if labels else ["prediction"]), "error"])
    for row in rows:
        truth = labels[row.truth] if row.truth is not None and row.truth < len(labels) else ""
        values: list[Any] = []
        if labels:
            values = [value for pair in (row.predictions or [])[:5] for value in pair]
            values += [""] * (len(numbered) - len(values))
        else:
            values = ["" if row.error else json.dumps(_without_pictures(row.predictions), ensure_ascii=False)]
        writer.writerow(map(harmless, [row.name, truth, *values, row.error]))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _without_pictures(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_pictures(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_pictures(item) for item in value]
    return "" if isinstance(value, str) and value.startswith("data:") else value
