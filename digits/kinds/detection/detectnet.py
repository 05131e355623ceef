"""DetectNet databases of DIGITS 5 and 6: the labels of the images in another database.

The labels of an image are an array [1, objects + 1, 16]. The first row contains the number of objects and the number of
columns; the columns of the others are x, y, width, height, alpha, class, 0, rotation_y, truncated, occluded, length,
width, height, x, y and z. The coordinates of boxes are in pixels, and further rows are empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from digits.data.databases.folders import find_job, is_database, open_arrays
from digits.data.databases.hdf5_images import HDF5_ENDINGS
from digits.data.databases.lmdb_images import LMDB_ENDINGS
from digits.data.sources.plan import show
from digits.data.tables.tables import Faults
from digits.kinds.detection.annotations import DONT_CARE, AnnotatedImage, Annotations
from digits.kinds.detection.formats import kitti
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.label_files import InvalidAnnotation
from digits.kinds.sources.shapes import Rectangle, Shape

COLUMNS = 16
_CLASS_COLUMN = 5


def find_databases(root: Path) -> dict[str, tuple[Path, Path]]:
    """Return the databases of images and of labels of each split in the folder of a dataset job; empty for others."""
    job = find_job(root)
    return {split: (job.images[split], labels) for split, labels in job.targets.items()} if job else {}


def _open(source: Source) -> Annotations:
    """Open the labels; the chosen classes are the names by number, from 0; by default those of KITTI in DIGITS."""
    names = list(source.classes) or [DONT_CARE, *kitti.CLASSES]
    stored = open_arrays(source.images)
    declared = [name for name in names if name.lower() != DONT_CARE]
    faults = Faults(
        source.labels,
        row="record",
        hint="Choose the database with the labels of a DIGITS dataset for object detection, and the classes that were "
        "entered for it.",
    )
    return Annotations(_images(source.labels, names, faults), declared, stored=stored, faults=[faults])


def _images(labels: Path, names: Sequence[str], faults: Faults) -> Iterator[AnnotatedImage]:
    database = open_arrays(labels)
    try:
        for name, values in database.vectors():
            where = f"record {show(name)}"
            try:
                boxes = parse(values, names, where)
            except InvalidAnnotation as error:
                faults.add_place(where, str(error))
                continue
            faults.usable += 1
            yield AnnotatedImage(name, boxes)
    finally:
        database.close()


def parse(values: Sequence[float], names: Sequence[str], where: str) -> list[Shape]:
    """Return the objects in the array of the image at ``where``; raises InvalidAnnotation."""
    count = int(values[0]) if len(values) >= COLUMNS and 0 <= values[0] < len(values) else -1
    is_complete = values[1:2] == [COLUMNS] and not len(values) % COLUMNS
    if not is_complete or count != values[0] or (count + 1) * COLUMNS > len(values):
        raise InvalidAnnotation(f"not an array of objects with {COLUMNS} columns each")
    rows = (values[start : start + COLUMNS] for start in range(COLUMNS, (count + 1) * COLUMNS, COLUMNS))
    return [_box(row, names, where, number) for number, row in enumerate(rows, 1)]


def _box(row: Sequence[float], names: Sequence[str], where: str, place: int) -> Shape:
    left, top, width, height = row[:4]
    number = row[_CLASS_COLUMN]
    if number not in range(len(names)):
        raise InvalidAnnotation(f"object {place}: the class {number:g} is not between 0 and {len(names) - 1}")
    name = names[int(number)]
    is_ignored = name.lower() == DONT_CARE
    edges = Rectangle(left, top, left + width, top + height)
    return Shape(DONT_CARE if is_ignored else name, edges, f"{where}, object {place}", is_ignored)


FORMAT = Format(
    "detectnet",
    "DetectNet",
    _open,
    (*LMDB_ENDINGS, *HDF5_ENDINGS),
    stores_images=True,
    is_in=lambda first: is_database(first.path),
    words="DetectNet database (DIGITS)",
)
