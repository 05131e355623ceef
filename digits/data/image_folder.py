"""From a folder of images to lists of files: which classes there are and which image goes where.

Each folder directly below the root is a class; its images lie anywhere below it.
Nothing is opened here, only names and types of directory entries are read.
Everything is decided by the names and the seed, never by the order in which a
file system lists them.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from digits.data.images import EXTENSIONS

PROGRESS_EVERY_FILES = 20_000
MAX_NAMES_IN_A_MESSAGE = 5


class UnusableFolder(Exception):
    """A folder cannot become a dataset; ``message`` and ``hint`` are for the user."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass
class ClassFolder:
    """A class: its folder's name, the label shown for it, and its images relative to the root, sorted."""

    name: str
    label: str
    files: list[str] = field(default_factory=list)


@dataclass
class Scan:
    """What was found below ``root``, classes sorted by folder name.

    ``links`` were not followed because they leave the root or lead back;
    ``specials`` are FIFOs, devices and sockets; ``loose`` images lie outside any
    class; ``others`` are files without an image's extension.
    """

    root: Path
    classes: list[ClassFolder] = field(default_factory=list)
    links: int = 0
    specials: int = 0
    loose: int = 0
    others: int = 0
    unreadable: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Images in all classes."""
        return sum(len(item.files) for item in self.classes)


@dataclass
class Bounds:
    """How many images of a class are used: too few drop the class, too many are left out at random."""

    minimum: int = 2
    maximum: int | None = None


@dataclass
class SplitPlan:
    """The images of a split in the order of their records: paths relative to ``root``, and classes."""

    root: Path
    files: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)


@dataclass
class Plan:
    """The dataset to be made: labels by class, the files of each split, and what to tell the user."""

    labels: list[str]
    splits: dict[str, SplitPlan]
    warnings: list[str]


def scan(root: Path, progress: Callable[[int], None] = lambda files: None) -> Scan:
    """List the images below ``root`` by class; ``progress`` is told the number of files now and then.

    Raises UnusableFolder when ``root`` is missing, no folder, or cannot be read.
    """
    found = Scan(Path(root))
    resolved = os.path.realpath(root)
    try:
        entries = _entries(resolved)
    except OSError as error:
        raise UnusableFolder(f"The folder {show(str(root))} cannot be read: {error.strerror}.") from error
    walk = _Walk(found, resolved, progress)
    for entry in entries:
        if walk.is_folder(entry):
            item = ClassFolder(entry.name, label_of(entry.name))
            walk.collect(entry, item)
            found.classes.append(item)
        elif walk.is_image(entry):
            found.loose += 1
    _tell_same_labels_apart(found.classes)
    return found


def label_of(folder_name: str) -> str:
    """The label of a class folder: underscores become spaces, what cannot be printed is escaped."""
    return show(folder_name).replace("_", " ").strip() or show(folder_name)


def show(path: str) -> str:
    """``path`` fit for messages and files: one line, and bytes that are not UTF-8 as ``\\xff``."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def split_counts(count: int, pct_val: float, pct_test: float) -> tuple[int, int, int]:
    """How many of ``count`` images go to train, val and test.

    Train gets its rounded share and at least one. A split that is asked for gets at
    least one while train keeps one, val before test. Test gets what remains.
    """
    if count <= 1:
        return count, 0, 0
    train = _rounded(count * (100 - pct_val - pct_test) / 100)
    asked = (pct_val > 0) + (pct_test > 0)
    train = max(1, min(train, count - asked))
    rest = count - train
    if not pct_test:
        return (train, rest, 0) if pct_val else (count, 0, 0)
    if not pct_val:
        return train, 0, rest
    val = max(1, _rounded(count * pct_val / 100))
    val = min(val, max(1, rest - 1))
    return train, val, rest - val


def choose(files: list[str], seed: int, *names: str, maximum: int | None = None) -> list[str]:
    """``files`` in an order decided by ``seed`` and ``names``, cut to ``maximum``."""
    shuffled = list(files)
    _random(seed, *names).shuffle(shuffled)
    return shuffled[:maximum]


def plan(
    train: Scan,
    bounds: Bounds,
    *,
    pct_val: float,
    pct_test: float,
    seed: int,
    separate: dict[str, tuple[Scan, Bounds]] | None = None,
) -> Plan:
    """Decide the dataset. ``separate`` gives folders of their own to ``val`` or ``test``.

    A split with its own folder takes no share of ``train``. Raises UnusableFolder when
    fewer than two classes have images.
    """
    separate = separate or {}
    shares = {"val": pct_val, "test": pct_test}
    for name in separate:
        shares[name] = 0
    wanted = 1 + sum(share > 0 for share in shares.values())
    warnings = _remarks(train)
    classes = _large_enough(train, max(bounds.minimum, wanted), warnings)
    _need_two_classes(train, classes, warnings)
    _remark_on_names(train, classes, warnings)

    labels = [item.label for item in classes]
    splits = _shared_out(train.root, classes, bounds, shares, seed)
    for name, (found, own_bounds) in separate.items():
        warnings += _remarks(found)
        splits[name] = _matched(name, found, own_bounds, classes, seed, warnings)
    for name, split in splits.items():
        _shuffle(split, seed, name)
    return Plan(labels, splits, warnings)


class _Walk:
    """One pass over a root: what was visited, what was passed over."""

    def __init__(self, found: Scan, root: str, progress: Callable[[int], None]) -> None:
        self._found = found
        self._root = root
        self._progress = progress
        self._files = 0

    def collect(self, top: os.DirEntry[str], item: ClassFolder) -> None:
        """Add all images below ``top`` to ``item``, sorted."""
        # A folder is visited once a class, so that links cannot lead in circles
        # or multiply what they lead to.
        visited: set[tuple[int, int]] = set()
        pending = [(top.path, top.name, top.is_symlink())]
        while pending:
            path, relative, is_link = pending.pop()
            if not self._enter(path, visited, is_link):
                continue
            try:
                entries = _entries(path)
            except OSError:
                self._found.unreadable.append(relative)
                continue
            for entry in entries:
                below = f"{relative}/{entry.name}"
                if self.is_folder(entry):
                    pending.append((entry.path, below, entry.is_symlink()))
                elif self.is_image(entry):
                    item.files.append(below)
        item.files.sort(key=os.fsencode)

    def is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir() and (not entry.is_symlink() or self._stays_inside(entry))
        except OSError:  # a link to itself, or a folder that may not be looked into
            return False

    def is_image(self, entry: os.DirEntry[str]) -> bool:
        """Whether ``entry`` is a plain file with an image's extension; counts what it is otherwise."""
        self._files += 1
        if self._files % PROGRESS_EVERY_FILES == 0:
            self._progress(self._files)
        if entry.is_symlink() and not self._is_link_to_file(entry):
            self._found.links += 1
            return False
        if not _is_file(entry):
            self._found.specials += 1
            return False
        if not entry.name.lower().endswith(EXTENSIONS):
            self._found.others += 1
            return False
        return True

    def _is_link_to_file(self, entry: os.DirEntry[str]) -> bool:
        try:
            return stat.S_ISREG(entry.stat().st_mode) and self._stays_inside(entry)
        except OSError:  # broken, or a loop
            return False

    def _stays_inside(self, entry: os.DirEntry[str]) -> bool:
        target = os.path.realpath(entry.path)
        return os.path.commonpath([target, self._root]) == self._root

    def _enter(self, path: str, visited: set[tuple[int, int]], is_link: bool) -> bool:
        try:
            status = os.stat(path)
        except OSError:
            self._found.unreadable.append(os.path.relpath(path, self._root))
            return False
        identity = (status.st_dev, status.st_ino)
        # A link to the root itself, or to a folder above the class, would gather all classes in one.
        if identity in visited or (is_link and self._is_above(path)):
            self._found.links += 1
            return False
        visited.add(identity)
        return True

    def _is_above(self, link: str) -> bool:
        place = os.path.realpath(os.path.dirname(link))
        target = os.path.realpath(link)
        return os.path.commonpath([place, target]) == target


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _entries(path: str) -> list[os.DirEntry[str]]:
    """The entries of a folder without hidden ones, by name."""
    with os.scandir(path) as listing:
        visible = [entry for entry in listing if not entry.name.startswith(".")]
    return sorted(visible, key=lambda entry: os.fsencode(entry.name))


def _tell_same_labels_apart(classes: list[ClassFolder]) -> None:
    times = Counter(item.label for item in classes)
    for item in classes:
        if times[item.label] > 1:
            item.label = show(item.name)


def _rounded(value: float) -> int:
    # Halves go up. The tiny addition undoes what 100 - 33.3 - 33.4 loses as a binary fraction.
    return math.floor(value + 0.5 + 1e-9)


def _random(seed: int, *names: str) -> random.Random:
    key = b"\0".join([str(seed).encode(), *map(os.fsencode, names)])
    return random.Random(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big"))


def _large_enough(found: Scan, minimum: int, warnings: list[str]) -> list[ClassFolder]:
    kept = [item for item in found.classes if item.files and len(item.files) >= minimum]
    small = [item for item in found.classes if len(item.files) < minimum]
    if small:
        names = _listed(f"{item.label} ({len(item.files)})" for item in small)
        warnings.append(f"Left out, because they have fewer than {_images(minimum)}: {names}.")
    return kept


def _need_two_classes(found: Scan, kept: list[ClassFolder], warnings: list[str]) -> None:
    if not found.count:
        raise _without_images(found)
    root = show(str(found.root))
    left_out = warnings[-1] if len(kept) < len(found.classes) else ""
    if not kept:
        raise UnusableFolder(f"No class in {root} has enough images.", left_out)
    if len(kept) == 1:
        raise UnusableFolder(
            f"Only one class with enough images was found in {root}: {kept[0].label}.",
            left_out
            or "A classifier needs at least two, each in a folder of its own directly below this one.",
        )


def _without_images(found: Scan) -> UnusableFolder:
    root = show(str(found.root))
    extensions = ", ".join(extension[1:] for extension in EXTENSIONS)
    if found.loose:
        return UnusableFolder(
            f"No folders with images found in {root}, but {_images(found.loose)} directly in it.",
            "Put the images of each class into a folder of its own.",
        )
    hint = f"Not readable: {_listed(found.unreadable)}." if found.unreadable else ""
    return UnusableFolder(f"No images found in {root} (looked for {extensions}).", hint)


def _remarks(found: Scan) -> list[str]:
    """What the user should know about a scan."""
    root = show(str(found.root))
    remarks = []
    if found.links:
        remarks.append(
            f"{_times(found.links, 'link')} ignored in {root}: broken, leading out of it, or in circles."
        )
    if found.specials:
        remarks.append(
            f"{_times(found.specials, 'special file')} (pipe, device or socket) ignored in {root}."
        )
    if found.loose and found.count:
        remarks.append(f"{_images(found.loose)} ignored directly in {root}, outside any class's folder.")
    if found.unreadable:
        remarks.append(f"Folders in {root} that cannot be read: {_listed(found.unreadable)}.")
    return remarks


def _remark_on_names(found: Scan, classes: list[ClassFolder], warnings: list[str]) -> None:
    folded = Counter(item.label.casefold() for item in classes)
    alike = [item.label for item in classes if folded[item.label.casefold()] > 1]
    if alike:
        warnings.append(f"Classes that differ only in upper and lower case: {_listed(alike)}.")
    if {item.name.lower() for item in classes} <= {"train", "training", "val", "valid", "validation", "test"}:
        warnings.append(
            f"The classes are called {_listed(item.label for item in classes)}: "
            f"perhaps you meant a folder below {show(str(found.root))}."
        )


def _shared_out(
    root: Path, classes: list[ClassFolder], bounds: Bounds, shares: dict[str, float], seed: int
) -> dict[str, SplitPlan]:
    """Each class of one folder divided between train and the splits that take a share of it."""
    splits = {"train": SplitPlan(root)}
    splits |= {name: SplitPlan(root) for name, share in shares.items() if share > 0}
    for number, item in enumerate(classes):
        files = choose(item.files, seed, "train", item.name, maximum=bounds.maximum)
        start = 0
        counts = split_counts(len(files), shares["val"], shares["test"])
        for name, count in zip(("train", "val", "test"), counts, strict=True):
            if count:
                splits[name].files += files[start : start + count]
                splits[name].labels += [number] * count
            start += count
    return splits


def _matched(
    name: str, found: Scan, bounds: Bounds, classes: list[ClassFolder], seed: int, warnings: list[str]
) -> SplitPlan:
    """The split made of a folder of its own, whose classes are those of train."""
    root = show(str(found.root))
    if not found.count:
        raise _without_images(found)
    numbers = {item.name: number for number, item in enumerate(classes)}
    numbers |= {item.label: number for number, item in enumerate(classes)}
    known = [item for item in found.classes if item.name in numbers or item.label in numbers]
    unknown = [item.label for item in found.classes if item not in known]
    if not known:
        raise UnusableFolder(
            f"No folder in {root} is named like a class of the training images.",
            f"Expected names such as {_listed(item.label for item in classes)}.",
        )
    if unknown:
        warnings.append(
            f"Folders in {root} without a class of that name in the training images: {_listed(unknown)}."
        )
    split = SplitPlan(found.root)
    kept = _large_enough(Scan(found.root, known), bounds.minimum, warnings)
    for item in kept:
        files = choose(item.files, seed, name, item.name, maximum=bounds.maximum)
        split.files += files
        split.labels += [numbers.get(item.name, numbers.get(item.label, 0))] * len(files)
    present = set(split.labels)
    missing = [item.label for number, item in enumerate(classes) if number not in present]
    if missing:
        warnings.append(f"Classes without {name} images: {_listed(missing)}.")
    if not split.files:
        raise UnusableFolder(f"No class in {root} has enough images for {name}.")
    return split


def _shuffle(split: SplitPlan, seed: int, name: str) -> None:
    order = list(range(len(split.files)))
    _random(seed, name).shuffle(order)
    split.files = [split.files[place] for place in order]
    split.labels = [split.labels[place] for place in order]


def _listed(names: Iterable[str]) -> str:
    """A few of ``names`` for a sentence, and how many more there are."""
    shown = [show(name) for name in names]
    more = len(shown) - MAX_NAMES_IN_A_MESSAGE
    text = ", ".join(shown[:MAX_NAMES_IN_A_MESSAGE])
    return f"{text} and {more:,} more" if more > 0 else text


def _images(count: int) -> str:
    return _times(count, "image")


def _times(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
