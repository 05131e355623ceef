"""Summarize Caffe and DIGITS 4–6 databases for the form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from digits.core.splits import SPLIT_TITLES
from digits.data.databases.caffe import Entry, Shape
from digits.data.databases.folders import Database
from digits.data.images.images import UnusableImage, reason_of
from digits.data.sources.causes import Causes
from digits.data.sources.class_names import sort_labels
from digits.data.sources.plan import UnusableSource, count_of, show
from digits.kinds.classification.databases import Checks, OpenDatabases, check_mean, find
from digits.kinds.classification.recipe import Databases
from digits.kinds.forms.summary import Overview, SourceSummary, Suggestion, thumbnail

HEAD = ["Database", "Format", "Records", "Image size", "Encoding"]


@dataclass
class _Scan:
    """Findings about a database so far."""

    database: Database
    picture: str = ""
    shapes: Counter[Shape] = field(default_factory=Counter)
    encodings: Counter[str] = field(default_factory=Counter)

    def row(self, split: str) -> list[str]:
        sizes = sorted(self.shapes)
        size = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}" if sizes else "–"
        return [
            SPLIT_TITLES[split],
            self.database.format,
            f"{self.database.count:,}",
            size if max(sizes, default=Shape(0, 0, 0)) > (0, 0, 0) else "–",
            " and ".join(name for name, _ in self.encodings.most_common(3)) or "–",
        ]


class DatabaseOverview(Overview):
    """The records of the databases of ``source``."""

    def __init__(self, source: Databases) -> None:
        super().__init__()
        self._source = source
        self._found: OpenDatabases
        self._checks: Checks
        self._scans: dict[str, _Scan] = {}
        self._counts: Counter[str] = Counter()
        self._faults = Causes()
        self._seen = 0

    def read(self) -> Iterator[int]:
        self._found = found = find(self._source)
        try:
            self._checks = Checks(found.names)
            self._scans = {name: _Scan(database) for name, database in found.databases.items()}
            yield from self._read_entries()
        finally:
            found.close()

    def _read_entries(self) -> Iterator[int]:
        try:
            for split, scan in self._scans.items():
                for entry in scan.database.entries():
                    self._add(split, entry)
                    yield self._seen
            self.is_complete = True
            if self._found.mean is not None and self._checks.shape is not None:
                check_mean(self._found.mean, self._checks.shape)
        except UnusableSource as error:
            self.start.problems.append(error.sentences)

    def _add(self, split: str, entry: Entry) -> None:
        scan = self._scans[split]
        self._seen += 1
        fault = self._checks.fault(entry, scan.database.describe())
        if fault:
            self._faults.add(show(entry.name), fault)
            return
        if not scan.encodings:
            scan.picture = self._picture(scan.database, entry.name)
        scan.encodings[entry.encoding] += 1
        if len(scan.shapes) < 1000:
            scan.shapes[entry.shape] += 1
        if split == "train":
            self._counts[self._checks.class_name(entry.label)] += 1

    def _picture(self, database: Database, name: str) -> str:
        """Return a small picture of a record as a URI."""
        try:
            return thumbnail(database.read(name))
        except (UnusableImage, OSError) as error:
            reason = reason_of(error)
            self.start.problems.append(f"The first record, {show(name)}, cannot be used: {reason}.")
            return ""

    def _suggestion(self) -> Suggestion | None:
        """Suggest the size and the encoding that preserve all images exactly."""
        shapes = {shape for scan in self._scans.values() for shape in scan.shapes}
        if len(shapes) != 1:
            return None
        (shape,) = shapes
        if shape.channels not in (1, 3) or not min(shape.width, shape.height) > 0:
            return None
        encodings = {name for scan in self._scans.values() for name in scan.encodings}
        mode = "grayscale" if shape.channels == 1 else "color"
        return Suggestion(
            f"All images are {mode} and have {shape.width}×{shape.height} pixels. Use this size to avoid resizing?",
            "Use it",
            {
                "resize_width": str(shape.width),
                "resize_height": str(shape.height),
                "resize_channels": str(shape.channels),
                "encoding": "jpg" if encodings == {"JPEG"} else "png",
            },
        )

    def describe(self, summary: SourceSummary) -> None:
        total = sum(scan.database.count for scan in self._scans.values())
        names = self._found.names or sort_labels(set(self._counts))
        what = (
            "A DIGITS dataset" if self._found.job else "Databases" if len(self._scans) > 1 else "A database"
        )
        read = "" if self.is_complete else f" {self._seen:,} of them were checked."
        summary.facts.append(
            f"{what} with {count_of(total, 'image')} in {count_of(len(names), 'class')}.{read}"
        )
        if self._found.mean is not None:
            summary.facts.append("The mean image is recomputed and compared with mean.binaryproto.")
        summary.list_faults("record", self._faults)
        if self.is_complete and len(self._counts) == 1:
            summary.problems.append("Classification requires at least two classes.")
        summary.suggestion = self._suggestion() if self.is_complete else None
        summary.table_title = "Databases"
        summary.table_head = HEAD
        summary.table = [scan.row(split) for split, scan in self._scans.items()]
        summary.pictures = [scan.picture for scan in self._scans.values()]
        summary.set_bars("Training images per class", [(name, self._counts[name]) for name in names])
