"""The plan of a dataset while its form is filled in: its splits, and its first records as creation would store them.

`digits.kinds.forms.scanning` calls this in its own process: images are decoded here.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import msgspec
from msgspec import structs

from digits.core.recipe import MAX_SIDE_PIXELS, CreateDataset
from digits.data.images import images
from digits.data.images.object_sizes import LostObjects
from digits.data.records.index import DamagedRecords
from digits.data.records.maker import RecordMaker, UnusablePart
from digits.data.records.pictures import picture_of
from digits.data.sources.causes import LIMIT_FIELD, enough_percent
from digits.data.sources.plan import NoProgress, Plan, SplitPlan, UnusableSource, WiderValues
from digits.data.sources.shares import CreateWithShares
from digits.kinds.forms.summary import Suggestion
from digits.kinds.recipes import read_source

MAX_PREVIEWS = 12
# All images of smaller sources are decoded, to compare those that cannot be used with the limit.
MAX_IMAGES_TRIED = 64
SECONDS = 8


@dataclass
class Preview:
    """The ``pictures`` of the first records, see `digits.core.augmentation_preview.Picture`, and ``suggestions``.

    ``total`` is the number of records, and ``splits`` those of each split if the source declares them. ``problem`` is
    the reason why the dataset cannot be created.
    """

    pictures: list[dict[str, Any]] = field(default_factory=list)
    suggestions: list[Suggestion] = field(default_factory=list)
    total: int = 0
    splits: dict[str, int] = field(default_factory=dict)
    problem: str = ""


class _TimeIsUp(BaseException):
    """Not an Exception, so that no reader handles it."""


def preview(
    recipe: CreateDataset,
    *,
    has_images: bool = True,
    advise: Callable[[Preview], Mapping[str, Any]] = lambda summary: {},
) -> Preview:
    """Plan the dataset that ``recipe`` describes, and make its first records; stop after a few seconds.

    ``advise`` returns settings of the recipe for its splits. Without ``has_images``, no records are made.
    """
    summary = Preview()
    # Then the splits of the plan are those that the source declares.
    undivided = {"pct_val": 0.0, "pct_test": 0.0} if isinstance(recipe, CreateWithShares) else {}
    recipe = structs.replace(recipe, **undivided)
    with contextlib.suppress(_TimeIsUp, OSError), _time_limit():
        limit = recipe.max_unusable_percent
        try:
            _add(summary, recipe, has_images, advise)
        except UnusableSource as error:
            if LIMIT_FIELD not in error.remedy:
                summary.problem = error.sentences
                return summary
            percent = recipe.max_unusable_percent = float(error.remedy[LIMIT_FIELD])
            summary.suggestions.append(_raise_limit(limit, percent))
            with contextlib.suppress(UnusableSource):
                _add(summary, recipe, has_images, advise)
    return summary


def _add(
    found: Preview,
    recipe: CreateDataset,
    has_images: bool,
    advise: Callable[[Preview], Mapping[str, Any]],
) -> None:
    plan = read_source(recipe, NoProgress())
    counts = {name: len(split) for name, split in plan.splits.items()}
    found.total, found.splits = sum(counts.values()), counts if len(counts) > 1 else {}
    recipe = structs.replace(recipe, **advise(found))
    if lost := plan.lost(recipe):
        found.suggestions.append(_enlarge(lost, recipe))
    if not has_images:
        return
    plan.target = plan.target.sized(recipe.width, recipe.height)
    maker = RecordMaker(recipe, plan)
    total = plan.count_images() + sum(item.is_image for item in plan.unusable)
    places = _places(plan)
    if total > MAX_IMAGES_TRIED:
        places = itertools.islice(places, 2 * MAX_PREVIEWS)
    broken = set[str]()
    for name, place in places:
        split = plan.splits[name]
        try:
            record = _make(maker, plan, split, place)
        except UnusablePart as error:
            broken.add(error.name)
            continue
        except (images.UnusableImage, OSError):
            broken.add(split.path_of(split.files[place]))
            continue
        if name == "train" and len(found.pictures) < MAX_PREVIEWS:
            with contextlib.suppress(DamagedRecords):  # a kind that decodes its targets itself
                value = record.target(plan.target)
                picture = picture_of(record.as_pixels(), value, plan.target, plan.target.describe(value))
                found.pictures.append(msgspec.to_builtins(picture))
        if len(found.pictures) == MAX_PREVIEWS and total > MAX_IMAGES_TRIED:
            break
    count = len(broken) + sum(item.is_image for item in plan.unusable)
    if total <= MAX_IMAGES_TRIED and total > count and count * 100 > total * recipe.max_unusable_percent:
        others = [suggestion for suggestion in found.suggestions if not suggestion.stops]
        found.suggestions = [*others, _raise_limit(recipe.max_unusable_percent, enough_percent(count, total))]


def _make(maker: RecordMaker, plan: Plan, split: SplitPlan, place: int) -> Any:
    try:
        return maker.make(split, place)[0]
    except WiderValues as wider:
        plan.bits = wider.bits
        return maker.make(split, place)[0]


def _places(plan: Plan) -> Iterator[tuple[str, int]]:
    """Yield all records, first a few training records of different groups."""
    train = plan.splits["train"]
    seen: dict[int, int] = {}
    for place, group in enumerate(train.groups):
        seen.setdefault(group, place)
        if len(seen) == MAX_PREVIEWS:
            break
    first = [seen[group] for group in sorted(seen)]
    yield from (("train", place) for place in first)
    yield from (("train", place) for place in range(len(train)) if place not in first)
    for name, split in plan.splits.items():
        if name != "train":
            yield from ((name, place) for place in range(len(split)))


def _raise_limit(limit: float, percent: float) -> Suggestion:
    text = f"Unusable images exceed the limit of {limit:g}%: the dataset cannot be created."
    return Suggestion(text, f"Skip up to {percent:g}%", {LIMIT_FIELD: f"{percent:g}"}, stops=True)


def _enlarge(lost: LostObjects, recipe: CreateDataset) -> Suggestion:
    width, height = (min(side, MAX_SIDE_PIXELS) for side in lost.size)
    fields: dict[str, str | bool] = {
        "resize_width": str(width),
        "resize_height": str(height),
        "resize_mode": recipe.resize_mode,
    }
    return Suggestion(lost.words, f"Resize to {width}×{height}", fields)


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
