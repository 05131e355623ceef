"""Summarize TFRecord files for the form: the features of the first record, and counts of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from digits.data.images.images import UnusableImage
from digits.data.records import tfrecords
from digits.data.records.features import ExampleFeatures, FeatureInfo, ImageFeature, describe_features
from digits.data.records.files import RecordFiles
from digits.data.sources.causes import Causes
from digits.data.sources.plan import UnusableSource, count_of, listed, show
from digits.kinds.forms.summary import Overview, SourceSummary, thumbnail
from digits.kinds.sources.records import NO_TARGET, first_record

MAX_FEATURES = 50
HEAD = ["Feature", "Type", "Values", "First record"]


class DescribedRecords(Protocol):
    """How the records of some files become images, or arrays, with targets.

    ``chosen`` contains the features in use, by the fields of the form; several of a field are separated by commas.
    """

    chosen: dict[str, str]

    @property
    def image(self) -> ImageFeature | None:
        """The feature of the image; None if the records contain arrays."""

    def check(self, features: ExampleFeatures) -> None:
        """Read the target of a record; raises ValueError with a message if it cannot be used."""

    def describe(self, summary: SourceSummary) -> None:
        """Add what was found in the checked records to ``summary``."""


def summarize_source(
    find: Callable[[], RecordFiles],
    guess: Callable[[RecordFiles, ExampleFeatures], Mapping[str, str]],
    map_records: Callable[[RecordFiles, ExampleFeatures], DescribedRecords],
    none: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SourceSummary]:
    """Yield increasingly complete summaries of the files that ``find`` returns; the last one is finished.

    ``guess`` returns the feature that each field of the form has by default, or an empty string, and ``map_records``
    the mapping of the records, from the files and their first record. ``find`` and ``map_records`` raise
    UnusableSource. ``none`` contains the fields that can be left without a feature, and the words of that choice.
    """
    return _RecordOverview(find, guess, map_records, none).summaries()


class _RecordOverview(Overview):
    def __init__(
        self,
        find: Callable[[], RecordFiles],
        guess: Callable[[RecordFiles, ExampleFeatures], Mapping[str, str]],
        map_records: Callable[[RecordFiles, ExampleFeatures], DescribedRecords],
        none: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._find, self._guess, self._map, self._none = find, guess, map_records, none
        self._mapping: DescribedRecords
        self._count = 0
        self._faults = Causes()

    def read(self) -> Iterator[int]:
        files = self._find()
        self.start.facts.append(files.describe())
        self._mapping = self._open(files, first_record(files.splits["train"]))
        if files.ignored:
            self.start.facts.append(f"Other splits are ignored: {listed(files.ignored)}.")
        try:
            for path in files.splits["train"]:
                for frame, features in tfrecords.examples(path):
                    self._count += 1
                    try:
                        self._mapping.check(features)
                    except ValueError as error:
                        self._faults.add(f"{show(path.name)}, record {frame.number:,}", str(error))
                    yield self._count
            self.is_complete = True
        except UnusableSource as error:
            self._faults.add("", error.message.rstrip("."))

    def _open(self, files: RecordFiles, first: ExampleFeatures) -> DescribedRecords:
        guessed = self._guess(files, first)
        try:
            mapping = self._map(files, first)
        except UnusableSource:
            _show_features(self.start, first, guessed, {}, self._none)
            raise
        _show_features(self.start, first, guessed, mapping.chosen, self._none, mapping.image)
        try:
            if mapping.image is not None:
                mapping.image.encoded(first)
        except UnusableImage as error:
            self.start.problems.append(f"The first record has no usable image: {error.reason}.")
        return mapping

    def describe(self, summary: SourceSummary) -> None:
        summary.facts.insert(1, f"{self.at_least}{count_of(self._count, 'training record')}.")
        summary.list_faults("record", self._faults)
        self._mapping.describe(summary)


def _show_features(
    summary: SourceSummary,
    features: ExampleFeatures,
    guessed: Mapping[str, str],
    chosen: Mapping[str, str],
    none: Mapping[str, str],
    image: ImageFeature | None = None,
) -> None:
    """Add a table of ``features`` to ``summary``, and the choices of the form's fields; see `summarize_source`.

    The features that are ``chosen`` have the names of their fields beside them, and the ``image`` is a picture.
    """
    described = describe_features(features)
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
        for item in described[:MAX_FEATURES]
    ]
    summary.pictures = [_picture(item, features, image) for item in described[:MAX_FEATURES]]
    names = [(item.name, f"{show(item.name)}: {item.type}") for item in described]
    for field, name in guessed.items():
        missing = "Automatic: none" if field in none else "Choose a feature"
        first = ("", f"Automatic: {show(name)}" if name else missing)
        choices = [(NO_TARGET, none[field])] if field in none else []
        summary.options[field] = [first, *choices, *names]
    if len(described) > MAX_FEATURES:
        summary.facts.append(f"{len(described) - MAX_FEATURES} more features.")


def _picture(item: FeatureInfo, features: ExampleFeatures, image: ImageFeature | None) -> str:
    """Return a small picture of a feature as a URI; empty if it is no image."""
    try:
        is_chosen = image is not None and item.name == image.name
        data = image.encoded(features) if image is not None and is_chosen else item.image
        return thumbnail(data) if data else ""
    except UnusableImage:
        return ""
