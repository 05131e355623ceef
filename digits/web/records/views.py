"""Images of the records of a dataset: the whole image, a thumbnail, and its target."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import humanize
from flask import Blueprint, Response, jsonify, url_for

from digits.core.errors import NotFound
from digits.core.files import UnreadableFile
from digits.data.data_roots import Roots
from digits.data.health import health, label_check
from digits.data.health.health import Finding
from digits.data.images import images
from digits.data.manifest import Manifest
from digits.data.records import records
from digits.data.records.search import ALL
from digits.data.targets.picture import PictureTarget
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage
from digits.kinds.decoding import RecordTarget, RecordThumbnail, ResizedImage, StoredImage
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.records.images import (
    THUMBNAIL_SIDE,
    decoded_labels,
    describe_record,
    drawn_once,
    find_dataset,
    finished_manifest,
    open_record,
)
from digits.web.resources.records import (
    Feature,
    RecordDescription,
    RecordFinding,
    RecordImage,
    SourceImage,
)
from digits.web.responses.representation import returns
from digits.web.services import services

blueprint = Blueprint("records", __name__)


# Limits for each feature in the description of a record.
MAX_VALUES = 32
MAX_VALUE_BYTES = 1000
# Limits for the pixels of a source.
SOURCE_SIDE = 2048
MAX_SOURCE_PIXELS = 200_000_000


@blueprint.get("/datasets/<job_id>/records/<split>/<int:number>")
def image(job_id: str, split: str, number: int) -> Response:
    """Return the image of a record."""
    job = find_dataset(job_id)
    return _unchanging(*in_thread(open_record(job, split, number, records.Record.as_browser_image)))


@blueprint.get("/datasets/<job_id>/records/<split>/<int:number>.json")
@returns(RecordDescription)
def describe(job_id: str, split: str, number: int) -> Response:
    """Describe a record: its source, features, statistics and findings."""
    job = find_dataset(job_id)
    record = in_thread(open_record(job, split, number, lambda record: record))
    manifest = finished_manifest(job)
    try:
        (label,) = decoded_labels(job, manifest, [(split, number)]) or [
            describe_record(job, manifest, record)
        ]
    except UnreadableFile as error:
        raise NotFound("The record cannot be read.", str(error)) from error
    statistics, findings = in_thread(_checks, job, manifest, split, number)
    explore = url_for("explore.show", kind=job.data_kind, job_id=job.id, db=ALL)
    size, mode = record.source_size, record.source_mode
    body = RecordDescription(
        split=split,
        number=number,
        filename=record.filename,
        label=label,
        source=SourceImage(*size, mode, _source_url(job, manifest, split, number, record)) if mode else None,
        image=RecordImage(record.width, record.height, record.channels, record.format, len(record.data)),
        statistics=statistics,
        findings=[
            RecordFinding(finding.id, finding.title, f"{explore}&{urlencode({'finding': finding.id})}")
            for finding in findings
        ],
        features={
            name: Feature(len(values), [_shown_value(value) for value in values[:MAX_VALUES]])
            for name, values in sorted(records.all_features(record).items())
            if name != "image/encoded"
        },
    )
    return jsonify(body)


@blueprint.get("/datasets/<job_id>/records/<split>/<int:number>/source")
def source(job_id: str, split: str, number: int) -> Response:
    """Return the source of a record as a JPEG file: resized like the image of the record, but with its own pixels.

    At most `SOURCE_SIDE` pixels on each side.
    """
    job = find_dataset(job_id)
    record = in_thread(open_record(job, split, number, lambda record: record))
    manifest = finished_manifest(job)
    path, factor = (
        in_thread(_source_file, services().roots, manifest, split, record),
        _source_factor(manifest, record),
    )
    if path is None or factor <= 1:
        raise NotFound("The source of this record is not larger, or no longer there.")
    width, height = round(factor * manifest.width), round(factor * manifest.height)
    request = ResizedImage(
        str(path), manifest.channels, width, height, manifest.resize_mode, "jpg", MAX_SOURCE_PIXELS
    )
    try:
        data = services().decoder.run(request).data
    except images.UnusableImage as error:
        raise NotFound("The source of this record cannot be read.", error.reason) from error
    # The file may change.
    return Response(data, mimetype="image/jpeg", headers={"Cache-Control": "private, max-age=300"})


def _source_url(
    job: DatasetJob, manifest: Manifest, split: str, number: int, record: records.Record
) -> str | None:
    if (
        _source_factor(manifest, record) <= 1
        or in_thread(_source_file, services().roots, manifest, split, record) is None
    ):
        return None
    return url_for("records.source", job_id=job.id, split=split, number=number)


def _source_factor(manifest: Manifest, record: records.Record) -> float:
    """Return how many times larger the image of a record is with the pixels of its source; 0 if it cannot be made."""
    if manifest.padding or manifest.dtype != "uint8" or manifest.channels not in (1, 3):
        return 0.0
    width, height = record.source_size
    largest = SOURCE_SIDE / max(manifest.width, manifest.height)
    return min(largest, max(width / manifest.width, height / manifest.height))


def _source_file(roots: Roots, manifest: Manifest, split: str, record: records.Record) -> Path | None:
    """Return the file that a record was made from, if it is below the data roots; reads the file system."""
    place = Path(manifest.source.get(split, ""))
    if not place.is_absolute() or not record.filename:
        return None
    folder = place if place.is_dir() else place.parent
    path = folder / record.filename
    return path if roots.contain(path) and path.is_file() else None


def _checks(
    job: DatasetJob, manifest: Manifest, split: str, number: int
) -> tuple[dict[str, float] | None, list[Finding]]:
    """Return the statistics and findings of a record, as far as the dataset was checked; reads files."""
    statistics, findings = None, []
    try:
        row = health.load_statistics(job.folder, manifest, split)[number]
        if views_of(job.data_kind).checks_appearance:
            statistics = {name: round(float(row[name]), 1) for name in ("brightness", "contrast")}
        findings = health.findings_of(job.folder, health.load(job.folder, manifest), split, number)
    except UnreadableFile:
        pass  # not checked
    try:
        wrong = label_check.load(job.folder, manifest).finding
        findings += [wrong] if (split, number) in wrong.records else []
    except UnreadableFile:
        pass  # not searched for wrong labels
    return statistics, findings


def _shown_value(value: Any) -> Any:
    """Return the value of a feature as text or a number; of a long byte string, its size."""
    if not isinstance(value, bytes):
        return value if math.isfinite(value) else str(value)
    if len(value) > MAX_VALUE_BYTES:
        return f"{humanize.naturalsize(len(value))} of data"
    return value.decode("utf-8", "backslashreplace")


@blueprint.get("/datasets/<job_id>/records/<split>/<int:number>/thumbnail")
def thumbnail(job_id: str, split: str, number: int) -> Response:
    """Return the image of a record as a JPEG file of at most `THUMBNAIL_SIDE` pixels."""
    job = find_dataset(job_id)

    def draw(record: records.Record) -> RecordThumbnail:
        return RecordThumbnail(StoredImage.of(record), THUMBNAIL_SIDE)

    name = f"{split}/{number}/{THUMBNAIL_SIDE}"
    return _unchanging(_cached(job, name, open_record(job, split, number, draw)), "image/jpeg")


@blueprint.get("/datasets/<job_id>/records/<split>/<int:number>/target")
def target(job_id: str, split: str, number: int) -> Response:
    """Return the target of a record as a PNG file: a mask in the colors of its classes, or an image."""
    return _unchanging(_draw_target(job_id, split, number, PictureTarget), "image/png")


@blueprint.get("/datasets/<job_id>/records/<split>/<int:number>/target/thumbnail")
def target_thumbnail(job_id: str, split: str, number: int) -> Response:
    """Return the target of a record, an image, as a JPEG file of at most `THUMBNAIL_SIDE` pixels."""
    return _unchanging(_draw_target(job_id, split, number, TargetImage, THUMBNAIL_SIDE), "image/jpeg")


def _draw_target(job_id: str, split: str, number: int, form: type[Target], side: int = 0) -> bytes:
    """Return the target of a record as a picture; raises NotFound unless it is of the class ``form``."""
    job = find_dataset(job_id)
    target = finished_manifest(job).target
    if not isinstance(target, form):
        raise NotFound("The targets of this dataset are not images.")
    make = open_record(job, split, number, partial(RecordTarget.of, spec=target, side=side))
    return _cached(job, f"{split}/{number}/target{f'/{side}' if side else ''}", make)


def _unchanging(data: bytes, mimetype: str) -> Response:
    response = Response(data, mimetype=mimetype)
    # A record never changes, because a dataset is written once.
    response.headers["Cache-Control"] = "private, max-age=86400, immutable"
    return response


def _cached(job: DatasetJob, name: str, read: Callable[[], RecordThumbnail | RecordTarget]) -> bytes:
    """Return the picture ``name`` of a dataset, which is drawn from what ``read`` returns if it is not kept."""
    key = f"{job.id}/{finished_manifest(job).content_hash}/{name}"
    return drawn_once(key, read, "The record cannot be read.")
