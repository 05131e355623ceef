"""Recommended settings of a new dataset, from facts about its source.

`recommend_dataset` is a pure function. Each piece of advice changes fields of the form of datasets and gives the
reason in one sentence. An empty list means that nothing is known that is better than the defaults.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from digits.data.images.conversion import Size
from digits.kinds.advice.recommendation import Resources

# Sides of images to choose from, in pixels.
SIDES = (32, 64, 96, 128, 160, 192, 224, 256)
# The longest side. On a few cores, fine-tuning at 256×256 takes several times longer than at 160×160.
ON_FEW_CORES, ON_CPU, ON_GPU = 160, 224, 256
FEW_CORES = 4
# Small objects and the borders of masks need more pixels.
PLACES_ON_CPU, PLACES_ON_GPU = 256, 512
# The sides of images with positions become multiples of this number, which networks halve several times.
MULTIPLE = 16
# Classes are recognized in stretched images, and filling adds noise that a network must learn to ignore. Images with
# positions in them are stretched by no more than this factor.
STRETCH = 1.05
# A tenth of the images is for testing if at least this many images remain for it.
MIN_TEST_IMAGES = 30
TEST_PERCENT = 10

_PLACES = ("image-object-detection", "image-segmentation", "image-processing")
_WITHOUT_IMAGES = ("text-classification", "image-gradients", "generic")


@dataclass(frozen=True)
class SourceFacts:
    """What is known about the source of a dataset of one ``kind``.

    ``sizes`` are widths and heights of a sample of its images in pixels, which ``are_gray`` if none has colors, and
    ``images`` is the number of all, if known; it ``is_partial`` if there are more. ``splits`` are those that have
    sources of their own. ``test_field`` is the form's field for the share of the test split.
    """

    kind: str
    sizes: Sequence[Size] = ()
    are_gray: bool = False
    images: int | None = None
    splits: Collection[str] = ()
    test_field: str = "pct_test"
    is_partial: bool = False


@dataclass(frozen=True)
class Advice:
    """Fields of the form of datasets with their values as text, and the ``reason`` for them, one sentence."""

    fields: Mapping[str, str]
    reason: str


def recommend_dataset(facts: SourceFacts, resources: Resources) -> list[Advice]:
    """Return the advice for a new dataset: up to one piece each for the size, the colors and the test split.

    The fields are ``resize_width`` and ``resize_height`` with ``resize_mode``, ``resize_channels``, and the
    `SourceFacts.test_field`. Fields that the user has set keep their values: the caller leaves them out.
    """
    pieces = (_image_size(facts, resources), _color_mode(facts), _test_split(facts))
    return [advice for advice in pieces if advice]


def _image_size(facts: SourceFacts, resources: Resources) -> Advice | None:
    """Return the size and the resize mode for the measured sizes."""
    if not facts.sizes or facts.kind in _WITHOUT_IMAGES:
        return None
    has_places = facts.kind in _PLACES
    longest = _longest_side(has_places, resources)
    first = facts.sizes[0]
    if set(facts.sizes) == {first} and max(first) <= longest:
        return _resize(first, "squash", f"All images have {_text(first)} pixels.")
    ratios = sorted(width / height for width, height in facts.sizes)
    ratio, measured = statistics.median(ratios), f"The images have {_range(facts.sizes)} pixels"
    is_varied = ratios[-1 - len(ratios) // 10] / ratios[len(ratios) // 10] > STRETCH
    if not has_places:
        side = _side_for([(width * height) ** 0.5 for width, height in facts.sizes], longest)
        reason = f"{measured}: {_text((side, side))} is enough{_for(resources, side == longest)}."
        return _resize((side, side), "squash", reason)
    side = _side_for([max(size) for size in facts.sizes], longest)
    size = (side, side)
    if not is_varied:
        size = (side, _rounded(side / ratio)) if ratio >= 1 else (_rounded(side * ratio), side)
    is_kept = not is_varied and max(size[0] / size[1] / ratio, ratio * size[1] / size[0]) <= STRETCH
    wish = f"{measured}: {_text(size)}{_for(resources, side == longest)}"
    if is_kept:
        return _resize(size, "squash", f"{wish} keeps their proportions.")
    return _resize(size, "fill", f"{wish}, and filling keeps their proportions.")


def _color_mode(facts: SourceFacts) -> Advice | None:
    """Return grayscale for images without colors, unless the targets may have some."""
    if not facts.are_gray or facts.kind in (*_WITHOUT_IMAGES, "image-processing"):
        return None
    return Advice({"resize_channels": "1"}, "No image examined has colors: they are stored in grayscale.")


def _longest_side(has_places: bool, resources: Resources) -> int:
    if resources.device == "gpu":
        return PLACES_ON_GPU if has_places else ON_GPU
    if has_places:
        return PLACES_ON_CPU
    return ON_FEW_CORES if resources.cores <= FEW_CORES else ON_CPU


def _side_for(sides: Sequence[float], longest: int) -> int:
    """Return the smallest of `SIDES` that is at least 90% of the median of ``sides``, up to ``longest``."""
    wanted = 0.9 * statistics.median(sides)
    offered = [side for side in (*SIDES, PLACES_ON_GPU) if side <= longest]
    return next((side for side in offered if side >= wanted), longest)


def _rounded(side: float) -> int:
    return max(MULTIPLE, round(side / MULTIPLE) * MULTIPLE)


def _for(resources: Resources, is_limit: bool) -> str:
    """Return why a size is not larger, if the machine limits it."""
    return f" on {'a GPU' if resources.device == 'gpu' else 'the CPU'}" if is_limit else ""


def _resize(size: Size, mode: str, reason: str) -> Advice:
    fields = {"resize_width": str(size[0]), "resize_height": str(size[1]), "resize_mode": mode}
    return Advice(fields, reason)


def _text(size: Size) -> str:
    return f"{size[0]}×{size[1]}"


def _range(sizes: Sequence[Size]) -> str:
    low, high = (choose(sizes, key=lambda size: size[0] * size[1]) for choose in (min, max))
    return _text(low) if low == high else f"{_text(low)} to {_text(high)}"


def _test_split(facts: SourceFacts) -> Advice | None:
    """Return a share for testing if the source has no test split, and enough images."""
    if facts.images is None or "test" in facts.splits or facts.images * TEST_PERCENT < 100 * MIN_TEST_IMAGES:
        return None
    images = "images" if facts.is_partial else f"{facts.images:,} images"
    return Advice(
        {facts.test_field: str(TEST_PERCENT)},
        f"{TEST_PERCENT}% of the {images} are kept for testing: the model never sees them.",
    )
