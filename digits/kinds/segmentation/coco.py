"""Label images drawn from the polygons and run lengths (RLE) of COCO files, and from polygons in other formats.

The background has the index 0; the categories that have objects follow in the order of their ids. A smaller object
covers a larger one, and of equally large ones the later covers the earlier. Pixels of crowd regions have no class,
unless an object covers them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_masks

from digits.data import images
from digits.data.image_lists import ImageList
from digits.data.images import UnusableImage
from digits.data.sources import (
    ImageSource,
    Located,
    Progress,
    UnusableSource,
    count_of,
    first_lines,
    listed,
    show,
)
from digits.data.tables import Faults
from digits.data.target_images import Matches
from digits.data.targets.mask import IGNORED, MAX_PIXEL_CLASSES
from digits.data.targets.palette import BACKGROUND
from digits.kinds import coco
from digits.kinds.coco import CocoFile
from digits.kinds.detection.coco import FORMAT
from digits.kinds.detection.formats import find_format
from digits.kinds.segmentation.annotated import AnnotatedShapes, read_shapes
from digits.kinds.shapes import decompress, polygons_in, read_run_lengths
from digits.kinds.target_image_recipe import TargetImageFolders
from digits.kinds.target_image_source import FoundTargetImages

# Polygons may extend beyond the image by this multiple of its size; what is outside is cut off.
_MARGIN = 2


class Annotation(coco.Annotation):
    """An object; ``segmentation`` is a list of polygons, or run lengths as a dictionary."""

    segmentation: Any = None


@dataclass(frozen=True, slots=True)
class Region:
    """The pixels of an object: ``polygons``, or run ``lengths`` by columns that begin with pixels outside."""

    index: int
    polygons: tuple[NDArray[np.float64], ...] = ()
    lengths: NDArray[np.int64] | None = None

    def run_lengths(self, width: int, height: int) -> NDArray[np.int64]:
        """Return the run lengths of the object in an image of this size."""
        if self.lengths is not None:
            return self.lengths
        parts = coco_masks.frPyObjects([part.tolist() for part in self.polygons], height, width)
        return np.array(decompress(coco_masks.merge(parts)["counts"]), np.int64)


@dataclass
class DrawnMasks(Located):
    """The label images of the annotations ``root`` in the format ``title``.

    Their sizes and their regions are by the paths of the images.
    """

    root: Path
    title: str = "COCO"
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    regions: dict[str, list[Region]] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """Return a label image as a PNG file; raises UnusableImage."""
        width, height = self.sizes[name]
        mask = np.zeros(height * width, np.uint8)
        drawn = []
        for place, region in enumerate(self.regions.get(name, [])):
            lengths = region.run_lengths(width, height)
            drawn.append((region.index != IGNORED, -int(lengths[1::2].sum()), place, region.index, lengths))
        for *_, index, lengths in sorted(drawn, key=lambda item: item[:3]):
            inside = np.arange(len(lengths)) % 2 == 1
            mask[np.repeat(inside, lengths)] = index
        return images.encode(mask.reshape(width, height).T[..., None], "png")


@dataclass(frozen=True)
class AnnotatedImages(FoundTargetImages):
    """The images of annotations with their label images."""

    masks: DrawnMasks
    notes: list[str]

    @cached_property
    def target_images(self) -> ImageSource:
        return self.masks

    def remarks(self, target: str) -> list[str]:
        return self.notes

    def need(self, target: str) -> None:
        if not self.matches.names:
            name = show(self.masks.root.name)
            raise UnusableSource(
                f"None of the images listed in {name} were found in {show(self.folders.images)}.",
                "Enter the folder that contains them.",
            )


@dataclass
class CocoClasses:
    """Reads the annotations of all splits, whose classes are the same. ``indexes`` are those of the classes by name.

    ``names`` is the path of a file with the names of YOLO's class numbers, which may be empty.
    """

    names: str = ""
    indexes: dict[str, int] = field(default_factory=dict)

    def find(self, folders: TargetImageFolders, path: Path, progress: Progress) -> AnnotatedImages:
        """Read the annotations ``path`` about the images in ``folders``; raises UnusableSource."""
        progress.reading(f"Reading {show(str(path))}")
        root = Path(os.path.realpath(folders.images))
        chosen = find_format(path)
        if chosen is not FORMAT:
            return self._draw(folders, read_shapes(path, root, self.names), DrawnMasks(path, chosen.title))
        content = coco.read(path, root, Annotation)
        present = {item.category_id for item in content.annotations if not item.iscrowd}
        if content.annotations and not present:
            raise UnusableSource(
                f"All objects in {show(path.name)} are crowd regions (iscrowd), which are ignored.",
                "CVAT exports brush masks this way: draw polygons instead, or export as “Segmentation mask”.",
            )
        used = {content.categories[number] for number in present}
        self._add_classes(path, [name for name in content.classes if name in used])
        masks = DrawnMasks(path)
        missing = self._add_sizes(masks, root, content)
        empty: list[str] = []
        for item in content.annotations:
            file = content.paths[item.image_id]
            if file not in masks.sizes:
                continue
            index = IGNORED if item.iscrowd else self._index(content.categories[item.category_id])
            try:
                region = _region(item.segmentation, index, *masks.sizes[file])
            except ValueError as error:
                content.skip(item, str(error))
                continue
            if region is None:
                empty.append(f"annotation {item.id}")
            else:
                masks.regions.setdefault(file, []).append(region)
        if content.annotations and not masks.regions and empty:
            raise UnusableSource(
                f"{show(path.name)} contains {count_of(len(empty), 'object')}, but no polygons or masks.",
                "Create a dataset for object detection, or annotate the outlines of objects as polygons.",
            )
        notes = _notes(missing, empty, sum(bool(item.iscrowd) for item in content.annotations), masks)
        return _annotated(folders, masks, notes, content.faults)

    def _draw(
        self, folders: TargetImageFolders, annotated: AnnotatedShapes, masks: DrawnMasks
    ) -> AnnotatedImages:
        """Return the images of annotations in another format than COCO."""
        self._add_classes(masks.root, annotated.classes)
        faults = Faults(masks.root, row="object", are_images=False)
        masks.sizes.update(annotated.sizes)
        for file, shapes in annotated.shapes.items():
            for shape in shapes:
                index = IGNORED if shape.is_ignored else self._index(shape.name)
                try:
                    region = _region([shape.polygon], index, *annotated.sizes[file])
                except ValueError as error:
                    faults.add_place(shape.where, str(error))
                    continue
                assert region is not None
                masks.regions.setdefault(file, []).append(region)
        faults.usable = sum(map(len, masks.regions.values()))
        ignored = sum(shape.is_ignored for shapes in annotated.shapes.values() for shape in shapes)
        notes = [*annotated.notes, *_notes(annotated.missing, [], ignored, masks)]
        return _annotated(folders, masks, notes, [*annotated.faults, faults])

    def _add_classes(self, path: Path, names: list[str]) -> None:
        for name in (BACKGROUND, *names):
            self._index(name)
        if len(self.indexes) > MAX_PIXEL_CLASSES:
            raise UnusableSource(
                f"{show(path.name)} has {len(self.indexes) - 1:,} categories.",
                f"The limit is {MAX_PIXEL_CLASSES - 1}.",
            )

    def _index(self, name: str) -> int:
        name = BACKGROUND if name.lower() == BACKGROUND else show(name)
        return self.indexes.setdefault(name, len(self.indexes))

    @staticmethod
    def _add_sizes(masks: DrawnMasks, root: Path, content: CocoFile[Annotation]) -> list[str]:
        """Add the sizes of the images that exist; return the paths of the others."""
        missing = []
        for number, file in content.paths.items():
            image = content.images[number]
            if image.width and image.height:
                # A mask has one byte per pixel, unlike an image.
                if image.width * image.height > 4 * images.MAX_PIXELS or min(image.width, image.height) < 0:
                    reason = f"{image.width}×{image.height} pixels is too large: raise the setting max_image_pixels"
                    content.skip_image(number, reason)
                elif (root / file).is_file():
                    masks.sizes[file] = (image.width, image.height)
                else:
                    missing.append(file)
                continue
            try:
                masks.sizes[file] = images.upright_size(root / file)
            except (UnusableImage, OSError):
                missing.append(file)
        return missing


def _annotated(
    folders: TargetImageFolders, masks: DrawnMasks, notes: list[str], faults: list[Faults]
) -> AnnotatedImages:
    files = list(masks.sizes)
    matches = Matches([(file, file) for file in files], [], [], [])
    return AnnotatedImages(
        folders, matches, [ImageList(Path(folders.images), files)], masks, notes, faults=faults
    )


def _notes(missing: list[str], empty: list[str], ignored: int, masks: DrawnMasks) -> list[str]:
    notes = []
    if missing:
        notes.append(f"{count_of(len(missing), 'image')} not found or unreadable: {listed(missing)}.")
    if empty:
        notes.append(
            f"{count_of(len(empty), 'object')} without a polygon or mask, ignored: {first_lines(empty)}."
        )
    if ignored:
        notes.append(f"{count_of(ignored, 'crowd region')}: ignored.")
    bare = [file for file in masks.sizes if file not in masks.regions]
    if bare:
        notes.append(f"{count_of(len(bare), 'image')} without objects (background only): {listed(bare)}.")
    return notes


def _region(segmentation: Any, index: int, width: int, height: int) -> Region | None:
    """Return the region of a segmentation, None if it is empty; raises ValueError if it is invalid."""
    if not segmentation:
        return None
    if isinstance(segmentation, Mapping):
        return Region(index, lengths=read_run_lengths(segmentation, (width, height)))
    polygons = tuple(_polygon(part, width, height) for part in polygons_in(segmentation))
    low = np.min([part.reshape(-1, 2).min(axis=0) for part in polygons], axis=0)
    high = np.max([part.reshape(-1, 2).max(axis=0) for part in polygons], axis=0)
    if low[0] >= width or low[1] >= height or high[0] <= 0 or high[1] <= 0:
        raise ValueError(f"it is outside the image ({width}×{height} pixels)")
    return Region(index, polygons)


def _polygon(part: list[float], width: int, height: int) -> NDArray[np.float64]:
    values = np.array(part, np.float64)
    limits = np.array([width, height])
    points = values.reshape(-1, 2)
    if not np.isfinite(points).all() or (np.abs(points - limits / 2) > (_MARGIN + 0.5) * limits).any():
        raise ValueError(f"a polygon extends far beyond the image ({width}×{height} pixels)")
    return values
