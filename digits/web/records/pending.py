"""The pending changes of a dataset's records, for all views that show or change them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from flask import Response, request
from msgspec import Meta

from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile
from digits.data.loose_json import InvalidJson, load
from digits.data.manifest import Manifest
from digits.data.sources.plan import UnusableSource
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions import pending_edits
from digits.kinds.versions.pending_edits import Change, Pending, Place, TooManyChanges
from digits.kinds.versions.versions import MAX_EDITS, check_edits
from digits.runtime.offload import in_thread
from digits.web.resources.pending_edits import PendingEdits
from digits.web.security.sessions import current_username

Changes = dict[str, Change | None]
_Changes = Annotated[dict[Place, Change | None], Meta(max_length=MAX_EDITS)]


def pending(job: DatasetJob) -> Pending:
    """Return the pending changes of a dataset's records; raises BadRequest if they cannot be read."""
    try:
        return in_thread(pending_edits.load, job.folder)
    except UnreadableFile as error:
        raise unreadable(job, error) from error


def pending_words(job: DatasetJob) -> str:
    """Return the pending changes in words, or why they cannot be read; empty without changes."""
    try:
        changes = pending(job).words
    except BadRequest as error:
        return str(error)
    return f"{changes}, not yet in a version." if changes else ""


def unreadable(job: DatasetJob, error: UnreadableFile) -> BadRequest:
    """Return the error of a request for a dataset whose pending changes cannot be read."""
    return BadRequest(
        f"The pending changes of “{job.name}” cannot be read: {error}.",
        f"Repair or remove this line of {pending_edits.PENDING_FILE} in its folder: the other lines are the other "
        "changes.",
    )


def sent_changes(manifest: Manifest) -> Changes:
    """Return the changes of the records in a request, ``changes``, JSON; None restores one. Raises BadRequest."""
    try:
        return in_thread(_read, request.form.get("changes", ""), manifest)
    except InvalidJson as error:
        raise BadRequest(f"The changes are not valid: {error}.") from error
    except UnusableSource as error:
        raise BadRequest(error.sentences) from error


def _read(text: str, manifest: Manifest) -> Changes:
    changes: Changes = load(text, _Changes)
    given = {place: change for place, change in changes.items() if change is not None}
    check_edits(pending_edits.as_edits(given), manifest)
    return changes


def save_changes(job: DatasetJob, changes: Changes) -> Response:
    """Save changes, and return those of these records with all changes in words; raises BadRequest."""
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
