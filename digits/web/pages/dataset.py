"""The page of a dataset, which shows panels of all features."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import Blueprint, request, url_for

from digits.core.files import UnreadableFile
from digits.core.task import Failure
from digits.data.manifest import Manifest, SplitRecords
from digits.data.record_index import IndexCache
from digits.data.records import SplitReader
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import views_of
from digits.web.datasets import health_panel
from digits.web.datasets import serializers as dataset_serializers
from digits.web.jobs import serializers
from digits.web.jobs.query import Page, page_of
from digits.web.offload import in_thread
from digits.web.records import download_formats
from digits.web.records.images import RecordImages, find_dataset
from digits.web.responses.pages import render_in_turns
from digits.web.services import services

blueprint = Blueprint("dataset_page", __name__)

SAMPLES_PER_GROUP = 8
SHOWN_GROUPS = 100
SHOWN_MODELS = 25


@blueprint.get("/datasets/<job_id>")
def show(job_id: str) -> str:
    job = find_dataset(job_id)
    state = services().scheduler.task_state(job, job.tasks[0])
    page, body = serializers.page(job), dataset_serializers.dataset_contents(job)
    manifest = job.manifest()
    samples: list[dict[str, Any]] = []
    models = Page.of(services().store.children(job), page_of(request.args, "models_page"), SHOWN_MODELS)
    if body is not None and manifest is not None and views_of(job.data_kind).shows_images:
        try:
            samples = _samples(job, manifest)
        except UnreadableFile as error:
            damage = Failure(
                f"The records of this dataset are damaged: {error}.", "Clone it to create it again."
            )
            page.failure = page.failure or damage
    return render_in_turns(
        "dataset.html",
        job=page,
        kind=job.data_kind,
        views=views_of(job.data_kind),
        dataset=body,
        samples=samples,
        counts=state.counts,
        skipped=dataset_serializers.skipped(job),
        changes=dataset_serializers.changes(job),
        downloads=download_formats.offered(job) if body is not None else [],
        health=health_panel.panel(job, manifest) if body is not None and manifest is not None else None,
        models=serializers.rows(models.items),
        models_page=models,
        models_address=lambda number: url_for(
            "dataset_page.show", job_id=job_id, models_page=number, _anchor="children-title"
        ),
    )


def _samples(job: DatasetJob, manifest: Manifest) -> list[dict[str, Any]]:
    """Return a few training images of each group, or of all images without groups; raises UnreadableFile."""
    split = manifest.splits.get("train")
    if split is None or not split.count:
        return []
    drawn = RecordImages(job, manifest)
    return in_thread(_read_samples, job, manifest, split, drawn, services().record_indexes)


def _read_samples(
    job: DatasetJob, manifest: Manifest, split: SplitRecords, drawn: RecordImages, indexes: IndexCache
) -> list[dict[str, Any]]:
    index = indexes.get(job.folder, split)
    groups: list[tuple[str, int | None, Any]] = [
        (label, group, index.members(group)) for group, label in enumerate(manifest.groups[:SHOWN_GROUPS])
    ]
    with SplitReader(job.folder, split, index) as reader:
        return [
            {
                "label": label,
                "index": group,
                "items": [
                    {
                        "thumbnail": drawn.thumbnail("train", number),
                        **drawn.drawings("train", number, partial(reader.read, number)),
                    }
                    for number in map(int, members[:SAMPLES_PER_GROUP])
                ],
            }
            for label, group, members in groups or [("", None, range(split.count))]
        ]
