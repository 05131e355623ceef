"""The JSON of a dataset, with the keys of DIGITS 6 for its tasks."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify
from msgspec.structs import asdict

from digits.core.splits import SPLITS
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.versions import CreateVersion
from digits.kinds.views import views_of
from digits.web.datasets.serializers import version_of
from digits.web.jobs.serializers import failure_message, findings_of
from digits.web.records.images import find_dataset
from digits.web.resources.datasets import CreateDbTask, Dataset, GenericDbTask, Shard
from digits.web.resources.encoding import as_json
from digits.web.responses.representation import returns

blueprint = Blueprint("digits6_datasets", __name__)


@blueprint.get("/datasets/<job_id>.json")
@returns(Dataset)
def show(job_id: str) -> Response:
    return jsonify(dataset_json(find_dataset(job_id)))


def dataset_json(job: DatasetJob) -> dict[str, Any]:
    """Return the JSON of a dataset: a `Dataset`, and the keys of its kind."""
    manifest = job.manifest()
    body = Dataset(
        job.id,
        job.name,
        job.status.title,
        str(job.folder),
        error=failure_message(job),
        notes=job.recipe.notes,
        **asdict(findings_of(job)),
    )
    if job.failure is not None:
        body.hint = job.failure.hint
    if manifest is None:
        return as_json(body)
    views = views_of(job.data_kind)
    separate = {} if isinstance(job.recipe, CreateVersion) else views.separate_sources(job.recipe, manifest)
    body.ParseFolderTasks = [
        {
            "name": f"Parse Folder ({'/'.join(read)})",
            **fields,
            **{f"{name}_count": manifest.splits[name].count if name in read else 0 for name in SPLITS},
        }
        for read, fields in (
            ([name for name in manifest.splits if name not in separate], views.parse_task(manifest)),
            *(([name], fields) for name, fields in separate.items()),
        )
    ]
    for name, split in manifest.splits.items():
        title = f"Create DB ({name})"
        body.CreateDbTasks.append(
            CreateDbTask(
                title, split.count, manifest.width, manifest.height, manifest.channels, manifest.encoding
            )
        )
        body.create_db_tasks.append(
            GenericDbTask(title, f"{name}_db", split.count, next(iter(split.shards), None))
        )
    body.feature_dims, body.mean_pixel = list(manifest.shape), manifest.mean_pixel
    body.skipped, body.version_of = manifest.skipped, version_of(job)
    body.content_hash = manifest.content_hash
    body.shards = [
        Shard(shard, digest)
        for split in manifest.splits.values()
        for shard, digest in zip(split.shards, split.hashes, strict=False)
    ]
    return {**as_json(body), **views.dataset_json(manifest)}
