"""Folders of images and of target images, such as masks, with matching names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from digits.data.images import EXTENSIONS
from digits.data.sources import ImageSource, SplitPlan, UnusableSource, count_of, listed, path_below, show

PROGRESS_EVERY_FILES = 20_000
# In lowercase.
IMAGE_FOLDERS = ("images", "image", "imgs", "img", "inputs", "input", "jpegimages")

# Suffixes that tools append to the name of an image to name its target.
_SUFFIX = re.compile(r"[_-](mask|label|seg|segmentation|gt|target)s?\Z", re.IGNORECASE)


@dataclass
class ImageList:
    """The images below ``root``: ``files`` are paths relative to it, sorted once the list is complete.

    ``links`` were not followed; ``unreadable`` are folders.
    """

    root: Path
    files: list[str] = field(default_factory=list)
    links: int = 0
    unreadable: list[str] = field(default_factory=list)

    def remarks(self) -> list[str]:
        """Return warnings about entries that were ignored."""
        found = []
        if self.links:
            links = count_of(self.links, "link")
            found.append(
                f"{links} ignored in {show(str(self.root))}: to folders, broken, or leading outside."
            )
        if self.unreadable:
            found.append(f"Folders in {show(str(self.root))} that cannot be read: {listed(self.unreadable)}.")
        return found


@dataclass
class PairedSplit(SplitPlan):
    """A split whose targets are images as well, from ``target_images``."""

    target_images: ImageSource = field(kw_only=True)


@dataclass(frozen=True)
class Pairs:
    """Images with the target of the same name, as ``names``, and the unpaired files, all sorted."""

    names: list[tuple[str, str]]
    without_target: list[str]
    without_image: list[str]
    repeated: list[str]

    def remarks(self, target: str) -> list[str]:
        """Return warnings about the unpaired files; ``target`` is the word for a target image."""
        found = []
        if self.without_target:
            verb = "has" if len(self.without_target) == 1 else "have"
            images = count_of(len(self.without_target), "image")
            found.append(f"{images} {verb} no {target} and cannot be used: {listed(self.without_target)}.")
        if self.without_image:
            verb = "has" if len(self.without_image) == 1 else "have"
            targets = count_of(len(self.without_image), target)
            found.append(f"{targets} {verb} no image and will not be used: {listed(self.without_image)}.")
        if self.repeated:
            verb = "differs" if len(self.repeated) == 1 else "differ"
            files = count_of(len(self.repeated), "file")
            found.append(
                f"{files} ignored whose name {verb} from another only in its ending: {listed(self.repeated)}."
            )
        return found


def walk_images(root: Path, excluded: Path | None = None) -> Iterator[ImageList]:
    """List the images below ``root``, except in ``excluded``, and yield the same list after each entry.

    Hidden entries are ignored. Raises UnusableSource if ``root`` cannot be read.
    """
    found = ImageList(root)
    resolved = os.path.realpath(root)
    avoided = os.path.realpath(excluded) if excluded else ""
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = _entries(os.path.join(resolved, folder))
        except OSError as error:
            if not folder:
                raise UnusableSource(
                    f"The folder {show(str(root))} cannot be read: {error.strerror}."
                ) from error
            found.unreadable.append(folder)
            continue
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.path != avoided:
                    pending.append(name)
            elif entry.is_symlink() and not _leads_to_a_file(resolved, name):
                found.links += 1
            elif entry.name.lower().endswith(EXTENSIONS) and _is_file(entry):
                found.files.append(name)
            yield found
    found.files.sort(key=os.fsencode)
    yield found


def list_images(
    root: Path, progress: Callable[[int], None] = lambda files: None, excluded: Path | None = None
) -> ImageList:
    """Return the images below ``root``; ``progress`` receives their number at intervals. See `walk_images`."""
    found, reported = ImageList(root), 0
    for found in walk_images(root, excluded):
        if len(found.files) >= reported + PROGRESS_EVERY_FILES:
            reported = len(found.files)
            progress(reported)
    return found


def match(images: Collection[str], targets: Collection[str]) -> Pairs:
    """Pair files whose paths are the same except for the ending, or for a suffix such as ``_mask`` of the target."""
    repeated: list[str] = []
    image_of = _by_stem(images, repeated)
    target_of = _by_stem(targets, repeated)
    for stem in [stem for stem in target_of if stem not in image_of]:
        plain = _SUFFIX.sub("", stem)
        if plain in image_of and plain not in target_of:
            target_of[plain] = target_of.pop(stem)
    return Pairs(
        [(name, target_of[stem]) for stem, name in image_of.items() if stem in target_of],
        [name for stem, name in image_of.items() if stem not in target_of],
        [name for stem, name in target_of.items() if stem not in image_of],
        repeated,
    )


def find_folders(root: Path, targets: Collection[str]) -> tuple[Path, Path] | None:
    """Return the folders in ``root`` of images and of targets, if there is one each with a usual name.

    ``targets`` are the usual names of the latter, in lower case.
    """
    try:
        names = {entry.name.lower(): Path(entry.path) for entry in _entries(str(root)) if entry.is_dir()}
    except OSError:
        return None
    images = next((names[name] for name in IMAGE_FOLDERS if name in names), None)
    found = next((names[name] for name in targets if name in names), None)
    return (images, found) if images and found else None


def _by_stem(names: Collection[str], repeated: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in sorted(names, key=os.fsencode):
        stem = os.path.splitext(name)[0]
        if stem in found:
            repeated.append(name)
        else:
            found[stem] = name
    return found


def _entries(path: str) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return [entry for entry in entries if not entry.name.startswith(".")]


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _leads_to_a_file(root: str, name: str) -> bool:
    try:
        return os.path.isfile(os.path.join(root, path_below(root, name)))
    except ValueError:
        return False
