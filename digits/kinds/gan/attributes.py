"""Read the attributes of images from a file in the format of CelebA (Liu et al., 2015).

The first line is the number of images, the second one the names of the attributes. Each further line contains the path
of an image and 1 or -1 for each attribute, separated by spaces.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from digits.data.sources.plan import UnusableSource, show
from digits.data.tables.tables import Cells, Faults, TableFile, open_lines, usable_rows

_FLAGS = {"1": 1.0, "-1": 0.0, "0": 0.0}


def read_attributes(
    path: Path, root: Path, faults: Faults
) -> tuple[list[str], list[str], NDArray[np.float32]]:
    """Return the attributes, and the images below ``root`` with zeros and ones for them [images, attributes].

    Lines that cannot be used are added to ``faults``. Raises UnusableSource that names the first ones.
    """
    table = open_attributes(path)
    names = table.columns[1:]

    def parse(cells: Cells) -> list[float]:
        if len(cells) != len(table.columns):
            raise ValueError(f"{len(cells) - 1} values for {len(names)} attributes")
        for name, cell in zip(names, cells[1:], strict=True):
            if cell not in _FLAGS:
                raise ValueError(f"“{show(cell)}” is neither 1 nor -1 ({show(name)})")
        return [_FLAGS[cell] for cell in cells[1:]]

    rows, values = usable_rows(table.parse(root, 0, parse), faults)
    faults.notes = table.remarks
    return names, [row.file for row in rows], np.array(values, np.float32)


def open_attributes(path: Path) -> TableFile:
    """Open an attributes file and read its names; raises UnusableSource, also during iteration."""
    lines, is_whole = open_lines(path)
    filled = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    first = [line.split() for _, line in itertools.islice(filled, 2)]
    count, names = first if len(first) == 2 else ([], [])
    if len(count) != 1 or not count[0].isdecimal() or not names:
        raise UnusableSource(
            f"{show(path.name)} is not an attributes file.",
            "The first line is the number of images, the second one the names of the attributes, as in CelebA.",
        )
    # The path of an image can contain spaces.
    rows: Iterator[tuple[int, Cells]] = (
        (number, line.strip().rsplit(maxsplit=len(names))) for number, line in filled
    )
    return TableFile(path, ["image", *names], rows, is_whole, again=lambda: open_attributes(path))
