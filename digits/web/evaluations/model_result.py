"""The result of a finished training for its page: how good the model is, where it fails, and what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import url_for

from digits.core.metrics.series import Series
from digits.core.model_job import ModelJob, epoch_label
from digits.core.snapshot_list import Snapshot
from digits.core.splits import SPLIT_TITLES
from digits.core.status import Status
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.evaluation import Evaluation
from digits.data.sources.plan import count_of
from digits.kinds.advice.verdict import Action, ClassScore, Outcome, Verdict, judge
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import of_model
from digits.kinds.views import Views
from digits.web.evaluations import charts
from digits.web.evaluations.panel import records_url
from digits.web.evaluations.parts import interval_words, load_matrix, load_points, shown_matrix, worst_records
from digits.web.jobs import serializers
from digits.web.models import continuing
from digits.web.models.network_settings import recommended
from digits.web.offload import in_thread
from digits.web.records.images import shown_size
from digits.web.services import services

MISTAKES = 6
MAX_OTHERS = 2
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


def panel(job: ModelJob) -> dict[str, Any] | None:
    """Return what the page shows of the result of a model; None if there is none."""
    result = result_of(job)
    if result is None:
        return None
    data, manifest = result.data, result.manifest
    outcome, evaluated, views = result.outcome, result.evaluation, serializers.job_views(job)
    interval = evaluated.intervals.get(outcome.metric.name) if evaluated else None
    review = records_url(job, evaluated, data.data_kind, data.id) if evaluated else ""
    return {
        "verdict": result.verdict,
        "title": outcome.metric.title,
        "value": outcome.metric.format(outcome.value),
        "interval": interval_words(evaluated, outcome.metric.name, views) if evaluated else "",
        "method": interval.method if interval else "",
        "records": count_of(outcome.records, f"{SPLIT_TITLES[result.split].lower()} {views.record}"),
        "others": _other_values(result, views),
        "action": _action(job, data, result.verdict.action, review),
        "classes": _classes(evaluated, manifest, views),
        "class_word": _WORDS[views.class_score],
        **(in_thread(_drawings, job, evaluated, manifest, review, views.record) if evaluated else {}),
        "worst": worst_records(job, evaluated, data, manifest, MISTAKES) if evaluated else [],
        "size": shown_size(data, manifest),
        "evaluation_url": url_for("evaluation.show", job_id=job.id, name=evaluated.name) if evaluated else "",
        "review_url": f"{review}&wrong=1" if evaluated and evaluated.details.get("calibration") else review,
    }


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


def _scores(evaluated: Evaluation | None, manifest: Manifest, views: Views[Any]) -> list[tuple[str, float]]:
    """Return the names and scores of the classes that occur."""
    if evaluated is None:
        return []
    names = evaluated.names(manifest.target.names)
    return [
        (name, item[views.class_score])
        for name, item in zip(names, evaluated.details.get("classes", []), strict=False)
        if item.get("support") and item.get(views.class_score) is not None
    ]


def _weakest(evaluated: Evaluation | None, manifest: Manifest, views: Views[Any]) -> ClassScore | None:
    scores = _scores(evaluated, manifest, views)
    if len(scores) < 2:
        return None
    name, score = min(scores, key=lambda item: item[1])
    mean = sum(score for _, score in scores) / len(scores)
    return ClassScore(name, score, mean, _WORDS[views.class_score])


def _classes(evaluated: Evaluation | None, manifest: Manifest, views: Views[Any]) -> list[dict[str, Any]]:
    """Return the classes with the lowest scores, for bars."""
    scores = sorted(_scores(evaluated, manifest, views), key=lambda item: item[1])
    return [
        {"name": name, "percent": round(100 * score, 1), "words": f"{100 * score:.1f}%"}
        for name, score in scores[:MAX_CLASSES]
    ]


def _drawings(
    job: ModelJob, evaluated: Evaluation, manifest: Manifest, review: str, record: str
) -> dict[str, Any]:
    """Return the ``matrix`` of a classifier or the ``plot`` of a number if it is not too large; reads files."""
    names = evaluated.names(manifest.target.names)
    if len(names) > MAX_CLASSES or evaluated.records > MAX_DRAWN_RECORDS:
        return {}
    if points := load_points(job, evaluated, manifest):
        return {"plot": charts.scatters(points[:1], names[:1], record)[0]}
    matrix = load_matrix(job, evaluated)
    return {} if matrix is None else {"matrix": shown_matrix(matrix, names, {}, review)}


def _other_values(result: Result, views: Views[Any]) -> list[tuple[str, str]]:
    """Return the metric on other records, other metrics on the same ones, and the epoch."""
    outcome, metrics = result.outcome, result.evaluation.metrics if result.evaluation else {}
    values = {"Training": outcome.trained}
    if result.split != "val":
        values["Validation"] = result.snapshot.metrics.get(outcome.metric.name)
    others = [item for item in views.metrics if item is not outcome.metric and item.name in metrics]
    return [
        *((title, outcome.metric.format(value)) for title, value in values.items() if value is not None),
        *((item.title, item.format(metrics[item.name])) for item in others[:MAX_OTHERS]),
        ("Epoch", epoch_label(result.snapshot.epoch)),
    ]


def _action(job: ModelJob, data: DatasetJob, action: Action, review: str) -> dict[str, str]:
    """Return the ``url`` of an action, or the ``dialog`` that it opens, a ``hint``, and perhaps another ``label``."""
    kind = serializers.kind_of(job)
    if action == "use":
        return {"url": "#classify-panel", "hint": ""}
    if action == "fix_labels":
        return {"url": f"{review}&wrong=1", "hint": "The most certain ones come first."}
    if action == "train_longer":
        if continuing.can_continue(job):
            return {"dialog": "continue-dialog", "hint": ""}
        return {"url": url_for("jobs.clone", job_id=job.id), "hint": "Clone it with more epochs."}
    if action == "more_images":
        return {
            "url": url_for("datasets.new", kind=data.data_kind, clone=data.id),
            "hint": f"Add them where those of “{data.name}” are, then create the dataset again.",
        }
    if action == "fix_network":
        return {
            "url": url_for("jobs.clone", job_id=job.id),
            "hint": "Clone it, edit its text, and check it before the training.",
        }
    return {"url": url_for("model_form.new", kind=kind, dataset=data.id), **_recommended(job, data)}


def _recommended(job: ModelJob, data: DatasetJob) -> dict[str, str]:
    """Return why the form recommends another network, or a ``label`` if it recommends other settings of this one."""
    recommendation, used = recommended(data), of_model(job)
    if recommendation is None:
        return {"hint": ""}
    if used is None or used.id != recommendation.network:
        return {"hint": recommendation.reason}
    return {"label": "Train with the recommended settings", "hint": ""}
