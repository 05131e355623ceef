"""The labels of a job: ``labels.jsonl``, to which each save appends a line; see `digits.core.append_log`.

Memory contains only where the latest entry of each image is, with its number and state. The entries of an image are
linked by ``prev``.
"""

from __future__ import annotations

import functools
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray

from digits.core import append_log
from digits.core.errors import BadRequest
from digits.core.files import UnreadableFile, make_folder, sync_folder, write_bytes
from digits.core.schema import MAX_INTEGER, Whole
from digits.kinds.labeling.answers import FIELDS, FINISHED, STATES, Answer, Entry, Sent, State
from digits.kinds.labeling.proposals import Proposal

LABELS_FILE = "labels.jsonl"
MASKS_FOLDER = "masks"
# The latest entries of an image among which a repeated edit is searched, at least.
_SEARCHED = 32
_NUMBERS = {state: number for number, state in enumerate(STATES)}


class Conflict(Exception):
    """Somebody else has changed the image: ``entry`` is the latest one."""

    def __init__(self, entry: Entry | None) -> None:
        super().__init__("the image was changed in the meantime")
        self.entry = entry


class Conflicts(Exception):
    """Images were changed since the labels that are corrected: ``entries`` are their latest ones."""

    def __init__(self, entries: Mapping[int, Entry]) -> None:
        super().__init__("images were changed in the meantime")
        self.entries = entries


class Correction(NamedTuple):
    """An entry, and the answer that replaces it."""

    base: Entry
    answer: Answer


class _Class(Struct, rename={"class_": "class"}, gc=False):
    class_: Whole


class _Brief(Struct, gc=False):
    """What the index needs of an entry."""

    image: Whole
    rev: Whole
    state: State = "labeled"
    seconds: float = 0.0
    proposed: bool = False
    batch: str = ""
    objects: list[_Class] | UnsetType = UNSET
    label: Whole | UnsetType = UNSET
    labels: list[Whole] | UnsetType = UNSET


class LabelLog:
    """The entries in the ``folder`` of a job, which one thread at a time saves."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / LABELS_FILE
        self._places, self._revs = array("q"), array("I")
        # The different sets of classes of an image, by number, and the number of the set of each image.
        self._sets: dict[tuple[int, ...], int] = {(): 0}
        self._classes = array("I")
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
            self._classes.extend([0] * missing)
            self.states.extend(bytes(missing))

    def _note(self, brief: _Brief, place: int) -> None:
        image = brief.image
        if image >= len(self.states):
            self.extend(image + 1)
        if brief.label is not UNSET:
            found: tuple[int, ...] = (brief.label,)
        else:
            items = (item.class_ for item in brief.objects) if brief.objects else brief.labels or ()
            found = tuple(sorted({*items}))
        if brief.batch:
            self._batches.setdefault(brief.batch, array("I")).append(image)
        elif brief.seconds and brief.state in FINISHED and STATES[self.states[image]] not in FINISHED:
            self.paces[brief.proposed].append(brief.seconds)
        self._classes[image] = self._sets.setdefault(found, len(self._sets))
        self._places[image], self._revs[image], self.states[image] = place, brief.rev, _NUMBERS[brief.state]

    @property
    def of_classes(self) -> Counter[int]:
        """The numbers of images by class."""
        counts = np.bincount(self._numbers_of_sets()).tolist()
        total: Counter[int] = Counter()
        for found, count in zip([*self._sets], counts, strict=False):
            for number in found:
                total[number] += count
        return total

    def contain(self, label: int) -> NDArray[np.bool_]:
        """Return for each image whether it has a class."""
        numbers = self._numbers_of_sets()
        have = np.array([label in found for found in [*self._sets]])
        result: NDArray[np.bool_] = have[numbers]
        return result

    def _numbers_of_sets(self) -> NDArray[np.uint32]:
        """Return a copy, because another thread may save meanwhile."""
        return np.frombuffer(self._classes.tobytes(), np.uint32)

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
        self, image: int, sent: Sent, by: str, mask: bytes | None = None, present: Sequence[int] = ()
    ) -> int:
        """Save an answer durably, and return its number; one whose ``edit`` was saved before has no effect.

        ``mask`` is a new mask, in which the classes ``present`` are. Raises Conflict, BadRequest, UnreadableFile and
        OSError, and then saves nothing.
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
            raise Conflict(known)
        new = Entry(
            image=image,
            rev=rev + 1,
            at=time.time(),
            by=by,
            prev=self._places[image] if known else -1,
            **{name: getattr(sent, name) for name in ("edit", *Answer.__struct_fields__)},
        )
        if mask is not None:
            new.mask, new.labels = f"{image}-{new.rev}.png", [*present]
            write_bytes(self._masks / new.mask, mask)
        elif new.mask is not UNSET:
            drawn = next((entry for entry in self.history(image) if entry.mask == new.mask), None)
            if drawn is None:
                raise BadRequest("This is not a mask of the image.", "Send the mask itself.")
            new.labels = drawn.labels
        try:
            append_log.append(self._path, [new])
        except ValueError as error:
            raise BadRequest(f"{error}.", "Label fewer objects, or with fewer corners.") from error
        self.update()
        return new.rev

    def accept(self, proposals: Iterable[Proposal], by: str, batch: str, masks: Path | None) -> int:
        """Save ``proposals`` as labels of a ``batch``, with their masks in a folder; return their number.

        Raises UnreadableFile and OSError, and then saves nothing.
        """
        entries = []
        for proposal in proposals:
            answer = {name: getattr(proposal, name) for name in FIELDS}
            entry = self._next(proposal.image, by, batch, **answer)
            if masks is not None and proposal.mask is not UNSET:
                entry.mask = f"{proposal.image}-{entry.rev}.png"
                write_bytes(self._masks / entry.mask, (masks / proposal.mask).read_bytes())
            entries.append(entry)
        append_log.append(self._path, entries)
        self.update()
        return len(entries)

    @functools.cached_property
    def _masks(self) -> Path:
        """The folder of the masks, which is durable before an entry names one of them."""
        folder = self._folder / MASKS_FOLDER
        make_folder(folder)
        sync_folder(self._folder)
        return folder

    def correct(self, corrections: Mapping[int, Correction], edit: str, by: str) -> int:
        """Save corrections of images, all or none; return how many change an image.

        An image must have the entry that was corrected, or another correction of it: their ``edit`` has the same
        beginning. Raises Conflicts, UnreadableFile and OSError, and then saves nothing.
        """
        entries, others = [], {}
        for image, (base, answer) in corrections.items():
            latest = self.latest(image)
            assert latest is not None
            if latest.rev != base.rev and not latest.edit.startswith(edit):
                others[image] = latest
            elif any(getattr(latest, name) != getattr(answer, name) for name in ("state", *FIELDS)):
                content = {name: getattr(answer, name) for name in ("state", *FIELDS)}
                new = self._next(image, by, **content)
                new.edit = f"{edit}{new.rev}"
                entries.append(new)
        if others:
            raise Conflicts(others)
        append_log.append(self._path, entries)
        self.update()
        return len(entries)

    def take_back(self, batch: str, by: str) -> int:
        """Take back the labels of a ``batch`` that nobody has changed since; return their number."""
        accepted = map(self.latest, self._batches.get(batch, ()))
        entries = [
            self._next(entry.image, by, state="unlabeled")
            for entry in accepted
            if entry is not None and entry.batch == batch
        ]
        append_log.append(self._path, entries)
        self.update()
        return len(entries)

    def _next(self, image: int, by: str, batch: str = "", **answer: Any) -> Entry:
        return Entry(
            image=image,
            rev=self.rev(image) + 1,
            edit=f"{batch or 'undo'}:{image}",
            at=time.time(),
            by=by,
            prev=self._places[image] if self.rev(image) else -1,
            batch=batch,
            **answer,
        )
