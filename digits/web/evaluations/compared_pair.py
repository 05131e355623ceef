"""The predictions of two models for the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from flask import url_for

from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.data.manifest import Manifest
from digits.data.models import evaluation as evaluations
from digits.data.models.comparison import CHANGES, ComparedRecords, in_words, load_compared, mcnemar
from digits.data.models.evaluation import Evaluation
from digits.data.records.search import Place
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views, views_of
from digits.web.evaluations.choices import dataset_of
from digits.web.offload import in_thread
from digits.web.records.gallery import gallery_items
from digits.web.records.images import RecordImages, shown_size
from digits.web.resources.evaluations import ComparedClass, ComparedPair

Pair = tuple[Evaluation, Evaluation]

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
    """Return the metrics of both models, and the numbers of records by outcome."""
    records = in_thread(_load, first, second, *evaluated)
    dataset = dataset_of(evaluated[1])
    numbers = in_thread(_numbers, records, dataset[1].target.names if dataset else []) if records else {}
    return ComparedPair(
        models=[first.id, second.id],
        evaluations=[result.name for result in evaluated],
        metrics=[result.metrics for result in evaluated],
        counts=numbers.get("counts"),
        p_value=numbers.get("p_value"),
        classes=numbers.get("classes"),
    )


def parts_of(first: ModelJob, second: ModelJob, one: Evaluation, other: Evaluation) -> dict[str, Any]:
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
