"""A format of annotations: its names, and how annotations are recognized and opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from digits.core.files import walk
from digits.kinds.detection.annotations import Annotations
from digits.kinds.detection.formats.label_files import is_about_labels
from digits.kinds.sources.coco import SNIFFED_BYTES
from digits.kinds.sources.tables import TableSettings

MAX_SNIFFED_FILES = 50
_SNIFFED_BYTES = 4096
_MAX_HEADS = 10


class BoxTable(TableSettings, kw_only=True, frozen=True):
    """The columns of CSV files with one box per line, by name; those with empty names are detected.

    See `digits.kinds.detection.formats.box_table` for their usual names, and `digits.data.tables.tables.Dialect` for
    ``delimiter`` and ``header``.
    """

    image_column: str = ""
    left_column: str = ""
    top_column: str = ""
    right_column: str = ""
    bottom_column: str = ""
    width_column: str = ""
    height_column: str = ""
    class_column: str = ""


AUTOMATIC = BoxTable()


@dataclass(frozen=True)
class Source:
    """The annotations ``labels`` of the images below ``images``, both real paths.

    ``classes`` are the chosen ones: with them, all types of KITTI files are read, not only the default classes, and
    they name the class numbers in databases. ``table`` describes CSV files, and ``names`` is a file with the names of
    class numbers. If it ``needs_outlines``, objects with a box and an outline get the outline.
    """

    labels: Path
    images: Path
    classes: Sequence[str] = ()
    table: BoxTable = AUTOMATIC
    names: Path | None = None
    needs_outlines: bool = False


class FirstFiles:
    """The annotations at ``path``, and if it is a folder, the first files with one of ``endings`` in it."""

    def __init__(self, path: Path, endings: tuple[str, ...]) -> None:
        self.path = path
        self.is_folder = path.is_dir()
        self._endings = endings

    @cached_property
    def _names(self) -> list[str]:
        paths: list[str] = []
        for parent, files in walk(self.path):
            names = [name for name in files if name.lower().endswith(self._endings)]
            paths += [os.path.join(parent, name) for name in names if not is_about_labels(name)]
            if len(paths) >= MAX_SNIFFED_FILES:
                break
        return sorted(paths)[:MAX_SNIFFED_FILES]

    def with_ending(self, *endings: str) -> list[str]:
        """Return the paths of those with one of ``endings``, in lowercase."""
        return [name for name in self._names if name.lower().endswith(endings)]

    def heads(self, *endings: str) -> Iterator[bytes]:
        """Yield the first bytes of the file, or of the first files with one of ``endings``."""
        paths = self.with_ending(*endings)[:_MAX_HEADS] if self.is_folder else [str(self.path)]
        return map(_head, paths)

    def lines(self, ending: str) -> Iterator[list[str]]:
        """Yield the words of the first line that is not blank of each text file that has one."""
        return filter(None, map(_first_words, self.with_ending(ending)))


@dataclass(frozen=True)
class Format:
    """A format of annotations; `digits.kinds.detection.formats.formats.FORMATS` contains all of them.

    ``title`` is its name in sentences, and ``words`` its name in the form, by default the title. Annotations are a
    folder with a file for each image if ``is_folder``, else a file; if they ``store_images`` themselves, they can be
    either. Files have one of the ``endings``, in lowercase and with a dot. ``is_in`` returns whether a folder contains
    annotations in this format; by default, those with an ending do, if the first bytes of one of the first files
    ``look_like`` the format. ``min_val_box_size`` is the default of the recipe.
    ``open`` raises UnusableSource, as does iterating its result.
    """

    name: str
    title: str
    open: Callable[[Source], Annotations]
    endings: tuple[str, ...]
    is_folder: bool = False
    stores_images: bool = False
    is_in: Callable[[FirstFiles], bool] | None = None
    words: str = ""
    min_val_box_size: int = 0
    looks_like: Callable[[bytes], bool] | None = None

    def recognizes(self, first: FirstFiles) -> bool:
        """Return whether annotations have this format."""
        if not first.is_folder:
            has_ending = first.path.suffix.lower() in self.endings
            return not self.is_folder and has_ending and self._is_like(first)
        if self.is_in is not None:
            return self.is_in(first)
        return self.is_folder and bool(first.with_ending(*self.endings)) and self._is_like(first)

    def _is_like(self, first: FirstFiles) -> bool:
        return self.looks_like is None or any(map(self.looks_like, first.heads(*self.endings)))


def _head(path: str) -> bytes:
    try:
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as file:
            return file.read(SNIFFED_BYTES)
    except OSError:
        return b""


def _first_words(path: str) -> list[str]:
    try:
        if not os.path.isfile(path):
            return []
        with open(path, "rb") as file:
            text = file.read(_SNIFFED_BYTES).decode("utf-8-sig", "replace")
        return next(filter(None, map(str.split, text.splitlines())), [])
    except OSError:
        return []
