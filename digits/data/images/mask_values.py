"""Find out what the pixel values of label images without a color map mean, from surveys of all of them.

Values are class indexes unless they cannot be: black and white, also with gray edges from JPEG or from smoothing, a few
shades of gray, and a few colors become classes, which a note says. Others are refused, with the most frequent values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from digits.data.images.masks import (
    FIRST_SHADE,
    VOC_BORDER,
    WHITE,
    Code,
    FoundColors,
    IndexCode,
    MaskSurvey,
    colors_of,
    pack,
    unpack,
)
from digits.data.sources.plan import UnusableSource, count_of
from digits.data.targets.mask import IGNORED
from digits.data.targets.palette import BACKGROUND, css_color

MAX_COLORS = 32
MAX_SHADES = 64
# So few can be classes even if none of them has an area.
_MAX_THIN_SHADES = 3
THRESHOLD = 128
_MOST_LISTED = 8
# Besides 255, which are pixels without a class, indexes are usually lower.
_FIRST_SHADE_BESIDES_WHITE = 32
# Values this close to black or white are meant to be it.
_NEAR, _NEAR_IN_AREAS = 32, 16
# Of the pixels in black and white label images, at most this share is gray, and of those in areas, this one.
_MAX_GRAY, _MAX_GRAY_IN_AREAS = 0.5, 0.01
# Indexes take up at least this share of the numbers up to the highest one.
_MIN_DENSITY = 0.25
_MIN_SHARE_IN_AREAS = 0.25
_MIN_SHARE_OF_INDEXES = 0.005

# Label images number their objects if there are at least this many objects in this many images, and either their
# count varies with few gaps, or most numbers occur in a single image.
_MIN_INSTANCES, _MIN_IMAGES_OF_INSTANCES = 4, 3
_MIN_NUMBERS, _MIN_RATIO, _MAX_GAPS = 3, 1.2, 0.1
_MIN_SINGLE, _MAX_SHARED = 0.75, 0.3

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Meaning:
    """How to decode label images, the names of the classes, and a sentence about what was recognized, or none."""

    code: Code
    names: list[str]
    note: str = ""


def recognize(surveys: Sequence[MaskSurvey], names: Sequence[str] = ()) -> Meaning:
    """Return the meaning of the values of all label images; ``names`` are those of the classes if they are known.

    Raises UnusableSource.
    """
    colored = [survey for survey in surveys if survey.colors]
    # JPEG can tint some images in black and white.
    of_color = colored if any(survey.is_jpeg for survey in colored) else [s for s in surveys if s.is_rgb]
    if colored and 2 * len(of_color) > len(surveys):
        return _recognize_colors(surveys, names)
    return _recognize_gray([survey for survey in surveys if not survey.colors], list(names))


def default_names(count: int) -> list[str]:
    """Return names for classes that have none."""
    return [BACKGROUND, *(f"class {number}" for number in range(1, count))]


def _recognize_gray(surveys: Sequence[MaskSurvey], names: list[str]) -> Meaning:
    palette = max((survey.palette for survey in surveys), key=len, default=b"")
    counts, solid = np.zeros(256, np.int64), np.zeros(256, np.int64)
    bits = np.zeros(256, np.int64)
    for survey in surveys:
        (bits if survey.is_bits else counts)[:] += survey.histogram()
        for value, count in survey.solid.items():
            solid[value] += count
    # Bits are black and white, or indexes like those of the other label images.
    places = [0, 1 if counts[1:FIRST_SHADE].any() else WHITE]
    counts[places] += bits[:2]
    values = np.flatnonzero(counts).tolist()
    highest = max((value for value in values if value != IGNORED), default=0)
    indexes = IndexCode(len(names) or highest + 1, palette=palette)
    plain = Meaning(indexes, names or default_names(indexes.classes))
    numbered = [value for value in values if value not in (0, WHITE)]
    if palette:
        if not names:
            _refuse_instances(surveys, numbered)
        return plain if names else _black_and_white_palettes(surveys) or plain
    if set(values) <= {0, WHITE} and (WHITE in values or bits.any()):
        code = IndexCode(max(2, len(names)), values=(0, WHITE))
        return Meaning(code, names or [BACKGROUND, "foreground"])
    if highest < len(names):
        return plain
    if (
        not names
        and values == [0, 1, WHITE]
        and not any({1, WHITE} <= set(survey.values) for survey in surveys)
    ):
        note = "Some label images use 1 for the foreground, others 255: both are taken as foreground."
        return Meaning(IndexCode(2, threshold=1), [BACKGROUND, "foreground"], note)
    if not names and values == [0]:
        return Meaning(
            indexes, plain.names, "All pixels of the label images have the value 0: there is one class."
        )
    is_jpeg = any(survey.is_jpeg for survey in surveys)
    has_indexes = any(map(_has_indexes, surveys))
    found = None if has_indexes and not is_jpeg else _divided(counts, solid, names, is_jpeg)
    if found is None and not is_jpeg and len(names) == 2 and _are_instances(surveys, numbered):
        note = f"The values number objects: those above 0 are “{names[1]}”."
        return Meaning(IndexCode(2, threshold=1), names, note)
    if found is None and not is_jpeg and not names:
        _refuse_instances(surveys, numbered)
    if found is None and not is_jpeg and not (names and has_indexes):
        found = _levels(values, solid, names)
    if names:
        return found or plain
    first_shade = _FIRST_SHADE_BESIDES_WHITE if WHITE in values else FIRST_SHADE
    # Two values are two classes: 255 is not that of pixels without a class.
    if highest < (1 if is_jpeg else first_shade) and not (len(values) == 2 and WHITE in values):
        return plain
    if found:
        return found
    in_areas = sum(value in values for value in np.flatnonzero(solid).tolist())
    if is_jpeg or 2 * in_areas < len(values) or solid.sum() < _MIN_SHARE_IN_AREAS * counts.sum():
        raise _unknown_values(counts, is_jpeg)
    return Meaning(indexes, plain.names, f"{len(values)} values: taken as class indexes, 0 to {highest}.")


def _black_and_white_palettes(surveys: Sequence[MaskSurvey]) -> Meaning | None:
    """Return the meaning of palettes of black and white, in any order, if images have no other colors.

    If white always has the index 0, indexes keep their meaning.
    """
    if {color for survey in surveys for color in colors_of(survey)} != {0, pack((WHITE,) * 3)}:
        return None
    if all(survey.palette[:3] == bytes([WHITE] * 3) for survey in surveys):
        return None
    return Meaning(FoundColors([(0, 0, 0), (WHITE, WHITE, WHITE)]), [BACKGROUND, "foreground"])


def _has_indexes(survey: MaskSurvey) -> bool:
    """Return whether an image has areas of indexes above 0, and no shades of gray."""
    counts = survey.histogram()
    indexes = counts[1:FIRST_SHADE].sum()
    return not counts[FIRST_SHADE:IGNORED].any() and bool(indexes > _MIN_SHARE_OF_INDEXES * counts.sum())


def _divided(counts: Counts, solid: Counts, names: list[str], is_jpeg: bool) -> Meaning | None:
    """Return the meaning of black and white with gray edges, or None if the values are others."""
    dark, bright = counts[: _NEAR + 1].sum(), counts[WHITE - _NEAR :].sum()
    between = counts[_NEAR + 1 : WHITE - _NEAR]
    gray_areas = solid[_NEAR_IN_AREAS + 1 : WHITE - _NEAR_IN_AREAS].sum()
    bright_areas = solid[WHITE - _NEAR_IN_AREAS :].sum()
    if not (dark and bright) or len(names) not in (0, 2):
        return None
    if between.sum() > _MAX_GRAY * counts.sum() or gray_areas > _MAX_GRAY_IN_AREAS * bright_areas:
        return None
    # Smoothing leads to several shades.
    if np.count_nonzero(counts[1:WHITE]) == 1 and not is_jpeg:
        return None
    cause = "JPEG changed the values" if is_jpeg else "Smoothing changed the values at the edges"
    both = names or [BACKGROUND, "foreground"]
    note = f"{cause} of the label images: divided at {THRESHOLD} into {' and '.join(both)}."
    return Meaning(IndexCode(2, threshold=THRESHOLD), both, note)


def _levels(values: list[int], solid: Counts, names: list[str]) -> Meaning | None:
    """Return the meaning of a few shades of gray, or None if the values are others."""
    count, in_areas = len(values), np.count_nonzero(solid)
    if count > MAX_SHADES or (count > _MAX_THIN_SHADES and 2 * in_areas < count):
        return None
    if count >= _MIN_DENSITY * (values[-1] + 1) or len(names) not in (0, count):
        return None
    listed = ", ".join(map(str, values))
    note = f"{count_of(count, 'gray level')}: taken as {count_of(count, 'class')} ({listed})."
    default = [BACKGROUND, "foreground"] if count == 2 else default_names(count)
    return Meaning(IndexCode(count, values=tuple(values)), names or default, note)


def _refuse_instances(surveys: Sequence[MaskSurvey], numbered: Sequence[int]) -> None:
    """Raise UnusableSource if the values or colors ``numbered`` are those of objects instead of classes."""
    if not _are_instances(surveys, numbered):
        return
    are_colors = any(survey.colors for survey in surveys)
    raise UnusableSource(
        f"The {'colors' if are_colors else 'values'} of the label images seem to be those of single objects "
        f"(instances), not of classes: {len(numbered)} besides the background, in another number in each image.",
        "Save label images with a color for each class. If these are classes, enter a color map."
        if are_colors
        else "If they are classes, enter a file of class labels with all of them. Otherwise, enter one with two lines, "
        "the names of the background and of the objects, or save label images with a value for each class.",
    )


def _are_instances(surveys: Sequence[MaskSurvey], numbered: Sequence[int]) -> bool:
    """Return whether the values or colors ``numbered`` are those of objects instead of classes.

    Values count the objects of each image from the lowest one, or almost none of them occurs in two images. Colors are
    in the order of their frequency.
    """
    is_colored = any(survey.colors for survey in surveys)
    contained = [colors_of(survey) if is_colored else survey.values for survey in surveys]
    images_of = Counter(value for values in contained for value in values if value in set(numbered))
    order = sorted(images_of, key=lambda value: (-images_of[value] if is_colored else 0, value))
    ranks = {value: rank for rank, value in enumerate(order, 1)}
    used = [found for values in contained if (found := [ranks[value] for value in values if value in ranks])]
    if len(used) < _MIN_IMAGES_OF_INSTANCES or len(order) < _MIN_INSTANCES:
        return False
    numbers, highest = [len(found) for found in used], sum(map(max, used))
    differ = len(set(numbers)) >= _MIN_NUMBERS and max(numbers) >= _MIN_RATIO * min(numbers)
    are_counted = differ and highest - sum(numbers) <= _MAX_GAPS * highest
    single = sum(count == 1 for count in images_of.values())
    are_single = sum(numbers) >= 2 * len(used) and single >= _MIN_SINGLE * len(order)
    return are_counted or (are_single and max(images_of.values()) <= max(2, _MAX_SHARED * len(used)))


def _recognize_colors(surveys: Sequence[MaskSurvey], names: Sequence[str]) -> Meaning:
    usable = [survey for survey in surveys if not survey.is_cut and len(colors_of(survey)) <= MAX_COLORS]
    # A few other images do not prevent it: these cannot be used.
    chosen = usable if 10 * len(usable) > 9 * len(surveys) else surveys
    totals: Counter[int] = Counter()
    for survey in chosen:
        totals.update(colors_of(survey))
    if names or len(totals) > MAX_COLORS or any(survey.is_jpeg for survey in chosen):
        raise _unknown_colors(totals, surveys)
    totals.pop(pack(VOC_BORDER), None)
    background = 0 if 0 in totals else min(totals, key=lambda color: (-totals[color], color))
    _refuse_instances(chosen, [color for color in totals if color != background])
    ordered = [background, *sorted(color for color in totals if color != background)]
    colors = [unpack(color) for color in ordered]
    words = [css_color(color) for color in colors]
    note = f"{count_of(len(words), 'color')}: taken as {count_of(len(words), 'class')} ({', '.join(words)})."
    return Meaning(FoundColors(colors), [BACKGROUND, *words[1:]], note)


def _unknown_values(counts: Counts, is_jpeg: bool) -> UnusableSource:
    listed = _most_frequent({str(value): int(counts[value]) for value in np.flatnonzero(counts).tolist()})
    cause = (
        "JPEG changed the values of the label images"
        if is_jpeg
        else "The classes of the label images are unclear"
    )
    return UnusableSource(
        f"{cause}: {np.count_nonzero(counts):,} values, {listed}.",
        "Save them as PNG files without smoothing, with a value for each class. If the values are class indexes, enter "
        "a file of class labels.",
    )


def _unknown_colors(totals: Mapping[int, int], surveys: Sequence[MaskSurvey]) -> UnusableSource:
    listed = _most_frequent({css_color(unpack(color)): count for color, count in totals.items()})
    cause = (
        "JPEG changed the colors of the label images"
        if any(survey.is_jpeg for survey in surveys)
        else "The classes of the colors of the label images are not known"
    )
    more = "More than " if any(survey.is_cut for survey in surveys) else ""
    return UnusableSource(
        f"{cause}: {more}{count_of(len(totals), 'color')}, {listed}.",
        "Enter a color map: a text file with the red, green and blue of each class per line, such as 128 0 0. "
        "Label images must be PNG files without smoothing, and have a color for each class instead of each object.",
    )


def _most_frequent(counts: Mapping[str, int]) -> str:
    """List the most frequent of ``counts`` with the number of their pixels."""
    most = sorted(counts, key=lambda name: (-counts[name], name))
    listed = ", ".join(f"{name} ({counts[name]:,} pixels)" for name in most[:_MOST_LISTED])
    more = len(most) - _MOST_LISTED
    return f"{listed} and {more:,} more" if more > 0 else listed
