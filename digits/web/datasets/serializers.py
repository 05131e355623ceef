"""Datasets and uploads as resources."""

from __future__ import annotations

from typing import Any

from flask import url_for
from msgspec.structs import asdict

from digits.core.files import UnreadableFile
from digits.core.splits import SPLITS
from digits.core.status import Status
from digits.data.manifest import CHANGES_FILE
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.versions import Change, CreateVersion, read_changes
from digits.kinds.views import views_of
from digits.web.jobs.serializers import failure_message, findings_of, job_url
from digits.web.resources.datasets import (
    CreateDbTask,
    Dataset,
    GenericDbTask,
    Shard,
    VersionOf,
)
from digits.web.resources.encoding import as_json, describe
from digits.web.resources.uploads import UploadState
from digits.web.services import services
from digits.web.services.upload_store import State, Upload

# On the page of a version.
MAX_CHANGES = 100
# Tables listed for an upload.
MAX_TABLES = 20


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
    if job.recipe.frozen is not None:
        body.frozen = job.recipe.frozen
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


def version_of(job: DatasetJob) -> VersionOf | None:
    """Return the parent of a version, and how it differs; None for other datasets."""
    recipe = job.recipe
    if not isinstance(recipe, CreateVersion):
        return None
    parent = services().store.find(recipe.parent_id)
    changes = [recipe.changes] if recipe.changes else []
    if recipe.added:
        changes.append(f"images added to {recipe.added.label}" if recipe.added.label else "images added")
    if recipe.keep < 100:
        changes.append(f"{recipe.keep:g}% of the images kept")
    if recipe.pct_val is not None or recipe.pct_test is not None:
        changes.append("divided into new splits")
    has_changes = job.status is Status.DONE and (job.folder / CHANGES_FILE).is_file()
    return VersionOf(
        id=recipe.parent_id,
        name=parent.name if parent else recipe.parent_name,
        url=job_url(parent) if parent else None,
        changes=", ".join(changes) or "other image size or format",
        changes_url=url_for("jobs.file", path=f"{job.id}/{CHANGES_FILE}") if has_changes else None,
    )


def changes(job: DatasetJob) -> list[Change]:
    """Return the first changed records of a version."""
    try:
        return read_changes(job.folder, MAX_CHANGES) if isinstance(job.recipe, CreateVersion) else []
    except UnreadableFile:
        return []


def describe_upload(upload: Upload) -> UploadState:
    """Return the state of an upload."""
    record, content = upload.record, upload.content
    return describe(
        UploadState,
        record,
        id=upload.id,
        state=upload.state.value,
        offset=upload.offset,
        unpacked=1.0 if record.state is State.READY else round(upload.fraction, 3),
        folder=str(content) if content else None,
        tables=_tables(upload),
        error=upload.problem.message if upload.problem else record.error or None,
        changed=record.at,
        expires=services().uploads.expires_at(upload),
    )


def _tables(upload: Upload) -> list[str]:
    """Return the paths of tables in the folder of an upload."""
    content = upload.content
    if content is None:
        return []
    paths = services().roots.complete(f"{content}/")
    return [path for path in paths if path.lower().endswith((".csv", ".tsv", ".jsonl", ".parquet"))][
        :MAX_TABLES
    ]
