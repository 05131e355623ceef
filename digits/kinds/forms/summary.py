"""Summarize the source of a dataset in the form, before it is created: counts, sizes, problems and suggestions.

A kind that offers one implements `digits.kinds.forms.dataset.ImageDatasetForm.scan_source`.
"""

from __future__ import annotations

import copy
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from digits.data.images import images
from digits.data.sources.causes import Causes
from digits.data.sources.plan import UnusableSource, count_of, show
from digits.kinds.forms.dataset_recommendation import Advice

# Limits of a summary; its cost is dominated by listing this many files.
MAX_FILES = 200_000
MAX_SECONDS = 20.0
SAMPLE_IMAGES = 32
MAX_SAMPLE_BYTES = 32_000_000
MAX_SAMPLE_PIXELS = 20_000_000
THUMBNAIL = (96, 96)
# Interval between summaries of an unfinished scan, in seconds.
SECONDS_BETWEEN = 0.7
MAX_BARS = 12


@dataclass
class Suggestion:
    """Values for form fields, offered with the sentences ``text`` and a button labeled ``action``.

    One that ``stops`` the form must be taken before the dataset is created, or declined with a button labeled
    ``decline``, if there is one.
    """

    text: str
    action: str
    fields: dict[str, str | bool]
    stops: bool = False
    decline: str = ""

    @classmethod
    def use_separately(cls, names: list[str], noun: str, fields: dict[str, str | bool]) -> Suggestion:
        """Ask whether to use the validation and test sources found next to this one; ``noun`` is singular."""
        them, separate = ("it", f"a separate {noun}") if len(names) == 1 else ("them", f"separate {noun}s")
        text = f"Found {joined(names)} next to this {noun}. Use {them} as {separate}?"
        return cls(text, f"Use {them}", fields, stops=True, decline="Leave out")


@dataclass
class SourceSummary:
    """The contents of a source, as far as they have been read.

    ``facts`` and ``problems`` are sentences. ``bars`` are the first of ``bars_total`` labels with counts.
    ``table`` holds rows under ``table_title`` with the columns ``table_head``; ``pictures`` are URIs of images, one for
    each row, or empty. ``options`` are the values and the words of fields that offer what the source contains.
    ``sizes`` are those of a sample of the images. ``refused`` is the reason if there is no summary.

    The last summary also has what is known from planning the dataset: the first records as ``previews``, see
    `digits.kinds.forms.previews`, further suggestions as ``remedies``, the number of records as ``total``, those of
    each split as ``splits`` if the source declares them, the recommended values of fields as ``advice``, and the
    ``errors`` of fields with which the dataset cannot be created.
    """

    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    bars_title: str = ""
    bars: list[tuple[str, int]] = field(default_factory=list)
    bars_total: int = 0
    table_title: str = "First rows"
    table_head: list[str] = field(default_factory=list)
    table: list[list[str]] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    options: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    suggestion: Suggestion | None = None
    remedies: list[Suggestion] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    previews: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0
    splits: dict[str, int] = field(default_factory=dict)
    advice: list[Advice] = field(default_factory=list)
    errors: dict[str, list[str]] = field(default_factory=dict)
    refused: str = ""
    finished: bool = True

    @classmethod
    def unusable(cls, error: UnusableSource) -> SourceSummary:
        """Return the summary of a source that cannot be used."""
        return cls(problems=[error.sentences])

    def set_bars(self, title: str, counts: list[tuple[str, int]]) -> None:
        """Show ``counts`` as bars, up to `MAX_BARS`."""
        self.bars_title, self.bars, self.bars_total = title, counts[:MAX_BARS], len(counts)

    def list_faults(self, noun: str, faults: Causes) -> None:
        """Add the causes of ``faults`` as a problem, if there are any; each is of one ``noun``, such as a record."""
        if faults.count:
            count = count_of(faults.count, noun)
            self.problems.append(f"{count} cannot be used: {faults.describe()}. {faults.remedy}")


class Pace:
    """Decide when to yield a summary of an unfinished scan, and when to end the scan."""

    def __init__(self) -> None:
        self._end = time.monotonic() + MAX_SECONDS
        self._next = time.monotonic() + SECONDS_BETWEEN

    def is_over(self, files: int) -> bool:
        """Return whether the time limit or the limit on files is reached."""
        return files >= MAX_FILES or time.monotonic() > self._end

    def is_due(self) -> bool:
        """Return whether it is time for another summary."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + SECONDS_BETWEEN
        return True


@dataclass
class Sample:
    """A sample of decoded images: formats, sizes, and broken files."""

    root: str
    files: list[str]
    formats: Counter[str] = field(default_factory=Counter)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    broken: Causes = field(default_factory=Causes)
    read: int = 0
    bits: int = 0

    @classmethod
    def spread_over(cls, root: str, files: list[str]) -> Sample:
        """Return a sample of evenly spaced ``files``."""
        count = min(len(files), SAMPLE_IMAGES)
        return cls(root, [files[number * len(files) // count] for number in range(count)])

    def steps(self) -> Iterator[None]:
        """Decode one image per step."""
        for name in self.files:
            self._read(name)
            yield

    def describe(self, summary: SourceSummary) -> None:
        """Add the facts and problems of the sample to ``summary``."""
        summary.sizes = self.sizes
        if self.sizes:
            formats = " and ".join(name for name, _ in self.formats.most_common(3))
            summary.facts.append(
                f"{count_of(len(self.sizes), 'image')} examined: {formats}, {self._size()} pixels."
            )
        if 0 < self.bits < images.FULL_BITS:
            summary.facts.append(f"16-bit images use {self.bits} bits: they will be stretched.")
        if count := self.broken.count:
            summary.problems.append(
                f"{count} of {count_of(self.read, 'image')} examined cannot be used: {self.broken.describe()}. "
                f"Unusable images are skipped. {self.broken.remedy}"
            )

    def _size(self) -> str:
        low, high = min(self.sizes, key=_area), max(self.sizes, key=_area)
        smallest = f"{low[0]} × {low[1]}"
        return smallest if low == high else f"{smallest} to {high[0]} × {high[1]}"

    def _read(self, name: str) -> None:
        path = os.path.join(self.root, name)
        self.read += 1
        try:
            if os.stat(path).st_size > MAX_SAMPLE_BYTES:
                self.read -= 1
                return
            data = images.read_source(path)
            if not data:
                raise images.UnusableImage("the file is empty")
            format_name, size = images.header(data)
            pixels = size[0] * size[1]
            is_refused = format_name != "JPEG" and pixels > images.MAX_PIXELS
            if pixels > MAX_SAMPLE_PIXELS and not is_refused:
                self.read -= 1
                return
            picture = images.open_picture(data, 3, enough=(64, 64), bits=None)
        except (images.UnusableImage, OSError) as error:
            self.broken.add(show(name), images.reason_of(error))
        else:
            self.bits = max(self.bits, picture.bits)
            self.formats[format_name] += 1
            self.sizes.append(size)


class Overview(ABC):
    """What has been read of a source so far, and its description.

    Every summary begins with ``start``, also that of a source that cannot be used. ``is_complete`` is False until
    `read` has read everything.
    """

    def __init__(self, suggestion: Suggestion | None = None) -> None:
        self.start = SourceSummary(suggestion=suggestion)
        self.is_complete = False

    @property
    def at_least(self) -> str:
        """The beginning of a sentence with a number that is not final."""
        return "" if self.is_complete else "At least "

    @abstractmethod
    def read(self) -> Iterator[int]:
        """Read the source; yield the number of files or records so far, and set ``is_complete`` at the end.

        Raises UnusableSource.
        """

    def conclude(self) -> tuple[str, list[str]]:
        """Return the root and the names of the image files of which a sample is examined.

        This is called once, when `read` is exhausted or has reached a limit. Raises UnusableSource.
        """
        return "", []

    def describe(self, summary: SourceSummary) -> None:  # noqa: B027 (optional)
        """Add what has been read to ``summary``, a copy of ``start``."""

    def summaries(self) -> Iterator[SourceSummary]:
        """Yield increasingly complete summaries within the limits of `Pace`; the last one is finished."""
        pace, sample = Pace(), Sample("", [])
        try:
            for count in self.read():
                if pace.is_over(count):
                    break
                if pace.is_due():
                    yield self._summary(sample)
            pace, sample = Pace(), Sample.spread_over(*self.conclude())
            for _ in sample.steps():
                if pace.is_over(0):
                    break
                if pace.is_due():
                    yield self._summary(sample)
            yield self._summary(sample, finished=True)
        except UnusableSource as error:
            summary = copy.deepcopy(self.start)
            summary.problems.append(error.sentences)
            yield summary

    def _summary(self, sample: Sample, finished: bool = False) -> SourceSummary:
        summary = copy.deepcopy(self.start)
        summary.finished = finished
        self.describe(summary)
        sample.describe(summary)
        return summary


def thumbnail(data: bytes) -> str:
    """Return a small picture of an image file as a URI; raises UnusableImage."""
    opened = images.open_picture(data, 3, enough=THUMBNAIL, max_pixels=MAX_SAMPLE_PIXELS, bits=None)
    opened.image.thumbnail(THUMBNAIL)
    return images.data_uri(images.encode_image(opened.image, "png"))


def joined(names: list[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _area(size: tuple[int, int]) -> int:
    return size[0] * size[1]
