"""Lists of the images of each split: text files or folders, which YAML files, darknet's ``obj.data``, VOC's
``ImageSets`` or their names declare."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from digits.core.splits import SPLITS
from digits.data.images.lists import visible_entries
from digits.data.sources.declared_splits import affixed_splits, inner_root, only_folder, split_folders
from digits.data.sources.path_rules import ImageTree, PathMatches
from digits.data.sources.plan import UnusableSource, count_of, listed, show
from digits.data.tables.tables import is_image
from digits.kinds.sources.yaml_files import (
    YAML_ENDINGS,
    meant_paths,
    read_settings,
    read_text,
    read_yaml,
    values_of,
)

LIST_FIELDS = tuple(f"{split}_list" for split in SPLITS)
_MAX_BYTES = 64 << 20
# The names of files and settings; trainval counts without a file for training alone.
_SETTINGS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
# Lists of one class in VOC's ImageSets say whether an image contains it.
_MARK = re.compile(r"\s+-?[01]\Z")

Lists = dict[str, list[Path]]


class SplitLists(Struct, kw_only=True, frozen=True):
    """The lists of the images of each split: text files with a path or a name per line, or folders; one per line."""

    train: str = ""
    val: str = ""
    test: str = ""

    def but(self, own: Container[str]) -> dict[str, str]:
        """Return the lists by split, without those of splits that have their ``own`` source."""
        lists = {"train": self.train, "val": self.val, "test": self.test}
        return {
            split: paths for split, paths in lists.items() if paths and (split == "train" or split not in own)
        }


def list_fields(lists: Lists) -> dict[str, str | bool]:
    """Return the values of the form fields for ``lists``."""
    return {f"{split}_list": "\n".join(map(str, paths)) for split, paths in lists.items()}


def find_lists(root: Path, images: Path, may_read: Callable[[Path], bool], image_set: str = "Main") -> Lists:
    """Return the text files and the folders with the images of each split of the set in ``root``.

    Folders in that of ``images`` count without a declaration. ``image_set`` is the folder of VOC's lists in
    ``ImageSets``. Empty unless there are different images for training and another split.
    """
    for folder in filter(None, (root, only_folder(root), inner_root(root))):
        for declared in _declared(folder, image_set):
            if lists := _usable(declared, may_read):
                return lists
    return _usable({split: [path] for split, path in split_folders(images).items()}, may_read)


def _declared(root: Path, image_set: str) -> Iterator[Lists]:
    yield from _in_yaml(root)
    yield from _in_darknet(root)
    yield _by_name(root / "ImageSets" / image_set)
    yield _by_name(root / "ImageSets")
    yield _by_name(root, need_paths=True)


def _usable(listed: Lists, may_read: Callable[[Path], bool]) -> Lists:
    lists: Lists = {}
    for split in SPLITS:
        paths = [path for path in listed.get(split, []) if path.exists() and may_read(path)]
        if paths and paths not in lists.values():
            lists[split] = paths
    return lists if "train" in lists and len(lists) > 1 else {}


def _files(folder: Path, *endings: str) -> list[Path]:
    try:
        entries = visible_entries(str(folder))
    except OSError:
        return []
    return sorted(
        Path(entry.path) for entry in entries if entry.name.lower().endswith(endings) and entry.is_file()
    )


def _in_yaml(root: Path) -> Iterator[Lists]:
    for path in _files(root, *YAML_ENDINGS):
        try:
            config = read_yaml(path)
        except UnusableSource:
            continue  # reported with the names of classes
        if isinstance(config, dict):
            yield {
                split: [
                    next(
                        (meant for meant in meant_paths(config, root, value) if meant.exists()), root / value
                    )
                    for name in names
                    for value in values_of(config, name)
                ]
                for split, names in _SETTINGS.items()
            }


def _in_darknet(root: Path) -> Iterator[Lists]:
    for path in _files(root, ".data"):
        try:
            settings = read_settings(path)
        except UnusableSource:
            continue
        # The paths are relative to the program that wrote them.
        yield {
            split: [
                place
                for name in names
                if settings.get(name)
                for place in (root / settings[name], root / Path(settings[name]).name)
                if place.is_file()
            ][:1]
            for split, names in _SETTINGS.items()
        }


def _by_name(folder: Path, need_paths: bool = False) -> Lists:
    """Return the text files that are called like a split; with ``need_paths``, they must contain paths of images."""
    files = _files(folder, ".txt")
    stems = {path.stem: path for path in files if not need_paths or _lists_paths(path)}
    groups = affixed_splits(stems)
    splits = groups.get("") or (next(iter(groups.values())) if len(groups) == 1 else {})
    return {
        split: [stems[min(names, key=lambda name: (name.lower() == "trainval", name))]]
        for split, names in splits.items()
    }


def _lists_paths(path: Path) -> bool:
    try:
        return any(map(is_image, _entries(path)[:1]))
    except UnusableSource:
        return False


def _entries(path: Path) -> list[str]:
    """Return the paths or names of images in a text file; raises UnusableSource."""
    text = read_text(path, _MAX_BYTES)
    lines = (line.strip() for line in text.splitlines())
    return [line if is_image(line) else _MARK.sub("", line) for line in lines if line]


def divide(
    lists: Mapping[str, str], root: Path, files: Sequence[str], warnings: list[str]
) -> dict[str, list[int]]:
    """Return the places of the images of each split in ``files``, which are relative to ``root``.

    ``lists`` are the text files and folders of each split, one per line. Without one for training, it gets the images
    in no list. An image in several lists is only used for testing, or else for validation. Raises UnusableSource for a
    list without usable images.
    """
    places = {file: index for index, file in enumerate(files)}
    free = set(files)
    paths_of = {split: list(map(Path, paths.splitlines())) for split, paths in lists.items() if paths}
    entries = {path: _entries(path) for paths in paths_of.values() for path in paths if not path.is_dir()}
    # One rule for all lists: images of another split can have the same names.
    matches = ImageTree(root, files).match(entry for part in entries.values() for entry in part)
    warnings += matches.remarks(listed(path.name for path in entries))
    places_of: dict[str, list[int]] = {}
    repeated: list[str] = []
    unknown: list[str] = []
    for split in (split for split in reversed(SPLITS) if split in paths_of):
        paths = paths_of[split]
        listed_files: list[str] = []
        for path in paths:
            if path in entries:
                listed_files += _files_in(path, entries[path], matches, warnings)
            else:
                inner = os.path.relpath(os.path.realpath(path), root)
                listed_files += (file for file in files if inner == "." or file.startswith(f"{inner}/"))
        unknown += [file for file in listed_files if file not in places]
        repeated += [file for file in listed_files if file in places and file not in free]
        chosen = free.intersection(listed_files)
        if not chosen:
            names = listed(path.name for path in paths)
            raise UnusableSource(
                f"No image in {names} is usable in {show(str(root))}.", "Check the lists of the splits."
            )
        free -= chosen
        places_of[split] = sorted(places[file] for file in chosen)
    if "train" not in places_of:
        places_of["train"] = sorted(places[file] for file in free)
    elif free:
        what = count_of(len(free), "image")
        warnings.append(f"{what} in no list of a split: not used ({listed(sorted(free))}).")
    if repeated:
        what = count_of(len(repeated), "image")
        warnings.append(f"{what} in the lists of several splits: not used for training ({listed(repeated)}).")
    if unknown:
        what = count_of(len(unknown), "image")
        warnings.append(
            f"{what} in the lists of splits cannot be used, or without annotations: {listed(unknown)}."
        )
    return places_of


def _files_in(path: Path, entries: list[str], matches: PathMatches, warnings: list[str]) -> list[str]:
    """Return the images in a list."""
    known, missing = [], []
    for entry in entries:
        try:
            file, exists = matches.resolve(entry)
        except ValueError:
            exists = False
        if exists:
            known.append(file)
        else:
            missing.append(entry)
    if missing:
        warnings.append(f"{show(path.name)}: {count_of(len(missing), 'image')} not found: {listed(missing)}.")
    return list(dict.fromkeys(known))
