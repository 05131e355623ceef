"""The expected duration of a training on the CPU, from a table of costs that `benchmarks/training_time.py` measured."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from digits.core.recipe import DEFAULT_BATCH_SIZE

# The speed of a core, as `core_speed` returns it, for which the costs hold. With it, the expected times of trainings
# on a quiet machine are within 1.5 times of the true ones; see benchmarks/RESULTS.md, Times that the pages say.
REFERENCE_SPEED = 130.0


@dataclass(frozen=True)
class Cost:
    """What the training of a network costs on the reference machine.

    ``start`` is in seconds of one core: to start TensorFlow, build the network and save it. So is ``step``: what a step
    that trains all layers costs for any number of pixels, because it handles all weights; to evaluate a batch costs
    half of that. The others are in nanoseconds of one core
    per pixel of an image: to train all layers with it, to ``evaluate`` it, and to train only the ``head`` on its
    features; 0 if the network has no pretrained weights.

    The pixels are those that the network computes with: it enlarges images until their shorter side has ``smallest``
    pixels, or halves them until no side has more than ``largest``. Each pixel of the image itself costs ``original``
    times as much as one of these, too.
    """

    start: float
    train: float
    evaluate: float
    head: float = 0.0
    smallest: int = 1
    largest: int = 1_000_000
    original: float = 0.0
    step: float = 0.0

    def pixels(self, width: int, height: int) -> float:
        """Return the number of pixels that an image of this size costs."""
        enlarged = max(1.0, self.smallest / min(width, height))
        halved = 2.0 ** max(0, math.ceil(math.log2(max(width, height) / self.largest)))
        return width * height * ((enlarged / halved) ** 2 + self.original)


# The steps of the other networks with the weights of ResNet-50 are assumed to cost what those of fpn do.
COSTS: dict[str, Cost] = {
    "lenet": Cost(5, 418, 187),
    "alexnet": Cost(7, 981, 290),
    "googlenet": Cost(11, 2645, 832),
    "resnet32": Cost(10, 5312, 1796),
    "resnet50": Cost(24, 5730, 1695, 12, step=0.142),
    "efficientnetlite": Cost(15, 1260, 375, 12, smallest=128),
    "efficientnetv2": Cost(25, 1750, 611, 12),
    "mobilenetv3": Cost(18, 1030, 319, 12),
    "fpn": Cost(27, 4130, 1200, 950, step=0.142),
    "regression": Cost(7, 864, 380, largest=64, original=0.166),
    "multilabel": Cost(6, 720, 270, largest=64, original=0.1),
    "unet": Cost(11, 3892, 1520, largest=80, original=0.083),
    "segmenter": Cost(21, 3266, 946, 1100),
    # Not measured: the encoder of resnet50 with the decoder of segmenter, which has more channels.
    "segmenter_resnet50": Cost(31, 7500, 2160, 1900, step=0.142),
    "dncnn": Cost(6, 4372, 1493),
    "siamese": Cost(6, 729, 290),
    "detector": Cost(9, 478, 257),
}


# Of networks with unknown costs: a step goes forward through all layers, but backward, which takes twice the time, only
# through those that are trained. A small head takes hardly any time.
TYPICAL_SHARES = 1 / 3, 0.01
# The most variants of an image whose features are computed for the head phase; each is used in two epochs or more.
MAX_VARIANTS = 4


def shares(network: str) -> tuple[float, float]:
    """Return the times of two parts of the head phase as shares of a step of the ``network`` that trains all layers.

    They are the time to compute the features of a batch, and that of a step that trains the head on them.
    """
    cost = COSTS.get(network)
    if cost is None or not cost.head:
        return TYPICAL_SHARES
    # Of large images: of small ones, where each step costs the same, the shares differ little.
    return cost.evaluate / cost.train, cost.head / cost.train


def variants(epochs: float, is_random: bool) -> int:
    """Return the number of variants of each image for a head phase of ``epochs``, which ``is_random`` augments."""
    return max(1, min(MAX_VARIANTS, int(epochs / 2))) if is_random else 1


def training_seconds(
    network: str,
    settings: Mapping[str, str],
    images: Mapping[str, int],
    size: tuple[int, int],
    *,
    cores: int,
    speed: float,
) -> float | None:
    """Return the expected duration of a training on the CPU in seconds; None for an unknown network.

    ``settings`` are fields of the model form, ``images`` the numbers of images of the splits, and ``size`` their width
    and height in pixels. Early stopping is not expected. ``speed`` is that of one of the ``cores``; see `core_speed`.
    """
    cost = COSTS.get(network)
    if cost is None or not images.get("train"):
        return None
    width, height = size
    crop = int(settings.get("crop_size") or 0)
    pixels = cost.pixels(min(width, crop or width), min(height, crop or height))
    epochs, batch_size = (
        float(settings["train_epochs"]),
        float(settings.get("batch_size") or DEFAULT_BATCH_SIZE),
    )
    head = float(settings["head_epochs"]) if settings.get("fine_tune") == "true" else 0.0
    # There is one before the training.
    validations = 1 + epochs / float(settings.get("val_interval") or 1)
    passes = variants(head, _is_random(settings)) if head >= 2 else head
    trained = images["train"] * (head * cost.head + (epochs - head) * cost.train)
    evaluated_images = images["train"] * passes + images.get("val", 0) * validations
    batches = ((epochs - head) * images["train"] + evaluated_images / 2) / batch_size
    work = pixels * (trained + evaluated_images * cost.evaluate) / 1e9 + batches * cost.step
    # TensorFlow starts and builds graphs on one core. Of two cores, the recommended trainings of small sets keep 1.4 to
    # 1.65 busy.
    seconds = cost.start + work / math.pow(cores, 0.7)
    return seconds * REFERENCE_SPEED / speed


def _is_random(settings: Mapping[str, str]) -> bool:
    """Return whether the ``settings`` of a training augment images."""
    return bool(settings.get("crop_size")) or any(
        name.startswith("aug_") and value not in ("", "0", "none", "false")
        for name, value in settings.items()
    )


@cache
def core_speed() -> float:
    """Return the speed of a core: the best of some products of small matrices, in 10⁹ operations per second.

    This takes about 20 milliseconds, once.
    """
    matrices = np.random.default_rng(0).random((64, 64, 64), np.float32)
    best = 0.0
    for _ in range(8):
        began = time.thread_time()
        np.matmul(matrices, matrices)
        best = max(best, 2 * 64**4 / max(time.thread_time() - began, 1e-6) / 1e9)
    return best
