"""The names of the classes of YOLO sets: find the files beside and above the labels that contain them, and read them.

These are ``names`` in a YAML file, the lines of ``classes.txt``, ``labels.txt`` or of a file that ends in ``.names``,
darknet's ``obj.data``, which refers to such a file, Label Studio's ``notes.json``, and Roboflow's ``_classes.csv``. All
are untrusted.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from digits.core.files import walk
from digits.core.splits import SPLITS
from digits.data.images.lists import visible_entries
from digits.data.loose_json import InvalidJson, load
from digits.data.numbers import is_float
from digits.data.sources.plan import UnusableSource, listed, show
from digits.data.tables.tables import is_image
from digits.kinds.sources.yaml_files import (
    YAML_ENDINGS,
    is_text,
    meant_paths,
    read_settings,
    read_text,
    read_yaml,
    values_of,
)

MAX_CLASSES = 10_000
MAX_LEVELS_ABOVE = 3
_LISTS = (".names", ".labels")
_LIST_NAMES = re.compile(
    r"(obj[-_]?)?(class|classes|labels?|names)([-_]?(names|list|labels))?\.txt", re.IGNORECASE
)
_CATEGORIES = ("notes.json", "classes.json", "class_names.json", "label_map.json")
_TABLES = ("_classes.csv", "classes.csv")
# A line can begin with the number of the class.
_NUMBERED_LINE = re.compile(r"(\d{1,5})\s*[\s:;,=.)-]\s*(\S.*)")
_MAX_DIGITS = 5
_MAX_INNER_FOLDERS = 50

Names = dict[int, str]


@dataclass(frozen=True)
class NamesFile:
    """A file with the names of classes, by their number."""

    path: Path
    names: Names


def find_names(
    labels: Path, images: Path, top: Path | None = None, may_read: Callable[[Path], bool] | None = None
) -> list[NamesFile]:
    """Return the files in ``labels`` and ``images``, below or above whose names contradict each other.

    That is at most one if they agree.

    All are real paths. Files up to ``top`` count, by default the folder that contains both. With ``may_read``, so do
    those above it, at most `MAX_LEVELS_ABOVE`: the nearest ones if there are no others, and a YAML file that refers to
    the ``images``. Raises UnusableSource if the only files with names cannot be read.
    """
    own = Path(os.path.commonpath([labels, images]))
    top = top or own
    allowed = may_read or (lambda path: Path(os.path.realpath(path)).is_relative_to(top))
    levels = MAX_LEVELS_ABOVE if may_read else 0
    faults: list[UnusableSource] = []
    beside = list(itertools.takewhile(lambda folder: folder != own, (images, *images.parents)))
    folders = dict.fromkeys([*_inner_folders(labels), *_inner_folders(images), *beside])
    names_files = [
        file
        for folder in folders
        if folder != labels and folder not in labels.parents
        for file in _read_files(folder, allowed, faults)
    ]
    for folder in (labels, *labels.parents):
        if len(own.parts) - len(folder.parts) > levels or not allowed(folder):
            break
        files = list(_read_files(folder, allowed, faults))
        is_below = folder.is_relative_to(top)
        names_files += [
            file for file in files if is_below or not names_files or _refers_to(file.path, images)
        ]
    if faults and not names_files:
        raise faults[0]
    return _contradicting(names_files)


def _inner_folders(root: Path) -> list[Path]:
    """Return the first folders in ``root``, at any depth."""
    inner = (Path(folder) for folder, _ in walk(root, skips_hidden=True) if folder != str(root))
    return sorted(itertools.islice(inner, _MAX_INNER_FOLDERS))


def find_shared_names(
    sources: Collection[tuple[Path, Path]], may_read: Callable[[Path], bool]
) -> list[NamesFile]:
    """Return the only file with the names of all ``sources``, which are real paths of images and of labels.

    Return several if their names contradict each other, unless each source has its own one: then none is shared.
    Raises UnusableSource.
    """
    top = Path(os.path.commonpath([path for paths in sources for path in paths]))
    found = [find_names(labels, images, top, may_read) for images, labels in sources]
    shared = _contradicting([file for files in found for file in files])
    if len(shared) > 1 and all(len(find_names(labels, images)) == 1 for images, labels in sources):
        return shared if any(len(files) > 1 for files in found) else []
    return shared


def choose_file(files: Sequence[NamesFile]) -> NamesFile | None:
    """Return the only file, or None; raises UnusableSource if there are several."""
    if len(files) > 1:
        raise UnusableSource(describe_files(files), "Enter the path of one of them as “Class names”.")
    return files[0] if files else None


def describe_files(names_files: Sequence[NamesFile]) -> str:
    """Return a sentence about files that contradict each other."""
    files = " and ".join(f"{show(str(file.path))} ({listed(file.names.values())})" for file in names_files)
    return f"The classes have different names in {files}."


def has_keypoints(path: Path) -> bool:
    """Return whether a file with names says that keypoints follow the boxes."""
    config = read_yaml(path) if path.suffix.lower() in YAML_ENDINGS else None
    return isinstance(config, dict) and bool(config.get("kpt_shape"))


def read_names(path: Path) -> Names:
    """Return the names in a file, at least one; raises UnusableSource."""
    names = _names_in(path)
    if not names:
        raise UnusableSource(
            f"{show(path.name)} has no names of classes.",
            "Write names: [first, second] in a YAML file, or one name per line in a text file.",
        )
    return names


def _refers_to(path: Path, images: Path) -> bool:
    """Return whether a YAML file names a folder that contains ``images``, or one in it, as that of a split."""
    if path.suffix.lower() not in YAML_ENDINGS:
        return False
    config = read_yaml(path)
    values = [value for split in SPLITS for value in values_of(config, split)]
    paths = [other for value in values for other in meant_paths(config, path.parent, value)]
    return any(images.is_relative_to(other) or other.is_relative_to(images) for other in paths)


def _read_files(
    folder: Path, may_read: Callable[[Path], bool], faults: list[UnusableSource]
) -> Iterator[NamesFile]:
    """Yield the files with names in ``folder``; those that cannot be read are added to ``faults``."""
    try:
        files = sorted(Path(entry.path) for entry in visible_entries(str(folder)) if entry.is_file())
    except OSError:
        return
    described = [path for path in files if path.suffix.lower() == ".data"]
    listed_files = [path for path in files if _is_list(path) or path.name.lower() in (*_CATEGORIES, *_TABLES)]
    for path in [*(path for path in files if path.suffix.lower() in YAML_ENDINGS), *described, *listed_files]:
        if not may_read(path):
            continue
        try:
            names = _names_in(path, may_read)
        except UnusableSource as error:
            faults.append(error)
            continue
        if names:
            yield NamesFile(path, names)
            if path in described:
                return  # It says which of the lists counts.


def _is_list(path: Path) -> bool:
    return bool(_LIST_NAMES.fullmatch(path.name)) or path.suffix.lower() in _LISTS


def _names_in(path: Path, may_read: Callable[[Path], bool] | None = None) -> Names:
    """Return the names in a file; none if it has other contents. Raises UnusableSource."""
    if path.suffix.lower() in YAML_ENDINGS:
        config = read_yaml(path) if "names" in read_text(path) else None  # others need not be valid
        names = config.get("names") if isinstance(config, dict) else None
        if isinstance(names, str) and Path(names).suffix.lower() in (".txt", *_LISTS):
            return _names_at(path.parent, names, may_read)
        return _names_of(path, names) if names else {}
    if path.suffix.lower() == ".data":
        return _names_at(path.parent, read_settings(path).get("names", ""), may_read)
    if path.suffix.lower() == ".json":
        return _in_categories(path)
    lines = [line.strip() for line in read_text(path).splitlines()]
    if path.suffix.lower() == ".csv":
        return _in_table(lines[1:])
    filled = list(filter(None, lines))
    if any(map(is_image, filled)) or all(map(_is_annotation, filled)):
        return {}
    found = list(filter(None, map(_NUMBERED_LINE.fullmatch, filled)))
    names = {int(match[1]): match[2] for match in found}
    # Otherwise, the numbers are parts of names.
    return (
        names
        if len(names) == len(filled) == max(names, default=0) - min(names, default=0) + 1
        else _numbered(lines)
    )


def _is_annotation(line: str) -> bool:
    words = line.split()
    return len(words) > 1 and all(map(is_float, words))


def _in_categories(path: Path) -> Names:
    """Return the names in the ``categories`` of Label Studio, or in a list or an object of names."""
    try:
        content = load(read_text(path))
    except InvalidJson:
        return {}
    content = content.get("categories", content) if isinstance(content, dict) else content
    if isinstance(content, list) and all(isinstance(item, dict) for item in content):
        content = {str(item.get("id")): item.get("name") for item in content}
    if isinstance(content, list) and all(map(is_text, content)):
        return _numbered(content)
    if (
        isinstance(content, dict)
        and all(map(is_text, content.values()))
        and all(map(_is_class_number, content))
    ):
        return {int(number): name.strip() for number, name in content.items() if name.strip()}
    return {}


def _in_table(lines: Sequence[str]) -> Names:
    """Return the names in rows of a number and a name."""
    rows = [[cell.strip() for cell in cells] for cells in csv.reader(lines) if cells]
    if not all(len(cells) == len(rows[0]) == 2 and _is_class_number(cells[0]) for cells in rows):
        return {}
    return {int(number): name for number, name in rows if name}


def _names_at(folder: Path, name: str, may_read: Callable[[Path], bool] | None) -> Names:
    """Return the names in the list ``name``, which is relative to the program that wrote it, so often only a name."""
    for path in (folder / name, folder / Path(name.replace("\\", "/")).name):
        if name and path.is_file() and _is_list(path) and (may_read is None or may_read(path)):
            return _names_in(path)
    return {}


def _names_of(path: Path, value: Any) -> Names:
    """Return the names in the YAML ``value``: a list, or an object with numbers; raises UnusableSource."""
    if isinstance(value, list) and all(map(is_text, value)):
        return _numbered(value)
    if isinstance(value, dict) and all(map(is_text, value.values())):
        for pairs in (value.items(), ((number, name) for name, number in value.items())):
            names = {number: name.strip() for number, name in pairs}
            if all(map(_is_class_number, names)):
                return {int(number): name for number, name in names.items() if name}
    raise UnusableSource(
        f"{show(path.name)}: “names” is neither a list of names nor an object with a name for each number.",
        "Write it as names: [first, second], or one per line.",
    )


def _is_class_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def _numbered(names: Iterable[str]) -> Names:
    return {number: name.strip() for number, name in enumerate(names) if name.strip()}


def _contradicting(files: Collection[NamesFile]) -> list[NamesFile]:
    """Return the files without those whose names another one has too."""
    kept: list[NamesFile] = []
    for file in files:
        same = next((other for other in kept if _agree(other.names, file.names)), None)
        if same is None:
            kept.append(file)
        elif len(file.names) > len(same.names):
            kept[kept.index(same)] = file
    return kept


def _agree(one: Names, other: Names) -> bool:
    return all(one[number] == other[number] for number in one.keys() & other.keys())
