"""List the images in a folder, without following links out of it, and search folders for some."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from digits.core.files import walk
from digits.data.images.endings import EXTENSIONS, LeftOut, is_image_file
from digits.data.sources.plan import Progress, UnusableSource, count_of, listed, path_below, show

PROGRESS_EVERY_FILES = 20_000
# The maximum number of entries of a folder to search for an image.
MAX_ENTRIES_PROBED = 20_000


@dataclass
class ImageList:
    """The images below ``root``: ``files`` are paths relative to it, sorted once the list is complete.

    ``links`` were not followed; ``specials`` are pipes, devices and sockets; ``unreadable`` are folders; images in
    ``left_out`` cannot be read.
    """

    root: Path
    files: list[str] = field(default_factory=list)
    links: int = 0
    unreadable: list[str] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)
    specials: int = 0

    def add(self, entry: os.DirEntry[str], name: str, top: str) -> None:
        """Add an ``entry`` that is no folder, with a ``name`` relative to the root; ``top`` is its real path."""
        if entry.is_symlink() and not _leads_inside(top, entry.path, os.path.isfile):
            self.links += 1
        elif not entry.is_file():
            self.specials += 1
        elif is_image_file(entry):
            self.files.append(name)
        else:
            self.left_out.add(entry.name)

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
        if self.specials:
            remarks.append(special_files(self.specials, self.root))
        if self.unreadable:
            remarks.append(f"Unreadable folders in {show(str(self.root))}: {listed(self.unreadable)}.")
        return remarks


def special_files(count: int, root: Path) -> str:
    """Return a sentence about the special files in a folder."""
    return f"{count_of(count, 'special file')} (pipe, device or socket) ignored in {show(str(root))}."


def without_images(root: Path, unreadable: list[str], left_out: LeftOut, links: int) -> UnusableSource:
    """Return the error for a folder without images, in which ``links`` were not followed."""
    paths = (os.path.join(folder, name) for folder, names in walk(root, skips_hidden=True) for name in names)
    others = [
        path for path in itertools.islice(paths, MAX_ENTRIES_PROBED) if is_visible(os.path.basename(path))
    ]
    found = "" if unreadable or links else ": it contains no files"
    if others:
        count, first = count_of(len(others), "other file"), show(os.path.relpath(others[0], root))
        found = f": it contains {count}, such as {first} (looked for {', '.join(ending[1:] for ending in EXTENSIONS)})"
    hints = left_out.remarks()
    if unreadable:
        hints.append(f"Unreadable: {listed(unreadable)}.")
    if links:
        hints.append(
            f"{count_of(links, 'link')} not followed, which lead to folders, out of {show(str(root))} or nowhere: "
            "replace them with copies, or enter a folder that also contains what they lead to."
        )
    if not hints:
        hints = ["Enter the folder that contains the images."]
    return UnusableSource(f"No images found in {show(str(root))}{found}.", " ".join(hints))


def walk_images(
    root: Path,
    excluded: Path | None = None,
    *,
    start: str = "",
    follows: bool = False,
    listed: ImageList | None = None,
) -> Iterator[ImageList]:
    """List the images below ``root``, except in ``excluded``, and yield the same list after each entry.

    Hidden entries are ignored. The walk begins in the folder ``start`` below the root, and adds to the images that are
    already ``listed``. If it ``follows`` links to folders inside the root, it enters each folder once. Raises
    UnusableSource if the first folder cannot be read.
    """
    listed = listed or ImageList(root)
    top = os.path.realpath(root)
    avoided = os.path.realpath(excluded) if excluded else ""
    visited: set[tuple[int, int]] = set()
    add, pending = listed.add, [start]
    while pending:
        folder = pending.pop()
        path = os.path.join(top, folder)
        try:
            if follows and not _is_new(path, visited):
                listed.links += 1
                continue
            entries = visible_entries(path)
        except OSError as error:
            if not folder:
                raise _unreadable(root, error) from error
            listed.unreadable.append(folder)
            continue
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False) or (follows and is_folder(entry, top)):
                if entry.path != avoided:
                    pending.append(name)
            else:
                add(entry, name, top)
            yield listed
    listed.files.sort(key=os.fsencode)


def read_folder(root: Path) -> list[os.DirEntry[str]]:
    """Return the visible entries of a folder, sorted by name; raises UnusableSource."""
    try:
        return sorted(visible_entries(os.path.realpath(root)), key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        raise _unreadable(root, error) from error


def is_folder(entry: os.DirEntry[str], top: str) -> bool:
    """Return whether ``entry`` is a folder, or a link to one inside the folder ``top``."""
    if not entry.is_symlink():
        return entry.is_dir()
    return _leads_inside(top, entry.path, os.path.isdir)


def _is_new(path: str, visited: set[tuple[int, int]]) -> bool:
    """Return whether a folder has not been visited, nor is a link to one that contains it; raises OSError."""
    status = os.stat(path)
    identity = status.st_dev, status.st_ino
    if identity in visited:
        return False
    visited.add(identity)
    target = os.path.realpath(path)
    return (
        not os.path.islink(path)
        or os.path.commonpath([os.path.realpath(os.path.dirname(path)), target]) != target
    )


def _unreadable(root: Path, error: OSError) -> UnusableSource:
    return UnusableSource(f"The folder {show(str(root))} cannot be read: {error.strerror}.")


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


def _leads_inside(top: str, path: str, is_kind: Callable[[str], bool]) -> bool:
    """Return whether the link ``path`` leads to something of a kind in the folder ``top``."""
    try:
        return is_kind(os.path.join(top, path_below(top, path)))
    except ValueError:
        return False
