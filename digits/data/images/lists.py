"""List the images in a folder, without following links out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from digits.data.images.endings import EXTENSIONS, LeftOut, is_image_file
from digits.data.sources.plan import Progress, UnusableSource, count_of, listed, path_below, show

PROGRESS_EVERY_FILES = 20_000
# The maximum number of entries of a folder to search for an image.
MAX_ENTRIES_PROBED = 20_000


@dataclass
class ImageList:
    """The images below ``root``: ``files`` are paths relative to it, sorted once the list is complete.

    ``links`` were not followed; ``unreadable`` are folders; images in ``left_out`` cannot be read.
    """

    root: Path
    files: list[str] = field(default_factory=list)
    links: int = 0
    unreadable: list[str] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)

    def need_images(self) -> None:
        """Raise UnusableSource unless there is an image."""
        if not self.files:
            raise without_images(self.root, self.unreadable, self.left_out, self.links)

    def remarks(self) -> list[str]:
        """Return warnings about entries that were ignored."""
        remarks = self.left_out.remarks()
        if self.links:
            links = count_of(self.links, "link")
            remarks.append(
                f"{links} ignored in {show(str(self.root))}: they point to folders or outside, or are broken."
            )
        if self.unreadable:
            remarks.append(f"Unreadable folders in {show(str(self.root))}: {listed(self.unreadable)}.")
        return remarks


def without_images(root: Path, unreadable: list[str], left_out: LeftOut, links: int) -> UnusableSource:
    """Return the error for a folder without images, in which ``links`` were not followed."""
    extensions = ", ".join(extension[1:] for extension in EXTENSIONS)
    hints = left_out.remarks()
    if unreadable:
        hints.append(f"Unreadable: {listed(unreadable)}.")
    if links:
        hints.append(
            f"{count_of(links, 'link')} not followed, which lead to folders, out of {show(str(root))} or nowhere: "
            "replace them with copies, or enter a folder that also contains what they lead to."
        )
    return UnusableSource(f"No images found in {show(str(root))} (looked for {extensions}).", " ".join(hints))


def walk_images(root: Path, excluded: Path | None = None) -> Iterator[ImageList]:
    """List the images below ``root``, except in ``excluded``, and yield the same list after each entry.

    Hidden entries are ignored. Raises UnusableSource if ``root`` cannot be read.
    """
    listed = ImageList(root)
    resolved = os.path.realpath(root)
    avoided = os.path.realpath(excluded) if excluded else ""
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = visible_entries(os.path.join(resolved, folder))
        except OSError as error:
            if not folder:
                raise UnusableSource(
                    f"The folder {show(str(root))} cannot be read: {error.strerror}."
                ) from error
            listed.unreadable.append(folder)
            continue
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.path != avoided:
                    pending.append(name)
            elif entry.is_symlink() and not _leads_to_a_file(resolved, name):
                listed.links += 1
            elif is_image_file(entry) and _is_file(entry):
                listed.files.append(name)
            else:
                listed.left_out.add(entry.name)
            yield listed
    listed.files.sort(key=os.fsencode)
    yield listed


def need_an_image(root: Path, *more: Path) -> None:
    """Raise UnusableSource if no folder contains an image at any depth; reads only the first entries of each."""
    lists = []
    for folder in (root, *more):
        listed = ImageList(folder)
        for number, listed in enumerate(walk_images(folder)):
            if listed.files or number == MAX_ENTRIES_PROBED:
                return
        lists.append(listed)
    lists[0].need_images()


def list_images(root: Path, progress: Progress | None = None, excluded: Path | None = None) -> ImageList:
    """Return the images below ``root``, in the limits of ``progress``. See `walk_images`."""
    progress = progress or Progress()
    name = show(str(root))
    progress.reading(f"Reading {name}")
    listed, reported = ImageList(root), 0
    for listed in progress.take(walk_images(root, excluded)):
        if len(listed.files) >= reported + PROGRESS_EVERY_FILES:
            reported = len(listed.files)
            progress.reading(f"Reading {name}: {reported:,} images")
    return listed


def visible_entries(path: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder that `is_visible` accepts; raises OSError."""
    with os.scandir(path) as entries:
        return [entry for entry in entries if is_visible(entry.name)]


def is_visible(name: str) -> bool:
    """Return whether ``name`` is neither hidden nor the folder that macOS adds to archives."""
    return not name.startswith(".") and name != "__MACOSX"


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
