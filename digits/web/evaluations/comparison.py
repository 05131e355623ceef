"""Comparing models: their curves, metrics and settings, and the predictions of two for the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import BadRequest, NotFound
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.comparison import CHANGES, ComparedRecords, in_words, load_compared, mcnemar
from digits.data.models.evaluation import Evaluation
from digits.data.records.search import Place
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views, views_of
from digits.web.evaluations import compared_models
from digits.web.evaluations.choices import (
    check_fits,
    dataset_of,
    evaluation_recipe,
    requested_records,
    title_of,
)
from digits.web.jobs import serializers
from digits.web.jobs.access import check_owner
from digits.web.jobs.snapshots import snapshot_of
from digits.web.offload import in_thread, in_turns
from digits.web.records.gallery import gallery_items
from digits.web.records.images import RecordImages, shown_size
from digits.web.resources.encoding import describe
from digits.web.resources.evaluations import (
    ComparedClass,
    ComparedModels,
    ComparedPair,
    Comparison,
    PairDifference,
)
from digits.web.responses.pages import render_in_turns
from digits.web.responses.representation import returns
from digits.web.services import require_tensorflow, services

blueprint = Blueprint("comparison", __name__)

SHOWN = 24
# The titles of the groups of records that the page shows, by group: those of classifiers, and those of other models.
OUTCOME_TITLES = {
    "fixed": "Fixed: only the second model is right",
    "broken": "Broken: only the first model is right",
    "both_wrong": "Both wrong",
}
CHANGE_TITLES = {
    "improved": "Most improved by the second model",
    "worsened": "Most worsened by the second model",
}


@blueprint.get("/models/compare")
def show() -> str:
    """Compare the models with the ``ids``, and the predictions of two of them, ``first`` and ``second``."""
    jobs, first, second = _models()
    ids, common = ",".join(job.id for job in jobs), in_thread(_common, first, second)
    views = serializers.job_views(second)
    pair, parts = (None, {}) if common is None else (common, _parts(first, second, *common))
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
        settings=compared_models.shown_differences(jobs),
        datasets=compared_models.datasets(jobs),
        evaluating=[
            url_for("evaluation.show_json", job_id=job.id)
            for job in (first, second)
            if services().background["evaluation"].tasks(job.id)
        ],
        evaluate_url=url_for("comparison.evaluate", ids=ids, first=first.id, second=second.id),
        dataset_id=second.dataset_id if services().store.find(second.dataset_id) else "",
        ids=ids,
        swap_url=url_for("comparison.show", ids=ids, first=second.id, second=first.id),
        views=views,
        **parts,
    )


@blueprint.post("/models/compare/evaluation")
def evaluate() -> AnyResponse:
    """Evaluate the models ``first`` and ``second`` on the ``split`` of the ``dataset``, unless they have been."""
    require_tensorflow()
    jobs, first, second = _models()
    tasks = services().background["evaluation"]
    for job in (first, second):
        check_owner(job)
        dataset, split = requested_records(job)
        check_fits(job, dataset, split)
        recipe = evaluation_recipe(job, snapshot_of(job, None), dataset, split)
        results = in_thread(evaluations.load_all, job.folder)
        is_done = any(item.name == recipe.name and not item.is_partial for item in results)
        if not is_done and tasks.task(job.id, recipe.name) is None:
            tasks.start(job, recipe, key=recipe.name)
    ids = ",".join(job.id for job in jobs)
    return redirect(
        url_for("comparison.show", ids=ids, first=first.id, second=second.id, _anchor="pair-title")
    )


@blueprint.get("/models/compare.json")
@returns(Comparison)
def show_json() -> Response:
    """Return the numbers of all models with the ``ids``, the settings that differ, and the comparison of two.

    Without ``ids``, return only the comparison of ``first`` and ``second``.
    """
    jobs, first, second = _models()
    common = in_thread(_common, first, second)
    settings = compared_models.differences(jobs)
    pair = None if common is None else _pair(first, second, common)
    if "ids" in request.args:
        return jsonify(Comparison([compared_models.facts(job) for job in jobs], settings, pair))
    if pair is None:
        raise NotFound(
            "These models have no evaluations of the same records.", "Evaluate both on the same split."
        )
    changed = [PairDifference(item.name, *item.values) for item in settings]
    return jsonify(describe(ComparedModels, pair, settings=changed))


def _pair(first: ModelJob, second: ModelJob, evaluations: tuple[Evaluation, Evaluation]) -> ComparedPair:
    """Return the metrics of both models, and the numbers of records by outcome."""
    records = in_thread(_load, first, second, *evaluations)
    dataset = dataset_of(evaluations[1])
    numbers = in_thread(_numbers, records, dataset[1].target.names if dataset else []) if records else {}
    return ComparedPair(
        models=[first.id, second.id],
        evaluations=[result.name for result in evaluations],
        metrics=[result.metrics for result in evaluations],
        counts=numbers.get("counts"),
        p_value=numbers.get("p_value"),
        classes=numbers.get("classes"),
    )


def _models() -> tuple[list[ModelJob], ModelJob, ModelJob]:
    """Return the models of a request, and the two whose predictions are compared; raises BadRequest, NotFound."""
    pair = [request.args.get(name, "") for name in ("first", "second")]
    listed = [item for value in request.args.getlist("ids") for item in value.split(",") if item]
    ids = list(dict.fromkeys(listed)) or pair
    if len(set(ids)) < 2 or len(ids) > compared_models.MAX_MODELS:
        raise BadRequest(
            f"Choose 2 to {compared_models.MAX_MODELS} different models.",
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
            same = (one.content_hash, one.split) == (other.content_hash, other.split)
            if same and one.is_comparable and other.is_comparable:
                return one, other
    return None


def _metrics(pair: tuple[Evaluation, Evaluation], views: Any) -> list[dict[str, str]]:
    rows = []
    for name in pair[0].metrics:
        if name in pair[1].metrics and "/" not in name:
            metric = views.metric(name)
            first, second = (metric.format(result.metrics[name]) for result in pair)
            rows.append({"title": metric.title, "first": first, "second": second})
    return rows


def _parts(first: ModelJob, second: ModelJob, one: Evaluation, other: Evaluation) -> dict[str, Any]:
    """Return the parts of the page about predictions: counts, the test in words, classes, and groups of records.

    There are no classes and groups if the dataset was deleted or changed.
    """
    records = in_thread(_load, first, second, one, other)
    if records is None:
        return {}
    other_dataset = dataset_of(other)
    if other_dataset is None:
        return in_thread(_numbers, records, [])
    dataset, manifest = other_dataset
    compared = {"evaluation": f"{second.id}/{other.name}", "compare": f"{first.id}/{one.name}"}
    arguments = urlencode({"job_id": dataset.id, "db": other.split, **compared})
    evaluated = [(first.folder, one.name), (second.folder, other.name)]
    return {
        **in_thread(_numbers, records, manifest.target.names),
        "explore": f"{url_for('explore.show', kind=dataset.data_kind)}?{arguments}&outcome=",
        "groups": _groups(records, dataset, manifest, other.split, evaluated),
        "size": shown_size(dataset, manifest),
    }


def _load(first: ModelJob, second: ModelJob, one: Evaluation, other: Evaluation) -> ComparedRecords | None:
    try:
        return load_compared((first.folder, one.name), (second.folder, other.name))
    except UnreadableFile:
        return None


def _numbers(records: ComparedRecords, names: list[str]) -> dict[str, Any]:
    """Return the number of records of each group and, for classifiers, the test and the classes with ``names``."""
    outcomes = records.outcomes
    if outcomes is None:
        return {"counts": {name: int(np.count_nonzero(records.members(name))) for name in CHANGES}}
    counts = {name: int(chosen.sum()) for name, chosen in outcomes._asdict().items()}
    return {
        "counts": counts,
        "p_value": mcnemar(counts["fixed"], counts["broken"]),
        "verdict": in_words(counts["fixed"], counts["broken"]),
        "classes": _classes(records, names),
    }


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
            groups.append({"name": name, "title": title, "shown": cards})
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
