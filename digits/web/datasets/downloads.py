"""Downloads of datasets: archives of their records, and statistics."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Blueprint, Response, jsonify, request

from digits.core.errors import BadRequest, NotFound
from digits.core.files import UnreadableFile
from digits.data.archives.writing import stream
from digits.data.manifest import Manifest
from digits.data.statistics import summarize
from digits.kinds.forms.request_fields import choice
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.export import Export, formats_of
from digits.runtime.offload import in_thread
from digits.web.jobs.serializers import contents_of
from digits.web.resources.datasets import DatasetStatistics
from digits.web.resources.encoding import describe
from digits.web.responses.files import archive_response, check_ending
from digits.web.responses.representation import returns
from digits.web.security.origin import not_from_other_sites
from digits.web.services import services

blueprint = Blueprint("downloads", __name__)


@blueprint.get("/datasets/<job_id>/download.<ending>")
@not_from_other_sites
def download(job_id: str, ending: str) -> Response:
    """Stream an archive of the dataset in the format ``format``, by default the first one of its kind."""
    job, manifest = _finished(job_id)
    check_ending(ending)
    formats = formats_of(job.data_kind)
    name = choice(request.args, "format", next(iter(formats)), formats)
    export = formats[name](job.folder, manifest, services().record_indexes)
    response = archive_response(f"{job.id}_{name}", ending, _pieces(ending, export))
    response.call_on_close(export.close)
    return response


def _pieces(ending: str, export: Export) -> Iterator[bytes]:
    yield from stream(ending, export.entries())


@blueprint.get("/datasets/<job_id>/statistics.json")
@returns(DatasetStatistics)
def statistics(job_id: str) -> Response:
    """Return counts per split and class, and if the dataset was checked, its image statistics and findings."""
    job, manifest = _finished(job_id)
    counts = services().scheduler.task_state(job, job.tasks[0]).counts
    named: dict[str, dict[str, int]] = {
        split: dict(zip(classes["labels"], classes["counts"], strict=False))
        for split, classes in counts.items()
    }
    try:
        body = in_thread(summarize, job.folder, manifest, named)
    except UnreadableFile as error:
        raise NotFound("The statistics cannot be read.", f"{error}. Check the dataset again.") from error
    return jsonify(describe(DatasetStatistics, body, id=job.id, name=job.name, kind=job.data_kind.name))


def _finished(job_id: str) -> tuple[DatasetJob, Manifest]:
    job = services().store.get(job_id, DatasetJob)
    manifest = contents_of(job)
    if manifest is None:
        raise BadRequest(f"“{job.name}” has no records to download because it is not done or is damaged.")
    return job, manifest
