"""The names of the classes of YOLO sets: find the files beside and above the labels that contain them, and read them.

These are ``names`` in a YAML file, the lines of ``classes.txt`` or of a file that ends in ``.names``, and darknet's
``obj.data``, which refers to such a file. All are untrusted.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from digits.core.files import walk
from digits.core.splits import SPLITS
from digits.data.image_lists import visible_entries
from digits.data.sources import UnusableSource, listed, show
from digits.kinds.yaml_files import (
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
    """Return the files in ``labels``, below or above whose names contradict each other: at most one if they agree.

    All are real paths. Files up to ``top`` count, by default the folder that contains both. With ``may_read``, so do
    those above it, at most `MAX_LEVELS_ABOVE`: the nearest ones if there are no others, and a YAML file that refers to
    the ``images``. Raises UnusableSource if the only files with names cannot be read.
    """
    own = Path(os.path.commonpath([labels, images]))
    top = top or own
    allowed = may_read or (lambda path: Path(os.path.realpath(path)).is_relative_to(top))
    levels = MAX_LEVELS_ABOVE if may_read else 0
    faults: list[UnusableSource] = []
    inner = (Path(folder) for folder, _ in walk(labels, skips_hidden=True) if folder != str(labels))
    names_files = [
        file
        for folder in sorted(itertools.islice(inner, _MAX_INNER_FOLDERS))
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
    listed_files = [path for path in files if _is_list(path)]
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
    return path.name.lower() == "classes.txt" or path.suffix.lower() in _LISTS


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
    return _numbered(line.strip() for line in read_text(path).splitlines())


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
