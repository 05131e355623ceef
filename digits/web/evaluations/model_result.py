"""The result of a finished training for its page: how good the model is, where it fails, and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import url_for

from digits.core.metrics.series import Series
from digits.core.model_job import ModelJob
from digits.core.snapshot_list import Snapshot
from digits.core.splits import SPLIT_TITLES
from digits.core.status import Status
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.evaluation import Evaluation
from digits.data.sources.plan import count_of
from digits.kinds.advice.verdict import ClassScore, Outcome, Verdict, judge
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import of_model
from digits.kinds.views import Views
from digits.runtime.offload import in_thread
from digits.web.evaluations.choices import records_url
from digits.web.evaluations.parts import EvaluatedRecords, interval_words
from digits.web.jobs import serializers
from digits.web.models import continuing
from digits.web.models.network_settings import recommended
from digits.web.records.confusion import Confusion, confusion
from digits.web.records.images import shown_size
from digits.web.services import services

MISTAKES = 6
# Larger ones are only on the page of the evaluation.
MAX_CLASSES = 12
MAX_DRAWN_RECORDS = 100_000
# The last part of a training, over which the metric of single batches is averaged.
_LAST_PART = 0.1
_WORDS = {"recall": "recall", "f1": "F1", "iou": "IoU", "ap": "AP"}


@dataclass(frozen=True)
class Result:
    """The ``verdict`` on a model, from the ``outcome`` of its best snapshot, and the ``evaluation`` that measured it.

    Without an evaluation, the training's own validation did. ``manifest`` is that of the dataset ``data``.
    """

    data: DatasetJob
    manifest: Manifest
    outcome: Outcome
    verdict: Verdict
    snapshot: Snapshot
    split: str
    evaluation: Evaluation | None


@dataclass(frozen=True)
class Remedy:
    """What to do about a result: open the ``url``, or post ``fields`` to it; a ``hint``, and another ``label``."""

    url: str
    hint: str = ""
    label: str = ""
    fields: Mapping[str, float] = field(default_factory=dict)


def result_of(job: ModelJob) -> Result | None:
    """Return the result of a training that is done; None if nothing measures it. Reads files."""
    data = serializers.data_of(job)
    if job.status is not Status.DONE or not isinstance(data, DatasetJob):
        return None
    manifest, snapshot = data.manifest(), services().snapshots_of(job).default
    state = services().scheduler.task_state(job, job.tasks[0])
    if manifest is None or snapshot is None or state.latent:
        return None
    kind, views = serializers.kind_of(job), serializers.job_views(job)
    evaluated = in_thread(_evaluation, job, snapshot, manifest)
    metrics = evaluated.metrics if evaluated else snapshot.metrics
    split = evaluated.split if evaluated else "val"
    value = metrics.get(kind.metric)
    if value is None or not math.isfinite(value) or split not in manifest.splits:
        return None
    metric, records = views.metric(kind.metric), manifest.splits[split].count
    interval = evaluated.intervals.get(kind.metric) if evaluated else None
    measured, recalled = state.metrics, (state.result or {}).get("recalled")
    losses = _finite(measured.val, "loss")
    outcome = Outcome(
        metric=metric,
        value=value,
        records=records,
        training_records=manifest.splits["train"].count,
        noun=views.record,
        interval=(interval.low, interval.high) if interval else None,
        baseline=views.baseline(manifest, split),
        trained=_end(_finite(measured.train, kind.metric)),
        recalled=recalled.get(kind.metric) if isinstance(recalled, dict) else None,
        history=_finite(measured.val, kind.metric),
        losses=losses,
        training_loss=_end(_finite(measured.train, "loss")),
        weakest=_weakest(evaluated, manifest, views),
        suspects=evaluated.details.get("suspects", 0) if evaluated else 0,
    )
    return Result(data, manifest, outcome, judge(outcome), snapshot, split, evaluated)


def words_of(result: Result, views: Views[Any]) -> str:
    """Return a result in a few sentences."""
    outcome, verdict = result.outcome, result.verdict
    records = count_of(outcome.records, f"{SPLIT_TITLES[result.split].lower()} {outcome.noun}")
    metric = f"{outcome.metric.title} {outcome.metric.format(outcome.value)} on {records}"
    if result.evaluation and (interval := interval_words(result.evaluation, outcome.metric.name, views)):
        metric += f" (95% interval {interval})"
    return " ".join(f"{words.rstrip('.')}." for words in (verdict.title, metric, verdict.reason) if words)


@dataclass(frozen=True)
class Panel:
    """What the page shows of a ``result`` of the training of a model, and the ``remedy`` of its problem.

    ``scores`` are the lowest ones of classes, ``review`` is the URL of the evaluated records, and ``worst`` are the
    mistakes with the largest errors. ``matrix`` and ``points`` are left out if they are too large.
    """

    result: Result
    remedy: Remedy
    names: Sequence[str] = ()
    scores: Sequence[tuple[float, str, int]] = ()
    review: str = ""
    worst: Sequence[dict[str, Any]] = ()
    matrix: Confusion | None = None
    points: Sequence[Sequence[tuple[float, float]]] = ()
    size: tuple[int, int] = (1, 1)


def panel(job: ModelJob) -> Panel | None:
    """Return what the page shows of the result of a model; None if there is none."""
    result = result_of(job)
    if result is None:
        return None
    data, manifest, evaluated = result.data, result.manifest, result.evaluation
    if evaluated is None:
        return Panel(result, _remedy(job, result, ""))
    review = records_url(job, evaluated, data.data_kind, data.id)
    names, records = evaluated.names(manifest.target.names), EvaluatedRecords(job, evaluated)
    is_drawn = len(names) <= MAX_CLASSES and evaluated.records <= MAX_DRAWN_RECORDS
    matrix = in_thread(records.matrix) if is_drawn else None
    return Panel(
        result,
        _remedy(job, result, review),
        names,
        _scores(evaluated, manifest, serializers.job_views(job))[:MAX_CLASSES],
        review,
        records.worst(data, manifest, MISTAKES),
        None if matrix is None else confusion(matrix, names, explore=review),
        in_thread(records.points) if is_drawn else (),
        shown_size(data, manifest),
    )


def _evaluation(job: ModelJob, snapshot: Snapshot, manifest: Manifest) -> Evaluation | None:
    """Return the evaluation of ``snapshot`` on the test split of its dataset, else on the validation split."""
    complete = {
        item.split: item
        for item in evaluations.load_all(job.folder)
        if (item.snapshot, item.content_hash) == (snapshot.name, manifest.content_hash)
        and not item.is_partial
    }
    return complete.get("test") or complete.get("val")


def _finite(series: Series, metric: str) -> list[float]:
    return [value for value in series.values.get(metric, []) if value is not None]


def _end(values: Sequence[float]) -> float | None:
    """Return the mean of the last part of ``values``, None without values."""
    last = values[-max(1, round(_LAST_PART * len(values))) :]
    return sum(last) / len(last) if last else None


def _scores(
    evaluated: Evaluation | None, manifest: Manifest, views: Views[Any]
) -> list[tuple[float, str, int]]:
    """Return the score, the name and the number of records of each class that occurs, the lowest score first."""
    if evaluated is None:
        return []
    names = evaluated.names(manifest.target.names)
    scores = [
        (item[views.class_score], name, item["support"])
        for name, item in zip(names, evaluated.details.get("classes", []), strict=False)
        if item.get("support") and item.get(views.class_score) is not None
    ]
    return sorted(scores, key=lambda item: item[0])


def _weakest(evaluated: Evaluation | None, manifest: Manifest, views: Views[Any]) -> ClassScore | None:
    scores = _scores(evaluated, manifest, views)
    if len(scores) < 2:
        return None
    score, name, support = scores[0]
    mean = sum(item[0] for item in scores) / len(scores)
    return ClassScore(name, score, mean, _WORDS[views.class_score], support)


def _remedy(job: ModelJob, result: Result, review: str) -> Remedy:
    data, action = result.data, result.verdict.action
    clone, kind = url_for("jobs.clone", job_id=job.id), serializers.kind_of(job)
    if action == "use":
        return Remedy("#try")
    if action == "fix_labels":
        return Remedy(f"{review}&wrong=suspect", "The most certain ones come first.")
    if action == "train_longer":
        if not (more := continuing.more_epochs(job)):
            return Remedy(clone, "Clone it with more epochs.")
        hint = f"“{job.name}” continues where it ended, with all of its settings."
        label = f"Train {count_of(more, 'more epoch')}"
        return Remedy(url_for("models.resume", job_id=job.id), hint, label, {"more_epochs": more})
    if action == "more_images" and (labels := serializers.labels_of(data)) and labels.url:
        return Remedy(labels.url, "Then train again.", "Label more images")
    if action == "more_images" and data.takes_images:
        name = result.outcome.class_to_extend
        lacking: dict[str, Any] = {"class": name} if name else {}
        url = url_for("versions.add", job_id=data.id, **lacking)
        return Remedy(url, "They become the next version of the dataset.")
    if action == "more_images":
        hint = f"Add them where those of “{data.name}” are, then create the dataset again."
        return Remedy(url_for("datasets.new", kind=data.data_kind, clone=data.id), hint)
    if action == "fix_network":
        return Remedy(clone, "Clone it, edit its text, and check it before the training.")
    url = url_for("model_form.new", kind=kind, dataset=data.id)
    recommendation, used = recommended(data), of_model(job)
    if recommendation and used and used.id == recommendation.network:
        return Remedy(url, label="Train with the recommended settings")
    return Remedy(url, recommendation.reason if recommendation else "")
