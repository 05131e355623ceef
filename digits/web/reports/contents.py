"""The contents of the report of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from digits import __version__
from digits.core.errors import NotFound
from digits.core.files import UnreadableFile
from digits.core.model_job import ModelJob
from digits.core.splits import SPLIT_TITLES
from digits.core.task import TaskState
from digits.data import evaluation as evaluations
from digits.data import images
from digits.data.evaluation import Evaluation
from digits.data.images import UnusableImage
from digits.data.manifest import Manifest
from digits.data.record_index import IndexCache
from digits.data.records import Record, SplitReader
from digits.data.sources import count_of
from digits.kinds.decoding import DrawnRecord, RecordTarget, Request, StoredImage
from digits.kinds.jobs import DatasetJob
from digits.kinds.views import Views, training_charts, views_of
from digits.web.evaluations import charts as evaluation_charts
from digits.web.evaluations.model_result import result_of
from digits.web.evaluations.panel import dataset_of, title_of
from digits.web.evaluations.parts import (
    excluded_words,
    interval_words,
    load_matrix,
    load_points,
    metric_rows,
    shown_matrix,
    worst_records,
)
from digits.web.jobs import serializers
from digits.web.models import serializers as model_serializers
from digits.web.offload import in_thread
from digits.web.reports.plots import Plot, curves, of_evaluation
from digits.web.resources.encoding import describe
from digits.web.resources.models import ModelPage
from digits.web.resources.records import GalleryItem
from digits.web.resources.reports import ReportData, ReportedEvaluation, ReportedRecord
from digits.web.services import services
from digits.web.template_filters import duration

# More classes do not fit on paper.
MAX_MATRIX = 20
MAX_CLASSES = 200
PICTURE_SIDE = 240
_CLASS_COLUMNS = {
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "iou": "IoU",
    "ap": "AP",
    "ap50": "AP@50",
}


@dataclass(frozen=True)
class Table:
    """A table with its ``header``. The first ``text_columns`` contain words, and the others numbers.

    ``shares`` are the shades, from 0 to 1, of the cells after the first of each row; negative for errors.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    shares: Sequence[Sequence[float]] = ()
    text_columns: int = 1


@dataclass(frozen=True)
class WorstRecord:
    """A record with a large error: its target and prediction in ``words``; ``pictures`` are captions and JPEG files."""

    words: str
    filename: str
    pictures: Sequence[tuple[str, bytes]] = ()
    text: str = ""


@dataclass(frozen=True)
class Evaluated:
    """An evaluation in the report. The parts that need its dataset are empty if that was deleted or changed."""

    title: str
    name: str
    records: str
    note: str
    metrics: dict[str, str]
    tables: Sequence[Table]
    plots: Sequence[Plot]
    worst: Sequence[WorstRecord]


@dataclass(frozen=True)
class Report:
    """The report of a model: its ``data``, which is its JSON, and what only the page shows."""

    data: ReportData
    type_title: str
    created: str
    snapshots: Table | None
    curves: Sequence[Plot]
    evaluated: Evaluated | None
    layers: Table | None
    network: str
    network_problem: str


def build(job: ModelJob, name: str = "") -> Report:
    """Return the report of ``job`` with the evaluation ``name``, by default that of its best snapshot.

    Raises NotFound if there is no such evaluation.
    """
    state = services().scheduler.task_state(job, job.tasks[0])
    kind = serializers.kind_of(job)
    views = views_of(kind)
    model, row = model_serializers.model_page(job), serializers.row(job)
    result = _choose(job, in_thread(evaluations.load_all, job.folder), name)
    snapshots = [(each.title, each.metrics, "best" if each.best else "") for each in model.snapshots]
    evaluated = _evaluated(job, result, views) if result else None
    data = describe(
        ReportData,
        job,
        verdict=_verdict(job, views),
        facts=_facts(job, model),
        error=serializers.failure_message(job),
        settings=dict(model.settings),
        environment=_environment(job, state, model.devices, _content_hash(job, result)),
        evaluation=describe(ReportedEvaluation, result) if result else None,
        worst=[ReportedRecord(record.filename, record.words) for record in evaluated.worst]
        if evaluated
        else [],
    )
    return Report(
        data=data,
        type_title=row.type_title,
        created=_date(datetime.now(UTC).timestamp()),
        snapshots=Table("Snapshots", ("Snapshot", "Validation metrics", ""), snapshots, text_columns=3)
        if snapshots
        else None,
        curves=in_thread(curves, state.metrics, training_charts(views)),
        evaluated=evaluated,
        layers=_layers(model.layers),
        network=model.network,
        network_problem=model.network_problem,
    )


def _choose(job: ModelJob, results: list[Evaluation], name: str) -> Evaluation | None:
    """Return the evaluation to show: the one called ``name``, else a complete one of the best snapshot, else any."""
    if name:
        match = next((item for item in results if item.name == name), None)
        if match is None:
            raise NotFound("This model has no such evaluation.", "Leave out the name to use the latest one.")
        return match
    best = in_thread(job.snapshots).default

    def rank(item: Evaluation) -> tuple[bool, bool, bool]:
        is_own = item.dataset_id == job.dataset_id
        return item.is_partial, best is None or item.snapshot != best.name, not is_own

    return min(results, key=rank, default=None)


def _verdict(job: ModelJob, views: Views[Any]) -> str:
    """Return the result of the training in a few sentences; "" if nothing measures it."""
    result = result_of(job)
    if result is None:
        return ""
    outcome, verdict = result.outcome, result.verdict
    records = count_of(outcome.records, f"{SPLIT_TITLES[result.split].lower()} {outcome.noun}")
    metric = f"{outcome.metric.title} {outcome.metric.format(outcome.value)} on {records}"
    if result.evaluation and (interval := interval_words(result.evaluation, outcome.metric.name, views)):
        metric += f" (95% interval {interval})"
    return " ".join(f"{words.rstrip('.')}." for words in (verdict.title, metric, verdict.reason) if words)


def _content_hash(job: ModelJob, result: Evaluation | None) -> str:
    """Return the hash of the model's dataset; "" if it is unknown."""
    manifest = serializers.manifest_of(job)
    if manifest:
        return manifest.content_hash
    return result.content_hash if result and result.dataset_id == job.dataset_id else ""


def _facts(job: ModelJob, model: ModelPage) -> dict[str, str]:
    data = serializers.data_of(job)
    manifest = data.manifest() if data else None
    dataset = (
        "Unknown: the model was imported"
        if job.is_imported
        else f"{data.name} ({data.id})"
        if isinstance(data, DatasetJob)
        else f"Deleted ({job.dataset_id})"
    )
    counts = ", ".join(
        f"{split.count:,} {name}"
        for name, split in (manifest.splits if manifest else {}).items()
        if split.count
    )
    return _known(
        {
            "Status": job.status.title,
            "Created": _date(job.submitted),
            "Training time": duration(job.elapsed) if job.elapsed and not job.is_imported else "",
            "Owner": job.owner or "",
            "Group": job.group,
            "Dataset": dataset,
            "Records": counts if not job.is_imported else "",
            "Parameters": f"{model.parameters:,}" if model.parameters is not None else "",
            "ID": job.id,
        }
    )


def _environment(job: ModelJob, state: TaskState, devices: str, content_hash: str) -> dict[str, str]:
    result = state.result or {}
    recorded = result.get("environment")
    known = recorded if isinstance(recorded, dict) else {}
    seed = result.get("seed", None if job.is_imported else job.recipe.seed)
    return _known(
        {
            **{key: str(value) for key, value in known.items()},
            "Device": devices,
            "Seed": "" if seed is None else str(seed),
            "Dataset hash": content_hash,
            "Report": f"DIGITS {__version__}",
        }
    )


def _known(facts: dict[str, str]) -> dict[str, str]:
    """Return ``facts`` without the empty ones."""
    return {key: value for key, value in facts.items() if value}


def _layers(layers: list[Any]) -> Table | None:
    if not layers:
        return None
    rows = [
        (
            layer["name"],
            layer["type"],
            " × ".join("batch" if size is None else str(size) for size in layer["shape"]),
            f"{layer['parameters']:,}",
        )
        for layer in layers
    ]
    return Table("Layers", ("Layer", "Type", "Output shape", "Parameters"), rows, text_columns=3)


def _evaluated(job: ModelJob, result: Evaluation, views: Views[Any]) -> Evaluated:
    current = dataset_of(result)
    note = (
        f"Partial result: the first {result.records:,} of {result.total:,} {views.records}."
        if result.is_partial
        else ""
    )
    note = f"{note} {excluded_words(result, views)}".strip()
    if current is None:
        changed = "The dataset of this evaluation was deleted or changed: classes and images are not shown."
        note = f"{note} {changed}".strip()
    names = result.names(current[1].target.names) if current else []
    worst: Sequence[WorstRecord] = ()
    plots = evaluation_charts.of(result.details, views.record)
    tables: list[Table] = []
    if current:
        dataset, manifest = current
        records = worst_records(job, result, dataset, manifest)
        indexes = services().record_indexes
        drawings = in_thread(_drawings, result, dataset, manifest, records, indexes, views.shows_images)
        worst = list(_worst(drawings))
        found_tables, points = in_thread(_numbers, job, result, manifest)
        tables += found_tables
        if points:
            plots = [*evaluation_charts.scatters(points, names, views.record), *plots]
    return Evaluated(
        title=title_of(result, job),
        name=result.name,
        records=count_of(result.records, views.record),
        note=note,
        metrics={title: value for title, value, _ in metric_rows(result, views)},
        tables=tables,
        plots=of_evaluation(plots),
        worst=worst,
    )


def _numbers(
    job: ModelJob, result: Evaluation, manifest: Manifest
) -> tuple[list[Table], list[list[tuple[float, float]]]]:
    """Return the tables of an evaluation, and the points of its scatter plots; reads files."""
    names = result.names(manifest.target.names)
    tables = []
    matrix = load_matrix(job, result)
    if matrix is not None:
        confusion = shown_matrix(matrix, names, {}, "", MAX_MATRIX)
        hidden = (
            f" {confusion['hidden']:,} classes with fewer errors are not shown."
            if confusion["hidden"]
            else ""
        )
        tables.append(
            Table(
                "Confusion matrix",
                ("True class", *confusion["columns"], "Total"),
                [
                    (row["name"], *(cell["text"] for cell in row["cells"]), f"{row['total']:,}")
                    for row in confusion["rows"]
                ],
                f"Rows are true classes and columns are predicted classes.{hidden}",
                [
                    [cell["share"] if cell["is_right"] else -cell["share"] for cell in row["cells"]]
                    for row in confusion["rows"]
                ],
            )
        )
        if confusion["confused"]:
            pairs = [
                (pair["true"], pair["predicted"], f"{pair['count']:,}") for pair in confusion["confused"]
            ]
            tables.append(
                Table("Most frequent errors", ("True class", "Predicted", "Count"), pairs, text_columns=2)
            )
    if result.details.get("classes"):
        tables.append(_classes(result.details["classes"], names))
    if result.details.get("numbers"):
        rows = [
            (
                item["name"],
                f"{item['mae']:.4g}",
                f"{item['rmse']:.4g}",
                "–" if item["r2"] is None else f"{item['r2']:.3f}",
                f"{item['bias']:+.3g}",
            )
            for item in result.details["numbers"]
        ]
        tables.append(Table("Targets", ("Target", "MAE", "RMSE", "R²", "Mean residual"), rows))
    return tables, load_points(job, result, manifest)


def _classes(classes: list[dict[str, Any]], names: list[str]) -> Table:
    keys = [key for key in _CLASS_COLUMNS if key in classes[0]]
    rows = [
        (
            name,
            *("–" if item.get(key) is None else f"{100 * item[key]:.1f}%" for key in keys),
            f"{item['support']:,}",
        )
        for name, item in list(zip(names, classes, strict=False))[:MAX_CLASSES]
    ]
    hidden = len(classes) - len(rows)
    header = ("Class", *(_CLASS_COLUMNS[key] for key in keys), "Support")
    return Table("Classes", header, rows, f"{hidden:,} more classes are not shown." if hidden > 0 else "")


# The titles of the pictures of a record with what is in them.
_Drawings = list[tuple[str, Request]]


def _drawings(
    result: Evaluation,
    dataset: DatasetJob,
    manifest: Manifest,
    records: list[dict[str, Any]],
    indexes: IndexCache,
    shows_images: bool,
) -> list[tuple[WorstRecord, _Drawings]]:
    """Return the worst records, and what to draw of them; those that cannot be read are left out."""
    if not records:
        return []
    split = manifest.splits[result.split]
    rows = []
    with SplitReader(dataset.folder, split, indexes.get(dataset.folder, split)) as reader:
        for each in records:
            item = each["item"]
            try:
                pictures = (
                    list(_drawings_of(reader.read(item.number), item, each["prediction"], manifest))
                    if shows_images
                    else []
                )
            except (UnreadableFile, OSError, ValueError):
                continue
            rows.append((WorstRecord(each["words"], item.name, [], item.text or ""), pictures))
    return rows


def _drawings_of(
    record: Record, item: GalleryItem, prediction: dict[str, Any] | None, manifest: Manifest
) -> Iterator[tuple[str, Request]]:
    """Return the image of a record with its target, and the prediction if it is drawn."""
    spec, image = manifest.target, StoredImage.of(record)
    truth = RecordTarget.of(record, spec) if item.mask else None
    title = "Truth" if prediction and not item.target else "Image"
    boxes, arrow = list(item.boxes), list(item.arrow or ())
    yield title, DrawnRecord(image, PICTURE_SIDE, truth=truth, boxes=boxes, arrow=arrow)
    if item.target:
        yield "Truth", RecordTarget.of(record, spec, PICTURE_SIDE)
    if prediction:
        url = str(prediction["url"])
        if url.startswith("data:"):
            image = StoredImage(images.from_data_uri(url), "png", 0, 0, 0, record.source)
        predicted = prediction.get("mask")
        yield (
            "Prediction",
            DrawnRecord(
                image,
                PICTURE_SIDE,
                mask=images.from_data_uri(predicted) if predicted else None,
                boxes=list(prediction.get("boxes", ())),
            ),
        )


def _worst(drawings: list[tuple[WorstRecord, _Drawings]]) -> Iterator[WorstRecord]:
    """Yield the records with their pictures; those that cannot be drawn are left out."""
    for record, pictures in drawings:
        with contextlib.suppress(UnreadableFile, UnusableImage):
            drawn = [(title, services().decoder.run(request).data) for title, request in pictures]
            yield replace(record, pictures=drawn)


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
