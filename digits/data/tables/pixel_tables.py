"""Tables whose rows are images: a column for each pixel, or one column of all pixels, separated by spaces."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.data.images import png
from digits.data.images.images import UnusableImage
from digits.data.sources.plan import Located, UnusableSource, show
from digits.data.tables.tables import MAX_LINE_BYTES, Cells, TableFile, is_number

MIN_PIXELS = 16
_NAME = re.compile(r"(pixel|px|p)?[-_ ]?\d+([-_x]\d+)?", re.IGNORECASE)
_NUMBERS = re.compile(r"\d{1,3}( +\d{1,3}){15,}")
_SAMPLE_ROWS = 20
# The other order of colors has at least this many times the differences between neighbors.
_CLEAR = 1.5


@dataclass
class PixelImages(Located):
    """The images in the rows of ``root``, [side, side, channels], whose names end with the numbers of their lines.

    ``places`` are the columns of the pixels, or the one of all of them. ``is_planar``: a color comes after another.
    """

    root: Path
    delimiter: str
    places: Sequence[int]
    side: int
    channels: int = 1
    is_planar: bool = False
    _starts: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)

    def name(self, line: int) -> str:
        """Return the name of the image in a line."""
        return f"{show(self.root.name)}:{line}"

    def read(self, name: str) -> bytes:
        line = int(name.rpartition(":")[2])
        if self._starts is None:
            self._starts = _line_starts(self.root)
        if line > len(self._starts):
            raise UnusableImage("the table has fewer lines than before")
        with open(self.root, "rb") as file:
            file.seek(self._starts[line - 1])
            text = file.readline(MAX_LINE_BYTES).decode("utf-8-sig", "replace")
        return png.write(self.pixels(next(csv.reader([text], delimiter=self.delimiter), [])))

    def pixels(self, cells: Cells) -> NDArray[np.uint8]:
        """Return the pixels in a row, uint8 [height, width, channels]; raises UnusableImage."""
        texts = [cells[place] for place in self.places if place < len(cells)]
        numbers = texts[0].split() if len(self.places) == 1 and texts else texts
        size = self.side**2 * self.channels
        if len(numbers) != size:
            raise UnusableImage(f"the row has {len(numbers):,} instead of {size:,} pixels")
        try:
            values = np.array(numbers, np.float64)
        except ValueError:
            raise UnusableImage("a pixel is not a number") from None
        if not (values.min() >= 0 and values.max() <= 255 and (values == np.rint(values)).all()):
            raise UnusableImage("a pixel is not an integer from 0 to 255")
        pixels = values.astype(np.uint8)
        if self.is_planar:
            return np.ascontiguousarray(
                pixels.reshape(self.channels, self.side, self.side).transpose(1, 2, 0)
            )
        return pixels.reshape(self.side, self.side, self.channels)


def find_pixels(table: TableFile) -> PixelImages | None:
    """Return the images whose pixels are in the rows of ``table``, and remark on them; None if these are paths.

    Raises UnusableSource if the images are not square, or the order of the colors is not clear.
    """
    rows = table.first_rows(_SAMPLE_ROWS)
    places = _places(table, rows)
    if not rows or not places:
        return None
    counts = Counter(len(cells[places[0]].split()) for cells in rows if places[0] < len(cells))
    count = counts.most_common(1)[0][0] if len(places) == 1 else len(places)
    name, hint = show(table.path.name), "Convert the rows to image files, and list these in the table."
    with open(table.path, "rb") as file:
        if b"\0" in file.read(4):
            raise UnusableSource(f"{name} contains pixels, but is not UTF-8 text.", "Save it as UTF-8.")
    channels = next((each for each in (1, 3) if count % each == 0 and _is_square(count // each)), 0)
    if not channels:
        raise UnusableSource(f"The rows of {name} have {count:,} pixels, which are no square image.", hint)
    images = PixelImages(table.path, table.delimiter, places, math.isqrt(count // channels), channels)
    if channels == 3:
        planar = PixelImages(images.root, images.delimiter, places, images.side, channels, is_planar=True)
        differences = [_differences(each, rows) for each in (images, planar)]
        if max(differences) < _CLEAR * min(differences):
            raise UnusableSource(f"The order of the colors in {name} is not clear.", hint)
        images = images if differences[0] < differences[1] else planar
    colors = "gray" if channels == 1 else "in color"
    table.remarks.append(
        f"The rows of {name} are the pixels of images: {images.side} × {images.side}, {colors}."
    )
    return images


def has_pixels(cells: Cells) -> bool:
    """Return whether the first row of a table consists of pixels, not of the names of columns."""
    return len(cells) > MIN_PIXELS and all(map(is_number, cells))


def _places(table: TableFile, rows: list[Cells]) -> list[int]:
    for place in range(len(table.columns)):
        found = [cells for cells in rows if place < len(cells) and _NUMBERS.fullmatch(cells[place])]
        if 2 * len(found) > len(rows):
            return [place]
    places = [place for place, name in enumerate(table.columns) if _NAME.fullmatch(name)]
    if table.columns[0] == "column 1" and all(map(has_pixels, rows)):
        places = list(range(1, len(table.columns)))  # the first one is the label, as in MNIST
    filled = [
        cells for cells in rows if all(place < len(cells) and is_number(cells[place]) for place in places)
    ]
    return places if len(places) >= MIN_PIXELS and 2 * len(filled) > len(rows) else []


def _differences(images: PixelImages, rows: list[Cells]) -> float:
    """Return the sum of the differences between neighboring pixels; raises UnusableSource if no row is usable."""
    differences, reason = [], ""
    for cells in rows:
        try:
            differences.append(images.pixels(cells).astype(np.float64))
        except UnusableImage as error:
            reason = error.reason
    if not differences:
        raise UnusableSource(f"{show(images.root.name)}: {reason}.")
    return float(sum(np.abs(np.diff(each, axis=axis)).sum() for each in differences for axis in (0, 1)))


def _is_square(count: int) -> bool:
    return math.isqrt(count) ** 2 == count


def _line_starts(path: Path) -> NDArray[np.int64]:
    with open(path, "rb") as file:
        return np.cumsum([0, *map(len, file)])[:-1]
