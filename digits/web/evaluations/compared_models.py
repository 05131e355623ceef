"""Models side by side: their metrics, size, time and memory, the best of each, and the settings that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import humanize
import msgspec
from flask import url_for

from digits.core import snapshot_list
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.data.models import evaluation as evaluations
from digits.data.models.evaluation import Evaluation
from digits.kinds import Kind
from digits.kinds.views import Views, curve_labels, format_number
from digits.web.jobs import serializers
from digits.web.models.settings_description import describe_settings, known
from digits.web.resources.encoding import describe
from digits.web.resources.evaluations import Difference, ModelFacts, ProductionName
from digits.web.services import services
from digits.web.template_filters import duration

# Settings that differ between any two jobs.
OWN = {"dataset", "task", "schema", "resume", "devices", "seed", "weights_folder", "weights_sources"}
MAX_METRICS = 16
# With more models, their curves would be hard to distinguish.
MAX_MODELS = 10
NONE = "–"


@dataclass(frozen=True)
class Column:
    """A column of a table of models: a metric or a cost. ``best`` is the cell of the best model, if there is one."""

    name: str
    title: str
    words: Callable[[Any], str]
    is_lower_better: bool = True
    is_cost: bool = False
    best: str = ""

    def value(self, model: ModelFacts) -> Any:
        """Return the value of a model; None if it is unknown."""
        return getattr(model, self.name) if self.is_cost else model.metrics.get(self.name)

    def cell(self, model: ModelFacts) -> str:
        value = self.value(model)
        return NONE if value is None else self.words(value)

    def with_best(self, models: Sequence[ModelFacts]) -> Column:
        """Return the column with the best of ``models``, unless several are displayed alike."""
        values = [value for model in models if (value := self.value(model)) is not None]
        if len(values) < 2:
            return self
        cells = [self.words(value) for value in values]
        best = cells[values.index((min if self.is_lower_better else max)(values))]
        return replace(self, best=best) if cells.count(best) == 1 else self


COSTS = [
    Column(name, title, words, is_cost=True)
    for name, title, words in (
        ("milliseconds", "Time per record", lambda value: f"{format_number(value)} ms"),
        ("parameters", "Parameters", humanize.intcomma),
        ("flops", "Operations per record", lambda value: humanize.metric(value, "FLOP")),
        ("seconds", "Training time", duration),
        ("peak_memory", "Peak memory", humanize.naturalsize),
        ("peak_gpu_memory", "Peak GPU memory", humanize.naturalsize),
    )
]


def facts(
    job: ModelJob,
    metrics: Mapping[str, float],
    epoch: float | None,
    evaluated: Evaluation | None,
    *,
    has_snapshot: bool,
) -> ModelFacts:
    """Return the numbers of a model, with its ``metrics`` at an ``epoch``; ``evaluated`` measured its time."""
    state = services().scheduler.task_state(job, job.tasks[0])
    return describe(
        ModelFacts,
        job,
        url=serializers.job_url(job),
        status=job.status.title,
        dataset=serializers.row(job).dataset_name,
        evaluation_url=url_for("evaluation.show", job_id=job.id, name=evaluated.name) if evaluated else None,
        is_evaluating=services().background["evaluation"].state(job.id) is not None,
        epoch=epoch,
        has_snapshot=has_snapshot,
        production=[
            ProductionName(name, found.epoch) for name, found in services().production.of(job.id).items()
        ],
        metrics=dict(metrics),
        milliseconds=evaluated.milliseconds if evaluated else None,
        parameters=state.parameters,
        flops=services().flops(job),
        seconds=None if job.is_imported else job.elapsed,
        peak_memory=state.peak_memory or None,
        peak_gpu_memory=state.peak_gpu_memory or None,
    )


def columns(models: Sequence[ModelFacts], views: Callable[[ModelFacts], Views[Any]]) -> list[Column]:
    """Return the columns of a table of ``models``: their metrics, as ``views`` of a model describe them, and costs.

    No value is the best if the models have different datasets.
    """
    first: dict[str, ModelFacts] = {}  # a model of another kind does not know the unit
    for model in models:
        for name in model.metrics:
            first.setdefault(name, model)
    found = []
    for name in [name for name in first if "/" not in name][:MAX_METRICS]:
        of_model = views(first[name])
        metric = of_model.metric(name)
        found.append(Column(name, metric.title, metric.format, of_model.lower_is_better(name)))
    found += [cost for cost in COSTS if any(map(cost.value, models))]
    return found if datasets(models) else [column.with_best(models) for column in found]


def datasets(models: Sequence[ModelFacts]) -> list[str]:
    """Return the names of the datasets of the models, if these are different ones."""
    names = {model.dataset_id: model.dataset or model.dataset_id or NONE for model in models}
    return list(names.values()) if len(names) > 1 else []


def shown_differences(jobs: Sequence[ModelJob]) -> list[Difference]:
    """Return the settings that differ, in words."""
    described = [_describe(job) for job in jobs]
    titles = dict.fromkeys(title for each in described for title in each)
    rows = [Difference(title, [each.get(title, NONE) for each in described]) for title in titles]
    rows = [row for row in rows if len(set(row.values)) > 1]
    codes = next((item.values for item in differences(jobs) if item.name == "network"), [])
    letters = dict(zip(dict.fromkeys(codes), "ABCDEFGHIJ", strict=False))
    return [*rows, Difference("Network code", [letters[code] for code in codes])] if codes else rows


def _describe(job: ModelJob) -> dict[str, str]:
    recipe = job.recipe
    if not isinstance(recipe, Train):
        return {}
    intervals = {
        "Validation interval": _epochs(recipe.val_interval) if recipe.val_interval else "",
        "Snapshot interval": _epochs(recipe.snapshot_interval) if recipe.snapshot_interval else "",
    }
    described = dict(describe_settings(recipe, serializers.job_views(job))) | dict(known(intervals))
    described.pop("Seed", None)
    return described


def _epochs(count: float) -> str:
    return f"{count:g} {'epoch' if count == 1 else 'epochs'}"


def differences(jobs: Sequence[ModelJob]) -> list[Difference]:
    """Return the settings that differ."""
    settings = [_flat(msgspec.to_builtins(job.recipe)) for job in jobs]
    names = dict.fromkeys(name for each in settings for name in each if name.split(".")[0] not in OWN)
    rows = []
    for name in names:
        values = [_text(each.get(name)) for each in settings]
        if len(set(values)) > 1:
            rows.append(Difference(name, values))
    try:
        texts = [job.network_text() for job in jobs]
    except UnreadableFile:
        return rows
    if len(set(texts)) > 1:
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts), start=1)}
        rows.append(Difference("network", [f"source code {numbers[text]}" for text in texts]))
    return rows


def curves(jobs: Sequence[ModelJob]) -> list[dict[str, Any]]:
    """Return the addresses and unique names of the curves."""
    return [
        {
            "label": label,
            "url": url_for("models.metrics", job_id=job.id),
            "running": job.status.is_running,
            **curve_labels(serializers.job_views(job)),
        }
        for job, label in zip(jobs, labels(jobs), strict=True)
    ]


def labels(jobs: Sequence[ModelJob]) -> list[str]:
    """Return names of the models that differ."""
    counts = Counter(job.name for job in jobs)
    return [job.name if counts[job.name] == 1 else f"{job.name} ({job.id[-6:]})" for job in jobs]


def _flat(value: dict[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, item in value.items():
        flat |= _flat(item, f"{before}{name}.") if isinstance(item, dict) else {f"{before}{name}": item}
    return flat


def _text(value: Any) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def best_evaluation(
    job: ModelJob, content_hash: str, split: str, kind: Kind
) -> tuple[Evaluation | None, bool]:
    """Return the complete evaluation with the best metric of the ``kind`` on a split of the dataset, or None.

    Also return whether its snapshot exists; without an evaluation, whether there is any snapshot. Reads files.
    """
    complete = [
        item
        for item in evaluations.load_all(job.folder)
        if (item.content_hash, item.split) == (content_hash, split) and not item.is_partial
    ]
    sign = -1 if kind.lower_is_better(kind.metric) else 1
    best = max(complete, key=lambda item: sign * item.metrics.get(kind.metric, 0.0), default=None)
    if best is None:
        return None, snapshot_list.newest_name(job.folder) is not None
    return best, snapshot_list.exists(job.folder, best.snapshot)
