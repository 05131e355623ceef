"""The contents of the archives of models."""

from __future__ import annotations

from typing import Any

from digits.core import pretrained_files, snapshot_list
from digits.core.files import exists
from digits.core.model_job import NETWORK_FILE, ModelJob
from digits.core.snapshot_list import Snapshot
from digits.data import manifest as manifests
from digits.data.archives.writing import Source
from digits.web.models import serializers as model_serializers
from digits.web.resources.encoding import as_json
from digits.web.services import services


def archive_of(job: ModelJob, snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Source]]:
    """Return the contents of `INFO_FILE`, and the other files of an archive by their names, which may be missing."""
    pretrained = pretrained_files.names_in(job.folder)
    described = {
        **as_json(model_serializers.brief_model(job)),
        "snapshot file": snapshot.name,
        "pretrained files": pretrained,
    }
    own = [NETWORK_FILE, *(f"{snapshot.name}{suffix}" for suffix in snapshot_list.SUFFIXES), *pretrained]
    files = {name: (job.folder / name, job.folder) for name in own}
    if dataset := services().store.find(job.dataset_id):
        for shared in (manifests.LABELS_FILE, manifests.MEAN_ARRAY_FILE, manifests.FILE_NAME):
            files[shared] = dataset.folder / shared, dataset.folder
    labels, below = files.get(manifests.LABELS_FILE, (job.folder / manifests.LABELS_FILE, job.folder))
    if not exists(labels, below=below):
        described["labels file"] = None
    return described, files
