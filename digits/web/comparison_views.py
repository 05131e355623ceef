"""Comparing models: their curves, metrics and settings, and the predictions of two for the same records."""

from __future__ import annotations

from typing import Any

import numpy as np
from flask import Blueprint, Response, jsonify, request, url_for
from numpy.typing import NDArray

from digits.core.errors import BadRequest, NotFound
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.data import evaluation as evaluations
from digits.data.comparison import Outcomes, compare, in_words, mcnemar
from digits.data.evaluation import Evaluation
from digits.kinds import default_kind
from digits.kinds.jobs import DatasetJob
from digits.web import compared_models, serializers
from digits.web.evaluation_panel import title_of
from digits.web.evaluation_parts import describe_metric
from digits.web.kind_routes import views_of
from digits.web.long_pages import render_in_turns
from digits.web.offload import in_thread, in_turns
from digits.web.services import services

blueprint = Blueprint("comparison", __name__)

SHOWN = 24
GROUPS = {
    "fixed": "Fixed: only the second model is right",
    "broken": "Broken: only the first model is right",
    "both_wrong": "Both wrong",
}
# Curves of more models could not be told apart.
MAX_MODELS = 10


@blueprint.get("/models/compare")
def show() -> str:
    """Compare the models with the ``ids``, and the predictions of two of them, ``first`` and ``second``."""
    jobs, first, second = _models()
    found = in_thread(_common, first, second)
    views = views_of(serializers.data_kind(second) or default_kind())
    dataset = services().store.find(second.dataset_id)
    kind = dataset.data_kind if isinstance(dataset, DatasetJob) else None
    pair, parts = (
        (None, {}) if found is None else (found, in_thread(_compared, first, second, *found, dataset))
    )
    facts = [compared_models.facts(job) for job in in_turns(iter(jobs))]
    return render_in_turns(
        "comparison.html",
        jobs=[serializers.row(job) for job in jobs],
        curves=compared_models.curves(jobs),
        facts=compared_models.table(jobs, facts),
        models=[serializers.row(job) for job in (first, second)],
        titles=[title_of(result, job) for result, job in zip(pair, (first, second), strict=True)]
        if pair
        else [],
        records=pair[1].records if pair else 0,
        metrics=_metrics(pair, views) if pair else [],
        settings=compared_models.differences(jobs),
        ids=",".join(job.id for job in jobs),
        swap_url=url_for(
            "comparison.show", ids=",".join(job.id for job in jobs), first=second.id, second=first.id
        ),
        record_url=lambda number: (
            url_for("records.thumbnail", job_id=pair[1].dataset_id, split=pair[1].split, number=number)
            if pair
            else ""
        ),
        groups=GROUPS,
        views=views,
        kind=kind,
        **parts,
    )


@blueprint.get("/models/compare.json")
def show_json() -> Response:
    """Return the numbers of all models with the ``ids``, the settings that differ, and the comparison of two.

    Without ``ids``, return only the comparison of ``first`` and ``second``.
    """
    jobs, first, second = _models()
    found = in_thread(_common, first, second)
    settings = compared_models.differences(jobs)
    if "ids" in request.args:
        return jsonify(
            models=[compared_models.facts(job) for job in jobs],
            settings=settings,
            pair=None if found is None else _pair_json(first, second, found),
        )
    if found is None:
        raise NotFound(
            "These models have no evaluations of the same records.", "Evaluate both on the same split."
        )
    return jsonify(
        **_pair_json(first, second, found),
        settings=[
            {"name": item["name"], "first": item["values"][0], "second": item["values"][1]}
            for item in settings
        ],
    )


def _pair_json(first: ModelJob, second: ModelJob, found: tuple[Evaluation, Evaluation]) -> dict[str, Any]:
    """Return the metrics of both models, and the numbers of records by outcome."""
    parts = in_thread(_compared, first, second, *found, services().store.find(second.dataset_id))
    return {
        "models": [first.id, second.id],
        "evaluations": [result.name for result in found],
        "metrics": [result.metrics for result in found],
        "counts": parts.get("counts"),
        "p_value": parts.get("p_value"),
        "classes": parts.get("classes"),
    }


def _models() -> tuple[list[ModelJob], ModelJob, ModelJob]:
    """Return the models of a request, and the two whose predictions are compared; raises BadRequest, NotFound."""
    pair = [request.args.get(name, "") for name in ("first", "second")]
    listed = [item for value in request.args.getlist("ids") for item in value.split(",") if item]
    ids = list(dict.fromkeys(listed)) or pair
    if len(set(ids)) < 2 or len(ids) > MAX_MODELS:
        raise BadRequest(
            f"Choose 2 to {MAX_MODELS} different models.",
            "Set “ids” to the IDs of the models, separated by commas.",
        )
    if not all(pair):
        pair = ids[:2]
    if pair[0] == pair[1] or not set(pair) <= set(ids):
        raise BadRequest("Choose two different models to compare their predictions.")
    by_id = {job_id: services().store.get(job_id, ModelJob) for job_id in ids}
    return list(by_id.values()), by_id[pair[0]], by_id[pair[1]]


def _common(first: ModelJob, second: ModelJob) -> tuple[Evaluation, Evaluation] | None:
    """Return the latest evaluations of both models for the same records; None if there are none."""
    others = evaluations.load_all(second.folder)
    for one in evaluations.load_all(first.folder):
        for other in others:
            same = one.records_key == other.records_key
            if same and not one.is_partial and not other.is_partial:
                return one, other
    return None


def _metrics(pair: tuple[Evaluation, Evaluation], views: Any) -> list[dict[str, str]]:
    rows = []
    for name in pair[0].metrics:
        if name in pair[1].metrics and "/" not in name:
            values = [describe_metric(views, name, result.metrics[name]) for result in pair]
            rows.append({"title": values[0][0], "first": values[0][1], "second": values[1][1]})
    return rows


def _compared(
    first: ModelJob, second: ModelJob, one: Evaluation, other: Evaluation, dataset: Any
) -> dict[str, Any]:
    """Return the outcomes of classifiers: counts, the test in words, classes, and records of each group."""
    try:
        targets = evaluations.load_array(second.folder, other.name, evaluations.TARGETS_FILE)
        scores = [
            evaluations.load_array(job.folder, result.name, evaluations.PREDICTIONS_FILE)
            for job, result in ((first, one), (second, other))
        ]
    except UnreadableFile:
        return {}
    if targets.ndim != 1 or targets.dtype.kind != "i" or scores[0].shape != scores[1].shape:
        return {}
    outcomes = Outcomes(*(chosen & (targets >= 0) for chosen in compare(targets, *scores)))
    counts = {name: int(chosen.sum()) for name, chosen in outcomes._asdict().items()}
    manifest = dataset.manifest() if isinstance(dataset, DatasetJob) else None
    is_same = manifest is not None and manifest.content_hash == other.content_hash
    names = other.names(manifest.target.names) if manifest and is_same else []
    shown = {name: _records(getattr(outcomes, name), targets, scores, names) for name in GROUPS if is_same}
    return {
        "counts": counts,
        "p_value": mcnemar(counts["fixed"], counts["broken"]),
        "verdict": in_words(counts["fixed"], counts["broken"]),
        "classes": _classes(targets, outcomes, names),
        "shown": shown,
    }


def _classes(targets: NDArray[Any], outcomes: Outcomes, names: list[str]) -> list[dict[str, Any]]:
    """Return the outcomes of each class with a difference, the largest first."""
    rows = [
        {
            "name": name,
            "fixed": int((outcomes.fixed & (targets == number)).sum()),
            "broken": int((outcomes.broken & (targets == number)).sum()),
            "support": int((targets == number).sum()),
        }
        for number, name in enumerate(names)
    ]
    changed = [row for row in rows if row["fixed"] or row["broken"]]
    return sorted(changed, key=lambda row: -(row["fixed"] + row["broken"]))


def _records(
    chosen: NDArray[np.bool_], targets: NDArray[Any], scores: list[NDArray[Any]], names: list[str]
) -> list[dict[str, Any]]:
    """Return the first records of a group, those with the most confident second prediction first."""
    places = np.flatnonzero(chosen)
    order = places[np.argsort(-scores[1][places].max(axis=1), kind="stable")][:SHOWN]
    return [
        {
            "number": place,
            "true": names[targets[place]],
            "predictions": [
                f"{names[each[place].argmax()]} {100 * each[place].max():.0f}%" for each in scores
            ],
        }
        for place in order.tolist()
    ]
