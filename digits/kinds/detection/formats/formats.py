"""The table of the formats of annotations: find, recognize and open annotations with it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from digits.core.splits import SPLITS
from digits.data.images.lists import need_an_image
from digits.data.sources import dataset_folder
from digits.data.sources.declared_splits import declares_splits, inner_root, split_folders, split_named
from digits.data.sources.plan import UnusableSource, listed, show
from digits.data.sources.target_images import find_folders, find_split_pairs
from digits.kinds.detection.annotations import Annotations
from digits.kinds.detection.formats import (
    box_table,
    coco,
    cvat,
    json_lines,
    kitti,
    label_studio,
    labelme,
    parquet_files,
    supervisely,
    vgg,
    voc,
    yolo,
)
from digits.kinds.detection.formats.format import AUTOMATIC, BoxTable, FirstFiles, Format, Source
from digits.kinds.detection.formats.label_files import LABEL_FOLDERS
from digits.kinds.sources.coco import looks_like, suggest_export

AUTO = "auto"
_MAX_FILES = 20
# By name. Of those that recognize the same annotations, the last one is chosen.
FORMATS = {
    each.name: each
    for each in (
        yolo.FORMAT,
        kitti.FORMAT,
        voc.FORMAT,
        coco.FORMAT,
        labelme.FORMAT,
        supervisely.FORMAT,
        label_studio.FORMAT,
        cvat.FORMAT,
        box_table.FORMAT,
        vgg.FORMAT,
        json_lines.FORMAT,
        parquet_files.FORMAT,
    )
}


def titles() -> list[str]:
    """Return the titles of all formats."""
    return [each.title for each in FORMATS.values()]


def describe() -> str:
    """Return what annotations can be, for a sentence: “a folder of … files, a … file, or …”."""
    files = [each for each in FORMATS.values() if not each.stores_images]
    folders = _either(each.title for each in files if each.is_folder)
    single = _either(f"{each.title} ({', '.join(each.endings)})" for each in files if not each.is_folder)
    stored = _either(each.title for each in FORMATS.values() if each.stores_images)
    return f"a folder of {folders} files, a {single} file, or {stored} data, which contain the images"


def open_annotations(
    labels: Path,
    images: Path,
    format_name: str = AUTO,
    classes: Sequence[str] = (),
    table: BoxTable = AUTOMATIC,
    names: str = "",
    needs_outlines: bool = False,
) -> Annotations:
    """Open the annotations ``labels`` of the images below ``images``; raises UnusableSource, also on iteration.

    ``labels`` must be a folder or a file, depending on the format. See `Source` for the other arguments.
    """
    named = Path(names) if names else None
    paths = Path(os.path.realpath(labels)), Path(os.path.realpath(images))
    source = Source(*paths, classes, table, named, needs_outlines)
    chosen = find_format(source.labels, format_name)
    if chosen.is_folder != source.labels.is_dir() and not chosen.stores_images:
        expected = "a folder" if chosen.is_folder else "a file"
        raise UnusableSource(
            f"{show(str(labels))} is not {expected} of annotations in the format {chosen.title}.",
            f"Enter {expected}, or choose another format.",
        )
    return chosen.open(source)


def find_format(labels: Path, name: str = AUTO) -> Format:
    """Return the format ``name``, or by default that of the annotations ``labels``; raises UnusableSource."""
    if name == AUTO:
        return detect(labels)
    if name not in FORMATS:
        raise UnusableSource(
            f"There is no format “{show(name[:40])}”.", f"Use one of {', '.join((AUTO, *FORMATS))}."
        )
    return FORMATS[name]


def find_sources(root: Path) -> dict[str, tuple[Path, Path]]:
    """Return the folder of the images and the annotations of each split in ``root``, a folder that contains both.

    These are the layouts of annotation tools, and of the Hugging Face Hub: a COCO, CVAT or metadata file,
    folders with usual names, or images beside their annotations, for all images or for each split; metadata files;
    and Parquet files. Without folders or files for splits, all images are for
    training. See `inner_root` for folders in folders. The result is empty if there are no annotations. Raises
    UnusableSource.
    """
    root = inner_root(root)
    folders = find_folders(root, LABEL_FOLDERS)
    if splits := _declared_splits(root, folders) or _coco_files(root):
        return splits
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
    if is_detected(root):
        return {"train": (root, root)}
    if len(files := _json_files(root)) > 1:
        head = next(FirstFiles(files[0], ()).heads())
        raise UnusableSource(
            f"{show(str(root))} contains several JSON files: {listed(path.name for path in files)}.",
            suggest_export(head, "Enter one of them as the annotations."),
        )
    return {"train": (root, files[0])} if files else {}


def find_around(root: Path, may_read: Callable[[Path], bool]) -> tuple[Path, dict[str, tuple[Path, Path]]]:
    """Return the folder that contains the sources in ``root``, and these, as in `find_sources`.

    If ``root`` is only a part of some, such as ``images`` beside ``labels``, or ``images/train``, they are around it.
    """
    sources = find_sources(root)
    if sources and _are_complete(*sources["train"]):
        return root, sources
    for parent in (root.parent, root.parent.parent):
        with contextlib.suppress(UnusableSource):
            around = find_sources(parent) if may_read(parent) else {}
            parts = _parts(root, around)
            if "train" in parts and _are_complete(*parts["train"]):
                return (parent if len(parts) == len(around) else root), parts
    return root, sources


def _are_complete(images: Path, labels: Path) -> bool:
    """Return whether there are images, in the folder of ``images`` or in the ``labels``."""
    try:
        if not detect(labels).stores_images:
            need_an_image(images)
    except UnusableSource:
        return False
    return True


def _parts(root: Path, sources: dict[str, tuple[Path, Path]]) -> dict[str, tuple[Path, Path]]:
    """Return those of the ``sources`` whose images or annotations are in ``root``; of a single one, for training."""
    if len(sources) == 1:
        images, labels = sources["train"]
        if images == root.parent and labels.is_file() and not detect(labels).stores_images:
            return {"train": (root, labels)}
    parts = {
        split: paths for split, paths in sources.items() if any(path.is_relative_to(root) for path in paths)
    }
    return {"train": next(iter(parts.values()))} if len(parts) == 1 else parts


def find_file(folder: Path) -> Path | None:
    """Return the only file with the annotations of all images in a folder, or in its folder ``annotations``.

    Return None if there is none or several. In COCO's download, other files contain captions and keypoints.
    """
    for place in (folder, folder / "annotations"):
        found = [*_json_files(place), *place.glob("*.csv")]
        # More are those of one image each.
        files = [path for path in found if _has_images(path)] if len(found) <= _MAX_FILES else []
        instances = [path for path in files if path.name.startswith("instances")]
        if len(instances or files) == 1:
            return (instances or files)[0]
    return None


def _json_files(folder: Path) -> list[Path]:
    # Label Studio adds a list of the classes.
    return sorted(
        path for path in folder.glob("*.[jJ][sS][oO][nN]") if path.is_file() and path.name != "notes.json"
    )


def _has_images(path: Path) -> bool:
    """Return whether the first bytes of a file look like annotations of several images."""
    head = next(FirstFiles(path, ()).heads())
    if any(each.looks_like(head) for each in FORMATS.values() if each.is_folder and each.looks_like):
        return False
    chosen = detect(path)
    return chosen.looks_like is not None or (chosen is coco.FORMAT and looks_like(head))


def _declared_splits(root: Path, folders: tuple[Path, Path] | None) -> dict[str, tuple[Path, Path]]:
    """Return the images and the annotations of the splits that folders in ``root`` declare.

    They contain ``folders``, those of images and of annotations, or the other way around.
    """
    sources = {split: find_sources(folder).get("train") for split, folder in split_folders(root).items()}
    if not any(sources.values()) and (pairs := find_split_pairs(root, folders, LABEL_FOLDERS)):
        sources = dict(pairs)
    used = {split: paths for split, paths in sources.items() if paths}
    return used if "train" in used and len(used) > 1 else {}


def _coco_files(root: Path) -> dict[str, tuple[Path, Path]]:
    """Return the images and the annotations of splits with a COCO file each, such as ``instances_val2017.json``."""
    files: dict[str, Path] = {}
    for place in (root / "annotations", root):
        # In COCO's download, other files contain captions and keypoints of the same images.
        for path in sorted(place.glob("*.json"), key=lambda path: not path.name.startswith("instances")):
            words = map(split_named, re.split(r"[-_.]", path.name))
            files.setdefault(next(filter(None, words), ""), path)
    files.pop("", None)
    if not declares_splits(files):
        return {}
    images = root / "images" if (root / "images").is_dir() else root
    folders = split_folders(images) or split_folders(root)
    return {split: (folders.get(split, images), files[split]) for split in SPLITS if split in files}


def is_detected(labels: Path) -> bool:
    """Return whether annotations have one of the formats."""
    return _recognize(labels) is not None


def detect(labels: Path) -> Format:
    """Return the format of annotations, from their first files; raises UnusableSource."""
    found = _recognize(labels)
    if found:
        return found
    fault = (
        f"{show(str(labels))} contains no annotations."
        if labels.is_dir()
        else f"The format of {show(labels.name)} is unknown."
    )
    raise UnusableSource(fault, f"Choose {describe()}.")


def _recognize(labels: Path) -> Format | None:
    formats = FORMATS.values()
    first = FirstFiles(labels, tuple(ending for each in formats if each.is_folder for ending in each.endings))
    return next((each for each in reversed(formats) if each.recognizes(first)), None)


def _either(names: Iterable[str]) -> str:
    """Return ``a, b or c``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
