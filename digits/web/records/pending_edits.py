"""Changes of a dataset's records that wait for a new version, shared by all visitors of the dataset."""

from __future__ import annotations

import itertools
import json
from typing import Annotated

import msgspec
from flask import Blueprint, Response, request
from msgspec import Meta

from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile
from digits.data.loose_json import InvalidJson, load
from digits.data.manifest import Manifest
from digits.data.sources.plan import UnusableSource
from digits.kinds.versions import pending_edits
from digits.kinds.versions.pending_edits import Change, Place, TooManyChanges
from digits.kinds.versions.versions import MAX_EDITS, check_edits
from digits.runtime.offload import each_in_thread, in_thread
from digits.web.jobs.access import check_owner
from digits.web.records.images import find_dataset, finished_manifest
from digits.web.records.pending import pending, unreadable
from digits.web.resources.pending_edits import PendingEdits
from digits.web.responses.representation import returns
from digits.web.security.sessions import current_username

blueprint = Blueprint("pending_edits", __name__)

_Changes = Annotated[dict[Place, Change | None], Meta(max_length=MAX_EDITS)]


@blueprint.get("/datasets/<job_id>/pending-edits.json")
@returns(PendingEdits)
def show(job_id: str) -> Response:
    """Return the pending changes of a dataset's records."""
    changes = pending(find_dataset(job_id))
    head = f'{{"words":{json.dumps(changes.words)},"changes":'.encode()
    pieces = itertools.chain([head], changes.pieces(), [b"}\n"])
    return Response(each_in_thread(pieces), mimetype="application/json")


@blueprint.post("/datasets/<job_id>/pending-edits.json")
@returns(PendingEdits)
def update(job_id: str) -> Response:
    """Replace the changes of the records in ``changes``, JSON; null restores a record.

    Return the changes of these records, and all changes in words.
    """
    job = find_dataset(job_id)
    check_owner(job)
    manifest = finished_manifest(job)
    try:
        changes = in_thread(_read, request.form.get("changes", ""), manifest)
    except InvalidJson as error:
        raise BadRequest(f"The changes are not valid: {error}.") from error
    except UnusableSource as error:
        raise BadRequest(error.sentences) from error
    try:
        words = in_thread(pending_edits.update, job.folder, changes, current_username(request) or "").words
    except UnreadableFile as error:
        raise unreadable(job, error) from error
    except ValueError as error:
        raise BadRequest(f"{error}.") from error
    except TooManyChanges as error:
        raise BadRequest(
            f"A dataset can have at most {MAX_EDITS:,} pending changes.", "Create a version with them first."
        ) from error
    saved = {place: change for place, change in changes.items() if change is not None}
    return Response(in_thread(msgspec.json.encode, PendingEdits(saved, words)), mimetype="application/json")


def _read(text: str, manifest: Manifest) -> dict[str, Change | None]:
    """Return the changes in ``text``; raises InvalidJson and UnusableSource."""
    changes: dict[str, Change | None] = load(text, _Changes)
    given = {place: change for place, change in changes.items() if change is not None}
    check_edits(pending_edits.as_edits(given), manifest)
    return changes
