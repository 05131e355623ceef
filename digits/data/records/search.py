"""Find the records of a dataset that match a query: their names, classes, statistics, findings and predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from digits.core.errors import BadRequest, NotFound
from digits.core.files import MissingFile, UnreadableFile
from digits.core.splits import SPLITS
from digits.data.file_cache import FileCache
from digits.data.health import health, label_check
from digits.data.health.health import Finding
from digits.data.health.label_errors import LABEL_ERROR_DTYPE, suspects
from digits.data.manifest import (
    FILE_NAME,
    HEALTH_FILE,
    HEALTH_RECORDS_FILE,
    LABEL_CHECK_FILE,
    LABEL_ERRORS_FILE,
    Manifest,
    health_statistics_file,
)
from digits.data.models import evaluation
from digits.data.models.comparison import CHANGES, ComparedRecords, load_compared
from digits.data.models.evaluation import Evaluation
from digits.data.numbers import parse_number
from digits.data.records.index import IndexCache, classes_path, find_names, names_path, select_containing

# All splits together.
ALL = "all"
# About 16 MB.
CACHED_MATCHES = 4_000_000
CACHED_CHECKS = 100


@dataclass(frozen=True)
class Measure:
    """A property of records that a range selects: its ``value`` for rows of `STATISTICS_DTYPE`."""

    title: str
    unit: str
    value: Callable[[NDArray[Any]], NDArray[Any]]
    of_source: bool = True


def _aspect(rows: NDArray[Any]) -> NDArray[np.float64]:
    ratio: NDArray[np.float64] = rows["width"] / np.maximum(rows["height"], 1)
    return ratio


def _size(rows: NDArray[Any]) -> NDArray[np.float64]:
    size: NDArray[np.float64] = np.sqrt(rows["width"].astype(np.float64) * rows["height"])
    return size


# By URL argument.
MEASURES = {
    "width": Measure("Source width", "px", lambda rows: rows["width"]),
    "height": Measure("Source height", "px", lambda rows: rows["height"]),
    "source_size": Measure("Source size", "px", _size),
    "aspect": Measure("Source aspect ratio", "", _aspect),
    "brightness": Measure("Brightness", "", lambda rows: rows["brightness"], of_source=False),
}


@dataclass(frozen=True)
class Range:
    """Values of a measure from ``low`` to below ``high``."""

    name: str
    low: float
    high: float

    @classmethod
    def parse(cls, name: str, values: Sequence[str]) -> Self | None:
        """Parse an argument such as ``16:32`` or ``:16``, or both of its limits; None without limits.

        Raises BadRequest.
        """
        parts = [part.strip() for part in (values[0].split(":") if len(values) == 1 else values)]
        if not any(parts):
            return None
        try:
            low, high = (
                parse_number(part) if part else limit
                for part, limit in zip(parts, (-math.inf, math.inf), strict=True)
            )
        except ValueError:
            raise BadRequest(f"{name}: write a range as LOW:HIGH, such as 16:32.") from None
        return cls(name, low, high)

    @property
    def limits(self) -> tuple[str, str]:
        """Both limits as text; empty for none."""
        low, high = ("" if math.isinf(limit) else f"{limit:.10g}" for limit in (self.low, self.high))
        return low, high

    @property
    def text(self) -> str:
        """The range as a URL argument."""
        return ":".join(self.limits)

    @property
    def words(self) -> str:
        """The range for display, such as ``Brightness 16 to 32``."""
        measure = MEASURES[self.name]
        unit = f" {measure.unit}" if measure.unit else ""
        if math.isinf(self.low):
            return f"{measure.title} below {self.high:.4g}{unit}"
        if math.isinf(self.high):
            return f"{measure.title} from {self.low:.4g}{unit}"
        return f"{measure.title} {self.low:.4g} to {self.high:.4g}{unit}"

    def select(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether the records with the statistics ``rows`` are in the range."""
        measure = MEASURES[self.name]
        values = measure.value(rows)
        chosen: NDArray[np.bool_] = (values >= self.low) & (values < self.high)
        return chosen & (rows["width"] > 0) if measure.of_source else chosen


@dataclass(frozen=True)
class RecordQuery:
    """Records of a ``split`` or of `ALL`, with all filters applied.

    They are selected by the ``text`` in their file name, by the group ``label``, by a class that they ``contain``, by
    the id of a health ``finding``, and by ``ranges``. The number of classes stands for records that contain none.

    An ``evaluation``, the id of a model and the name of one of its evaluations with a slash between them, sorts the
    records by their errors, the worst first. It can select those that are ``predicted`` as a class, or ``wrong``: all
    wrong predictions, or those with a ``suspect`` label.
    If another evaluation of the same records is ``compared`` with it, as the first one, the ``outcome`` selects one of
    `digits.data.models.comparison.GROUPS`.
    """

    split: str = ALL
    text: str = ""
    label: int | None = None
    contain: int | None = None
    finding: str = ""
    ranges: tuple[Range, ...] = ()
    evaluation: str = ""
    predicted: int | None = None
    wrong: Literal["", "1", "suspect"] = ""
    compared: str = ""
    outcome: str = ""

    def arguments(self) -> dict[str, str]:
        """Return the URL arguments of this query."""
        given = {"db": self.split, "q": self.text}
        given |= {name: "" if value is None else str(value) for name, value in self._groups.items()}
        given |= {"finding": self.finding} | {item.name: item.text for item in self.ranges}
        given |= {"evaluation": self.evaluation, "wrong": self.wrong}
        given |= {"compare": self.compared, "outcome": self.outcome}
        given["predicted"] = "" if self.predicted is None else str(self.predicted)
        return {name: value for name, value in given.items() if value}

    def without(self, name: str) -> Self:
        """Return the query without the filter whose argument is ``name``."""
        defaults: dict[str, Any] = {"q": {"text": ""}, "finding": {"finding": ""}}
        defaults |= {group: {group: None} for group in self._groups}
        defaults |= {"predicted": {"predicted": None}, "wrong": {"wrong": ""}}
        compared = {"compared": "", "outcome": ""}
        defaults["evaluation"] = {"evaluation": "", "predicted": None, "wrong": ""} | compared
        kept = tuple(item for item in self.ranges if item.name != name)
        return replace(self, **defaults.get(name, {"ranges": kept}))

    @property
    def has_search(self) -> bool:
        """Whether any filter applies, besides the split and the label."""
        return bool(self.text or self.finding or self.ranges or self.evaluation) or self.contain is not None

    @property
    def _groups(self) -> dict[str, int | None]:
        return {"label": self.label, "contain": self.contain}


class Place(NamedTuple):
    """A record by split and number. Those with the same ``set`` belong together.

    A search for wrong labels has ``suggested`` another class, with a ``confidence`` from 0 to 1.
    """

    split: str
    number: int
    set: int | None = None
    suggested: int | None = None
    confidence: float = 0.0


class Matches:
    """The matching records of each split, by number."""

    def __init__(self, numbers: dict[str, Sequence[int] | NDArray[Any]]) -> None:
        self._numbers = numbers
        self.counts = {split: len(records) for split, records in numbers.items()}

    def __len__(self) -> int:
        return sum(self.counts.values())

    def places(self, split: str, start: int, stop: int) -> list[Place]:
        """Return records ``start`` to ``stop`` of the matches in ``split``, or in `ALL`."""
        places: list[Place] = []
        for name, numbers in self._numbers.items():
            if split in (ALL, name):
                places += [self._place(name, at) for at in range(max(0, start), min(stop, len(numbers)))]
                start, stop = start - len(numbers), stop - len(numbers)
        return places

    def _place(self, split: str, at: int) -> Place:
        return Place(split, int(self._numbers[split][at]))


class FindingMatches(Matches):
    """The matching records of a finding, in its order: rows of `RECORD_DTYPE` or `LABEL_ERROR_DTYPE`."""

    def __init__(self, rows: NDArray[Any], names: Sequence[str], has_sets: bool) -> None:
        self._rows = rows
        self._has_sets = has_sets
        counts = np.bincount(rows["split"], minlength=len(SPLITS)).tolist()
        self.counts = {name: counts[SPLITS.index(name)] for name in names}

    def __len__(self) -> int:
        return len(self._rows)

    def places(self, split: str, start: int, stop: int) -> list[Place]:
        rows = self._rows if split == ALL else self._rows[self._rows["split"] == SPLITS.index(split)]
        return [self._place_of(row) for row in rows[start:stop]]

    def _place_of(self, row: Any) -> Place:
        split, number = SPLITS[row["split"]], int(row["number"])
        if row.dtype == LABEL_ERROR_DTYPE:
            return Place(split, number, None, int(row["suggested"]), float(row["confidence"]))
        return Place(split, number, int(row["set"]) if self._has_sets else None)


class EvaluatedMatches(Matches):
    """The matching records of an evaluation of a ``split``, the worst first.

    For classifiers, ``predicted`` and ``confidences`` are the most likely class of each record and its probability; -1
    for records whose prediction is right.
    """

    def __init__(
        self,
        splits: Sequence[str],
        split: str,
        numbers: NDArray[Any],
        predicted: NDArray[Any] | None,
        confidences: NDArray[Any] | None,
    ) -> None:
        super().__init__({name: numbers if name == split else () for name in splits})
        self._predicted, self._confidences = predicted, confidences

    def _place(self, split: str, at: int) -> Place:
        place = super()._place(split, at)
        if self._predicted is None or self._confidences is None or self._predicted[at] < 0:
            return place
        return place._replace(suggested=int(self._predicted[at]), confidence=float(self._confidences[at]))


@dataclass(frozen=True)
class Checked:
    """The result of the checks of a dataset: its ``findings`` without their records, and the known ``measures``."""

    findings: tuple[Finding, ...] = ()
    measures: tuple[str, ...] = ()

    def finding(self, finding_id: str) -> Finding | None:
        return next((finding for finding in self.findings if finding.id == finding_id), None)


class RecordSearch:
    """Finds the records that match a query, and keeps the matches of recent ones."""

    def __init__(self, indexes: IndexCache) -> None:
        self._indexes = indexes
        self._matches: FileCache[Any, Matches] = FileCache(CACHED_MATCHES)
        self._checked: FileCache[Path, Checked] = FileCache(CACHED_CHECKS)

    def checked(self, folder: Path, manifest: Manifest) -> Checked:
        """Return what the checks of the dataset in ``folder`` found; nothing if there is no usable result."""
        names = (FILE_NAME, HEALTH_FILE, LABEL_CHECK_FILE)
        files = [path for path in (folder / name for name in names) if path.is_file()]
        try:
            return self._checked.get(folder, files, lambda: _read_checks(folder, manifest), lambda _: 1)
        except FileNotFoundError:  # removed at this moment
            return Checked()

    def find(self, folder: Path, manifest: Manifest, query: RecordQuery) -> Matches:
        """Return the matches of ``query`` in all splits; raises NotFound and UnreadableFile."""
        if not query.has_search:
            return Matches(
                {
                    name: range(split.count)
                    if query.label is None
                    else self._indexes.get(folder, split).members(query.label)
                    for name, split in manifest.splits.items()
                }
            )
        key = folder, replace(query, split=ALL)
        try:
            return self._matches.get(
                key, _files(folder, manifest, query), lambda: self._search(folder, manifest, query), len
            )
        except FileNotFoundError as error:
            raise MissingFile(f"{Path(error.filename).name} is missing") from error

    def _search(self, folder: Path, manifest: Manifest, query: RecordQuery) -> Matches:
        masks = {name: self._mask(folder, manifest, query, name) for name in manifest.splits}
        if query.evaluation:
            return _select_evaluated(folder, manifest, query, masks)
        if not query.finding:
            return Matches({name: np.flatnonzero(mask).astype(np.uint32) for name, mask in masks.items()})
        rows, has_sets = _load_finding(folder, manifest, query.finding)
        chosen = np.zeros(len(rows), np.bool_)
        for name, mask in masks.items():
            here = np.flatnonzero((rows["split"] == SPLITS.index(name)) & (rows["number"] < len(mask)))
            chosen[here] = mask[rows["number"][here]]
        return FindingMatches(rows[chosen], list(manifest.splits), has_sets)

    def _mask(self, folder: Path, manifest: Manifest, query: RecordQuery, name: str) -> NDArray[np.bool_]:
        """Return whether each record of a split matches the query, apart from its finding."""
        split = manifest.splits[name]
        mask = np.ones(split.count, np.bool_)
        if query.text:
            mask[:] = False
            mask[find_names(folder, split, query.text)] = True
        if query.ranges:
            rows = health.load_statistics(folder, manifest, name)
            for item in query.ranges:
                mask &= item.select(rows)
        if query.label is not None:
            mask &= self._indexes.get(folder, split).groups == query.label
        if query.contain is not None:
            index = self._indexes.get(folder, split)
            mask &= select_containing(folder, index, query.contain, len(manifest.target.names))
        return mask


def _select_evaluated(
    folder: Path, manifest: Manifest, query: RecordQuery, masks: dict[str, NDArray[np.bool_]]
) -> EvaluatedMatches:
    """Return the records of the evaluation of ``query`` in ``masks``; raises NotFound and UnreadableFile."""
    model, _, name = query.evaluation.partition("/")
    result = evaluation.load(folder.parent / model, name)
    if result.content_hash != manifest.content_hash:
        raise NotFound("This evaluation is of other records.", "Evaluate the model again.")
    files = [evaluation.ERRORS_FILE]
    if manifest.target.labels and evaluation.has_predictions(folder.parent / model, name):
        files += [evaluation.PREDICTIONS_FILE, evaluation.TARGETS_FILE]
    errors, *predicted = evaluation.load_arrays(folder.parent / model, name, *files)
    mask = masks[result.split][: len(errors)].copy()  # a partial result is that of the first records
    if query.finding:
        rows, _ = _load_finding(folder, manifest, query.finding)
        members = rows["number"][rows["split"] == SPLITS.index(result.split)]
        mask &= np.isin(np.arange(len(mask)), members)
    likely = confidences = None
    if query.predicted is not None and result.classes:
        raise NotFound("The classes of this model differ from those of the dataset.", "Remove the filter.")
    if predicted:
        predictions, targets = predicted
        likely, confidences = predictions.argmax(axis=1), predictions.max(axis=1)
        if query.predicted is not None:
            mask &= likely == query.predicted
        if query.wrong == "suspect":
            mask &= np.isin(np.arange(len(mask)), suspects(predictions, targets)["number"])
        elif query.wrong:
            mask &= (likely != targets) & (targets >= 0)
        # The classes of a model that differ from those of the dataset cannot be shown.
        likely = None if result.classes else np.where(likely == targets, -1, likely)
    elif query.predicted is not None or query.wrong:
        raise NotFound("This evaluation has no predicted classes.", "Remove the filter.")
    if query.compared:
        pair = _load_compared(folder, query, result)
        if query.outcome not in pair.groups:
            raise NotFound(
                "These evaluations have no predicted classes.", f"Choose the outcome {' or '.join(CHANGES)}."
            )
        mask &= pair.members(query.outcome)
        order = pair.order(query.outcome)
    else:
        order = np.argsort(-errors, kind="stable")  # NaN last
    chosen = order[mask[order]]
    return EvaluatedMatches(
        list(manifest.splits),
        result.split,
        chosen,
        None if likely is None else likely[chosen],
        None if confidences is None else confidences[chosen],
    )


def _load_compared(folder: Path, query: RecordQuery, second: Evaluation) -> ComparedRecords:
    """Load the evaluations that ``query`` compares; raises NotFound and UnreadableFile."""
    pair = [
        (folder.parent / model, name)
        for model, _, name in (text.partition("/") for text in (query.compared, query.evaluation))
    ]
    first = evaluation.load(*pair[0])
    if any(getattr(first, name) != getattr(second, name) for name in ("content_hash", "split", "records")):
        raise NotFound(
            "These evaluations are of different records.", "Evaluate both models on the same split."
        )
    return load_compared(pair[0], pair[1])


def _files(folder: Path, manifest: Manifest, query: RecordQuery) -> list[Path]:
    """Return the files that decide which records match."""
    files = [folder / FILE_NAME]
    shards = [folder / shard for split in manifest.splits.values() for shard in split.shards]
    if query.text:
        files += map(names_path, shards)
    if query.contain is not None:
        files += map(classes_path, shards)
    if query.ranges:
        files += [folder / health_statistics_file(name) for name in manifest.splits]
    for name in filter(None, (query.evaluation, query.compared)):
        files.append(folder.parent / Path(*_evaluation_folder(name)) / evaluation.FILE_NAME)
    if query.finding == label_check.FINDING:
        files += [folder / LABEL_CHECK_FILE, folder / LABEL_ERRORS_FILE]
    elif query.finding:
        files += [folder / HEALTH_FILE, folder / HEALTH_RECORDS_FILE]
    return files


def _evaluation_folder(text: str) -> tuple[str, str, str]:
    model, _, name = text.partition("/")
    return model, evaluation.FOLDER, name


def _load_finding(folder: Path, manifest: Manifest, finding_id: str) -> tuple[NDArray[Any], bool]:
    """Return the records of a finding, and whether they form sets; raises NotFound and UnreadableFile."""
    if finding_id == label_check.FINDING:
        label_check.load(folder, manifest)
        return label_check.load_errors(folder, manifest), False
    result = health.load(folder, manifest)
    position = result.position(finding_id)
    if position is None:
        raise NotFound(f"The health checks did not find “{finding_id}”.", "Check the dataset again.")
    return health.load_records(folder, result, finding_id), result.findings[position].has_sets


def _read_checks(folder: Path, manifest: Manifest) -> Checked:
    findings: list[Finding] = []
    measures: list[str] = []
    try:
        findings.append(label_check.load(folder, manifest).finding)
    except UnreadableFile:
        pass  # not searched for wrong labels
    try:
        result = health.load(folder, manifest)
        findings += result.findings
        known = {histogram.filter for histogram in result.histograms}
        measures += [
            name
            for name, measure in MEASURES.items()
            if ("source_size" if measure.of_source else name) in known
        ]
    except UnreadableFile:
        pass  # not checked
    listed = [msgspec.structs.replace(item, records=[], removable=[]) for item in findings if item.records]
    return Checked(tuple(listed), tuple(measures))
