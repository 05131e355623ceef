"""The page of a dataset, which shows panels of all features."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, request, url_for

from digits.core.files import UnreadableFile
from digits.core.task import Failure
from digits.data.manifest import SKIPPED_FILE, Manifest, SplitRecords
from digits.data.records.index import IndexCache
from digits.data.records.search import Place
from digits.kinds.forms.dataset import RESIZE_TITLES
from digits.kinds.jobs import DatasetJob
from digits.kinds.labeling.forms import FORMS
from digits.kinds.versions.export import formats_of
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.datasets import serializers as dataset_serializers
from digits.web.jobs import serializers
from digits.web.jobs.activities import panels_of
from digits.web.jobs.query import Page, page_of
from digits.web.records.gallery import gallery_items
from digits.web.records.images import RecordImages, find_dataset, shown_size
from digits.web.records.pending import pending_words
from digits.web.responses.representation import render_in_turns
from digits.web.services import services

blueprint = Blueprint("dataset_page", __name__)

SAMPLES_PER_GROUP = 5
SHOWN_GROUPS = 12
# With at most this many groups, all are shown.
MOST_GROUPS = 16
# With at most this many groups, each shows more samples, in two rows.
FEW_GROUPS = 4
SAMPLES_OF_FEW_GROUPS = 10
UNGROUPED_SAMPLES = 8
SHOWN_MODELS = 25


@blueprint.get("/datasets/<job_id>")
def show(job_id: str) -> str:
    job = find_dataset(job_id)
    state = services().scheduler.task_state(job, job.tasks[0])
    page, manifest = serializers.page(job), serializers.contents_of(job)
    samples: list[dict[str, Any]] = []
    models = Page.of(services().store.children(job), page_of(request.args, "models_page"), SHOWN_MODELS)
    if manifest is not None and views_of(job.data_kind).shows_images:
        try:
            samples = _samples(job, manifest)
        except UnreadableFile as error:
            damage = Failure(
                f"The records of this dataset are damaged: {error}.", "Clone it to create it again."
            )
            page["failure"] = page["failure"] or damage
    return render_in_turns(
        "dataset.html",
        **page,
        kind=job.data_kind,
        views=views_of(job.data_kind),
        manifest=manifest,
        version_of=dataset_serializers.version_of(job),
        labels_of=serializers.labels_of(job),
        can_be_labeled=manifest is not None
        and job.recipe.kind in FORMS
        and not (job.parent_id or job.recipe.frozen),
        notes=job.recipe.notes,
        resize_titles=RESIZE_TITLES,
        samples=samples,
        size=shown_size(job, manifest) if manifest is not None else None,
        legend=manifest.target.legend() if manifest is not None and len(manifest.target.names) > 1 else [],
        state=state,
        pending=pending_words(job) if manifest is not None else "",
        skipped_file=SKIPPED_FILE if (job.folder / SKIPPED_FILE).is_file() else "",
        changes=dataset_serializers.changes(job) if manifest is not None else [],
        downloads=formats_of(job.data_kind) if manifest is not None else {},
        panels=panels_of(job) if manifest is not None else [],
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
    # Images that contain several classes are not grouped.
    names = [] if manifest.lists_classes else manifest.groups
    if len(names) > MOST_GROUPS:
        names = names[:SHOWN_GROUPS]
    if names:
        per_group = SAMPLES_OF_FEW_GROUPS if len(names) <= FEW_GROUPS else SAMPLES_PER_GROUP
    else:
        per_group = UNGROUPED_SAMPLES
    members = in_thread(_first_members, job, split, len(names), per_group, services().record_indexes)
    places = [Place("train", number) for numbers in members for number in numbers]
    items = iter(gallery_items(job, manifest, RecordImages(job, manifest), places, decodes=False))
    return [
        {"label": name, "index": group if names else None, "items": [next(items) for _ in numbers]}
        for group, (name, numbers) in enumerate(zip(names or [""], members, strict=True))
    ]


def _first_members(
    job: DatasetJob, split: SplitRecords, groups: int, count: int, indexes: IndexCache
) -> list[list[int]]:
    """Return the numbers of the first ``count`` records of each group, or of all records without ``groups``."""
    if not groups:
        return [list(range(min(count, split.count)))]
    index = indexes.get(job.folder, split)
    return [index.members(group)[:count].tolist() for group in range(groups)]
