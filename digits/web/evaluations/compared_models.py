"""Compare models: metrics of the best snapshots, size, time, memory and differing settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import humanize
import msgspec
from flask import url_for

from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob, epoch_label
from digits.core.recipe import Train
from digits.data.models import evaluation as evaluations
from digits.kinds.views import curve_labels, format_number
from digits.web.jobs import serializers
from digits.web.models.settings_description import describe_settings, known
from digits.web.offload import in_thread
from digits.web.resources.encoding import describe
from digits.web.resources.evaluations import Difference, ModelFacts
from digits.web.services import services
from digits.web.template_filters import duration

# Settings that differ between any two jobs.
OWN = {"dataset", "task", "schema", "resume", "devices", "seed", "weights_folder", "weights_sources"}
MAX_METRICS = 16
# With more models, their curves would be hard to distinguish.
MAX_MODELS = 10
NONE = "–"
_COSTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "parameters": ("Parameters", lambda value: f"{value:,}"),
    "flops": ("Operations per image", lambda value: humanize.metric(value, "FLOP")),
    "seconds": ("Training time", duration),
    "peak_memory": ("Peak memory", humanize.naturalsize),
    "peak_gpu_memory": ("Peak GPU memory", humanize.naturalsize),
    "milliseconds": ("Evaluation time per image", lambda value: f"{format_number(value)} ms"),
}


def facts(job: ModelJob) -> ModelFacts:
    """Return the numbers of a model."""
    state = services().scheduler.task_state(job, job.tasks[0])
    snapshot = in_thread(job.snapshots).default
    results = [item for item in in_thread(evaluations.load_all, job.folder) if not item.is_partial]
    measured = next((item for item in results if item.records), None)
    flops = (state.result or {}).get("flops")
    return describe(
        ModelFacts,
        job,
        status=job.status.title,
        dataset=serializers.row(job).dataset_name,
        epoch=snapshot.epoch if snapshot else None,
        metrics=dict(snapshot.metrics) if snapshot and snapshot.metrics else state.metrics.last_values(),
        parameters=state.parameters,
        flops=flops if isinstance(flops, int) else None,
        seconds=None if job.is_imported else job.elapsed,
        peak_memory=state.peak_memory or None,
        peak_gpu_memory=state.peak_gpu_memory or None,
        milliseconds=measured.milliseconds if measured else None,
    )


def datasets(jobs: Sequence[ModelJob]) -> list[str]:
    """Return the names of the datasets of the models, if these are different ones."""
    names = {job.dataset_id: serializers.row(job).dataset_name or job.dataset_id or NONE for job in jobs}
    return list(names.values()) if len(names) > 1 else []


def table(jobs: Sequence[ModelJob], facts: Sequence[ModelFacts]) -> list[dict[str, Any]]:
    """Return the table rows for the `facts` of ``jobs``: title, formatted values, and which one is the best.

    No value is the best if the models have different datasets.
    """
    marks_best = not datasets(jobs)
    rows = [
        {"title": "Status", "values": [item.status for item in facts]},
        {"title": "Dataset", "values": [item.dataset or NONE for item in facts]},
        {
            "title": "Best epoch",
            "values": [NONE if item.epoch is None else epoch_label(item.epoch) for item in facts],
        },
    ]
    names = dict.fromkeys(name for item in facts for name in item.metrics if "/" not in name)
    for name in list(names)[:MAX_METRICS]:
        values = [item.metrics.get(name) for item in facts]
        # A model of another kind does not know the unit.
        views = serializers.job_views(
            next(job for job, item in zip(jobs, facts, strict=True) if name in item.metrics)
        )
        metric = views.metric(name)
        words = [NONE if value is None else metric.format(value) for value in values]
        rows.append(_row(metric.title, values, words, views.lower_is_better(name), marks_best=marks_best))
    for name, (title, in_words) in _COSTS.items():
        values = [getattr(item, name) for item in facts]
        if name != "peak_gpu_memory" or any(values):
            words = [NONE if value is None else in_words(value) for value in values]
            rows.append(_row(title, values, words, is_lower_better=True, marks_best=marks_best))
    return rows


def _row(
    title: str,
    values: Sequence[float | None],
    words: Sequence[str],
    is_lower_better: bool,
    *,
    marks_best: bool,
) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    best = (min if is_lower_better else max)(known) if marks_best and len(known) > 1 else None
    is_best = [best is not None and value == best for value in values]
    # If several values are displayed alike, none of them is marked as the best.
    shown = words[is_best.index(True)] if any(is_best) else NONE
    return {
        "title": title,
        "values": words,
        "best": [chosen and words.count(shown) == 1 for chosen in is_best],
    }


def shown_differences(jobs: Sequence[ModelJob]) -> list[dict[str, Any]]:
    """Return the table rows of the settings that differ, in words."""
    described = [_describe(job) for job in jobs]
    titles = dict.fromkeys(title for each in described for title in each)
    rows = [{"title": title, "values": [each.get(title, NONE) for each in described]} for title in titles]
    rows = [row for row in rows if len(set(row["values"])) > 1]
    codes = next((item.values for item in differences(jobs) if item.name == "network"), [])
    letters = dict(zip(dict.fromkeys(codes), "ABCDEFGHIJ", strict=False))
    return [*rows, {"title": "Network code", "values": [letters[code] for code in codes]}] if codes else rows


def _describe(job: ModelJob) -> dict[str, str]:
    recipe = job.recipe
    if not isinstance(recipe, Train):
        return {}
    intervals = {
        "Validation interval": _epochs(recipe.val_interval) if recipe.val_interval else "",
        "Snapshot interval": _epochs(recipe.snapshot_interval) if recipe.snapshot_interval else "",
    }
    described = dict(describe_settings(recipe)) | dict(known(intervals))
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
    counts = Counter(job.name for job in jobs)
    return [
        {
            "label": job.name if counts[job.name] == 1 else f"{job.name} ({job.id[-6:]})",
            "url": url_for("models.metrics", job_id=job.id),
            "running": job.status.is_running,
            **curve_labels(serializers.job_views(job)),
        }
        for job in jobs
    ]


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
