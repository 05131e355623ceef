"""Folders with an annotation file for each image, with the same name except for the extension."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from digits.core.files import walk
from digits.data.image_finder import ImageFinder
from digits.data.image_lists import list_images
from digits.data.sources import count_of, listed, path_below, read_bounded, show
from digits.data.tables import Faults
from digits.data.target_images import IMAGE_FOLDERS
from digits.kinds.detection.annotations import AnnotatedImage, Annotations
from digits.kinds.shapes import Shape

MAX_LABEL_BYTES = 16 << 20
# Texts beside annotations, such as Roboflow's README.dataset.txt, and lists of images.
_ABOUT_LABELS = re.compile(
    r"(readme.*|notes?|licen[cs]e|obj|(class|label)(es|s|map|_names)?|train|trainval|val|valid|test)\.(txt|names)",
    re.IGNORECASE,
)


# In lowercase.
LABEL_FOLDERS = ("annotations", "labels", "label", "label_2")
_USUAL_FOLDERS = {*IMAGE_FOLDERS, *LABEL_FOLDERS}


def is_about_labels(name: str) -> bool:
    """Return whether a text file with this name usually describes the annotations instead of containing some."""
    return bool(_ABOUT_LABELS.fullmatch(name))


class InvalidAnnotation(ValueError):
    """An annotation file is invalid; the message names the line or element."""


Parse = Callable[[bytes], list[Shape] | AnnotatedImage]


@dataclass
class LabelFolder:
    """The annotation files with the ``ending`` below ``labels``, and the images below ``root``.

    Both are real paths. Names are paths relative to these folders.
    """

    labels: Path
    root: Path
    ending: str
    images: dict[str, str] = field(init=False)
    remarks: list[str] = field(init=False)
    faults: Faults = field(init=False)

    def __post_init__(self) -> None:
        """List the images; raises UnusableSource if there are none."""
        found = list_images(self.root)
        found.need_images()
        self.remarks = found.remarks()
        self.images = _by_stem(found.files)
        self.faults = Faults(self.labels, row="file")
        self._finder = ImageFinder(self.root)

    def annotations(
        self,
        parse: Parse,
        classes: Iterable[str] = (),
        unlabeled_are_empty: bool = False,
    ) -> Annotations:
        """Return the annotated images, sorted by the name of the label file.

        ``parse`` returns the boxes, or an image whose ``file`` is the name in the label file: it is used if no image
        is called like the label file. It raises InvalidAnnotation; such files are added to the ``faults``. Images
        without a file have no objects, or are not used. ``classes`` are those that the folder declares.
        """
        annotated = self._read(parse, unlabeled_are_empty)
        return Annotations(annotated, list(classes), self.remarks, faults=[self.faults])

    def _read(self, parse: Parse, unlabeled_are_empty: bool) -> Iterator[AnnotatedImage]:
        unused = set(self.images.values())
        unmatched: list[str] = []
        for name in self.label_files():
            file = self.image_of(name)
            if file is None:
                if not is_about_labels(os.path.basename(name)):
                    unmatched.append(name)
                continue
            unused.discard(file)
            try:
                image = self._parse(parse, name)
            except InvalidAnnotation as error:
                self.faults.add_place("", str(error), show(name))
                continue
            self.faults.usable += 1
            image.file = file
            yield image
        lonely: list[str] = []
        for name in unmatched:
            named = self._find_named(parse, name)
            if named is None or named.file not in unused:
                lonely.append(name)
                continue
            unused.discard(named.file)
            self.faults.usable += 1
            yield named
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

    def label_files(self) -> list[str]:
        """Return the names of the annotation files, sorted."""
        return sorted(_files(self.labels, self.ending))

    @cached_property
    def _inner(self) -> dict[str, str]:
        """The images by their `_inner_path`, where only one has it."""
        names: dict[str, list[str]] = {}
        for file in set(self.images.values()):
            names.setdefault(_inner_path(os.path.splitext(file)[0]), []).append(file)
        return {path: images[0] for path, images in names.items() if len(images) == 1}

    def image_of(self, name: str) -> str | None:
        """Return the image of an annotation file."""
        stem = os.path.splitext(name)[0]
        found = self.images.get(stem) or self._inner.get(_inner_path(stem))
        return found or self.images.get(os.path.basename(stem))

    def _parse(self, parse: Parse, name: str) -> AnnotatedImage:
        parsed = parse(self._bytes(name))
        image = parsed if isinstance(parsed, AnnotatedImage) else AnnotatedImage("", parsed)
        image.boxes = [replace(box, where=f"{show(name)}, {box.where}") for box in image.boxes]
        return image

    def _find_named(self, parse: Parse, name: str) -> AnnotatedImage | None:
        """Return the image that a label file names; None if there is none."""
        try:
            image = self._parse(parse, name)
            image.file = self._finder.locate(image.file)
        except ValueError:
            return None
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


def is_number(text: str) -> bool:
    """Return whether `number_in` accepts ``text``."""
    try:
        float(text)
    except ValueError:
        return False
    return True


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


def _by_stem(files: list[str]) -> dict[str, str]:
    """Return images by path without ending, and by file name alone where only one image has it."""
    whole: dict[str, str] = {}
    names: dict[str, list[str]] = {}
    for file in sorted(files, reverse=True):
        stem = os.path.splitext(file)[0]
        whole[stem] = file
        names.setdefault(os.path.basename(stem), []).append(file)
    return {name: named[0] for name, named in names.items() if len(named) == 1} | whole


def _inner_path(stem: str) -> str:
    """Return what the paths of an image and of its labels have in common, as ``a/images/1`` and ``a/labels/1``."""
    *folders, name = stem.split("/")
    return "/".join([*(part for part in folders if part.lower() not in _USUAL_FOLDERS), name])
