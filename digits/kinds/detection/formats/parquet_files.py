"""Parquet files with an image and its objects in each row, such as those of the Hugging Face Hub.

The objects are a structure of the lists ``bbox`` (left, top, width, height) and ``category``, or a list of structures.
See https://huggingface.co/docs/datasets/object_detection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from digits.data.records.shards import files_at, files_in
from digits.data.sources.dataset_folder import PARQUET, Contents
from digits.data.sources.declared_splits import split_of
from digits.data.sources.plan import UnusableSource, listed, show
from digits.data.tables import parquet
from digits.data.tables.tables import Faults
from digits.kinds.detection.annotations import AnnotatedImage, Annotations
from digits.kinds.detection.formats.box_order import SIDES
from digits.kinds.detection.formats.format import Format, Source
from digits.kinds.detection.formats.json_lines import CLASS_KEYS, read_boxes
from digits.kinds.detection.formats.label_files import InvalidAnnotation

BOX_KEY = "bbox"


def files_of(labels: Path) -> list[Path]:
    """Return the files of a split: those in a folder, all shards of the set of a file, or those of a pattern.

    Raises UnusableSource.
    """
    if not labels.is_dir():
        return files_at(labels)
    files = [path for path in files_in(labels) if path.suffix.lower() == PARQUET]
    splits = sorted({split_of(path) for path in files})
    if len(splits) > 1:
        raise UnusableSource(
            f"{show(str(labels))} contains the files of several splits: {listed(path.name for path in files)}.",
            "Leave “Annotations” empty to use them all, or enter a file of each split.",
        )
    return files


def find_splits(contents: Contents) -> dict[str, tuple[Path, Path]]:
    """Return the folder and the path for `files_of` of each split; raises UnusableSource if a split has none."""
    return {split: (contents.root, _path_of(paths)) for split, paths in contents.tables.items()}


def _path_of(paths: list[Path]) -> Path:
    folder = paths[0].parent
    word = re.split(r"[-_.]", paths[0].name)[0]
    for path in (paths[0], folder / f"{word}*{PARQUET}", folder / f"*{PARQUET}"):
        if files_of(path) == paths:
            return path
    raise UnusableSource(
        f"The names of the files of a split have nothing in common: {listed(path.name for path in paths)}.",
        "Rename them, for example to train-00000-of-00002.parquet, or move the files of each split to a folder.",
    )


def _open(source: Source) -> Annotations:
    files = files_of(source.labels)
    folder = files[0].parent
    root = source.images if folder.is_relative_to(source.images) else folder
    columns = parquet.find_objects(files[0], BOX_KEY, CLASS_KEYS)
    stored = parquet.ParquetImages(root, columns.image)
    faults = Faults(Path(), row="row")
    images = _images(files, root, columns, faults)
    return Annotations(images, list(columns.classes), stored=stored, faults=[faults], orders=SIDES)


def _images(
    files: list[Path], root: Path, first: parquet.Columns, faults: Faults
) -> Iterator[AnnotatedImage]:
    for path in files:
        columns = parquet.find_objects(path, BOX_KEY, CLASS_KEYS, first)
        name = path.relative_to(root)
        file = show(str(name))
        for row, objects in enumerate(parquet.values(path, columns.label)):
            try:
                boxes = read_boxes(objects, f"{file}, row {row + 1}", columns.classes)
            except InvalidAnnotation as error:
                faults.add(row + 1, str(error), file)
                continue
            faults.usable += 1
            yield AnnotatedImage(f"{name}:{row}", boxes)


FORMAT = Format(
    "parquet",
    "Parquet",
    _open,
    (PARQUET,),
    stores_images=True,
    is_in=lambda first: next(first.path.glob(f"*{PARQUET}"), None) is not None,
    words="Parquet (Hugging Face)",
)
