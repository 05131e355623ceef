"""Jobs of labels: images with what people say about them, and datasets from that."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from flask import Blueprint, Response, jsonify, make_response, request, url_for
from msgspec import UNSET
from werkzeug.datastructures import FileStorage
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound, NotReady
from digits.core.splits import SPLITS
from digits.data.archives.writing import stream
from digits.data.images import images
from digits.data.images.endings import browser_type
from digits.data.images.images import UnusableImage
from digits.kinds import Kind, all_kinds
from digits.kinds.decoding import DrawnMask, ResizedImage, Thumbnail
from digits.kinds.forms.fields import NAME_LENGTH
from digits.kinds.forms.request_fields import choice, flag, parse_integer, whole
from digits.kinds.labeling.answers import FINISHED, STATES, Entry, Sent, read_sent
from digits.kinds.labeling.classes import ClassChange, changed, with_new
from digits.kinds.labeling.export import LabelExport
from digits.kinds.labeling.forms import MASKS_FOLDER, form_of
from digits.kinds.labeling.images import ListedImage
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.labeling.log import Conflict
from digits.runtime.changes import JobEdited
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.labels.actions import (
    dataset_in,
    described,
    fields_of_request,
    filters_of_request,
    find,
    freeze_labels,
    name_in,
    names_of_models,
    start_of,
)
from digits.web.labels.books import LEASE_SECONDS, OPEN, book_of
from digits.web.records.images import THUMBNAIL_SIDE, drawn_once
from digits.web.resources.encoding import as_json, describe
from digits.web.resources.jobs import BriefJob
from digits.web.resources.labels import (
    Classes,
    FrozenDataset,
    ImagePage,
    LabelHistory,
    Labels,
    NextImages,
    SavedLabel,
)
from digits.web.responses.errors import error_body
from digits.web.responses.files import archive_response, send_job_file, send_opened
from digits.web.responses.representation import respond, returns, twin
from digits.web.security.origin import not_from_other_sites
from digits.web.security.sessions import current_username
from digits.web.services import services

blueprint = Blueprint("labels", __name__)

MOST_ROWS = 500
MOST_ENTRIES = 100
MOST_LEASED = 20
# Larger images are sent as JPEG files, because making PNG files of them takes seconds.
MAX_PNG_PIXELS = 4_000_000
PICTURE_SECONDS = 300


@blueprint.post("/labels.json")
@returns(BriefJob)
def create() -> Response:
    """Create a job that labels the images below ``folder`` for datasets of a ``kind``.

    It may begin with the labels of a ``dataset``, by its id, whose kind and folder are the default ones, of
    ``annotations``, the path of a table, a file or a folder, or with ``folders_are_classes``. They are read while the
    images are listed.
    """
    sent = fields_of_request()
    name = name_in(sent)
    dataset = dataset_in(sent)
    kind = _kind_named(str(sent.get("kind") or (dataset.data_kind.name if dataset else "")))
    form = form_of(kind.name)
    given = sent.get("classes") or []
    classes = given.splitlines() if isinstance(given, str) else [*map(str, given)]
    with services().store.creation() as new_folder:
        folder = new_folder()
        root, source = start_of(kind, sent, dataset, folder)
        job = LabelsJob.create(
            folder,
            name=name,
            owner=current_username(request),
            group=str(sent.get("group_name", "")).strip()[:NAME_LENGTH],
            kind=kind.name,
            root=root,
            classes=with_new([], form, form.first_classes(classes)),
            source=source,
            weights=services().feature_weights,
        )
        services().scheduler.submit(job)
    return jsonify(serializers.brief(job))


@blueprint.get("/labels/<job_id>.json")
@returns(Labels)
def show_json(job_id: str) -> Response:
    return jsonify(described(find(job_id)))


@twin(blueprint, "/labels/<job_id>/list", BriefJob)
def list_again(job_id: str) -> AnyResponse:
    """Look for further images in the folder; those listed before keep their numbers and labels."""
    job = find(job_id)
    check_owner(job)
    if job.status.is_running:
        raise NotReady(f"“{job.name}” is already reading its folder.", "Wait until it has finished.")
    services().scheduler.resume(job, job.list_again)
    return respond(lambda: serializers.brief(job), created=url_for("label_pages.show", job_id=job_id))


@blueprint.post("/labels/<job_id>/classes.json")
@returns(Classes)
def change_class(job_id: str) -> Response:
    """Add a class with a ``name``, or change ``name``, ``color`` or ``is_deleted`` of that with the ``id``."""
    job = find(job_id)
    if job.source is not None:
        raise NotReady(
            "The labels to begin with are not imported yet.",
            "Wait until the images are listed, or list them again.",
        )
    try:
        change = msgspec.convert(fields_of_request(), ClassChange, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The class is not valid: {error}.") from error
    services().store.edit(job, classes=changed(job.classes, job.form, change))
    services().report(JobEdited(job, "classes"))
    return jsonify(Classes(len(job.classes) - 1 if change.id is None else change.id, job.classes))


@blueprint.get("/labels/<job_id>/images.json")
@returns(ImagePage)
def list_images(job_id: str) -> Response:
    """Return images in one of the states ``state``, separated by commas, after the number ``after``."""
    book = book_of(find(job_id))
    size = whole(request.args, "size", 100, 1, MOST_ROWS)
    numbers = book.find(_chosen("state", STATES), _chosen("split", SPLITS), **filters_of_request())
    after = whole(request.args, "after", -1, -1)
    shown = numbers[numbers > after][:size].tolist()
    more = bool(shown) and shown[-1] < numbers[-1]
    return jsonify(ImagePage(len(numbers), book.rows(shown), shown[-1] if more else None))


@blueprint.get("/labels/<job_id>/next.json")
@returns(NextImages)
def next_images(job_id: str) -> Response:
    """Return open images that nobody else gets for two minutes.

    ``client`` identifies the tab of a browser: while its images are open, it gets the same ones again.
    """
    book = book_of(find(job_id))
    client = request.args.get("client", "")[:64] or os.urandom(8).hex()
    holder = f"{current_username(request) or ''}\n{client}"
    without = [
        number
        for text in request.args.get("without", "").split(",")
        if (number := parse_integer(text)) is not None
    ]
    splits = _chosen("split", SPLITS)
    chosen = book.lease(holder, whole(request.args, "count", 1, 1, MOST_LEASED), splits, without)
    return jsonify(NextImages(book.rows(chosen), LEASE_SECONDS, len(book.find(OPEN, splits))))


@blueprint.get("/labels/<job_id>/images/<int:number>.json")
def show_image(job_id: str, number: int) -> Response:
    """Return an image with its latest entry, or what a model proposes for an open training image."""
    book = book_of(find(job_id))
    row = book.row(number, book.image(number))
    body = {**as_json(row), **_entry_json(in_thread(book.log.latest, number))}
    if proposal := book.proposal(number, row.split):
        body["predicted"] = msgspec.to_builtins(proposal)
    return jsonify(body)


@blueprint.post("/labels/<job_id>/images/<int:number>.json")
@returns(SavedLabel)
def save(job_id: str, number: int) -> Response:
    """Save an answer about an image, JSON.

    The status is 409 if its latest entry is not ``rev``, with this entry; a repeated ``edit`` has no effect.
    A large mask is the file ``mask`` of a form, whose field ``answer`` is the JSON.
    """
    job = find(job_id)
    book = book_of(job)
    image = book.image(number)
    if image.reason:
        raise BadRequest(f"{image.path} cannot be labeled: {image.reason}.")
    services().store.check()
    file = request.files.get("mask")
    sent = in_thread(
        read_sent, request.get_data() if file is None else request.form.get("answer", "").encode()
    )
    drawn = in_thread(_file_sent, sent, file)
    by, latest = current_username(request) or "", in_thread(book.log.latest, number)
    mask, present = (None, []) if drawn is None else _drawn(drawn, image)
    in_thread(job.form.check, sent, image.size, job.classes, latest, present)
    if sent.state == "reviewed":
        _check_review(latest, sent, by)
    try:
        source = book.proposals.source if sent.proposed else ""
        rev = book.write(book.log.save, number, sent, by, mask, present, source)
    except FileNotFoundError as error:
        raise NotFound("There is no such job.", "It may have been deleted.") from error
    except Conflict as conflict:
        message = "This image was changed in the meantime."
        body = error_body(
            request.path, message, "Outdated", "Look at the other labels before you save yours."
        )
        row = book.row(number, image)
        entry = _entry_json(conflict.entries[number])
        return make_response(jsonify({**body, "entry": {**as_json(row), **entry}}), 409)
    return jsonify(SavedLabel(rev))


@blueprint.get("/labels/<job_id>/images/<int:number>/history.json")
@returns(LabelHistory)
def history(job_id: str, number: int) -> Response:
    """Return the latest entries of an image, the newest first, or those ``before`` the entry with this number."""
    book = book_of(find(job_id))
    book.image(number)
    before = whole(request.args, "before", None, 1)

    def read() -> list[dict[str, Any]]:
        entries = zip(range(MOST_ENTRIES), book.log.history(number, before), strict=False)
        return [_entry_json(entry) for _, entry in entries]

    found = in_thread(read)
    oldest = found[-1]["rev"] if found else 1
    models = names_of_models({entry["source"].partition("/")[0] for entry in found if "source" in entry})
    return jsonify(LabelHistory(found, models, oldest if oldest > 1 else None))


@blueprint.get("/labels/<job_id>/images/<int:number>/picture")
def picture(job_id: str, number: int) -> Response:
    """Return an image as it is displayed: JPEG, PNG and WebP files as they are, others as one of these."""
    image, path = _image_file(job_id, number)
    raw = in_thread(_open_raw, path, image.turn)
    if raw is not None:
        response = send_opened(raw[0], image.path.rpartition("/")[2], raw[1], max_age=PICTURE_SECONDS)
    else:
        encoding = "png" if image.width * image.height <= MAX_PNG_PIXELS else "jpg"
        wanted = ResizedImage(str(path), 3, *image.size, "squash", encoding, images.MAX_PIXELS)
        response = _decoded(wanted, "image/png" if encoding == "png" else "image/jpeg")
    response.headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
    return response


@blueprint.get("/labels/<job_id>/images/<int:number>/thumbnail")
def thumbnail(job_id: str, number: int) -> Response:
    """Return an image as a JPEG file of at most 256 pixels on each side."""
    _, path = _image_file(job_id, number)
    return _decoded(Thumbnail(str(path), THUMBNAIL_SIDE), "image/jpeg")


@blueprint.get("/labels/<job_id>/images/<int:number>/mask")
def mask(job_id: str, number: int) -> Response:
    """Return the mask of an image, a PNG file with the ids of classes as gray values.

    It is the latest one, that of ``rev``, or the ``proposed`` one.
    """
    job = find(job_id)
    book = book_of(job)
    image = book.image(number)
    if flag(request.args, "proposed"):
        found = book.proposal(number, image.split)
        if found is None or found.mask is UNSET:
            raise NotFound("No mask is proposed for this image.")
        name = book.proposals.folder.relative_to(job.folder) / MASKS_FOLDER / found.mask
        return send_job_file(job.folder, str(name), "image/png")
    rev = whole(request.args, "rev", None, 1)
    entries = in_thread(lambda: [*book.log.history(number, None if rev is None else rev + 1)][:1])
    if not entries or entries[0].mask is UNSET or (rev is not None and entries[0].rev != rev):
        raise NotFound("This image has no mask.")
    return send_job_file(job.folder, f"{MASKS_FOLDER}/{entries[0].mask}", "image/png")


@twin(blueprint, "/labels/<job_id>/datasets", FrozenDataset)
def create_dataset(job_id: str) -> AnyResponse:
    """Create a dataset from the labels so far, with a ``name``; later changes do not affect it.

    With ``train``, a form leads to that of a model for it.
    """
    sent = fields_of_request()
    dataset, warnings = freeze_labels(find(job_id), sent)
    model = url_for("model_form.new", kind=dataset.data_kind, dataset=dataset.id)
    return respond(
        lambda: describe(FrozenDataset, serializers.brief(dataset), warnings=warnings),
        created=model if sent.get("train") else serializers.job_url(dataset),
    )


@blueprint.get("/labels/<job_id>/export")
@not_from_other_sites
def export(job_id: str) -> Response:
    """Stream the labels as a zip archive in a ``format``; the images are not in it."""
    job = find(job_id)
    name = choice(request.args, "format", job.form.formats[0], job.form.formats)
    archive = LabelExport(job.folder, job.classes, job.form, book_of(job).log.cursor, name)
    response = archive_response(f"{job.id}_{name}", "zip", stream("zip", archive.entries()))
    response.call_on_close(archive.close)
    return response


def _kind_named(text: str) -> Kind:
    found = next((kind for kind in all_kinds().values() if text in (kind.name, kind.route)), None)
    if found is None:
        raise BadRequest(f"There is no kind “{text[:40]}”.", "An example is images/detection.")
    return found


def _chosen(name: str, options: tuple[str, ...]) -> list[str]:
    """Return the ``options`` that an argument of the query lists, by default all; raises BadRequest."""
    chosen = [text for text in request.args.get(name, "").split(",") if text] or [*options]
    if wrong := next((text for text in chosen if text not in options), None):
        raise BadRequest(f"There is no {name} “{wrong[:40]}”.", f"Use some of {', '.join(options)}.")
    return chosen


def _entry_json(entry: Entry | None) -> dict[str, Any]:
    """Return an entry with all its fields that are set."""
    if entry is None:
        return {}
    set_fields: dict[str, Any] = msgspec.to_builtins(entry)
    del set_fields["image"]
    set_fields.pop("prev", None)
    return {"state": entry.state, "by": entry.by, **set_fields}


def _check_review(latest: Entry | None, sent: Sent, by: str) -> None:
    """Raise BadRequest unless the entry to review is finished, and by somebody else."""
    if latest is not None and latest.rev != sent.rev:
        return  # a conflict, or sent before
    if latest is None or latest.state not in FINISHED:
        raise BadRequest("This image is not labeled yet.", "Only labeled images can be reviewed.")
    if by and latest.by == by and latest.state == "labeled":
        raise BadRequest("You have labeled this image yourself.", "Let somebody else review it.")


def _file_sent(sent: Sent, file: FileStorage | None) -> bytes | None:
    """Return the new mask in a request, a ``file`` or Base64; None if there is no new one. Raises BadRequest."""
    if file is not None:
        sent.mask = ""
        data: bytes = file.read()
        return data
    if sent.mask is UNSET or sent.mask.endswith(".png"):
        return None
    try:
        return base64.b64decode(sent.mask, validate=True)
    except binascii.Error as error:
        raise BadRequest("The mask is not a PNG file in Base64.") from error


def _drawn(data: bytes, image: ListedImage) -> tuple[bytes, list[int]]:
    """Return a mask as a PNG file of 8 bits, and the classes in it; raises BadRequest."""
    try:
        drawn = services().decoder.run(DrawnMask(data))
    except UnusableImage as error:
        raise BadRequest(f"The mask cannot be read: {error.reason}.") from error
    if (drawn.width, drawn.height) != image.size:
        raise BadRequest(
            f"The mask has {drawn.width}×{drawn.height} pixels, but the image has {image.width}×{image.height}."
        )
    return drawn.data, [*map(int, drawn.texts)]


def _image_file(job_id: str, number: int) -> tuple[ListedImage, Path]:
    """Return an image and its file; raises NotFound."""
    image = book_of(job := find(job_id)).image(number)
    path, roots = Path(job.root) / image.path, services().roots
    if not in_thread(lambda: roots.contain(path) and path.is_file()):
        raise NotFound(f"{image.path} is no longer in the folder of the images.")
    return image, Path(in_thread(os.path.realpath, path))


def _open_raw(path: Path, turn: int) -> tuple[BinaryIO, str] | None:
    """Open a file that browsers display themselves, and return its type; None for others.

    Not all of them turn PNG and WebP files.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
    head = file.read(12)
    file.seek(0)
    media = browser_type(head)
    if media is None or (turn != 1 and media != "image/jpeg"):
        file.close()
        return None
    return file, media


def _decoded(wanted: ResizedImage | Thumbnail, media: str) -> Response:
    """Return a picture of a file, which is kept for the next time while the file does not change."""
    state = in_thread(os.stat, wanted.path)
    key = f"{wanted}/{state.st_mtime_ns}/{state.st_size}"
    data = drawn_once(key, lambda: wanted, "This image cannot be decoded.")
    headers = {"Cache-Control": f"private, max-age={PICTURE_SECONDS}"}
    return Response(data, mimetype=media, headers=headers)
