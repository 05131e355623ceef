"""Corrections in Explore of a dataset from labels, which go into the labels."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, make_response, request

from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile
from digits.data.sources.plan import listed
from digits.kinds.labeling.corrections import corrections_of, records_of
from digits.kinds.labeling.log import Conflict
from digits.runtime.offload import in_thread
from digits.web.jobs.access import check_owner
from digits.web.labels.actions import find
from digits.web.labels.books import book_of
from digits.web.records.images import find_dataset, finished_manifest
from digits.web.records.pending import save_changes, sent_changes
from digits.web.resources.pending_edits import PendingEdits
from digits.web.responses.errors import error_body
from digits.web.responses.representation import returns
from digits.web.security.sessions import current_username
from digits.web.services import services

blueprint = Blueprint("corrections", __name__)


@blueprint.post("/datasets/<job_id>/corrections.json")
@returns(PendingEdits)
def update(job_id: str) -> Response:
    """Correct the labels from which a dataset was made by the ``changes`` of its records, JSON; null restores one.

    The changes become pending ones of the dataset, too. Excluded images are skipped in the labels; the splits of these
    do not change. The status is 409 if some images were labeled again since the dataset was made, with their
    ``records``, and then nothing is saved.
    """
    dataset = find_dataset(job_id)
    check_owner(dataset)
    manifest, frozen = finished_manifest(dataset), dataset.recipe.frozen
    if frozen is None:
        raise BadRequest(
            f"“{dataset.name}” was not made from labels.", "Send its changes to pending-edits.json."
        )
    job = find(frozen.id)
    changes, book = sent_changes(manifest), book_of(job)
    services().store.check()

    try:
        records = in_thread(records_of, dataset.folder, manifest, job.folder, changes)
        of_images = {image: changes[record] for image, record in records.items()}
        classes = manifest.target.names
        corrections = in_thread(corrections_of, job, book.log, frozen.cursor, classes, of_images)
        book.write(book.log.correct, corrections, f"explore:{dataset.id}:", current_username(request) or "")
    except UnreadableFile as error:
        raise BadRequest(f"The labels cannot be corrected: {error}.") from error
    except Conflict as conflict:
        others = conflict.entries
        people = sorted({entry.by for entry in others.values() if entry and entry.by})
        names = listed(row.path for row in book.rows([*others]))
        message = (
            "Not saved, because the labels have changed since the dataset was made: "
            f"{names}{f', by {listed(people)}' if people else ''}."
        )
        body = error_body(request.path, message, "Outdated", f"Correct them in “{job.name}”.")
        return make_response(jsonify({**body, "records": [records[image] for image in others]}), 409)
    return save_changes(dataset, changes)
