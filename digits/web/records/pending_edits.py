"""Changes of a dataset's records that wait for a new version, shared by all visitors of the dataset."""

from __future__ import annotations

from typing import Annotated

from flask import Blueprint, Response, jsonify, request
from msgspec import Meta

from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile
from digits.data.loose_json import InvalidJson, load
from digits.data.sources import UnusableSource
from digits.kinds import pending_edits
from digits.kinds.pending_edits import Change, Place
from digits.kinds.versions import MAX_EDITS, check_edits
from digits.web.jobs.access import check_owner
from digits.web.offload import in_thread
from digits.web.records.images import find_dataset, finished_manifest
from digits.web.records.pending import pending, unreadable
from digits.web.resources.pending_edits import PendingEdits
from digits.web.responses.representation import returns

blueprint = Blueprint("pending_edits", __name__)

_Changes = Annotated[dict[Place, Change | None], Meta(max_length=MAX_EDITS)]


@blueprint.get("/datasets/<job_id>/pending-edits.json")
@returns(PendingEdits)
def show(job_id: str) -> Response:
    """Return the pending changes of a dataset's records."""
    return jsonify(_described(pending(find_dataset(job_id))))


@blueprint.post("/datasets/<job_id>/pending-edits.json")
@returns(PendingEdits)
def update(job_id: str) -> Response:
    """Replace the changes of the records in ``changes``, JSON; null restores a record. Return all changes."""
    job = find_dataset(job_id)
    check_owner(job)
    manifest = finished_manifest(job)
    try:
        changes = load(request.form.get("changes", ""), _Changes)
        check_edits(
            pending_edits.as_edits(
                {place: change for place, change in changes.items() if change is not None}
            ),
            manifest,
        )
    except InvalidJson as error:
        raise BadRequest(f"The changes are not valid: {error}.") from error
    except UnusableSource as error:
        raise BadRequest(error.sentences) from error
    try:
        return jsonify(_described(in_thread(pending_edits.update, job.folder, changes)))
    except UnreadableFile as error:
        raise unreadable(job, error) from error


def _described(changes: dict[str, Change]) -> PendingEdits:
    return PendingEdits(changes, pending_edits.as_edits(changes).describe())
