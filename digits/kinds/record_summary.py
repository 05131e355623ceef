"""Summarize TFRecord files for the form: the features of the first record, and counts of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from digits.data import images, tfrecords
from digits.data.images import UnusableImage
from digits.data.record_features import FeatureInfo, Features, ImageFeature, describe_features
from digits.data.record_files import RecordFiles
from digits.data.sources import UnusableSource, count_of, listed, show
from digits.data.tables import first_lines
from digits.kinds.record_source import RecordSource, first_record
from digits.kinds.source_summary import Pace, SourceSummary

MAX_FEATURES = 50
THUMBNAIL = (96, 96)
HEAD = ["Feature", "Type", "Values", "First record"]


class RecordMapping(Protocol):
    """How the records of some files become images with targets.

    ``chosen`` contains the features in use, by the fields of the form; several of a field are separated by commas.
    """

    image: ImageFeature
    chosen: dict[str, str]

    def check(self, features: Features) -> None:
        """Read the target of a record; raises ValueError with a message if it cannot be used."""

    def describe(self, summary: SourceSummary) -> None:
        """Add what was found in the checked records to ``summary``."""


def summarize_source(
    source: RecordSource,
    guess: Callable[[RecordFiles, Features], Mapping[str, str]],
    map_records: Callable[[RecordFiles, Features], RecordMapping],
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of the files of ``source``; the last one is finished.

    ``guess`` returns the feature that each field of the form has by default, and ``map_records`` the mapping of the
    records, from the files and their first record; the latter raises UnusableSource.
    """
    start = SourceSummary()
    try:
        files = source.find()
        first = first_record(files.splits["train"])
        guessed = dict(guess(files, first))
    except UnusableSource as error:
        yield SourceSummary.unusable(error)
        return
    try:
        mapping = map_records(files, first)
    except UnusableSource as error:
        start.facts.append(files.describe())
        start.problems.append(error.sentences)
        show_features(start, first, guessed, {})
        yield start
        return
    show_features(start, first, guessed, mapping.chosen, mapping.image)
    try:
        mapping.image.encoded(first)
    except UnusableImage as error:
        start.problems.append(f"The first record has no usable image: {error.reason}.")
    yield from summarize_records(files, start, mapping.check, mapping.describe)


def show_features(
    summary: SourceSummary,
    features: Features,
    guessed: dict[str, str],
    chosen: dict[str, str],
    image: ImageFeature | None = None,
) -> None:
    """Add a table of ``features`` to ``summary``, and the choices of the form's fields.

    ``guessed`` contains the feature that each field has by default, or an empty string, and ``chosen`` those in use.
    The ``image`` is shown as a picture.
    """
    found = describe_features(features)
    roles = {name: field.partition("_")[0] for field, names in chosen.items() for name in names.split(", ")}
    summary.table_title = "Features of the first record"
    summary.table_head = HEAD
    summary.table = [
        [
            show(item.name) + (f" ({roles[item.name]})" if item.name in roles else ""),
            item.type,
            f"{item.length:,}",
            item.example,
        ]
        for item in found[:MAX_FEATURES]
    ]
    summary.pictures = [_picture(item, features, image) for item in found[:MAX_FEATURES]]
    names = [(item.name, f"{show(item.name)}: {item.type}") for item in found]
    summary.options = {
        field: [("", f"Automatic: {show(name)}" if name else "Choose a feature"), *names]
        for field, name in guessed.items()
    }
    if len(found) > MAX_FEATURES:
        summary.facts.append(f"{len(found) - MAX_FEATURES} more features.")


def _picture(item: FeatureInfo, features: Features, image: ImageFeature | None) -> str:
    """Return a small picture of a feature as a URI; empty if it is no image."""
    try:
        is_chosen = image is not None and item.name == image.name
        data = image.encoded(features) if image is not None and is_chosen else item.image
        if not data:
            return ""
        picture = images.open_picture(data, 3, enough=THUMBNAIL, max_pixels=20_000_000).image
    except UnusableImage:
        return ""
    picture.thumbnail(THUMBNAIL)
    return images.data_uri(images.encode_image(picture, "png"))


def summarize_records(
    files: RecordFiles,
    start: SourceSummary,
    read: Callable[[Features], None],
    describe: Callable[[SourceSummary], None],
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of the training records; the last one is finished.

    ``start`` adds the features of the first record to a summary. ``read`` takes the features of each record; it raises
    ValueError with a message for one that cannot be used. ``describe`` adds what was found.
    """
    pace = Pace()
    count = 0
    is_complete = False
    faults: list[str] = []

    def summarize() -> SourceSummary:
        made = SourceSummary(
            facts=[
                files.describe(),
                f"{'' if is_complete else 'At least '}{count_of(count, 'training record')}.",
            ],
            table_title=start.table_title,
            table_head=start.table_head,
            table=start.table,
            pictures=start.pictures,
            options=start.options,
        )
        made.facts += start.facts
        made.problems = list(start.problems)
        if files.ignored:
            made.facts.append(f"Other splits are ignored: {listed(files.ignored)}.")
        if faults:
            made.problems.append(f"{count_of(len(faults), 'record')} cannot be used: {first_lines(faults)}.")
        describe(made)
        return made

    try:
        for path in files.splits["train"]:
            for frame, features in tfrecords.examples(path):
                count += 1
                try:
                    read(features)
                except ValueError as error:
                    faults.append(f"{show(path.name)}, record {frame.number:,}: {error}")
                if pace.is_over(count):
                    yield summarize()
                    return
                if pace.is_due():
                    summary = summarize()
                    summary.finished = False
                    yield summary
        is_complete = True
    except UnusableSource as error:
        faults.append(error.message.rstrip("."))
    yield summarize()
