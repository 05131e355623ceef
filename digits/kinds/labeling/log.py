"""The labels of a job: ``labels.jsonl``, to which each save appends a line; see `digits.core.append_log`.

Memory contains only where the latest entry of each image is, with its number and state. The entries of an image are
linked by ``prev``.
"""

from __future__ import annotations

import functools
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from digits.core import append_log
from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile, make_folder, sync_folder, write_bytes
from digits.core.schema import MAX_INTEGER, Whole
from digits.kinds.labeling.answers import (
    FIELDS,
    FINISHED,
    STATES,
    Answer,
    Brief,
    Content,
    Entry,
    Sent,
    State,
    classes_of,
    digest,
)
from digits.kinds.labeling.forms import MASKS_FOLDER

LABELS_FILE = "labels.jsonl"
# The latest entries of an image among which a repeated edit is searched, at least.
_SEARCHED = 32
_COPIED = Answer.__struct_fields__
_NUMBERS = {state: number for number, state in enumerate(STATES)}


class Conflict(Exception):
    """Images were changed in the meantime: ``entries`` are their latest ones, None for an image without any."""

    def __init__(self, entries: Mapping[int, Entry | None]) -> None:
        super().__init__("images were changed in the meantime")
        self.entries = entries


class _Brief(Brief, kw_only=True, gc=False):
    rev: Whole
    state: State = "labeled"
    seconds: float = 0.0
    proposed: bool = False
    by: str = ""
    batch: str = ""
    source: str = ""


class Values:
    """A set of values for each image. Few different sets occur: memory contains the number of that of an image."""

    def __init__(self) -> None:
        self._sets: dict[tuple[Any, ...], int] = {(): 0}
        self._numbers = array("I")

    def extend(self, missing: int) -> None:
        self._numbers.extend([0] * missing)

    def __setitem__(self, image: int, values: Sequence[Any]) -> None:
        key = tuple(values) if len(values) < 2 else tuple(sorted({*values}))  # a million times at the start
        self._numbers[image] = self._sets.setdefault(key, len(self._sets)) if key else 0

    def count(self) -> Counter[Any]:
        """Return the numbers of images by value."""
        counts = np.bincount(self._numbers_of_sets()).tolist()
        total: Counter[Any] = Counter()
        for found, count in zip([*self._sets], counts, strict=False):
            for value in found:
                total[value] += count
        return total

    def contain(self, value: Any) -> NDArray[np.bool_]:
        """Return for each image whether it has a value."""
        numbers = self._numbers_of_sets()
        have = np.array([value in found for found in [*self._sets]])
        result: NDArray[np.bool_] = have[numbers]
        return result

    def are_set(self, images: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each of the ``images`` has any value."""
        result: NDArray[np.bool_] = self._numbers_of_sets()[images] > 0
        return result

    def _numbers_of_sets(self) -> NDArray[np.uint32]:
        """Return a copy, because another thread may save meanwhile."""
        return np.frombuffer(self._numbers.tobytes(), np.uint32)


class LabelLog:
    """The entries in the ``folder`` of a job, which one thread at a time saves.

    ``classes``, ``authors`` and ``models`` (those that proposed something) are those of the latest entries, and
    ``answers`` the `digest` of their classes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / LABELS_FILE
        self._places, self._revs = array("q"), array("I")
        self.classes, self.authors, self.models = Values(), Values(), Values()
        self.answers = array("q")
        self._batches: dict[str, array[int]] = {}
        self.states = bytearray()
        self.cursor = 0
        # The seconds that people took for images that nobody had labeled, without and with a proposal.
        self.paces = array("f"), array("f")

    def update(self, until: int = MAX_INTEGER) -> None:
        """Read the entries that are new, those before the place ``until``; raises UnreadableFile."""
        for brief, end in append_log.read(self._path, _Brief, self.cursor, below=self._folder):
            if end > until:
                break
            self._note(brief, self.cursor)
            self.cursor = end

    def extend(self, images: int) -> None:
        """Make room for this number of images."""
        missing = images - len(self.states)
        if missing > 0:
            self._places.extend([-1] * missing)
            self._revs.extend([0] * missing)
            self.answers.extend([0] * missing)
            for values in (self.classes, self.authors, self.models):
                values.extend(missing)
            self.states.extend(bytes(missing))

    def _note(self, brief: _Brief, place: int) -> None:
        image = brief.image
        if image >= len(self.states):
            self.extend(image + 1)
        self.classes[image] = classes = classes_of(brief)
        self.answers[image] = digest(classes)
        self.authors[image] = (brief.by,) if brief.by else ()
        sources = [item.from_ for item in brief.objects if item.from_] if brief.objects else []
        if brief.source:
            sources.append(brief.source)
        self.models[image] = [source.partition("/")[0] for source in sources]
        if brief.batch:
            self._batches.setdefault(brief.batch, array("I")).append(image)
        elif brief.seconds and brief.state in FINISHED and STATES[self.states[image]] not in FINISHED:
            self.paces[brief.proposed].append(brief.seconds)
        self._places[image], self._revs[image], self.states[image] = place, brief.rev, _NUMBERS[brief.state]

    def rev(self, image: int) -> int:
        """Return the number of the latest entry of an image, 0 without one."""
        return self._revs[image] if image < len(self._revs) else 0

    def latest(self, image: int) -> Entry | None:
        """Return the latest entry of an image; raises UnreadableFile."""
        return next(self.history(image), None)

    def history(self, image: int, before: int | None = None, until: int = MAX_INTEGER) -> Iterator[Entry]:
        """Yield the entries of an image, the latest first; raises UnreadableFile.

        Only those ``before`` an entry, or those before the place ``until`` in the log.
        """
        place = self._places[image] if image < len(self._places) else -1
        while place >= 0:
            entry, _ = next(append_log.read(self._path, Entry, place, below=self._folder))
            if entry.image != image or entry.prev >= place:
                raise UnreadableFile(
                    f"the line at byte {place:,} of {self._path.name} is not of image {image}"
                )
            if place < until and (before is None or entry.rev < before):
                yield entry
            place = entry.prev

    def save(
        self,
        image: int,
        sent: Sent,
        by: str,
        mask: bytes | None = None,
        present: Sequence[int] = (),
        source: str = "",
    ) -> int:
        """Save an answer durably, and return its number; one whose ``edit`` was saved before has no effect.

        ``mask`` is a new mask, in which the classes ``present`` are; ``source`` is that of the `Entry`.
        Raises Conflict, BadRequest, UnreadableFile and OSError, and then saves nothing.
        """
        rev, known = self.rev(image), None
        is_outdated = sent.rev > rev
        for number, entry in enumerate(self.history(image)):
            known = known or entry
            if entry.edit == sent.edit:
                return entry.rev
            is_outdated |= entry.rev > sent.rev and entry.edit not in sent.earlier
            if number >= _SEARCHED and entry.rev <= sent.rev:
                break
        if is_outdated:
            raise Conflict({image: known})
        new = self._next(image, sent, sent.edit, by, source=source)
        if mask is not None:
            new.mask, new.labels = f"{image}-{new.rev}.png", [*present]
            write_bytes(self._masks / new.mask, mask)
        elif new.mask is not UNSET:
            drawn = next((entry for entry in self.history(image) if entry.mask == new.mask), None)
            if drawn is None:
                raise BadRequest("This is not a mask of the image.", "Send the mask itself.")
            new.labels = drawn.labels
        try:
            self._append([new])
        except ValueError as error:
            raise BadRequest(f"{error}.", "Label fewer objects, or with fewer corners.") from error
        return new.rev

    def accept(
        self,
        contents: Mapping[int, Content],
        by: str,
        batch: str,
        masks: Path | None = None,
        source: str = "",
    ) -> int:
        """Save what a ``source`` says about images as a ``batch``; return their number.

        New ``masks`` are in a folder of their own. Raises UnreadableFile and OSError, and then saves nothing.
        """
        entries = []
        for image, content in contents.items():
            entry = self._next(image, content, f"{batch}:{image}", by, batch=batch, source=source)
            if masks is not None and content.mask is not UNSET:
                entry.mask = f"{image}-{entry.rev}.png"
                write_bytes(self._masks / entry.mask, (masks / content.mask).read_bytes())
            entries.append(entry)
        return self._append(entries)

    @functools.cached_property
    def _masks(self) -> Path:
        """The folder of the masks, which is durable before an entry names one of them."""
        folder = self._folder / MASKS_FOLDER
        make_folder(folder)
        sync_folder(self._folder)
        return folder

    def correct(self, corrections: Mapping[int, tuple[Entry, Answer]], edit: str, by: str) -> int:
        """Save corrections, each an entry and what replaces it, all or none; return how many change an image.

        An image must have the entry that was corrected, or another correction of it: their ``edit`` has the same
        beginning. Raises Conflict, UnreadableFile and OSError, and then saves nothing.
        """
        entries: list[Entry] = []
        others: dict[int, Entry | None] = {}
        for image, (base, answer) in corrections.items():
            latest = self.latest(image)
            assert latest is not None
            if latest.rev != base.rev and not latest.edit.startswith(edit):
                others[image] = latest
            elif any(getattr(latest, name) != getattr(answer, name) for name in ("state", *FIELDS)):
                changed = Answer(state=answer.state, **{name: getattr(answer, name) for name in FIELDS})
                entries.append(self._next(image, changed, f"{edit}{latest.rev + 1}", by))
        if others:
            raise Conflict(others)
        return self._append(entries)

    def take_back(self, batch: str, by: str) -> int:
        """Take back the labels of a ``batch`` that nobody has changed since; return their number."""
        accepted = filter(None, map(self.latest, self._batches.get(batch, ())))
        return self._append(
            [
                self._next(entry.image, Answer(state="unlabeled"), f"undo:{entry.image}", by)
                for entry in accepted
                if entry.batch == batch
            ]
        )

    def _next(self, image: int, content: Content, edit: str, by: str, **more: Any) -> Entry:
        """Return the entry of an image that follows its latest one."""
        rev = self.rev(image)
        known = {name: getattr(content, name) for name in _COPIED if hasattr(content, name)}
        prev = self._places[image] if rev else -1
        return Entry(image=image, rev=rev + 1, edit=edit, at=time.time(), by=by, prev=prev, **known, **more)

    def _append(self, entries: Sequence[Entry]) -> int:
        """Append entries, all or none, and return their number; raises ValueError, UnreadableFile and OSError."""
        append_log.append(self._path, entries)
        self.update()
        return len(entries)
