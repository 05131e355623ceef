"""Downloads of segmentation datasets."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from digits.data.archives.file_names import numbered_name
from digits.data.archives.writing import Entry
from digits.data.images.masks import VOC_BORDER
from digits.data.manifest import Manifest
from digits.data.records.index import IndexCache
from digits.data.records.records import Record
from digits.data.targets.mask import IGNORED
from digits.data.targets.palette import BACKGROUND
from digits.kinds.sources.coco import CocoExport, CocoWriter
from digits.kinds.sources.shapes import RunLengths
from digits.kinds.versions.export import Export, File, image_file


class Masks(Export):
    """Images and label images in the layout of Pascal VOC, whose color map CVAT calls ``labelmap.txt``."""

    name = "masks"
    title = "Images and masks"
    contents = "Images, and label images with class indexes as pixel values, in Pascal VOC layout."

    def __init__(self, folder: Path, manifest: Manifest, indexes: IndexCache) -> None:
        super().__init__(folder, manifest, indexes)
        palette = np.zeros((256, 3), np.uint8)
        colors = manifest.target.palette
        palette[: len(colors)] = colors
        palette[IGNORED] = VOC_BORDER
        self._palette = palette.tobytes()

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        name = f"{split}/{numbered_name(number, record.source)}"
        mask = Image.fromarray(record.target(self.manifest.target), "P")
        mask.putpalette(self._palette)
        file = io.BytesIO()
        mask.save(file, "PNG", compress_level=1)
        self.lines(f"ImageSets/Segmentation/{split}.txt").write(f"{name}\n".encode())
        return [image_file(f"JPEGImages/{name}", record), (f"SegmentationClass/{name}.png", file.getvalue())]

    def finish(self) -> Iterator[Entry]:
        target = self.manifest.target
        yield "labels.txt", "".join(f"{name}\n" for name in target.names).encode()
        colors = target.palette
        lines = [
            f"{_label(name)}:{','.join(map(str, color))}::\n"
            for name, color in zip(target.names, colors, strict=True)
        ]
        yield "labelmap.txt", "".join(["# label:color_rgb:parts:actions\n", *lines]).encode()


class Coco(CocoExport):
    """COCO files with the run lengths of each class in an image."""

    contents = "Images, and one JSON file of masks (RLE) per split. For CVAT and other tools."

    def __init__(self, folder: Path, manifest: Manifest, indexes: IndexCache) -> None:
        super().__init__(folder, manifest, indexes)
        if self.categories[0].lower() == BACKGROUND:
            del self.categories[0]

    def annotate(self, writer: CocoWriter, record: Record, target: NDArray[np.uint8]) -> None:
        present = np.unique(target).tolist()
        for index in present:
            if index in self.categories:
                writer.add_annotation(index, **_describe(target == index))
        if IGNORED in present and self.categories:
            writer.add_annotation(max(self.categories), **_describe(target == IGNORED), iscrowd=1)


def _label(name: str) -> str:
    """Return the name of a class for ``labelmap.txt``, where a colon ends it, and a line with ``#`` is a comment."""
    plain = name.replace(":", " ")
    return f" {plain}" if plain.startswith("#") else plain


def _describe(region: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the keys of an annotation: the run lengths of a ``region`` [height, width], its area and its box."""
    form = RunLengths.of(region)
    left, top, right, bottom = map(int, astuple(form.bounds))
    return {
        "segmentation": form.to_coco(),
        "area": int(region.sum()),
        "bbox": [left, top, right - left, bottom - top],
    }


FORMATS = (Masks, Coco)
