"""Pages and JSON of datasets."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from flask import Blueprint, Response, jsonify, make_response, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, DigitsError, NotFound
from digits.core.files import UnreadableFile
from digits.core.resources import resource_folder
from digits.core.status import Status
from digits.core.task import Failure
from digits.data import images, label_check, records
from digits.data import manifest as manifests
from digits.data.drawing import class_colors, draw_mask, legend, outlines
from digits.data.health import Finding
from digits.data.manifest import SPLITS, Manifest, Split
from digits.data.record_index import SplitIndex
from digits.kinds import Kind, all_kinds
from digits.kinds.dataset_form import ImageDatasetForm
from digits.kinds.form_fields import errors_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.source_summary import SourceSummary
from digits.web import export_views, health_views, serializers
from digits.web.auth import current_username
from digits.web.dataset_submit import new_dataset
from digits.web.job_query import Page, page_of
from digits.web.kind_routes import views_of
from digits.web.long_pages import render_in_turns
from digits.web.offload import each_in_thread, in_thread
from digits.web.record_selection import ALL, Range, Selection, in_ranges, parse_ranges, suggestions
from digits.web.record_selection import find as find_records
from digits.web.remote_sources import add_remote_sources, summarize
from digits.web.services import services

blueprint = Blueprint("datasets", __name__)

AnyPart = TypeVar("AnyPart")

SAMPLES_PER_GROUP = 8
SHOWN_GROUPS = 100
SHOWN_MODELS = 25
PAGE_SIZES = (10, 25, 50, 100)
EXAMPLE_IMAGE = "img/example.png"
MAX_EXAMPLE_PIXELS = 20_000_000
# Limits disk load: further scans wait.
_scanning = threading.BoundedSemaphore(4)
_listing = threading.BoundedSemaphore(4)
# A large image takes some seconds and 200 MB.
_resizing = threading.BoundedSemaphore(2)


@blueprint.get("/datasets/<kind:kind>/new")
def new(kind: Kind) -> str:
    form = _form(kind, None)
    _clone_into(form, kind, request.args.get("clone"))
    return _form_page(kind, form)


@blueprint.post("/datasets/<kind:kind>")
@blueprint.post("/datasets/<kind:kind>.json", endpoint="create_json")
def create(kind: Kind) -> AnyResponse | tuple[str | Response, int]:
    """Create a dataset. An invalid form is shown again with all entries."""
    form = _form(kind)
    _clone_into(form, kind, request.form.get("clone"))
    as_json = request.path.endswith(".json")
    if not form.validate():
        return (jsonify(errors=errors_of(form)), 400) if as_json else (_form_page(kind, form), 400)
    with services().store.creation() as new_folder:
        folder = new_folder()
        form.save_uploads(folder)
        recipe = form.recipe()
        add_remote_sources(recipe, form, folder.name)
        job = new_dataset(
            folder,
            recipe,
            form.dataset_name.data.strip(),
            owner=current_username(request),
            group=(form.group_name.data or "").strip(),
        )
        services().scheduler.submit(job)
    if as_json:
        return jsonify({**serializers.brief(job), "warnings": form.warnings()})
    return redirect(url_for("datasets.show", job_id=job.id))


@blueprint.get("/datasets/<kind:kind>")
def back_to_form(kind: Kind) -> AnyResponse:
    """Redirect to the form after a reload of its target."""
    return redirect(url_for("datasets.new", kind=kind))


@blueprint.get("/datasets/<job_id>")
def show(job_id: str) -> str:
    job = _dataset(job_id)
    state = services().scheduler.task_state(job, job.tasks[0])
    page, body = serializers.page(job), serializers.dataset(job)
    manifest = job.manifest()
    models = Page.of(services().store.children(job), page_of(request.args, "models_page"), SHOWN_MODELS)
    if body is not None and manifest is not None and views_of(job.data_kind).shows_images:
        try:
            body["samples"] = _samples(job, manifest)
        except UnreadableFile as error:
            damage = Failure(
                f"The records of this dataset are damaged: {error}.", "Clone it to create it again."
            )
            page["error"] = page["error"] or damage.as_json()
    return render_in_turns(
        "dataset.html",
        job=page,
        kind=job.data_kind,
        views=views_of(job.data_kind),
        dataset=body,
        counts=state.counts,
        skipped=serializers.skipped(job),
        downloads=export_views.offered(job) if body is not None else [],
        health=health_views.panel(job, manifest) if body is not None and manifest is not None else None,
        models=serializers.rows(models.items),
        models_page=models,
        models_address=partial(_models_address, job.id),
    )


@blueprint.get("/datasets/<job_id>.json")
def show_json(job_id: str) -> Response:
    return jsonify(serializers.dataset_json(_dataset(job_id)))


@blueprint.get("/datasets/summary")
def summary() -> Response:
    """Return details of the dataset chosen in the model form."""
    job_id = request.args.get("job_id")
    if not job_id:
        raise BadRequest("Specify the job_id.")
    job = _dataset(job_id)
    return jsonify(job=serializers.row(job), dataset=serializers.dataset(job))


@blueprint.post("/datasets/<kind:kind>/scan")
def scan(kind: Kind) -> Response:
    """Stream summaries of the source in the form's fields as lines of JSON; the last one is finished.

    Closing the connection ends the scan.
    """
    form = _form(kind)
    if not form.SCANNED:
        raise NotFound(f"Source summaries are not available for {kind.title.lower()}.")
    summaries: Iterator[SourceSummary]
    if form.source_addresses():
        # It only waits for a process, so it does not need a thread.
        found = summarize(form, services().settings)
        lines = (json.dumps(asdict(summary)).encode() + b"\n" for summary in found)
        return Response(_listed(lines), mimetype="application/x-ndjson")
    try:
        summaries = form.scan_source()
    except DigitsError as error:
        refused = error.sentences
        summaries = iter([SourceSummary(refused=refused)])
    lines = (json.dumps(asdict(summary)).encode() + b"\n" for summary in summaries)
    return Response(_scanned(lines), mimetype="application/x-ndjson")


def _listed(lines: Iterator[bytes]) -> Iterator[bytes]:
    with _listing:
        yield from lines


def _scanned(lines: Iterator[bytes]) -> Iterator[bytes]:
    with _scanning:
        yield from each_in_thread(lines)


@blueprint.post("/datasets/images/resize-example")
def resize_example() -> Response:
    """Return an image resized with the form's settings: ``{image: data URI, bytes}``.

    The image is the file ``example``, or by default a bundled one.
    """
    form = ImageDatasetForm[Any](request.form)
    names = ("resize_width", "resize_height", "resize_channels", "resize_mode", "encoding")
    short = {name.removeprefix("resize_"): name for name in names}
    for name, field in short.items():
        if name in request.form and field not in request.form:
            form[field].process(None, data=request.form[name])
            form[field].process_formdata([request.form[name]])
    wrong = {name: form[name].errors for name in names if not form[name].validate(form)}
    if wrong:
        return make_response(
            jsonify(errors={name: list(map(str, messages)) for name, messages in wrong.items()}), 400
        )
    size = form.resize_width.data, form.resize_height.data
    chosen = request.form.get("example", "")
    example = (
        services().roots.resolve(chosen, "file") if chosen else resource_folder("static") / EXAMPLE_IMAGE
    )
    settings = int(form.resize_channels.data), size, form.resize_mode.data, form.encoding.data
    try:
        with _resizing:
            body = in_thread(_resized_example, example, *settings)
    except images.UnusableImage as error:
        raise BadRequest(f"The image cannot be shown: {error.reason}.") from error
    return Response(body, mimetype="application/json")


def _resized_example(example: Path, channels: int, size: tuple[int, int], mode: str, encoding: str) -> bytes:
    """Return the response of `resize_example` as JSON; called in a thread, because it can take many megabytes."""
    picture = images.open_picture(example, channels, max_pixels=MAX_EXAMPLE_PIXELS).image
    resized = images.resize_image(picture, *size, mode)
    shown = images.encode_image(resized, "png" if encoding == "none" else encoding)
    length = size[0] * size[1] * channels if encoding == "none" else len(shown)
    kind = "jpeg" if encoding == "jpg" else "png"
    image = images.data_uri(shown, f"image/{kind}")
    return json.dumps({"image": image, "bytes": length}).encode()


@blueprint.get("/datasets/<kind:kind>/explore")
def explore(kind: Kind) -> str:
    """Browse the records of a split: all, those of one group, of a finding, or in ranges of values."""
    job = _dataset(request.args.get("job_id", ""))
    views = views_of(job.data_kind)
    manifest = _finished(job)
    finding_id = request.args.get("finding", "")
    asked = request.args.get("db", ALL if finding_id else "train")
    name = next((split for split in manifest.splits if split in asked), None)
    if name is None and not (finding_id and asked == ALL):
        raise NotFound(f"This dataset has no split called “{asked}”.")
    label = request.args.get("label", type=int)
    if label is not None and not 0 <= label < len(manifest.groups):
        last = len(manifest.groups) - 1
        raise NotFound(f"This dataset has no {views.group} {label}: its {views.groups} are 0 to {last}.")
    size = min(max(request.args.get("size", default=50, type=int), 1), max(PAGE_SIZES))
    ranges = [] if finding_id else parse_ranges(request.args)
    finding: Finding | None = None
    suggested: dict[tuple[str, int], dict[str, Any]] = {}
    try:
        if finding_id:
            finding, selected, splits = _of_finding(job, manifest, finding_id, name, label)
            if finding_id == label_check.FINDING:
                suggested = in_thread(suggestions, job, manifest)
        else:
            selected, splits = _of_split(job, manifest, name or "", label, ranges)
    except UnreadableFile as error:
        raise NotFound("The records cannot be read.", str(error)) from error
    # In the URL, the first page is 0.
    page = Page.of(cast(Any, selected), max(request.args.get("page", default=0, type=int), 0) + 1, size)
    items = _items(job, manifest, list(page.items))
    boxes = [box for item in items for box in item.get("boxes", [])]
    return render_in_turns(
        "explore.html",
        job=serializers.row(job),
        split=name or ALL,
        splits=splits,
        kind=job.data_kind,
        group_word=views.group,
        groups_word=views.groups,
        records_word=views.records,
        record_word=views.record,
        shows_images=views.shows_images,
        label=label,
        labels=manifest.groups,
        has_classes=manifest.target.classes,
        counts=manifest.splits[name].counts if name and not (finding or ranges) else None,
        finding=finding,
        ranges=ranges,
        filters={"finding": finding_id} if finding else {item.name: item.text for item in ranges},
        page=page,
        size=size,
        sizes=PAGE_SIZES,
        items=items,
        suggested=suggested,
        legend=legend(manifest.target, has_ignored=any(box.ignored for box in boxes)),
        annotation_download=export_views.for_annotation_tools(job),
        annotation_tools=views.annotation_tools,
        dataset_size=(manifest.width * manifest.channels // job.recipe.channels, manifest.height),
    )


def _of_split(
    job: DatasetJob, manifest: Manifest, name: str, label: int | None, ranges: list[Range]
) -> tuple[Selection, dict[str, int]]:
    """Return the records of a split, and the number of records in each split; raises UnreadableFile."""
    if not ranges:
        split = manifest.splits[name]
        numbers = range(split.count) if label is None else in_thread(_index(job, split).members, label)
        return Selection(name, numbers), {name: split.count for name, split in manifest.splits.items()}
    found = {split: in_thread(in_ranges, job, manifest, split, ranges) for split in manifest.splits}
    counts = {split: len(numbers) for split, numbers in found.items()}
    chosen = found[name]
    if label is not None:
        chosen = chosen[_index(job, manifest.splits[name]).groups[chosen] == label]
    return Selection(name, chosen), counts


def _of_finding(
    job: DatasetJob, manifest: Manifest, finding_id: str, name: str | None, label: int | None
) -> tuple[Finding, Selection, dict[str, int]]:
    """Return a finding, its records, and their number in each split; raises UnreadableFile."""
    finding, rows = in_thread(find_records, job, manifest, finding_id)
    in_splits = np.bincount(rows["split"], minlength=len(SPLITS)).tolist()
    counts = {ALL: len(rows)} | {split: in_splits[SPLITS.index(split)] for split in manifest.splits}
    if name is not None:
        rows = rows[rows["split"] == SPLITS.index(name)]
    if label is not None:
        wanted = np.zeros(len(rows), np.bool_)
        for split, content in manifest.splits.items():
            here = np.flatnonzero(rows["split"] == SPLITS.index(split))
            wanted[here] = _index(job, content).groups[rows["number"][here]] == label
        rows = rows[wanted]
    return (
        finding,
        Selection(rows["split"], rows["number"], rows["set"] if finding.has_sets else None),
        counts,
    )


@blueprint.get("/datasets/<job_id>/records/<split>/<int:number>")
def record(job_id: str, split: str, number: int) -> Response:
    """Return the image of a record."""
    return _unchanging(*_read_record(_dataset(job_id), split, number, records.Record.as_browser_image))


@blueprint.get("/datasets/<job_id>/records/<split>/<int:number>/target")
def target(job_id: str, split: str, number: int) -> Response:
    """Return the target of a record as a PNG file: a mask in the colors of its classes, or an image."""
    job = _dataset(job_id)
    spec = _finished(job).target
    if not spec.is_picture:
        raise NotFound("The targets of this dataset are not images.")
    value = _read_record(job, split, number, lambda item: item.target(spec))
    data = draw_mask(value, class_colors(spec)) if spec.spatial == "mask" else images.encode(value, "png")
    return _unchanging(data, "image/png")


def _models_address(job_id: str, number: int) -> str:
    """Return the URL of a dataset's page that shows page ``number`` of its models."""
    return url_for("datasets.show", job_id=job_id, models_page=number, _anchor="children-title")


def _dataset(job_id: str) -> DatasetJob:
    return services().store.get(job_id, DatasetJob)


def _finished(job: DatasetJob) -> Manifest:
    if job.status is not Status.DONE:
        raise BadRequest(f"“{job.name}” has no records to show: it is {job.status.title}, not Done.")
    return job.manifest() or manifests.load(job.folder)  # raises the reason


def _unchanging(data: bytes, mimetype: str) -> Response:
    response = Response(data, mimetype=mimetype)
    # A record never changes, because a dataset is written once.
    response.headers["Cache-Control"] = "private, max-age=86400, immutable"
    return response


def _read_record(
    job: DatasetJob, split: str, number: int, use: Callable[[records.Record], AnyPart]
) -> AnyPart:
    """Return the result of ``use`` for a record; raises NotFound if the record cannot be read."""
    manifest = _finished(job)
    if split not in manifest.splits:
        raise NotFound(f"This dataset has no split called “{split}”.")
    try:
        with _reader(job, manifest.splits[split]) as reader:
            if number >= len(reader):
                raise NotFound("There is no such record.")
            return use(reader.read(number))
    except UnreadableFile as error:
        raise NotFound("The record cannot be read.", str(error)) from error


def _index(job: DatasetJob, split: Split) -> SplitIndex:
    """Return the index of a split; raises UnreadableFile."""
    # Reading the index of a million records takes tens of milliseconds.
    return in_thread(services().record_indexes.get, job.folder, split)


def _reader(job: DatasetJob, split: Split) -> records.SplitReader:
    return records.SplitReader(job.folder, split, _index(job, split))


def _items(
    job: DatasetJob, manifest: Manifest, selected: list[tuple[str, int, int | None]]
) -> list[dict[str, Any]]:
    views = views_of(job.data_kind)
    try:
        with ExitStack() as opened:
            readers = {
                split: opened.enter_context(_reader(job, manifest.splits[split]))
                for split in {split for split, _, _ in selected}
            }
            found = [(*place, readers[place[0]].read(place[1])) for place in selected]
    except UnreadableFile as error:
        raise NotFound("The records cannot be read.", str(error)) from error
    return [
        {
            "number": number,
            "split": split,
            "set": together,
            "url": url_for("datasets.record", job_id=job.id, split=split, number=number),
            "label": views.describe_record(manifest, item),
            "filename": item.filename,
            **_drawn(job.id, split, number, manifest, partial(_given, item)),
            **views.draw_record(job.kind_recipe, item),
        }
        for split, number, together, item in found
    ]


def _given(record: records.Record) -> records.Record:
    return record


def _drawn(
    job_id: str, split: str, number: int, manifest: Manifest, read: Callable[[], records.Record]
) -> dict[str, Any]:
    """Return what is drawn on the image of a record, or beside it: its ``mask`` or ``target`` by URL, or its boxes.

    ``read`` returns the record.
    """
    spec = manifest.target
    if spec.is_picture:
        name = "mask" if spec.spatial == "mask" else "target"
        return {name: url_for("datasets.target", job_id=job_id, split=split, number=number)}
    if spec.spatial != "boxes":
        return {}
    rows = read().target(spec)
    return {"boxes": outlines(rows.tolist(), spec, manifest.width, manifest.height)}


def _samples(job: DatasetJob, manifest: Manifest) -> list[dict[str, Any]]:
    """Return a few training images of each group, or of all images without groups; raises UnreadableFile."""
    split = manifest.splits.get("train")
    if split is None or not split.count:
        return []
    index = _index(job, split)
    groups: list[tuple[str, int | None, Any]] = [
        (label, group, index.members(group)) for group, label in enumerate(manifest.groups[:SHOWN_GROUPS])
    ]
    with _reader(job, split) as reader:
        return [
            {
                "label": label,
                "index": group,
                "items": [
                    {
                        "url": url_for("datasets.record", job_id=job.id, split="train", number=number),
                        **_drawn(job.id, "train", number, manifest, partial(reader.read, number)),
                    }
                    for number in map(int, members[:SAMPLES_PER_GROUP])
                ],
            }
            for label, group, members in groups or [("", None, range(split.count))]
        ]


def _form(kind: Kind, *data: Any) -> ImageDatasetForm[Any]:
    meta = {
        "data_roots": services().roots,
        "remote": services().remote,
        "job_folder": lambda job_id: _dataset(job_id).folder,
    }
    form: ImageDatasetForm[Any] = kind.load("form").DatasetForm(*data, meta=meta)
    return form


def _clone_into(form: ImageDatasetForm[Any], kind: Kind, job_id: str | None) -> None:
    if not job_id:
        return
    job = _dataset(job_id)
    if job.data_kind != kind:
        raise BadRequest(
            f"“{job.name}” is not a dataset for {kind.title.lower()}.", "Clone it from its own page."
        )
    form.fill(job)


def _form_page(kind: Kind, form: ImageDatasetForm[Any]) -> str:
    return render_in_turns(
        "dataset_new.html",
        kind=kind,
        kinds=list(all_kinds().values()),
        invitation=views_of(kind).invitation,
        form=form,
        data_roots=[str(root) for root in services().settings.readable_roots],
    )
