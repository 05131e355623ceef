"""The pending changes of a dataset's records, for all pages that show them."""

from __future__ import annotations

from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions import pending_edits
from digits.kinds.versions.pending_edits import Pending
from digits.runtime.offload import in_thread


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
