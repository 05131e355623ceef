"""Which of several models is best on the same records, and which others are not distinguishable from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from digits.core.model_job import ModelJob
from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.models import evaluation as evaluations
from digits.data.models.comparison import SIGNIFICANT, holm
from digits.data.models.evaluation import Evaluation
from digits.data.sources.plan import count_of
from digits.kinds.forms.summary import joined
from digits.runtime.offload import in_thread
from digits.web.evaluations.compared_pair import decision_of
from digits.web.jobs import serializers
from digits.web.resources.evaluations import ComparedBest, ComparedRival
from digits.web.services import services


class _Measured(NamedTuple):
    job: ModelJob
    evaluation: Evaluation
    value: float


def best_of(jobs: Sequence[ModelJob]) -> ComparedBest | None:
    """Return the best of at least three ``jobs`` by its metric on the same records; None if fewer were evaluated."""
    measured = in_thread(_on_the_same_records, [(job, serializers.kind_of(job).metric) for job in jobs])
    if len(measured) < 3:
        return None
    kind = serializers.kind_of(measured[0].job)
    sign = -1 if kind.lower_is_better(kind.metric) else 1
    best, *others = sorted(measured, key=lambda each: -sign * each.value)
    decisions = [decision_of(each.job, best.job, (each.evaluation, best.evaluation)) for each in others]
    p_values = holm([decision.p_value if decision else 1.0 for decision in decisions])
    rivals = [
        ComparedRival(
            each.job.id,
            each.evaluation.name,
            each.value,
            p_value,
            decision is not None and decision.is_certain and decision.better == 1 and p_value < SIGNIFICANT,
        )
        for each, decision, p_value in zip(others, decisions, p_values, strict=True)
    ]
    chosen = {each.job.id for each in measured}
    return ComparedBest(
        model=best.job.id,
        evaluation=best.evaluation.name,
        dataset=best.evaluation.dataset_id,
        split=best.evaluation.split,
        records=best.evaluation.records,
        metric=kind.metric,
        value=best.value,
        rivals=rivals,
        missing=[job.id for job in jobs if job.id not in chosen],
    )


def _on_the_same_records(jobs: Sequence[tuple[ModelJob, str]]) -> list[_Measured]:
    """Return the latest evaluations for the records on which the most of the ``jobs`` with metrics were evaluated."""
    found: dict[tuple[str, str], list[_Measured]] = {}
    for job, metric in jobs:
        latest: dict[tuple[str, str], Evaluation] = {}
        for item in evaluations.load_all(job.folder):
            if item.is_comparable and item.content_hash:
                latest.setdefault((item.content_hash, item.split), item)
        for records, item in latest.items():
            value = item.metrics.get(metric, math.nan)
            if math.isfinite(value):
                found.setdefault(records, []).append(_Measured(job, item, value))
    return max(found.items(), key=lambda item: (len(item[1]), SPLITS.index(item[0][1])), default=("", []))[1]


def verdict_of(best: ComparedBest, jobs: Sequence[ModelJob], labels: Sequence[str]) -> tuple[str, str]:
    """Say which of the ``jobs`` with ``labels`` is the best and which are not distinguishable from it, and why."""
    name_of = {job.id: f"“{label}”" for job, label in zip(jobs, labels, strict=True)}
    views = serializers.job_views(jobs[0])
    metric = views.metric(best.metric)
    title = metric.title.lower() if metric.title.istitle() else metric.title
    equal = [name_of[each.model] for each in best.rivals if not each.is_certain]
    if not equal:
        verdict = f"{name_of[best.model]} is the best of {len(best.rivals) + 1} models."
    else:
        verb = "is" if len(equal) == 1 else "are"
        verdict = f"{name_of[best.model]} has the best {title}, but {joined(equal)} {verb} not distinguishable from it."
    data = services().store.find(best.dataset)
    counted = count_of(best.records, f"{SPLIT_TITLES[best.split].lower()} {views.record}")
    values: list[tuple[str, Any]] = [
        (best.model, best.value),
        *((each.model, each.value) for each in best.rivals),
    ]
    reason = (
        f"On {counted}{f' of “{data.name}”' if data else ''}: "
        f"{', '.join(f'{name_of[model]} {metric.format(value)}' for model, value in values)}. Each model is compared "
        f"with the best one by the test of two models, corrected for {len(best.rivals)} comparisons (Holm)."
    )
    if best.missing:
        reason += f" Not evaluated on them: {joined([name_of[model] for model in best.missing])}."
    return verdict, reason
