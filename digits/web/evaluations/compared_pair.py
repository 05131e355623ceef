"""The predictions of two models for the same records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from flask import url_for

from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.core.splits import SPLIT_TITLES
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.comparison import CHANGES, ComparedRecords, Decision, load_compared
from digits.data.models.evaluation import Evaluation
from digits.data.records.search import Place
from digits.data.sources.plan import count_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views, views_of
from digits.runtime.offload import in_thread
from digits.web.evaluations.choices import dataset_of
from digits.web.jobs import serializers
from digits.web.records.gallery import gallery_items
from digits.web.records.images import RecordImages, shown_size
from digits.web.resources.evaluations import ComparedClass, ComparedPair
from digits.web.services import services

Pair = tuple[Evaluation, Evaluation]

SHOWN = 24
# The titles of the groups of records that the page shows, by group, with the names of both models: those of
# classifiers, and those of other models.
OUTCOME_TITLES = {
    "fixed": "Only “{1}” is right",
    "broken": "Only “{0}” is right",
    "both_wrong": "Both are wrong",
}
CHANGE_TITLES = {"improved": "“{1}” is better by the most", "worsened": "“{0}” is better by the most"}


def common_evaluations(first: ModelJob, second: ModelJob) -> Pair | None:
    """Return the latest evaluations of both models for the same records; None if there are none."""
    others = evaluations.load_all(second.folder)
    for one in evaluations.load_all(first.folder):
        for other in others:
            same = (one.content_hash, one.split) == (other.content_hash, other.split)
            if same and one.is_comparable and other.is_comparable:
                return one, other
    return None


def describe_pair(first: ModelJob, second: ModelJob, evaluated: Pair) -> ComparedPair:
    """Return the metrics of both models, which one is better, and the numbers of records by outcome."""
    records = in_thread(_load, first, second, *evaluated)
    decision = in_thread(records.decide, _lead(second, evaluated)) if records else None
    dataset = dataset_of(evaluated[1])
    numbers = in_thread(_numbers, records, dataset[1].target.names if dataset else []) if records else {}
    return ComparedPair(
        models=[first.id, second.id],
        evaluations=[result.name for result in evaluated],
        metrics=[result.metrics for result in evaluated],
        counts=numbers.get("counts"),
        better=[first.id, second.id][decision.better] if decision and decision.better is not None else None,
        is_certain=decision is not None and decision.is_certain,
        p_value=decision.p_value if decision else None,
        classes=numbers.get("classes"),
    )


def decision_of(first: ModelJob, second: ModelJob, evaluated: Pair) -> Decision | None:
    """Decide which model is better by their evaluations for the same records; None if these cannot be read."""
    records = in_thread(_load, first, second, *evaluated)
    return in_thread(records.decide, _lead(second, evaluated)) if records else None


def parts_of(
    first: ModelJob, second: ModelJob, one: Evaluation, other: Evaluation, names: Sequence[str]
) -> dict[str, Any]:
    """Return the parts of the page about the predictions of two models with ``names``.

    These are which one is better, in words, the counts, the classes, and groups of records.
    There are no classes and groups if the dataset was deleted or changed.
    """
    records = in_thread(_load, first, second, one, other)
    if records is None:
        return {}
    verdict = _verdict(
        in_thread(records.decide, _lead(second, (one, other))), records, second, (one, other), names
    )
    other_dataset = dataset_of(other)
    if other_dataset is None:
        return verdict | in_thread(_numbers, records, [])
    dataset, manifest = other_dataset
    compared = {"evaluation": f"{second.id}/{other.name}", "compare": f"{first.id}/{one.name}"}
    arguments = urlencode({"job_id": dataset.id, "db": other.split, **compared})
    evaluated = [(first.folder, one.name), (second.folder, other.name)]
    return {
        **verdict,
        **in_thread(_numbers, records, manifest.target.names),
        "explore": f"{url_for('explore.show', kind=dataset.data_kind)}?{arguments}&outcome=",
        "groups": _groups(records, dataset, manifest, other.split, evaluated, names),
        "size": shown_size(dataset, manifest),
    }


def _load(first: ModelJob, second: ModelJob, one: Evaluation, other: Evaluation) -> ComparedRecords | None:
    try:
        return load_compared((first.folder, one.name), (second.folder, other.name))
    except UnreadableFile:
        return None


def _lead(second: ModelJob, evaluated: Pair) -> float:
    """Return by how much the metric of the second model is better; 0 if one of them is unknown."""
    metric = serializers.kind_of(second).metric
    first_value, second_value = (each.metrics.get(metric, math.nan) for each in evaluated)
    lead = second_value - first_value
    if not math.isfinite(lead):
        return 0.0
    return -lead if serializers.job_views(second).lower_is_better(metric) else lead


def _verdict(
    decision: Decision, records: ComparedRecords, second: ModelJob, evaluated: Pair, names: Sequence[str]
) -> dict[str, str]:
    """Say which of two models with ``names`` is better and whether that is certain, and why."""
    views, metric, latest = serializers.job_views(second), serializers.kind_of(second).metric, evaluated[1]
    counted = count_of(latest.records, f"{SPLIT_TITLES[latest.split].lower()} {views.record}")
    data = services().store.find(latest.dataset_id)
    place = f"{counted} of “{data.name}”" if data else counted
    if not any(decision.wins):
        same = "are right about the same of" if records.outcomes else "have the same errors for"
        return {"verdict": "Neither is better.", "reason": f"Both {same} {place}."}
    verb = "is right about" if records.outcomes else "has the smaller error for"
    reason = f"Of {place}, " + " and ".join(
        f"only “{name}” {verb} {wins:,}" for name, wins in zip(names, decision.wins, strict=True)
    )
    if all(metric in each.metrics for each in evaluated):
        about = views.metric(metric)
        values = (f"{about.format(each.metrics[metric])}" for each in evaluated)
        reason += f" ({about.title.lower() if about.title.istitle() else about.title} {' and '.join(values)})"
    chance = f"{100 * decision.p_value:.1f}%" if decision.p_value >= 0.001 else "less than 0.1%"
    reason += (
        f". If both were equally good, a difference at least this large would have a probability of {chance}."
    )
    if decision.better is None:
        return {"verdict": "Neither is better.", "reason": reason}
    start = "" if decision.is_certain else "It is not certain that "
    return {"verdict": f"{start}“{names[decision.better]}” is better.", "reason": reason}


def _numbers(records: ComparedRecords, names: list[str]) -> dict[str, Any]:
    """Return the number of records of each group and, for classifiers, the classes with ``names``."""
    outcomes = records.outcomes
    if outcomes is None:
        return {"counts": {name: int(np.count_nonzero(records.members(name))) for name in CHANGES}}
    counts = {name: int(chosen.sum()) for name, chosen in outcomes._asdict().items()}
    return {"counts": counts, "classes": _classes(records, names)}


def _classes(records: ComparedRecords, names: list[str]) -> list[ComparedClass]:
    """Return the outcomes of each class with errors, those with the most differences first."""
    targets = np.asarray(records.targets)
    selections = {name: records.members(name) for name in OUTCOME_TITLES} | {
        "support": np.full(targets.shape, True)
    }
    counts = {
        name: np.bincount(targets[members], minlength=len(names)).tolist()
        for name, members in selections.items()
    }
    rows = [
        ComparedClass(label, name, **{key: values[label] for key, values in counts.items()})
        for label, name in enumerate(names)
    ]
    wrong = [row for row in rows if row.fixed or row.broken or row.both_wrong]
    return sorted(wrong, key=lambda row: (-(row.fixed + row.broken), -row.both_wrong))


def _groups(
    records: ComparedRecords,
    dataset: DatasetJob,
    manifest: Manifest,
    split: str,
    evaluated: list[tuple[Path, str]],
    names: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the groups that have records, each with the first of them."""
    views = views_of(dataset.data_kind)
    images = RecordImages(dataset, manifest)
    worst = [in_thread(evaluations.load_worst, *item) for item in evaluated]
    groups = []
    for name, title in (OUTCOME_TITLES if records.outcomes else CHANGE_TITLES).items():
        places = [Place(split, number) for number in in_thread(_first_members, records, name)]
        try:
            items = gallery_items(dataset, manifest, images, places)
        except UnreadableFile:
            continue
        cards = [
            {
                "item": item,
                "words": [_describe(records, views, manifest, item.number, model) for model in (0, 1)],
                "drawn": [item.draw_prediction(each.get(str(item.number)), manifest) for each in worst],
            }
            for item in items
        ]
        if cards:
            groups.append({"name": name, "title": title.format(*names), "shown": cards})
    return groups


def _first_members(records: ComparedRecords, group: str) -> list[int]:
    """Return the numbers of the records of a group that are shown."""
    order, members = records.order(group), records.members(group)
    numbers: list[int] = order[members[order]][:SHOWN].tolist()
    return numbers


def _describe(
    records: ComparedRecords, views: Views[Any], manifest: Manifest, number: int, model: int
) -> str:
    """Describe the prediction of the first (0) or the second (1) ``model`` for a record, or its error."""
    if records.predictions is None:
        return views.describe_error(float(records.errors[model][number]))
    return manifest.target.describe_outputs(records.predictions[model][number])
