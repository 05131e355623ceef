"""Plan a part of the dataset in a form: the summary of its source, and its first records as creation would store them.

`digits.kinds.forms.scanning` calls this in its own process: images are decoded here.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from digits.core.recipe import MAX_SIDE_PIXELS, CreateDataset
from digits.data.databases.convert import HEAD, Converted
from digits.data.images import images
from digits.data.images.object_sizes import LostObjects
from digits.data.records.features import ExampleFeatures, FeatureInfo, ImageFeature, describe_features
from digits.data.records.index import DamagedRecords
from digits.data.records.maker import RecordMaker, UnusablePart
from digits.data.records.pictures import picture_of
from digits.data.sources.causes import LIMIT_FIELD, Causes, enough_percent
from digits.data.sources.plan import (
    ImageFolder,
    Plan,
    Progress,
    Remark,
    SkippedParts,
    SplitPlan,
    UnusableSource,
    WiderValues,
    count_of,
    show,
)
from digits.data.sources.shares import CreateWithShares
from digits.data.targets.target import Target
from digits.kinds import kind_named
from digits.kinds.forms.summary import SourceSummary, Suggestion
from digits.kinds.recipes import convert_source, has_databases, read_source
from digits.kinds.sources.records import NO_TARGET
from digits.kinds.versions.additions import unite

# Limits of a summary; its cost is dominated by listing this many files.
MAX_FILES = 200_000
MAX_SECONDS = 20.0
# Larger tables are summarized from their beginning.
MAX_BYTES = 32 << 20
# Interval between summaries of an unfinished scan, in seconds.
SECONDS_BETWEEN = 0.7
MAX_COLUMNS, MAX_CELL_CHARACTERS, MAX_FEATURES = 20, 80, 50
SAMPLE_IMAGES = 32
# The records of each database that are converted.
SAMPLE_RECORDS = 1000
MAX_SAMPLE_BYTES = 32_000_000
MAX_SAMPLE_PIXELS = 20_000_000
THUMBNAIL = (96, 96)
MAX_PREVIEWS = 12
# All images of smaller sources are decoded, to compare those that cannot be used with the limit.
MAX_IMAGES_TRIED = 64
SECONDS = 8

Item = TypeVar("Item")
Advise = Callable[[SourceSummary, int], Mapping[str, Any]]


class _TimeIsUp(BaseException):
    """Not an Exception, so that no reader handles it."""


class PartialProgress(Progress):
    """Reads a part of a source, within the limits of this module, and collects a ``summary`` of it.

    ``send`` receives the summary at intervals while the source is read.
    """

    def __init__(self, send: Callable[[SourceSummary], None] = lambda summary: None) -> None:
        self.summary = SourceSummary(finished=False)
        self.max_bytes = MAX_BYTES
        self._send = send
        self._next = time.monotonic() + SECONDS_BETWEEN

    def reading(self, what: str) -> None:
        self._show(what)

    def take(self, items: Iterable[Item]) -> Iterator[Item]:
        end = time.monotonic() + MAX_SECONDS
        for count, item in enumerate(items, 1):
            yield item
            if count >= MAX_FILES or time.monotonic() > end:
                self.is_partial = True
                return
            self._show(f"{count:,} read so far.")

    def sample(self, items: Sequence[Item]) -> Sequence[Item]:
        count = min(len(items), MAX_IMAGES_TRIED)
        return [items[number * len(items) // count] for number in range(count)]

    def say(self, fact: str, *, is_problem: bool = False) -> None:
        (self.summary.problems if is_problem else self.summary.facts).append(fact)

    def show_rows(
        self, names: Sequence[str], rows: Sequence[Sequence[str]], roles: Mapping[int, str]
    ) -> None:
        self.summary.table_head = [
            f"{show(name)} ({roles[index]})" if index in roles else show(name)
            for index, name in enumerate(names[:MAX_COLUMNS])
        ]
        self.summary.table = [[_shorten(cell) for cell in cells[:MAX_COLUMNS]] for cells in rows]

    def show_features(
        self,
        features: ExampleFeatures,
        image: ImageFeature | None = None,
        *,
        guessed: Mapping[str, str],
        chosen: Mapping[str, str],
        none: Mapping[str, str],
    ) -> None:
        """Show a table of the ``features`` of the first record, and offer them for the fields of the form.

        ``guessed`` has the feature of each field by default, or an empty string. The features that are ``chosen`` have
        the names of their fields beside them, and the ``image`` is a picture. ``none`` contains the fields that can be
        left without a feature, and the words of that choice.
        """
        summary, described = self.summary, describe_features(features)
        roles = {
            name: field.partition("_")[0] for field, names in chosen.items() for name in names.split(", ")
        }
        summary.table_title = "Features of the first record"
        summary.table_head = ["Feature", "Type", "Values", "First record"]
        summary.table = [
            [
                show(item.name) + (f" ({roles[item.name]})" if item.name in roles else ""),
                item.type,
                f"{item.length:,}",
                item.example,
            ]
            for item in described[:MAX_FEATURES]
        ]
        summary.pictures = [_picture(item, features, image) for item in described[:MAX_FEATURES]]
        try:
            if image is not None:
                image.encoded(features)
        except images.UnusableImage as error:
            summary.problems.append(f"The first record has no usable image: {error.reason}.")
        if len(described) > MAX_FEATURES:
            self.say(f"{len(described) - MAX_FEATURES} more features.")
        names = [(item.name, f"{show(item.name)}: {item.type}") for item in described]
        for field, name in guessed.items():
            missing = "Automatic: none" if field in none else "None" if chosen else "Choose a feature"
            first = ("", f"Automatic: {show(name)}" if name else missing)
            choices = [(NO_TARGET, none[field])] if field in none else []
            summary.options[field] = [first, *choices, *names]

    def offer(self, field: str, options: Sequence[tuple[str, str]]) -> None:
        self.summary.options[field] = [*options]

    def _show(self, fact: str) -> None:
        """Send that the source is being read, if the last summary was sent long enough ago."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_BETWEEN
            self._send(replace(self.summary, facts=[fact]))


def _measure_images(summary: SourceSummary, split: SplitPlan) -> None:
    """Add the formats, the sizes and whether there are colors in a sample of the images to ``summary``."""
    root = split.images.root if isinstance(split.images, ImageFolder) else None
    count, end = min(len(split), SAMPLE_IMAGES), time.monotonic() + MAX_SECONDS
    formats: Counter[str] = Counter()
    are_gray = True
    for number in range(count):
        # Only files can be read in any order without cost.
        name = split.files[number * len(split) // count if root else number]
        with contextlib.suppress(images.UnusableImage, OSError):
            if time.monotonic() > end or (root and os.stat(root / name).st_size > MAX_SAMPLE_BYTES):
                continue
            data = split.images.read(name)
            format_name, size = images.header(data)
            if format_name == "JPEG" or math.prod(size) <= MAX_SAMPLE_PIXELS:
                formats[format_name] += 1
                summary.sizes.append(size)
                are_gray = are_gray and images.is_gray(data, max_pixels=MAX_SAMPLE_PIXELS)
    if sizes := summary.sizes:
        low, high = ("{} × {}".format(*extreme(sizes, key=math.prod)) for extreme in (min, max))
        both = low if low == high else f"{low} to {high}"
        named = " and ".join(name for name, _ in formats.most_common(3))
        summary.facts.append(f"{count_of(len(sizes), 'image')} examined: {named}, {both} pixels.")
        summary.are_gray = are_gray


def summarize(
    form: Any,
    send: Callable[[SourceSummary], None] = lambda summary: None,
    advise: Advise = lambda summary, images: {},
) -> SourceSummary:
    """Return the summary of the source in the ``form`` of a dataset; ``send`` receives it before it is complete.

    ``advise`` returns settings of the recipe for what was found in a number of images, and adds its reasons to the
    summary. Raises DigitsError for a path or a choice that is not valid.
    """
    errors = form.complete_source()
    progress = PartialProgress(send)
    summary = progress.summary
    summary.suggestion = form.suggestion
    if form.are_of_source(errors):
        summary.problems = [text for texts in errors.values() for text in texts]
        return replace(summary, errors=errors, finished=True)
    converted = None
    with contextlib.ExitStack() as stack:
        if form.used_uploads():
            form.save_uploads(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        try:
            recipe = _recipe_of(form, is_valid=not errors)
            summary.suggestion = form.suggestion or form.source.suggest(form, recipe)
            if has_databases(recipe):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                recipe, converted = convert_source(recipe, folder, progress, SAMPLE_RECORDS)
            plan = read_part(recipe, progress)
            if form.meta.adds_to:
                _match(form.meta.adds_to, plan.target, progress)
            if converted:
                _describe_databases(converted, progress)
        except (UnusableSource, OSError) as error:
            if progress.is_partial:  # the rest may have what is missing
                summary.facts.append("The source is examined when the dataset is created.")
            else:
                words = error.sentences if isinstance(error, UnusableSource) else f"{error}."
                # A check may know more.
                errors = form.check_source() or {**errors, form.source_field(): [words]}
                summary.problems += [text for texts in errors.values() for text in texts]
            return replace(summary, errors=errors, finished=True)
        said = summary.suggestion.text if summary.suggestion else ""
        notes = [note for note in (*form.notes, *form.found) if note != said]
        _describe(plan, recipe, notes, progress)
        if form.has_images and plan.stacked == 1:
            _measure_images(summary, plan.splits["train"])
        send(replace(summary, errors=errors, finished=True))
        if not errors:
            recipe = structs.replace(recipe, **advise(summary, plan.count_images()))
            if lost := plan.lost(recipe):
                summary.remedies.append(_enlarge(lost, recipe))
            if form.has_images:
                with contextlib.suppress(OSError):
                    if not add_records(summary, plan, recipe):
                        errors = {form.source_field(): summary.problems[-1:]}
    return replace(summary, errors=errors, finished=True)


def _match(target: Target, found: Target, progress: PartialProgress) -> None:
    """Ask whether a dataset with the ``target`` gets the new classes of ``found``; raises UnusableSource."""
    try:
        unite(target, found)
    except UnusableSource as error:
        if not error.remedy:
            raise
        progress.say(error.message)
        fields = dict.fromkeys(error.remedy, True)
        question = Suggestion(error.sentences, "Add new classes", {**fields}, stops=True)
        progress.summary.remedies.append(question)


def _describe_databases(converted: Converted, progress: PartialProgress) -> None:
    """Replace what the summary says about TFRecord files by the databases that were ``converted``."""
    summary, splits = progress.summary, converted.splits
    total = sum(split.count for split in splits.values())
    summary.facts[:1] = [f"{count_of(total, 'record')} in {count_of(len(splits), 'database')}."]
    summary.table_title, summary.table_head = "Databases", HEAD
    summary.table = [split.row(name) for name, split in splits.items()]
    summary.pictures, summary.options = [], {}
    faults = Causes()
    for item in converted.unusable:
        faults.add(item.path, item.reason)
    if faults.count:
        count = count_of(faults.count, "record")
        progress.say(f"{count} cannot be used: {faults.describe()}. {faults.remedy}", is_problem=True)
    summary.problems += converted.warnings


def _recipe_of(form: Any, is_valid: bool) -> Any:
    with contextlib.suppress(UnusableSource):  # the reader raises it again, after it has shown the source
        if is_valid:
            return form.recipe()
    return form.draft()


def read_part(recipe: CreateDataset, progress: PartialProgress) -> Plan:
    """Plan ``recipe`` with the splits that the source declares, and without a limit of unusable images."""
    undivided = {"pct_val": 0.0, "pct_test": 0.0} if isinstance(recipe, CreateWithShares) else {}
    return read_source(structs.replace(recipe, max_unusable_percent=100.0, **undivided), progress)


def _describe(plan: Plan, recipe: CreateDataset, notes: Sequence[str], progress: PartialProgress) -> None:
    """Add what is known from the ``plan`` to the summary, with a sample of the images."""
    summary, train = progress.summary, plan.splits["train"]
    counts = {name: len(split) for name, split in plan.splits.items()}
    if not progress.is_partial:
        summary.total = sum(counts.values())
        summary.splits = counts if len(counts) > 1 else {}
    remarks = [text for text in plan.warnings if isinstance(text, Remark)]
    summary.facts = list(dict.fromkeys([*summary.facts[:1], *notes, *summary.facts[1:], *remarks]))
    # Parts that were not read may be what others lack.
    reliable = SkippedParts if progress.is_partial else str
    problems = [text for text in plan.warnings if isinstance(text, reliable) and not isinstance(text, Remark)]
    summary.problems = [*problems, *summary.problems]
    needed = max((text.percent for text in plan.warnings if isinstance(text, SkippedParts)), default=0)
    if needed > recipe.max_unusable_percent and not progress.is_partial:
        summary.remedies.append(_raise_limit(recipe.max_unusable_percent, needed))
    title = kind_named(recipe.kind).load("views").Views.distribution
    if plan.counted and title:
        totals = plan.counts(train, range(len(train))).tolist()
        summary.set_bars(title, list(zip(plan.counted, totals, strict=True)))


def add_records(summary: SourceSummary, plan: Plan, recipe: CreateDataset) -> bool:
    """Make the first records of the ``plan``, and add pictures of them and their problems to ``summary``.

    Return whether there may be a usable one.
    """
    plan.target = plan.target.sized(recipe.width, recipe.height)
    maker = RecordMaker(recipe, plan)
    total = plan.count_images() + sum(item.is_image for item in plan.unusable)
    broken, reasons = set[str](), list[tuple[str, str]]()
    tried = 0
    with contextlib.suppress(_TimeIsUp), _time_limit():
        for name, place in _places(plan, total):
            split = plan.splits[name]
            tried += 1
            try:
                record = _make(maker, plan, split, place)
            except (UnusablePart, images.UnusableImage, OSError) as error:
                part = error.name if isinstance(error, UnusablePart) else split.files[place]
                reason = error.error if isinstance(error, UnusablePart) else error
                broken.add(split.path_of(part))
                if not isinstance(reason, FileNotFoundError):  # which the plan has reported
                    reasons.append((show(part), images.reason_of(reason)))
                continue
            if name == "train" and len(summary.previews) < MAX_PREVIEWS:
                with contextlib.suppress(DamagedRecords):  # a kind that decodes its targets itself
                    value = record.target(plan.target)
                    picture = picture_of(record.as_pixels(), value, plan.target, plan.target.describe(value))
                    summary.previews.append(msgspec.to_builtins(picture))
    causes = Causes()
    for part, why in sorted(reasons):
        causes.add(part, why)
    if causes.count:
        limit = recipe.max_unusable_percent
        are_few = causes.count * 100 <= tried * limit
        rule = "They are skipped." if are_few else f"At most {limit:g}% of all images may be unusable."
        summary.problems.append(
            f"{causes.count:,} of {count_of(tried, 'image')} examined cannot be used: {causes.describe()}. "
            f"{rule} {causes.remedy}"
        )
    if 0 < plan.bits < images.FULL_BITS:
        summary.facts.append(f"16-bit images use {plan.bits} bits: they will be stretched.")
    count = len(broken) + sum(item.is_image for item in plan.unusable)
    if total <= MAX_IMAGES_TRIED and total > count and count * 100 > total * recipe.max_unusable_percent:
        others = [remedy for remedy in summary.remedies if not remedy.stops]
        summary.remedies = [*others, _raise_limit(recipe.max_unusable_percent, enough_percent(count, total))]
    return not causes.count or causes.count < tried or tried < total


def _make(maker: RecordMaker, plan: Plan, split: SplitPlan, place: int) -> Any:
    try:
        return maker.make(split, place)[0]
    except WiderValues as wider:
        plan.bits = wider.bits
        return maker.make(split, place)[0]


def _places(plan: Plan, total: int) -> Iterator[tuple[str, int]]:
    """Yield the records to make: all of a few, else training records of different groups and a sample."""
    train = plan.splits["train"]
    seen: dict[int, int] = {}
    for place, group in enumerate(train.groups):
        seen.setdefault(group, place)
        if len(seen) == MAX_PREVIEWS:
            break
    first = [seen[group] for group in sorted(seen)]
    others = [place for place in range(len(train)) if place not in seen.values()]
    if total > MAX_IMAGES_TRIED:
        # Only files can be read in any order without cost.
        step = max(1, len(others) // SAMPLE_IMAGES) if isinstance(train.images, ImageFolder) else 1
        others = others[::step][: SAMPLE_IMAGES if step > 1 else 2 * MAX_PREVIEWS - len(first)]
    yield from (("train", place) for place in (*first, *others))
    if total <= MAX_IMAGES_TRIED:
        for name, split in plan.splits.items():
            if name != "train":
                yield from ((name, place) for place in range(len(split)))


def _raise_limit(limit: float, percent: float) -> Suggestion:
    text = f"More images than the limit of {limit:g}% cannot be used. Create the dataset without them?"
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


def _thumbnail(data: bytes) -> str:
    """Return a small picture of an image file as a URI; raises UnusableImage."""
    opened = images.open_picture(data, 3, enough=THUMBNAIL, max_pixels=MAX_SAMPLE_PIXELS, bits=None)
    opened.image.thumbnail(THUMBNAIL)
    return images.data_uri(images.encode_image(opened.image, "png"))


def _shorten(cell: str) -> str:
    text = show(cell)
    return f"{text[:MAX_CELL_CHARACTERS]}…" if len(text) > MAX_CELL_CHARACTERS else text


def _picture(item: FeatureInfo, features: ExampleFeatures, image: ImageFeature | None) -> str:
    """Return a small picture of a feature as a URI; empty if it is no image."""
    try:
        is_chosen = image is not None and item.name == image.name
        data = image.encoded(features) if image is not None and is_chosen else item.image
        return _thumbnail(data) if data else ""
    except images.UnusableImage:
        return ""
