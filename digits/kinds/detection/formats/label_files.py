"""Folders with an annotation file for each image, with the same name except for the extension."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from digits.core.files import walk
from digits.data.images.lists import list_images
from digits.data.sources.path_rules import WITH_ENDINGS, AmbiguousPaths, ImageTree, PathMatches
from digits.data.sources.plan import UnusableSource, count_of, listed, path_below, read_bounded, show
from digits.data.sources.target_images import IMAGE_FOLDERS
from digits.data.tables.tables import Faults
from digits.kinds.detection.annotations import AnnotatedImage, Annotations
from digits.kinds.sources.shapes import Shape

MAX_LABEL_BYTES = 16 << 20
# Texts beside annotations, such as Roboflow's README.dataset.txt, and lists of images.
_ABOUT_LABELS = re.compile(
    r"(readme.*|notes?|licen[cs]e|obj|((obj|class|classes|labels?)[-_]?)?names|(class|label)(es|s|map|(es|s)?[-_]list)?|"
    r"train|trainval|val|valid|test)\.(txt|names)",
    re.IGNORECASE,
)


# In lowercase.
LABEL_FOLDERS = ("annotations", "labels", "label", "label_2")
# The paths of images and of their annotations need not have these in common, as in ``a/images/1`` and ``a/labels/1``.
_USUAL_FOLDERS = {*IMAGE_FOLDERS, "image_2", *LABEL_FOLDERS, "ann"}


def is_about_labels(name: str) -> bool:
    """Return whether a text file with this name usually describes the annotations instead of containing some."""
    return bool(_ABOUT_LABELS.fullmatch(name))


class InvalidAnnotation(ValueError):
    """An annotation file is invalid; the message names the line or element."""


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Raise InvalidAnnotation with the place of a number or a mask that cannot be used."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise InvalidAnnotation(f"{where}: {error}") from None


Parse = Callable[[bytes], list[Shape] | AnnotatedImage]


@dataclass
class LabelFolder:
    """The annotation files with the ``ending`` below ``labels``, and the images below ``root``.

    Both are real paths. Names are paths relative to these folders.
    """

    labels: Path
    root: Path
    ending: str
    images: list[str] = field(init=False)
    remarks: list[str] = field(init=False)
    faults: Faults = field(init=False)

    def __post_init__(self) -> None:
        """List the images; raises UnusableSource if there are none."""
        found = list_images(self.root)
        found.need_images()
        self.remarks = found.remarks()
        self.images = found.files
        self.faults = Faults(self.labels, row="file")
        self._tree = ImageTree(self.root, found.files)

    def annotations(
        self, parse: Parse, classes: Iterable[str] = (), unlabeled_are_empty: bool = False
    ) -> Annotations:
        """Return the annotated images, sorted by the name of the label file.

        ``parse`` returns the boxes, or an image whose ``file`` is the name in the label file: these names are used if
        no image is called like a label file. It raises InvalidAnnotation; such files are added to the ``faults``.
        Images without a file have no objects, or are not used. ``classes`` are those that the folder declares. Raises
        UnusableSource if label files and the names in them lead to different images.
        """
        annotated = self._read(parse, unlabeled_are_empty)
        return Annotations(annotated, list(classes), self.remarks, faults=[self.faults])

    def _read(self, parse: Parse, unlabeled_are_empty: bool) -> Iterator[AnnotatedImage]:
        unused = set(self.images)
        label_files = self.label_files()
        matches, are_named = self._match(parse, label_files)
        lonely: list[str] = []
        stated: dict[str, str] = {}
        for name in label_files:
            path = are_named.get(name, "") if are_named else os.path.splitext(name)[0]
            try:
                file, exists = matches.resolve(path)
            except ValueError:
                exists = False
            if not exists:
                if not is_about_labels(os.path.basename(name)):
                    lonely.append(name)
                if path in matches.faults:
                    self.faults.add_place("", matches.faults[path], show(name))
                continue
            unused.discard(file)
            try:
                image = self._parse(parse, name)
            except InvalidAnnotation as error:
                self.faults.add_place("", str(error), show(name))
                continue
            self.faults.usable += 1
            if image.file and not are_named:
                stated[image.file] = file
            image.file = file
            yield image
        self._check(stated)
        self.remarks += [] if matches.rule in ("", WITH_ENDINGS) else matches.remarks(self.labels.name)
        if lonely:
            verb = "has" if len(lonely) == 1 else "have"
            self.remarks.append(
                f"{count_of(len(lonely), 'file')} of annotations {verb} no image: {listed(lonely)}."
            )
        if unlabeled_are_empty:
            yield from (AnnotatedImage(file, []) for file in sorted(unused))
        elif unused:
            what = count_of(len(unused), "image")
            self.remarks.append(f"{what} without a file of annotations: not used ({listed(sorted(unused))}).")

    def _match(self, parse: Parse, label_files: list[str]) -> tuple[PathMatches, dict[str, str]]:
        """Return the images by the names of the label files, or else by the names in them, and the latter by file."""
        try:
            matches = self._tree.match((os.path.splitext(name)[0] for name in label_files), _USUAL_FOLDERS)
            if (matches.files or matches.faults) and not matches.is_guess:
                return matches, {}
        except AmbiguousPaths:
            raise
        except UnusableSource:
            matches = None
        named = {}
        for name in label_files:
            with contextlib.suppress(InvalidAnnotation):
                if file := self._parse(parse, name).file:
                    named[name] = file
        found = self._tree.match(named.values()) if named else None
        if found and found.files and (not matches or len(found.files) >= len(matches.files)):
            return found, named
        return matches or self._tree.match(os.path.splitext(name)[0] for name in label_files), {}

    def _check(self, stated: dict[str, str]) -> None:
        """Raise UnusableSource if the names in all label files are those of other images than the label files have.

        ``stated`` are the images by the names in the label files. Names in copies and in renamed files are out of date.
        """
        if len(stated) < max(2, self.faults.usable):
            return
        matches = self._tree.match(stated)
        if len(matches.files) < len(stated):
            return
        for name, file in stated.items():
            if matches.files[name] != file:
                raise UnusableSource(
                    f"The annotations of {show(file)} are called like it, but say that they are those of "
                    f"{show(matches.files[name])}, and so do others.",
                    "Rename the images or the files of annotations, so that the names in the files are those of the "
                    "images, or remove these names.",
                )

    def label_files(self) -> list[str]:
        """Return the names of the annotation files, sorted."""
        return sorted(_files(self.labels, self.ending))

    def _parse(self, parse: Parse, name: str) -> AnnotatedImage:
        parsed = parse(self._bytes(name))
        image = parsed if isinstance(parsed, AnnotatedImage) else AnnotatedImage("", parsed)
        image.boxes = [replace(box, where=f"{show(name)}, {box.where}") for box in image.boxes]
        return image

    def _bytes(self, name: str) -> bytes:
        try:
            path = self.labels / path_below(str(self.labels), name)
            return read_bounded(path, MAX_LABEL_BYTES)
        except (ValueError, OSError) as error:
            raise InvalidAnnotation(getattr(error, "strerror", None) or str(error)) from error


def text_lines(data: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield ``line 3`` and the words of each line that is not blank; raises InvalidAnnotation."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = data[: error.start].count(b"\n") + 1
        raise InvalidAnnotation(f"line {place}: not UTF-8 text") from error
    for number, line in enumerate(text.split("\n"), 1):
        if words := line.split():
            yield f"line {number}", words


def number_in(text: str, where: str) -> float:
    """Return the number in ``text``; raises InvalidAnnotation."""
    try:
        return float(text)
    except (TypeError, ValueError):
        raise InvalidAnnotation(f"{where}: “{show(text[:40])}” is not a number") from None


def _files(folder: Path, ending: str) -> list[str]:
    paths = []
    for parent, files in walk(folder, skips_hidden=True):
        inner = os.path.relpath(parent, folder)
        paths += [
            os.path.normpath(os.path.join(inner, name))
            for name in files
            if name.lower().endswith(ending) and not name.startswith(".")
        ]
    return paths
