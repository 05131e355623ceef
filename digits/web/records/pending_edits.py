"""Changes of a dataset's records that wait for a new version, shared by all visitors of the dataset."""

from __future__ import annotations

import itertools
import json

from flask import Blueprint, Response

from digits.runtime.offload import each_in_thread
from digits.web.jobs.access import check_owner
from digits.web.records.images import find_dataset, finished_manifest
from digits.web.records.pending import pending, save_changes, sent_changes
from digits.web.resources.pending_edits import PendingEdits
from digits.web.responses.representation import returns

blueprint = Blueprint("pending_edits", __name__)


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
    return save_changes(job, sent_changes(finished_manifest(job)))
