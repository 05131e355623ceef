"""The health of a dataset on its page."""

from __future__ import annotations

import itertools
import math
from typing import Any

from flask import request, url_for
from msgspec.structs import asdict

from digits.core.files import MissingFile, UnreadableFile
from digits.core.model_job import ModelJob
from digits.core.splits import SPLIT_TITLES
from digits.core.status import Status
from digits.core.task import Failure
from digits.data.health import health, label_check
from digits.data.health.health import Finding, Health, Histogram
from digits.data.health.label_check import LabelCheck
from digits.data.manifest import Manifest
from digits.kinds.jobs import DatasetJob, metric_rank
from digits.kinds.views import Views, format_number, views_of
from digits.web.jobs import serializers
from digits.web.offload import in_thread
from digits.web.records.images import RecordImages
from digits.web.resources.tasks import TaskProgress
from digits.web.security.origin import is_opened_by_another_site
from digits.web.services import services
from digits.web.services.background import state_of
from digits.web.services.background_recipes import health_check

# The findings whose images a cleaned version excludes. Others may be intended.
CLEANED = ("exact_duplicates_across_splits", "exact_duplicates", "blank")
# Thumbnails of a finding.
SHOWN_SAMPLES = 8
MAX_TICKS = 5
# Maximum number of models offered for finding wrong labels.
SHOWN_MODELS = 25
# Less accurate models find many labels that are not wrong.
WEAK_ACCURACY = 0.7
# The word, the tone and the icon of each severity.
SEVERITIES = {
    "error": ("Error", "danger", "warning"),
    "warning": ("Warning", "warning", "warning"),
    "info": ("Note", "info", "info"),
}


def panel(job: DatasetJob, manifest: Manifest) -> dict[str, Any]:
    """Return the panel of a dataset's page: the state, the findings and the histograms, with URLs.

    Starts the check if there is no result, unless another site opened the page.
    """
    result, problem = load_health(job, manifest)
    checks = services().background["health"]
    is_new = result is None and not problem and checks.failure(job.id) is None
    if is_new and services().settings.health_checks and not is_opened_by_another_site(request.environ):
        checks.start(job, health_check(job))
    body: dict[str, Any] = asdict(state(job, result, problem))
    labels = load_label_check(job, manifest)
    body["findings"] = [_finding(job, manifest, labels.finding)] if labels and labels.finding.count else []
    body["labels"] = _label_panel(job, labels)
    if result is not None:
        # The page lists skipped images at its top.
        body["findings"] += [
            _finding(job, manifest, finding) for finding in result.findings if finding.id != "skipped"
        ]
        body["histograms"] = [_histogram(job, item) for item in result.histograms if item.counts]
        body["images"] = result.images
        cleaned = [item.id for item in result.findings if item.id in CLEANED and item.removable_count]
        body["clean_url"] = url_for("versions.new", job_id=job.id, clean=cleaned) if cleaned else None
    return body


def state(job: DatasetJob, result: Health | None = None, problem: str = "") -> TaskProgress:
    """Return the state of the check of a dataset."""
    message = f"The result of the check is damaged: {problem}."
    damage = Failure(message, "Check the dataset again.") if problem else None
    return state_of(services().background["health"], job.id, result is not None, damage)


def load_health(job: DatasetJob, manifest: Manifest | None) -> tuple[Health | None, str]:
    """Return the result, or why it is damaged; neither if there is none."""
    if manifest is None:
        return None, ""
    try:
        return in_thread(health.load, job.folder, manifest), ""
    except MissingFile:
        return None, ""
    except UnreadableFile as error:
        return None, str(error)


def load_label_check(job: DatasetJob, manifest: Manifest | None) -> LabelCheck | None:
    """Return the latest result of the label check, or None if it is missing or damaged."""
    if manifest is None:
        return None
    try:
        return label_check.load(job.folder, manifest)
    except UnreadableFile:
        return None


def _label_panel(job: DatasetJob, labels: LabelCheck | None) -> dict[str, Any] | None:
    """Return the latest models that can search for wrong labels, the best one first, and the result.

    None if the kind has no classes.
    """
    if not views_of(job.data_kind).checks_labels:
        return None
    children = services().store.children(job)
    done = (child for child in children if isinstance(child, ModelJob) and child.status is Status.DONE)
    best_first = sorted(
        itertools.islice(done, SHOWN_MODELS), key=lambda model: _rank(model, job), reverse=True
    )
    models = [
        {"id": model.id, "name": model.name, "metric": serializers.metric_words(model)}
        for model in best_first
    ]
    return {
        "models": models,
        "model": labels.model_name if labels else "",
        "count": labels.finding.count if labels else 0,
        "accuracy": labels.accuracy if labels else {},
        "is_weak": labels is not None and min(labels.accuracy.values(), default=1.0) < WEAK_ACCURACY,
        "url": url_for("explore.show", kind=job.data_kind, job_id=job.id, finding=label_check.FINDING),
    }


def _finding(job: DatasetJob, manifest: Manifest, finding: Finding) -> dict[str, Any]:
    views = views_of(job.data_kind)
    explore = url_for("explore.show", kind=job.data_kind, job_id=job.id)
    url = f"{explore}&finding={finding.id}" if finding.records else None
    severity, tone, icon = SEVERITIES[finding.severity]
    return {
        **asdict(finding),
        "severity": severity,
        "tone": tone,
        "icon": icon,
        "percent": 100 * finding.fraction,
        "noun": _noun(views, finding),
        "samples": _samples(job, manifest, finding) if views.shows_images else [],
        "url": url,
        "clean_url": url_for("versions.new", job_id=job.id, clean=finding.id)
        if finding.removable_count
        else None,
        "groups": [
            {"name": group.name, "count": group.count, "url": f"{explore}&label={group.index}"}
            for group in finding.groups
        ],
    }


def _rank(model: ModelJob, dataset: DatasetJob) -> tuple[bool, float]:
    return metric_rank(model, dataset) or (False, -math.inf)


def _noun(views: Views[Any], finding: Finding) -> str:
    """Return the word for what a finding counts."""
    if finding.groups and not finding.records:
        return views.group if finding.count == 1 else views.groups
    return views.record if finding.count == 1 else views.records


def _samples(job: DatasetJob, manifest: Manifest, finding: Finding) -> list[dict[str, str]]:
    """Return the first images of a finding, for its thumbnails."""
    images = RecordImages(job, manifest)
    return [
        {
            "url": images.url(split, number),
            "thumbnail": images.thumbnail(split, number),
            "words": f"{SPLIT_TITLES[split]} image {number + 1:,}",
        }
        for split, number in finding.records[:SHOWN_SAMPLES]
    ]


def _histogram(job: DatasetJob, item: Histogram) -> dict[str, Any]:
    explore = url_for("explore.show", kind=job.data_kind, job_id=job.id)
    bins = []
    for index, count in enumerate(item.counts):
        low, high = item.edges[index], item.edges[index + 1]
        # The first and the last bin also contain all that is beyond them.
        limits = f"{low if index else ''}:{high if index + 1 < len(item.counts) else ''}"
        bins.append(
            {
                "range": f"{format_number(low)}–{format_number(high)}",
                "count": count,
                "percent": 100 * count / max(item.counts) if any(item.counts) else 0,
                "url": f"{explore}&{item.filter}={limits}" if item.filter and count else None,
            }
        )
    views = views_of(job.data_kind)
    body = {"title": item.title, "unit": item.unit, "words": views.records}
    if not item.filter:
        body |= {"title": f"Training {views.records} per {views.group}", "words": views.groups}
    if item.edges[0] == item.edges[-1]:
        return {**body, "value": format_number(item.edges[0])}
    return {**body, "bins": bins, "ticks": _ticks(item.edges)}


def _ticks(edges: list[float]) -> list[tuple[float, str]]:
    """Return the places, in percent of the axis, and the texts of at most `MAX_TICKS` edges at equal distances."""
    last = len(edges) - 1
    step = math.ceil(last / (MAX_TICKS - 1))
    return [(100 * index / last, format_number(edges[index])) for index in range(0, last + 1, step)]
