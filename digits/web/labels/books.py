"""The labels of jobs in memory: which images there are, their states, and who works on which."""

from __future__ import annotations

import functools
import threading
import time
from array import array
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, ParamSpec
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from digits.core.errors import NotFound
from digits.core.files import UnreadableFile
from digits.core.splits import SPLITS
from digits.kinds.labeling.answers import FINISHED, STATES, Proposal
from digits.kinds.labeling.forms import MASKS_FOLDER
from digits.kinds.labeling.images import IMAGES_FILE, ImageIndex, ListedImage
from digits.kinds.labeling.job import LabelsJob
from digits.kinds.labeling.log import LabelLog
from digits.kinds.labeling.proposals import Proposals, newest_run
from digits.runtime.offload import in_thread
from digits.web.resources.labels import LabeledImage

LEASE_SECONDS = 120
# Jobs whose labels stay in memory: about 25 MB for a million images each.
_KEPT = 8
P = ParamSpec("P")

OPEN = ("none", "unlabeled")
SKIPPED = STATES.index("skipped")


class LabelBook:
    """The images and the labels in the ``folder`` of a job. Saves wait for each other; reading waits for nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.images, self.log, self.proposals = ImageIndex(folder), LabelLog(folder), Proposals(folder)
        self._turn = threading.Lock()
        self._is_read = False
        self._leases: dict[int, tuple[str, float]] = {}

    def update(self) -> None:
        """Read the images that were listed since the last call, and at first the labels; raises UnreadableFile."""
        if not in_thread(self._is_current):
            with self._turn:
                in_thread(self._read)

    def _is_current(self) -> bool:
        path = self._folder / IMAGES_FILE
        is_listed = not path.exists() or path.stat().st_size <= self.images.cursor
        return self._is_read and is_listed and self.proposals.is_current()

    def _read(self) -> None:
        self._is_read = False  # requests meanwhile wait: they would see images without their labels
        self.images.update()
        self.log.extend(len(self.images))
        if len(self.images):  # the task that lists them may write the first labels before
            self.log.update()
        newest = newest_run(self._folder)
        if newest != self.proposals.id:
            self.proposals = Proposals(self._folder, newest)
        self.proposals.update()
        self._is_read = True

    def states(self) -> NDArray[np.uint8]:
        """Return the state of each image, an index of `STATES`; unusable images are skipped."""
        count = len(self.images)
        states = np.frombuffer(bytes(self.log.states[:count]), np.uint8).copy()
        states[np.frombuffer(bytes(self.images.unusable[:count]), np.bool_)] = SKIPPED
        return states

    def count_states(self) -> dict[str, int]:
        return _counts(self.states(), STATES)

    def count_splits(self) -> dict[str, int]:
        return _counts(np.frombuffer(bytes(self.images.splits), np.uint8), SPLITS)

    def find(
        self,
        states: Collection[str] = (),
        splits: Collection[str] = (),
        *,
        label: int | None = None,
        by: str = "",
        model: str = "",
        above: float | None = None,
        below: float | None = None,
        differs: bool = False,
    ) -> NDArray[np.int64]:
        """Return the numbers of the images in one of the ``states``, of the ``splits`` and with the class ``label``.

        ``by`` is the author of their labels, and ``model`` one that has proposed them. The score of the newest proposal
        is at least ``above`` and lower than ``below``. With ``differs``, it disagrees with the labels. No file is read.
        """
        own = self.states()
        found = np.isin(own, [STATES.index(state) for state in states or STATES])
        if splits:
            numbers = np.frombuffer(bytes(self.images.splits[: len(found)]), np.uint8)
            found &= np.isin(numbers, [SPLITS.index(split) for split in splits])
        for values, wanted in (
            (self.log.classes, label),
            (self.log.authors, by or None),
            (self.log.models, model or None),
        ):
            if wanted is not None:
                found &= values.contain(wanted)[: len(found)]
        if above is not None or below is not None:
            scores = _padded(self.proposals.scores, np.float32, len(found), -1)
            found &= (scores >= (above or 0)) & (scores < (2 if below is None else below))
        if differs:
            labeled, proposed = (
                _padded(answers, np.int64, len(found), 0)
                for answers in (self.log.answers, self.proposals.answers)
            )
            finished = np.isin(own, [STATES.index(state) for state in FINISHED])
            found &= finished & (labeled != 0) & (proposed != 0) & (labeled != proposed)
        return np.flatnonzero(found)

    def image(self, number: int) -> ListedImage:
        """Return an image; raises NotFound."""
        if number >= len(self.images):
            raise NotFound(f"There is no image {number:,}.", f"There are {len(self.images):,}.")
        return in_thread(self.images.read, number)

    def rows(self, numbers: Sequence[int]) -> list[LabeledImage]:
        """Describe images."""
        listed = in_thread(lambda: [self.images.read(number) for number in numbers])
        return [self.row(number, image) for number, image in zip(numbers, listed, strict=True)]

    def row(self, number: int, image: ListedImage) -> LabeledImage:
        state = "skipped" if image.reason else STATES[self.log.states[number]]
        row = LabeledImage(
            number, image.path, image.width, image.height, image.split, image.set, state, self.log.rev(number)
        )
        if image.reason:
            row.reason = image.reason
        return row

    def write(self, act: Callable[P, int], *given: P.args, **options: P.kwargs) -> int:
        """Return what ``act`` returns, a method of `LabelLog` that saves labels, when it is its turn."""
        with self._turn:
            return in_thread(act, *given, **options)

    def accept(self, numbers: Sequence[int], by: str, batch: str) -> int:
        """Accept the proposals for images; see `LabelLog.accept`. It reads files."""
        proposals, found = self.proposals, filter(None, map(self.proposals.find, numbers))
        contents = {proposal.image: proposal for proposal in found}
        return self.log.accept(contents, by, batch, proposals.folder / MASKS_FOLDER, proposals.source)

    def proposal(self, number: int, split: str) -> Proposal | None:
        """Return the proposal for an image that may have one."""
        return in_thread(self.proposals.find, number) if self.shows_proposal(number, split) else None

    def shows_proposal(self, number: int, split: str) -> bool:
        """Return whether an image is an open training image without labels of its own: others remain fair."""
        is_open = STATES[self.log.states[number]] in OPEN and split == "train"
        return is_open and not self.log.classes.are_set(np.array([number])).any()

    def lease(self, holder: str, count: int, splits: Collection[str], without: Collection[int]) -> list[int]:
        """Return open images for the ``holder``, who keeps those leased before, ``without`` some.

        They come in the order of `digits.kinds.labeling.ordering`.
        """
        order, now = in_thread(self._in_order), time.monotonic()
        self._leases = {image: lease for image, lease in self._leases.items() if lease[1] > now}
        is_open = np.zeros(len(self.images), np.bool_)
        is_open[self.find(OPEN, splits)] = True
        others = [image for image, (name, _) in self._leases.items() if name != holder]
        is_open[[*others, *(number for number in without if 0 <= number < len(is_open))]] = False
        own = [image for image, (name, _) in self._leases.items() if name == holder and is_open[image]]
        is_open[own] = False
        chosen = [*own, *order[is_open[order]][: max(0, count - len(own))].tolist()][:count]
        self._leases |= dict.fromkeys(chosen, (holder, now + LEASE_SECONDS))
        return chosen

    def _in_order(self) -> NDArray[np.int32]:
        """Return the numbers of all images, in the order in which they are labeled best."""
        order = self.proposals.order()
        order = order[order < len(self.images)]
        is_missing = np.ones(len(self.images), np.bool_)
        is_missing[order] = False
        return np.concatenate([order, np.flatnonzero(is_missing).astype(np.int32)])


def _padded(values: array[Any], dtype: type[Any], count: int, rest: int) -> NDArray[Any]:
    """Return a copy of the first ``count`` values, because another thread may append to them meanwhile."""
    known = np.frombuffer(values.tobytes(), dtype)[:count]
    return np.concatenate([known, np.full(count - len(known), rest, dtype)])


def _counts(values: NDArray[np.uint8], names: Sequence[str]) -> dict[str, int]:
    return dict(zip(names, np.bincount(values, minlength=len(names)).tolist(), strict=True))


# All that requests work with: a job must not have two, which would both append to its log.
_alive: WeakValueDictionary[Path, LabelBook] = WeakValueDictionary()


@functools.lru_cache(_KEPT)
def _book(folder: Path) -> LabelBook:
    return _alive.setdefault(folder, LabelBook(folder))


def book_of(job: LabelsJob) -> LabelBook:
    """Return the up-to-date labels of ``job``; raises NotFound with the place of a damaged line."""
    book = _book(job.folder)
    try:
        book.update()
    except UnreadableFile as error:
        raise NotFound(
            f"The labels of “{job.name}” cannot be read: {error}.",
            "Repair this line, and restart the server.",
        ) from error
    return book
