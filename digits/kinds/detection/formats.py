"""The formats of annotations: detect and open them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from digits.core.files import walk
from digits.data import dataset_folder
from digits.data.databases import is_database
from digits.data.hdf5_images import HDF5_ENDINGS
from digits.data.lmdb_images import LMDB_ENDINGS
from digits.data.pairs import find_folders
from digits.data.sources import UnusableSource, show
from digits.data.tables import Faults
from digits.kinds.coco import find_file
from digits.kinds.detection import (
    box_table,
    coco,
    cvat,
    detectnet,
    json_lines,
    kitti,
    parquet_files,
    voc,
    yolo,
)
from digits.kinds.detection.annotations import Annotations
from digits.kinds.detection.label_files import LabelFolder
from digits.kinds.detection.recipe import BoxTable, Format

MAX_SNIFFED_FILES = 50
_SNIFFED_BYTES = 4096
_FILES: dict[str, Format] = {
    ".json": "coco",
    ".jsonl": "jsonl",
    dataset_folder.PARQUET: "parquet",
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((*LMDB_ENDINGS, *HDF5_ENDINGS), "detectnet"),
}
AUTOMATIC = BoxTable()
# The formats that contain the images themselves; their annotations can be files or folders.
STORING = ("detectnet", "parquet")
_NOT_LABELS = (
    *yolo.NAME_FILES,
    "readme.txt",
    "labelmap.txt",
    "train.txt",
    "val.txt",
    "valid.txt",
    "test.txt",
)
_XML = ".xml"
# In lowercase.
LABEL_FOLDERS = ("annotations", "labels", "label", "label_2")


def open_annotations(
    labels: Path,
    images: Path,
    format_name: Format,
    classes: Sequence[str] = (),
    table: BoxTable = AUTOMATIC,
) -> Annotations:
    """Open the annotations ``labels`` of the images below ``images``; raises UnusableSource, also on iteration.

    ``labels`` must be a folder or a file, depending on the format. ``classes`` are the chosen ones: with them, all
    types of KITTI files are read, not only the default classes, and they name the class numbers in databases.
    ``table`` describes CSV files.
    """
    labels, images = Path(os.path.realpath(labels)), Path(os.path.realpath(images))
    if format_name == "auto":
        format_name = detect(labels)
    is_folder = format_name in ("kitti", "voc", "yolo")
    if is_folder != labels.is_dir() and format_name not in STORING:
        expected = "a folder" if is_folder else "a file"
        raise UnusableSource(
            f"{show(str(labels))} is not {expected} of annotations in the format {format_name.upper()}.",
            f"Enter {expected}, or choose another format.",
        )
    if format_name == "kitti":
        return _open_kitti(labels, images, bool(classes))
    if format_name == "csv":
        return box_table.read(labels, images, table)
    if format_name == "detectnet":
        return detectnet.read(labels, images, classes)
    return _OPENERS[format_name](labels, images)


def find_sources(root: Path) -> dict[str, tuple[Path, Path]]:
    """Return the folder of the images and the annotations of each split in ``root``, a folder that contains both.

    These are the layouts of annotation tools, of the Hugging Face Hub and of DIGITS: a COCO, CVAT or metadata file,
    folders with usual names, or images beside their annotations; metadata files in a folder for each split; Parquet
    files; and the databases of a dataset job. Without folders or files for splits, all images are for training. The
    result is empty if there are no annotations. Raises UnusableSource.
    """
    databases = detectnet.find_databases(root)
    if databases:
        return databases
    folders = find_folders(root, LABEL_FOLDERS)
    if folders and is_detected(folders[1]):
        return {"train": folders}
    for file in (root / cvat.FILE_NAME, root / json_lines.FILE_NAME, find_file(root)):
        if file and file.is_file():
            return {"train": (root, file)}
    contents = dataset_folder.find(root)
    if contents.is_parquet:
        return parquet_files.find_splits(contents)
    if contents.tables:
        return {split: (path.parent, path) for split, (path, *_) in contents.tables.items()}
    return {"train": (root, root)} if is_detected(root) else {}


def is_detected(labels: Path) -> bool:
    """Return whether annotations have one of the formats."""
    try:
        detect(labels)
    except UnusableSource:
        return False
    return True


def detect(labels: Path) -> Format:
    """Return the format of annotations, from their first files; raises UnusableSource."""
    if labels.suffix.lower() == _XML and labels.is_file():
        return "cvat"
    if not labels.is_dir():
        found = _FILES.get(labels.suffix.lower())
        if found:
            return found
        raise UnusableSource(
            f"The format of {show(labels.name)} is unknown.",
            "Choose a folder of annotations, a COCO file (.json), a CVAT file (.xml), or a .csv or .jsonl file.",
        )
    if is_database(labels):
        return "detectnet"
    if parquet_files.is_source(labels):
        return "parquet"
    texts = False
    for name in _first_names(labels):
        if name.lower().endswith(".xml"):
            return "voc"
        if name.lower().endswith(".txt") and os.path.basename(name).lower() not in _NOT_LABELS:
            texts = True
            if columns := _columns(labels / name):
                return "kitti" if columns >= kitti.COLUMNS else "yolo"
    if texts:
        return "yolo"  # only images without objects
    raise UnusableSource(
        f"{show(str(labels))} contains no annotations.",
        "Choose a folder of .txt files (KITTI, YOLO) or .xml files (Pascal VOC), or a .json (COCO) or .csv file.",
    )


def _first_names(folder: Path) -> list[str]:
    """Return the names of some annotation files, XML first."""
    found: list[str] = []
    for parent, files in walk(folder):
        inner = os.path.relpath(parent, folder)
        names = [name for name in files if name.lower().endswith((".xml", ".txt"))]
        found += [os.path.join(inner, name) for name in names]
        if len(found) >= MAX_SNIFFED_FILES:
            break
    return sorted(found, key=lambda name: not name.lower().endswith(".xml"))[:MAX_SNIFFED_FILES]


def _columns(path: Path) -> int:
    """Return the number of columns of the first line that is not blank; 0 if there is none."""
    try:
        if not path.is_file():
            return 0
        with open(path, "rb") as file:
            words = (line.split() for line in file.read(_SNIFFED_BYTES).splitlines())
            return next((len(found) for found in words if found), 0)
    except OSError:
        return 0


def _open_kitti(labels: Path, images: Path, keeps_all_types: bool) -> Annotations:
    remarks: list[str] = []
    folder = LabelFolder(labels, images, ".txt", _NOT_LABELS)
    found = folder.read(lambda data: kitti.parse(data, keeps_all_types), remarks)
    return Annotations("KITTI", found, list(kitti.CLASSES), remarks, faults=[folder.faults])


def _open_voc(labels: Path, images: Path) -> Annotations:
    remarks: list[str] = []
    folder = LabelFolder(labels, images, ".xml")
    found = folder.read(voc.parse, remarks)
    return Annotations("Pascal VOC", found, remarks=remarks, faults=[folder.faults])


def _open_yolo(labels: Path, images: Path) -> Annotations:
    remarks: list[str] = []
    names = yolo.find_names(labels, images)
    folder = LabelFolder(labels, images, ".txt", _NOT_LABELS)
    found = folder.read(lambda data: yolo.parse(data, names), remarks, unlabeled_are_empty=True)
    return Annotations("YOLO", found, names, remarks, faults=[folder.faults])


def _open_json_lines(labels: Path, images: Path) -> Annotations:
    faults = Faults(labels)
    return Annotations("JSON Lines", json_lines.read(labels, images, faults), faults=[faults])


def _open_cvat(labels: Path, images: Path) -> Annotations:
    remarks: list[str] = []
    classes: list[str] = []
    faults = Faults(labels, row="image")
    found = cvat.read(labels, images, classes, remarks, faults)
    return Annotations("CVAT", found, classes, remarks, faults=[faults])


_OPENERS: dict[Format, Callable[[Path, Path], Annotations]] = {
    "voc": _open_voc,
    "coco": coco.read,
    "cvat": _open_cvat,
    "yolo": _open_yolo,
    "jsonl": _open_json_lines,
    "parquet": parquet_files.read,
}
