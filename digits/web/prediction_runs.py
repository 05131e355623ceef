"""Start batch predictions from lists, folders and uploads of images, and read their results."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from flask import request, url_for
from numpy.typing import NDArray
from werkzeug.datastructures import FileStorage

from digits.core.errors import BadRequest, NotReady
from digits.core.files import UnreadableFile, make_folder
from digits.core.model_job import ModelJob, epoch_label
from digits.core.recipe import Predict
from digits.core.snapshot_list import Snapshot
from digits.data import predictions
from digits.data.data_roots import Roots
from digits.data.images import EXTENSIONS
from digits.data.predictions import MAX_IMAGES, BatchPrediction, ListedImage, Problem, Row
from digits.web import serializers
from digits.web.offload import in_thread
from digits.web.services import services

MAX_LIST_BYTES = 20_000_000
# Older batch predictions of a model are deleted.
KEPT = 20
# Predictions of the classes of at most this many images are compared with their true ones in a matrix.
MAX_MATRIX_CLASSES = 50


@dataclass(frozen=True)
class Source:
    """The images of a request, the problems of its list, and a title."""

    title: str
    images: list[ListedImage]
    problems: list[Problem]


def start(job: ModelJob, snapshot: Snapshot) -> BatchPrediction:
    """Start to predict from the images of this request; raises BadRequest and NotReady."""
    if services().predictions.state(job.id):
        raise NotReady(f"“{job.name}” is already processing other images.", "Try again when it has finished.")
    labels = labels_of(job)
    parent = job.folder / predictions.FOLDER
    in_thread(make_folder, parent)
    prediction_id = predictions.new_id()
    folder = parent / prediction_id
    in_thread(folder.mkdir, mode=0o700)
    try:
        source = _source(folder, labels)
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
        in_thread(predictions.write, folder, about, source.images)
    except BaseException:
        services().store.discard(folder)
        raise
    for old in in_thread(predictions.load_all, job.folder)[KEPT:]:
        services().store.discard(parent / old.id)
    services().predictions.start(
        job,
        Predict(
            model=str(job.folder),
            snapshot=snapshot.name,
            trained_on=str(job.folder.with_name(job.dataset_id)),
            target=str(folder),
        ),
    )
    return about


def recent(job: ModelJob) -> list[dict[str, str]]:
    """Return the batch predictions of a model for its page, newest first."""
    return [
        {
            "title": item.title,
            "words": f"epoch {epoch_label(item.epoch)}, {item.total:,} images",
            "url": url_for("predictions.show", job_id=job.id, prediction_id=item.id),
        }
        for item in in_thread(predictions.load_all, job.folder)
    ]


def labels_of(job: ModelJob) -> list[str]:
    """Return the names of the classes; empty for models that do not predict one class."""
    data = serializers.data_of(job)
    manifest = data.manifest() if data else None
    return list(manifest.target.labels) if manifest else []


def _source(folder: Path, labels: list[str]) -> Source:
    """Return the images of this request: uploads, the paths of a list, or those in a folder on the server."""
    limit = _limit()
    uploads = [file for file in request.files.getlist("image_files") if file.filename]
    if uploads:
        title = f"{len(uploads)} uploaded image{'s' if len(uploads) != 1 else ''}"
        return Source(title, _uploaded(uploads[:limit], folder / predictions.IMAGES_FOLDER), [])
    roots, text = services().roots, request.values.get("image_folder", "").strip()
    listed = request.files.get("image_list")
    if listed is not None and listed.filename:
        data = listed.stream.read(MAX_LIST_BYTES + 1)
        if len(data) > MAX_LIST_BYTES:
            raise BadRequest(
                f"The list is larger than {MAX_LIST_BYTES // 10**6} MB.", "Split it into several lists."
            )
        images, problems = in_thread(_listed, data.decode("utf-8", "replace"), text, labels, roots, limit)
        return Source(listed.filename, images, problems)
    if not text:
        raise BadRequest(
            "There are no images.",
            "Send a list of paths (image_list), images (image_files), or a folder on the server (image_folder).",
        )
    below = roots.resolve(text, "folder")
    return Source(below.name or str(below), in_thread(_in_folder, below, labels, limit), [])


def _limit() -> int:
    text = request.values.get("num_test_images", "").strip() or str(MAX_IMAGES)
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_IMAGES:
        raise BadRequest(f"“num_test_images” must be a number from 1 to {MAX_IMAGES:,}.")
    return int(text)


def _uploaded(uploads: list[FileStorage], folder: Path) -> list[ListedImage]:
    folder.mkdir(mode=0o700)
    found = []
    for number, upload in enumerate(uploads):
        path = folder / f"{number:06}"
        in_thread(upload.save, path)
        found.append(ListedImage(str(path), os.path.basename(upload.filename or "") or path.name))
    return found


def _listed(
    text: str, folder: str, labels: list[str], roots: Roots, limit: int
) -> tuple[list[ListedImage], list[Problem]]:
    lines, problems = predictions.parse_list(text, len(labels))
    found = []
    for name, truth in islice(lines, limit):
        path = Path(name if os.path.isabs(name) or not folder else os.path.join(folder, name))
        if "://" in name:
            problems.append(Problem(0, f"{name[:200]}: images are not fetched from other servers."))
        elif not path.is_absolute():
            problems.append(
                Problem(0, f"{name[:200]}: the path is relative. Enter the folder of the images.")
            )
        elif not roots.contain(path):
            problems.append(Problem(0, f"{name[:200]} is outside the folders this server may read."))
        else:
            found.append(ListedImage(str(path), name, truth))
    return found, problems


def _in_folder(folder: Path, labels: list[str], limit: int) -> list[ListedImage]:
    """Return the images below ``folder``; those in a folder with the name of a class belong to it."""
    numbers = {label: number for number, label in enumerate(labels)}
    images = (
        ListedImage(str(path), str(path.relative_to(folder)), numbers.get(path.parent.name))
        for path in _files_below(folder)
    )
    return list(islice(images, limit))


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.lower().endswith(EXTENSIONS):
                yield Path(parent, name)


@dataclass(frozen=True)
class Results:
    """The rows of a batch prediction so far, and what they say about the images whose classes are known."""

    rows: list[Row]

    @property
    def unreadable(self) -> int:
        return sum(bool(row.error) for row in self.rows)

    @property
    def judged(self) -> list[Row]:
        """The rows with a true class and a prediction."""
        return [row for row in self.rows if row.truth is not None and not row.error]

    def accuracy(self, labels: list[str], top: int = 1) -> float | None:
        """Return the fraction of the judged images whose class is among the ``top`` predictions; None without any."""
        judged = self.judged
        if not judged:
            return None
        return sum(is_among(row, labels, top) for row in judged) / len(judged)

    def matrix(self, labels: list[str]) -> NDArray[np.int64] | None:
        """Return the number of judged images by true and predicted class, [classes, classes]; None without any."""
        judged = self.judged
        if not judged or len(labels) > MAX_MATRIX_CLASSES:
            return None
        numbers = {label: number for number, label in enumerate(labels)}
        counts = np.zeros((len(labels), len(labels)), np.int64)
        for row in judged:
            counts[row.truth, numbers[row.predictions[0][0]]] += 1
        return counts


def is_among(row: Row, labels: list[str], top: int = 1) -> bool:
    """Return whether the true class of a judged row is among its ``top`` predictions."""
    return row.truth is not None and labels[row.truth] in [name for name, _ in row.predictions[:top]]


def results_of(job: ModelJob, prediction_id: str) -> Results:
    """Load the results of a batch prediction so far; raises BadRequest if they are damaged."""
    try:
        folder = predictions.folder_of(job.folder, prediction_id)
        return Results(in_thread(predictions.load_rows, folder))
    except UnreadableFile as error:
        raise BadRequest(f"The predictions cannot be read: {error}.", "Predict the images again.") from error


def best_of_classes(
    folder: Path, rows: list[Row], labels: list[str], count: int
) -> list[tuple[str, list[tuple[int, float]]]]:
    """Return for each class the numbers of the ``count`` images with its highest probability, in percent."""
    found = predictions.load_probabilities(folder)
    if found is None or found.shape != (len(rows), len(labels)):
        return []
    found = np.nan_to_num(found, nan=-1.0)
    best = []
    for number, label in enumerate(labels):
        order = np.argsort(-found[:, number], kind="stable")[:count]
        best.append(
            (
                label,
                [
                    (int(place), 100 * float(found[place, number]))
                    for place in order
                    if found[place, number] >= 0
                ],
            )
        )
    return best


def as_csv(rows: Iterable[Row], labels: list[str]) -> Iterator[str]:
    """Yield the results as CSV: the image, its true class, and up to five predictions, or the error."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    numbered = [text for place in range(1, 6) for text in (f"prediction_{place}", f"percent_{place}")]
    writer.writerow(["image", "true_class", *(numbered if labels else ["prediction"]), "error"])
    for row in rows:
        truth = labels[row.truth] if row.truth is not None and row.truth < len(labels) else ""
        values: list[Any] = []
        if labels:
            values = [value for pair in (row.predictions or [])[:5] for value in pair]
            values += [""] * (len(numbered) - len(values))
        else:
            values = ["" if row.error else _compact(row.predictions)]
        writer.writerow([_harmless(row.name), _harmless(truth), *map(_harmless, values), row.error])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _compact(value: Any) -> str:
    return json.dumps(_without_pictures(value), ensure_ascii=False)


def _without_pictures(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_pictures(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_pictures(item) for item in value]
    return "" if isinstance(value, str) and value.startswith("data:") else value


def _harmless(value: Any) -> Any:
    """Keep spreadsheets from evaluating a name that starts like a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value
