"""What the first step of a training reveals: the assessment of its loss and of the network's size, and its batch.

The preflight returns all of these; a training only reports the warnings and continues.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import humanize
import numpy as np
from numpy.typing import NDArray

from digits.core.recipe import Train
from digits.core.results.preflight_result import PICTURE_FILE
from digits.data.images import images
from digits.data.sources.plan import count_of
from digits.worker.input import display
from digits.worker.input.preparation import Chunk
from digits.worker.input.target_tensors import tensors_of
from digits.worker.training.loop import network_checks
from digits.worker.training.loop.resources import Resources, TrainingData
from digits.worker.training.loop.setup import Steps
from digits.worker.training.step import step_function
from digits.worker.training.step.training_step import CROSS_ENTROPY, Traced, TrainingStep

# Expected range of the initial cross-entropy, as multiples of the chance level.
USUAL = (0.5, 2.0)
# Normalized activations are large for any input; the weights adapt within a few steps.
USUAL_WITH_NORMALIZATION = (0.5, 10.0)

# A network with more parameters per training image memorizes the images.
MANY_PARAMETERS_PER_IMAGE = 10_000
# The message names a variable with more than this fraction of the parameters.
LARGE_PART = 0.5
LONG_SECONDS = 30 * 60
# Levels of a verdict that do not end a training, and that its time left does not show.
_WARNINGS = ("high", "low", "large")

# The maximum number of images in the picture of the batch, and their size in pixels.
MAX_IMAGES = 64
COLUMNS = 8
SMALLEST_SIDE, LARGEST_SIDE = 48, 160
GAP = 2


@dataclass(frozen=True)
class Start:
    """The first training step, before the first weight update.

    ``cross_entropy`` is over the classes, or None for a loss without classification. With
    ``has_normalization``, the scale of the input is irrelevant. With ``has_places``, targets are in the image, such as
    boxes and masks: each of its parts is an example.
    """

    loss: float
    cross_entropy: float | None = None
    classes: int = 0
    has_weights: bool = False
    has_normalization: bool = False
    has_places: bool = False

    @property
    def chance(self) -> float | None:
        """The cross-entropy of a network that gives all classes the same probability."""
        return None if self.cross_entropy is None else math.log(self.classes)


@dataclass(frozen=True)
class Cost:
    """The cost of a training: ``seconds``, trained ``parameters``, and name and size of the ``largest`` variable."""

    seconds: float
    images: int
    parameters: int
    largest: tuple[str, int] = ("", 0)

    @property
    def parameters_per_image(self) -> float:
        return self.parameters / self.images


@dataclass(frozen=True)
class Verdict:
    """Whether the training is worth starting.

    ``level`` is the most serious finding: ``bad`` (the loss is not finite), ``high`` or ``low`` (the cross-entropy
    is far from the chance level), ``large`` (too many parameters for the images), ``long``, ``unknown`` or ``good``.
    The ``advice`` is what to change in the source code of the network, as sentences.
    """

    level: str
    message: str
    advice: str = ""


def verdicts(start: Start, cost: Cost) -> list[Verdict]:
    """Return what there is to say about the first step and the total cost, the most serious first; at least one."""
    found = [_of_loss(start)]
    is_large = cost.parameters_per_image > MANY_PARAMETERS_PER_IMAGE
    if is_large and not start.has_weights and not start.has_places:
        found.append(_too_large(cost))
    if cost.seconds > LONG_SECONDS:
        found.append(Verdict("long", f"Training will take about {humanize.naturaldelta(cost.seconds)}."))
    # Good or unknown results are omitted beside warnings.
    return [item for item in found if item.level not in ("unknown", "good")] or found[:1]


def verdict(start: Start, cost: Cost) -> Verdict:
    """Assess a training by its first step and its total cost."""
    said = verdicts(start, cost)
    advice = " ".join(item.advice for item in said if item.advice)
    return Verdict(said[0].level, " ".join(item.message for item in said), advice)


def warnings(resources: Resources, steps: Steps, first: Mapping[str, float], chunk: Chunk) -> Iterator[str]:
    """Yield the warnings of a training after its ``first`` step, on the batch of ``chunk``.

    Only the size of a standard network can be wrong. Several workers cannot measure a network that one of them runs,
    and numerics checks must find NaN in the steps themselves.
    """
    traced = steps.first.traced
    for judged in verdicts(start_of(resources, traced, first), cost_of(resources, traced)):
        if judged.level in _WARNINGS:
            advice = judged.advice if resources.standard is None else "Choose a smaller one, or add images."
            yield f"{judged.message} {advice}"
    is_measured = resources.config.gang.workers == 1 and not resources.recipe.numerics_checks
    if resources.standard is None and is_measured:
        yield from network_checks.findings(resources, steps, chunk)


def remark_on_time(recipe: Train, seconds: float) -> str:
    """Return what to say about a training that takes ``seconds``; "" unless it is long."""
    if seconds <= LONG_SECONDS:
        return ""
    epochs = int(recipe.epochs * LONG_SECONDS / seconds)
    heads = recipe.fine_tune.head_epochs if recipe.fine_tune else 0
    shorter = f" With {count_of(epochs, 'epoch')}, it would take half an hour." if epochs > heads else ""
    return f"Training will take about {humanize.naturaldelta(seconds)}.{shorter}"


def start_of(resources: Resources, traced: Traced, first: Mapping[str, float]) -> Start:
    """Return the metrics of the ``first`` training step.

    The validation loss is unsuitable: before a training, batch normalization has no meaningful averages.
    """
    target = resources.data.manifest.target
    return Start(
        first["loss"],
        first.get(CROSS_ENTROPY),
        len(target.labels),
        bool(resources.recipe.weights or resources.store.pretrained),
        traced.label_flow.has_normalization,
        tensors_of(target).in_image,
    )


def cost_of(resources: Resources, traced: Traced, seconds: float = 0.0) -> Cost:
    """Return the cost of a training that takes ``seconds``, or 0 if that is unknown."""
    sizes = {
        name: item.shape.num_elements()
        for name, item in resources.store.variables.items()
        if name in traced.trained
    }
    largest = max(sizes.items(), key=lambda item: item[1], default=("", 0))
    return Cost(seconds, len(resources.data.train), sum(sizes.values()), largest)


def read(data: TrainingData, seed: int, batches: int = 1) -> list[Chunk]:
    """Read the first batches of the training, each as a chunk."""
    with closing(data.train.stream(itertools.islice(data.order(seed), batches))) as feed:
        return [feed.take(1) for _ in range(batches)]


def _of_loss(start: Start) -> Verdict:
    entropy, chance = start.cross_entropy, start.chance
    if not math.isfinite(start.loss):
        return Verdict("bad", "The loss is NaN or infinite: training would stop immediately.")
    if entropy is None or chance is None:
        return Verdict(
            "unknown", "The loss is finite. It is not a classification loss, so it has no chance level."
        )
    if start.has_weights:
        return Verdict("unknown", "The loss is finite. The weights come from an earlier training.")
    usual = USUAL_WITH_NORMALIZATION if start.has_normalization else USUAL
    low, high = (chance * limit for limit in usual)
    if entropy > high:
        return Verdict(
            "high",
            "The cross-entropy starts far above the chance level: the first outputs are too large.",
            "Initialize the last layer with smaller weights."
            if start.has_normalization
            else "Scale the input down (pixels go up to 255) or initialize the layers with smaller weights.",
        )
    if entropy < low:
        return Verdict(
            "low",
            "The cross-entropy starts far below the chance level.",
            "Check whether the network computes its output from the labels.",
        )
    if entropy > chance * USUAL[1]:
        return Verdict(
            "good",
            "The cross-entropy starts above the chance level, as is usual with normalized activations.",
        )
    return Verdict("good", "The cross-entropy starts near the chance level.")


def _too_large(cost: Cost) -> Verdict:
    name, size = cost.largest
    is_in_one = size > LARGE_PART * cost.parameters
    where = f", {size:,} of them in {name}" if is_in_one else ""
    return Verdict(
        "large",
        f"The network has {cost.parameters:,} parameters{where}, but only {cost.images:,} training images "
        f"({cost.parameters_per_image:,.0f} per image): it will memorize the images.",
        "Add pooling before this layer." if is_in_one else "Use fewer layers or filters.",
    )


def write_picture(
    resources: Resources, step: TrainingStep, chunk: Chunk, *, is_compiled: bool
) -> list[dict[str, Any]]:
    """Write a picture of the first batch, as the network sees it, to the job's folder; describe each of its images."""
    x, targets = step_function.seen(step, chunk, is_compiled)
    pixels = display.as_pixels(x[:MAX_IMAGES], resources.data.preparation)
    target = resources.data.manifest.target
    if pixels.shape[3] in (1, 3):
        pixels = np.stack([target.paint(*pair) for pair in zip(pixels, targets["y"], strict=False)])
    picture = images.encode(contact_sheet(pixels), "png")
    (resources.job_folder / PICTURE_FILE).write_bytes(picture)
    return [
        display.describe({name: values[index] for name, values in targets.items()}, target)
        for index in range(len(pixels))
    ]


def contact_sheet(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Arrange images [N, H, W, C] in rows on white."""
    height, width, channels = pixels.shape[1:]
    if channels not in (1, 3):
        pixels = images.side_by_side(pixels)
        width, channels = pixels.shape[2:]
    larger = max(height, width)
    if larger < SMALLEST_SIDE:
        factor = -(-SMALLEST_SIDE // larger)
        pixels = pixels.repeat(factor, axis=1).repeat(factor, axis=2)
    elif larger > LARGEST_SIDE:
        scale = LARGEST_SIDE / larger
        size = max(1, round(width * scale)), max(1, round(height * scale))
        pixels = np.stack([images.resize(image, *size, "squash") for image in pixels])
    return images.arrange(pixels, min(COLUMNS, len(pixels)), GAP)
