"""Texts and data for the pages and JSON of a dataset and its models, which a kind's ``views`` module can override."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import ROUND_HALF_UP, Context
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from digits.core.metrics import best_metric
from digits.core.recipe import TRANSFORMATIONS, Balance, Transformation
from digits.data.images.images import FULL_BITS
from digits.data.manifest import Manifest
from digits.data.records.features import ExampleFeatures, ImageFeature, guess_image
from digits.data.records.index import DamagedRecords
from digits.data.records.records import Record, record_of
from digits.data.sources.plan import count_of
from digits.kinds.kind import Kind
from digits.kinds.recipes import AnyRecipe


@dataclass(frozen=True)
class Metric:
    """A metric of the models of a kind, which trainings and evaluations report as ``name``.

    ``title`` names it in tables and forms, and ``word`` in sentences: by default, the title. Values with the ``unit``
    ``%`` are from 0 to 1. ``best`` is ``highest`` or ``lowest``: this selects the best snapshot, stops a training
    early, and ranks models. A name with a slash at its end stands for all metrics that start with it.

    ``perfect`` is its best possible value, 1 for percents. ``grades`` are how far a fair and a good model are on the
    way from its `Baseline` to that; see `digits.kinds.advice.verdict`.

    Metrics with the same ``chart``, the title of a chart, share it; by default, each has its own. That of None, such as
    a metric of evaluations, is drawn on the first chart with a metric whose name is part of its own. The axis
    does not extend below ``low``. With ``has_tile``, the latest value is also shown above the charts, if the metric is
    the first one of its chart.
    """

    name: str
    title: str
    unit: str = ""
    best: Literal["highest", "lowest"] = "highest"
    chart: str | None = ""
    low: float | None = None
    has_tile: bool = True
    word: str = ""
    perfect: float | None = None
    grades: tuple[float, float] = (0.4, 0.8)

    def __post_init__(self) -> None:
        if self.unit == "%" and self.best == "highest":
            object.__setattr__(self, "perfect", 1.0)
        if not self.word:  # abbreviations, such as mAP and R², keep their capitals
            is_word = self.title[1:2].islower() and self.title[1:] == self.title[1:].lower()
            object.__setattr__(self, "word", self.title.lower() if is_word else self.title)

    def format(self, value: float) -> str:
        """Format a value, such as ``93.3%``, ``31.2 dB`` or ``0.931``. Only all is ``100.0%``."""
        if self.unit == "%":
            # The ends of intervals are 1 but for rounding.
            decimals = next((n for n in (1, 2, 3, 4) if round(100 * value, n) < 100), 1)
            return f"{100 * value:.{decimals}f}%"
        return " ".join(filter(None, (format_number(value), self.unit)))

    @property
    def suffix(self) -> str:
        """The unit for a title above plain numbers, such as `` (dB)``."""
        return f" ({self.unit})" if self.unit not in ("", "%") else ""


@dataclass(frozen=True)
class Baseline:
    """The ``value`` of a metric that a model without any skill reaches: ``words`` say how, in a sentence.

    ``title`` is the verdict on a model that is not better.
    """

    value: float
    words: str
    title: str = "At the level of guessing"


# Networks of all kinds can report it.
ACCURACY = Metric("accuracy", "Accuracy", "%")


@dataclass(frozen=True)
class Chart:
    """A chart on a model's page, besides that of the loss: of the metrics with one of ``metrics`` in their names.

    See `Metric` for the other members. Further metrics have charts of their own.
    """

    id: str
    title: str
    metrics: tuple[str, ...]
    percent: bool = False
    best: str = "lowest"
    low: float | None = None
    has_tile: bool = True

    def draws(self, metric: str) -> bool:
        """Return whether ``metric`` is on the chart, unless an earlier chart draws it."""
        return any(part in metric.lower() for part in self.metrics)


RATE = Chart("rate", "Learning rate", ("learning_rate",), low=0.0, has_tile=False)
SPEED = Chart("speed", "Throughput (img/s)", ("images_per_second",), has_tile=False)
LOSS = Chart("loss", "Loss", ("loss",), has_tile=False)


def format_number(value: float | None) -> str:
    """Format ``value`` with three significant digits, as an integer from 1000, or with an exponent.

    Such as ``0.0123``, ``12,345`` or ``1.2e-6``. Zeros at the end mean that ``value`` was rounded, as in ``1.10``
    for 1.0986. ``static/js/format.js`` does the same.
    """
    if value is None or not math.isfinite(value):
        return "–"
    digits = max(3, len(str(int(abs(value))))) if abs(value) < 1e6 else 3
    # Unlike formatting, rounds halves as JavaScript does.
    rounded = float(Context(digits, ROUND_HALF_UP).create_decimal(float(value)))
    if 1000 <= abs(rounded) < 1e6:
        return f"{rounded:,.0f}"
    is_rounded = rounded != float(f"{value:.6g}")
    return re.sub(r"(?<=e[+-])0|\.$", "", f"{rounded:#.3g}" if is_rounded else f"{rounded or 0:.3g}")


def describe_images(width: int, height: int, channels: int) -> str:
    """Return the size and color mode of images with one or three ``channels``, such as ``28×28 grayscale``."""
    return f"{width}×{height} {'grayscale' if channels == 1 else 'color'}"


# Blending images would blend masks, boxes or other targets in the image.
UNBLENDED = tuple(name for name in TRANSFORMATIONS if name not in ("mixup", "cutmix"))


@dataclass(frozen=True)
class InputRequest:
    """A request for a prediction: its ``fields``, and the contents or the paths of its ``files``.

    The file ``left`` is the upload ``left_file``, or the file below a data root in the field ``left_path`` or
    ``left_file``. The paths of the files in ``uploads`` are temporary. ``bits`` are those that 16-bit images use.
    """

    fields: Mapping[str, str]
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    uploads: Collection[str] = ()
    bits: int = FULL_BITS


class InputRecord(NamedTuple):
    """One of several inputs of a request: its name on pages, and its pixels or the paths of its images.

    Several images are stacked along the channels. ``label`` is the name of the true class, if the input has one.
    """

    name: str
    content: NDArray[Any] | Sequence[Path]
    label: str = ""


class Views(Generic[AnyRecipe]):
    """Texts and data of one kind. The module ``views`` of a kind defines ``Views``, a subclass.

    ``group`` and ``groups`` are the words for the groups that records are counted by, such as *class* and
    *classes*, and ``distribution`` is the title of the counts. The ``counts_overlap`` if a record can be counted
    several times. ``metrics`` are those of its models, in the order of their charts. ``balancing`` lists the supported
    ways to balance the groups, as in `digits.core.recipe.Balance`, and ``transformations`` the changes of images that
    the model form offers: those that keep the targets valid. With ``checks_labels``, a model can search for wrong
    labels: the ``targets`` of the kind then implement ``class_probabilities``. ``invitation`` explains the kind above
    its form, and ``guide`` is the page of the documentation about it. ``infer`` labels the button that runs a model on
    an image, under the heading ``infer_title``; ``result`` is the placeholder for the prediction. With
    ``draws_on_image``, the template of predictions gets ``picture``: the ``url``, ``width`` and ``height`` of the
    image, to draw on.

    ``record`` and ``records`` are the words for what is in the dataset. Without ``shows_images``, pages do not show the
    records as images, because they are not: `draw_record` shows them. If predictions can be made from something other
    than an image file, ``has_input`` includes the template ``input.html`` of the kind in the page of a model, and
    `read_input` reads its fields; without ``takes_image``, it replaces the image file. Likewise,
    ``has_inputs`` includes ``inputs.html`` for several records, which `read_inputs` reads.

    Without ``checks_appearance``, health checks compare records but do not evaluate their appearance: they are not
    photos. Without ``checks_counts``, they do not evaluate the number of records per group, such as ranges of a number.

    ``class_score`` is the most important one of the scores of each class in the details of an evaluation.

    Without ``ranks_classes``, a prediction is not a list of classes, even though each record has a class.

    With ``adds_sources``, a version can add the records of another source of the kind, which its form describes.

    ``annotation_format`` is the name of the download whose targets can be edited in ``annotation_tools``.
    """

    group = "class"
    groups = "classes"
    distribution = "Class distribution"
    counts_overlap = False
    metrics: tuple[Metric, ...] = ()
    balancing: tuple[Balance, ...] = ("none", "sampling")
    transformations: tuple[Transformation, ...] = TRANSFORMATIONS
    checks_labels = False
    invitation = ""
    guide = "datasets.md"
    infer = "Predict"
    infer_title = "Predict from an image"
    result = "The prediction appears here."
    draws_on_image = False
    record = "image"
    records = "images"
    shows_images = True
    checks_appearance = True
    checks_counts = True
    class_score = "recall"
    ranks_classes = True
    has_input = False
    has_inputs = False
    takes_image = True
    adds_sources = False
    annotation_format = ""
    annotation_tools = "Label Studio or CVAT"

    def predicts_from_image(self, manifest: Manifest) -> bool:
        """Return whether a single image file is all that models of a dataset like ``manifest`` need."""
        return self.takes_image and not self.has_input

    @property
    def charts(self) -> tuple[Chart, ...]:
        """The charts of the metrics, in their order."""
        drawn: dict[str, list[Metric]] = {}
        for metric in self.metrics:
            if metric.chart is not None:
                drawn.setdefault(metric.chart or metric.name, []).append(metric)
        return tuple(
            Chart(
                re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
                first.chart or first.title + first.suffix,
                tuple(metric.name for metric in (first, *others)),
                first.unit == "%",
                first.best,
                first.low,
                first.has_tile,
            )
            for name, (first, *others) in drawn.items()
        )

    def metric(self, name: str) -> Metric:
        """Return the description of a metric: that in ``metrics``, or else one that its name implies.

        A name like that of a loss means that lower values are better. Any other one has the unit and the direction of
        the chart that draws it.
        """
        declared = next((each for each in (*self.metrics, ACCURACY) if each.name == name), None)
        if declared:
            return declared
        words = name.replace("_", " ").replace("top5", "top-5")
        title = words[:1].upper() + words[1:]
        if best_metric.lower_is_better(name):
            return Metric(name, title, best="lowest", word=words)
        chart = next((each for each in self.charts if each.draws(name)), None)
        return Metric(
            name,
            title,
            "%" if chart and chart.percent else "",
            "lowest" if chart and chart.best == "lowest" else "highest",
            word=words,
        )

    def lower_is_better(self, metric: str) -> bool:
        """Return whether lower values of a validation metric are better."""
        return self.metric(metric).best == "lowest"

    def describe_metric(self, name: str, value: float) -> str:
        """Format the metric ``name`` for display, such as ``accuracy 93.25%``."""
        metric = self.metric(name)
        return f"{metric.word} {metric.format(value)}"

    def describe_metrics(self, metrics: Mapping[str, float]) -> str:
        """Format validation ``metrics`` for display: those in the charts, in the same order, and the loss."""
        words = [*(word for chart in self.charts for word in chart.metrics), "loss"]
        names = [
            name for word in words for name in metrics if name == word or (word in name and word != "loss")
        ]
        return " · ".join(self.describe_metric(name, metrics[name]) for name in dict.fromkeys(names))

    def baseline(self, manifest: Manifest, split: str) -> Baseline | None:
        """Return what a model without any skill reaches on a ``split``, in the kind's metric; None if unknown."""
        return None

    def describe_error(self, error: float) -> str:
        """Format the error of a prediction, as computed by the kind's `digits.kinds.network.evaluation.Evaluation`."""
        return f"error {format_number(error)}"

    def describe_input(self, manifest: Manifest) -> str:
        """Return the size and type of a model's input, such as ``28×28 grayscale``."""
        if manifest.dtype != "uint8":
            return f"{manifest.height}×{manifest.width}×{manifest.channels} numbers"
        return describe_images(manifest.width, manifest.height, manifest.channels)

    def describe_dataset(self, manifest: Manifest) -> str:
        """Return a few words on the targets for lists, such as ``10 classes``."""
        return count_of(len(manifest.target.names), manifest.target.noun)

    def describe_record(self, manifest: Manifest, record: Record) -> str:
        """Return the target of a record as text, shown with its image."""
        try:
            return manifest.target.describe_stored(lambda: record.target(manifest.target))
        except DamagedRecords:
            return "no target"

    def draw_record(self, recipe: AnyRecipe, record: Record) -> dict[str, Any]:
        """Return what the gallery shows with a record, its ``arrow``, or instead of its image, its ``text``.

        An arrow is a pair of numbers; see the macro ``drawn``. Called in a thread.
        """
        return {}

    def read_input(self, recipe: AnyRecipe, request: InputRequest) -> NDArray[np.uint8] | None:
        """Convert the fields of ``input.html`` to the pixels of a record, uint8 [height, width, channels].

        ``recipe`` is that of the dataset. Called in a thread. None if the fields are empty; the request then contains
        an image. Raises BadRequest.
        """
        return None

    def read_inputs(self, recipe: AnyRecipe, request: InputRequest) -> Iterable[InputRecord] | None:
        """Convert the fields for several records, like `read_input`. None if those fields are empty.

        The paths of images may be outside of the data roots: they are checked later. Raises BadRequest or
        UnusableSource, also during iteration.
        """
        return None

    def read_record(self, recipe: AnyRecipe, features: ExampleFeatures) -> bytes | NDArray[Any]:
        """Return the input of a model in a record of a TFRecord file: an image file, or an array.

        By default, this is the input of a record of a dataset, or else the feature that looks like an image. Raises
        ValueError with a message.
        """
        try:
            record = record_of(features)
            if record.format == "float32" or record.channels not in (1, 3) or not self.takes_image:
                return record.as_array()
            return record.as_browser_image()[0]
        except DamagedRecords:
            pass  # written by another program
        if not self.takes_image:
            raise ValueError(f"it is not a {self.record} of a dataset")
        name = guess_image(features)
        if not name:
            raise ValueError("none of its features looks like an image")
        return ImageFeature.of(name, features).encoded(features)

    def conclude(self, predictions: Any, metrics: Mapping[str, float]) -> Any:
        """Add to ``predictions`` from the validation metrics of the snapshot that made them."""
        return predictions

    def tiles(self, manifest: Manifest) -> list[tuple[str, str]]:
        """Titles and values of tiles on the dataset's page, besides those of the splits and the image size."""
        return []

    def parse_task(self, manifest: Manifest) -> dict[str, Any]:
        """Return JSON fields about reading the source, as in DIGITS, in addition to the counts of the splits."""
        return {}

    def separate_sources(self, recipe: AnyRecipe, manifest: Manifest) -> dict[str, dict[str, Any]]:
        """Return such fields by split, for the splits that do not come from the source of the training images."""
        return {}

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        """Further keys for the JSON of the dataset."""
        return {}


def training_charts(views: Views[Any]) -> tuple[Chart, ...]:
    """Return all charts of a training. The first one that draws a metric shows it; other metrics have their own."""
    return (RATE, SPEED, *views.charts, LOSS)


def curve_labels(views: Views[Any]) -> dict[str, Any]:
    """Return how scripts draw the metrics of a training: all charts, and the title of each metric by its name."""
    return {
        "charts": [asdict(chart) for chart in training_charts(views)],
        "titles": {metric.name: metric.title for metric in views.metrics},
    }


@functools.cache
def views_of(kind: Kind) -> Views[Any]:
    """Return the texts and data of ``kind`` for pages and JSON."""
    views: Views[Any] = kind.load("views").Views()
    return views
