"""Find TFRecord files: a single file, a sharded set, a glob pattern, or a folder with files for each split.

A folder that TensorFlow Datasets (TFDS) has prepared contains ``dataset_info.json`` and ``features.json``, which
describe its files: see https://www.tensorflow.org/datasets/external_tfrecord.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from digits.core.files import UnreadableFile, read_bytes
from digits.data.manifest import SPLITS
from digits.data.record_classes import CLASSES_ENDING
from digits.data.record_index import INDEX_ENDING
from digits.data.record_names import NAMES_ENDING
from digits.data.sources import UnusableSource, count_of, listed, show

INFO_FILE, FEATURES_FILE = "dataset_info.json", "features.json"
MAX_FILES = 100_000
MAX_METADATA_BYTES = 16 << 20
_SHARD = re.compile(r"(?P<start>.*)(?P<number>[0-9]{5})-of-(?P<total>[0-9]{5})(?P<end>.*)")
_ENDINGS = re.compile(r"\.(tfrecords?|tfrec|records?)([.-].*)?$", re.IGNORECASE)
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_PATTERN = frozenset("*?[")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")


@dataclass
class RecordFiles:
    """The TFRecord files of each split, and the features described by their metadata.

    ``classes`` are the names of the classes of the feature ``label``. ``ignored`` are further splits and files.
    """

    root: Path
    splits: dict[str, list[Path]] = field(default_factory=dict)
    title: str = ""
    image: str = ""
    shape: tuple[int, ...] = ()
    label: str = ""
    classes: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def names_of(self, feature: str) -> dict[int, str]:
        """Return the names of the numbers in a ``feature`` of a TFDS folder; empty if they are not known.

        Raises UnusableSource if they cannot be read.
        """
        path = self.root / f"{feature.replace('/', '-')}.labels.txt"
        return dict(enumerate(map(show, _text(path).splitlines()))) if path.is_file() else {}

    def describe(self) -> str:
        """Return a one-sentence description of the files."""
        splits = [f"{count_of(len(self.splits[name]), 'file')} for {name}" for name in self.splits]
        return f"{self.title or 'TFRecord files'}: {', '.join(splits)}."


def find_files(path: str, others: dict[str, str] | None = None) -> RecordFiles:
    """Return the files at ``path``, and those at the paths of ``others`` for further splits; raises UnusableSource."""
    place = Path(path)
    found = _in_folder(place) if place.is_dir() else RecordFiles(place.parent, {"train": paths_at(path)})
    for split, other in (others or {}).items():
        if other:
            found.splits[split] = paths_at(other)
    if others and any(others.values()):
        every = [str(path.parent) for paths in found.splits.values() for path in paths]
        found.root = Path(os.path.commonpath(every))
    found.splits = {name: found.splits[name] for name in SPLITS if name in found.splits}
    return found


def is_pattern(path: str) -> bool:
    """Return whether the last part of ``path`` is a pattern such as ``train-*``."""
    return not _PATTERN.isdisjoint(os.path.basename(path))


def paths_at(path: str) -> list[Path]:
    """Return the files of a path: a file with all shards of its set, a pattern, or all files of a folder.

    Raises UnusableSource.
    """
    place = Path(path)
    if place.is_dir():
        return _need(_records_in(place), place)
    if is_pattern(path):
        found = [item for item in _files_in(place.parent) if fnmatch.fnmatchcase(item.name, place.name)]
        if not found:
            raise UnusableSource(f"No file matches {show(path)}.")
        _check_shards(found)
        return found
    shard = _SHARD.fullmatch(place.name)
    if shard is None:
        return [place]
    found = [item for item in _files_in(place.parent) if _set_of(item.name) == _set_of(place.name)]
    _check_shards(found or [place])
    return found or [place]


def _in_folder(folder: Path) -> RecordFiles:
    if not (folder / INFO_FILE).is_file():
        versions = [item for item in _folders_in(folder) if (item / INFO_FILE).is_file()]
        if versions:
            folder = max(versions, key=_version)
    if (folder / INFO_FILE).is_file():
        return _read_tfds(folder)
    files = _records_in(folder)
    if not files:
        named = [item for item in _folders_in(folder) if item.name.lower() in _SPLIT_WORDS]
        files = [path for item in named for path in _records_in(item)]
    found = RecordFiles(folder)
    for path in _need(files, folder):
        found.splits.setdefault(split_of(path), []).append(path)
    if "train" not in found.splits:
        if len(found.splits) > 1:
            raise UnusableSource(
                f"{show(str(folder))} contains no training files: {listed(path.name for path in files)}.",
                "Rename the training files so that their names start with “train”.",
            )
        found.splits = {"train": files}
    for paths in found.splits.values():
        _check_shards(paths)
    return found


def split_of(path: Path) -> str:
    """Return the split that the name of a file or of its folder contains, by default train."""
    words = [*re.split(r"[-_.]", path.name.lower()), path.parent.name.lower()]
    return next((_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS), "train")


def _need(files: list[Path], folder: Path) -> list[Path]:
    if not files:
        raise UnusableSource(
            f"{show(str(folder))} contains no TFRecord files.",
            "File names must end with .tfrecord, .tfrecords, .record, or a shard number such as 00000-of-00004.",
        )
    return files


def _records_in(folder: Path) -> list[Path]:
    return [path for path in _files_in(folder) if _ENDINGS.search(path.name) or _SHARD.fullmatch(path.name)]


def _files_in(folder: Path) -> list[Path]:
    """Return the files of a folder, sorted.

    Without hidden ones, links that lead outside of it, and the files that DIGITS writes beside its shards.
    """
    root = os.path.realpath(folder)
    paths = _entries(folder)
    endings = (INDEX_ENDING, NAMES_ENDING, CLASSES_ENDING)
    shards = [Path(path) for path in paths if not path.endswith(endings)]
    beside = {str(shard.with_suffix(ending)) for shard in shards for ending in endings}
    return [
        Path(path)
        for path in paths
        if path not in beside
        and os.path.isfile(path)
        and os.path.commonpath([os.path.realpath(path), root]) == root
    ]


def _folders_in(folder: Path) -> list[Path]:
    return [Path(path) for path in _entries(folder) if os.path.isdir(path) and not os.path.islink(path)]


def _entries(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entry.path for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise UnusableSource(f"{show(str(folder))} cannot be read: {error.strerror}.") from error
    if len(found) > MAX_FILES:
        raise UnusableSource(f"{show(str(folder))} contains more than {MAX_FILES:,} files.")
    return found


def _set_of(name: str) -> tuple[str, str, str] | None:
    found = _SHARD.fullmatch(name)
    return (found["start"], found["total"], found["end"]) if found else None


def _check_shards(paths: Iterable[Path]) -> None:
    """Raise UnusableSource if a set of shards is incomplete."""
    sets: dict[tuple[str, str, str], set[int]] = {}
    for path in paths:
        found = _SHARD.fullmatch(path.name)
        if found:
            sets.setdefault((found["start"], found["total"], found["end"]), set()).add(int(found["number"]))
    for (start, total, end), numbers in sets.items():
        missing = [number for number in range(int(total)) if number not in numbers]
        if missing:
            names = listed(f"{start}{number:05d}-of-{total}{end}" for number in missing)
            raise UnusableSource(f"{len(missing):,} of {int(total):,} shards are missing: {names}.")


def _version(folder: Path) -> tuple[bool, list[int], str]:
    is_version = bool(_VERSION.fullmatch(folder.name))
    return is_version, [int(part) for part in folder.name.split(".")] if is_version else [], folder.name


def _read_tfds(folder: Path) -> RecordFiles:
    """Read the metadata of a folder prepared by TensorFlow Datasets; raises UnusableSource."""
    info = _json(folder / INFO_FILE)
    name = str(info.get("name") or folder.parent.name)
    form = str(info.get("fileFormat") or "tfrecord")
    if form != "tfrecord":
        raise UnusableSource(
            f"The dataset {show(name)} is stored as {show(form)}, not as TFRecord files.",
            'Prepare it with download_and_prepare(file_format="tfrecord").',
        )
    found = RecordFiles(
        folder, title=f"TensorFlow Datasets, {show(name)} {show(str(info.get('version', '')))}".strip()
    )
    splits = info.get("splits")
    for item in splits if isinstance(splits, list) else []:
        split = str(item.get("name", "")) if isinstance(item, dict) else ""
        shards = item.get("shardLengths") if split else None
        target = _SPLIT_WORDS.get(split)
        if target is None or target in found.splits or not isinstance(shards, list):
            found.ignored.append(split)
            continue
        found.splits[target] = _tfds_shards(
            folder, name, split, str(item.get("filepathTemplate", "")), len(shards)
        )
    if "train" not in found.splits:
        raise UnusableSource(f"The dataset {show(name)} has no training split: {listed(found.ignored)}.")
    features = _json(folder / FEATURES_FILE) if (folder / FEATURES_FILE).is_file() else {}
    _read_tfds_features(folder, features, found)
    return found


def _tfds_shards(folder: Path, name: str, split: str, template: str, count: int) -> list[Path]:
    form = template or "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    values = {"DATASET": name, "SPLIT": split, "FILEFORMAT": "tfrecord"}
    paths = []
    for number in range(count):
        text = form
        for key, value in {**values, "SHARD_X_OF_Y": f"{number:05d}-of-{count:05d}"}.items():
            text = text.replace(f"{{{key}}}", value)
        paths.append(folder / os.path.basename(text))
    present = {path.name for path in _files_in(folder)}
    missing = [path.name for path in paths if path.name not in present]
    if missing:
        raise UnusableSource(f"{len(missing):,} of {count:,} shards are missing: {listed(missing)}.")
    return paths


def _read_tfds_features(folder: Path, features: dict[str, Any], found: RecordFiles) -> None:
    """Set the image, the label and the class names from the feature descriptions."""
    parts = features.get("featuresDict")
    parts = parts.get("features") if isinstance(parts, dict) else None
    for name, part in parts.items() if isinstance(parts, dict) else ():
        kind = str(part.get("pythonClassName", "")) if isinstance(part, dict) else ""
        if not found.image and kind.endswith(".Image"):
            found.image = name
            found.shape = _tfds_shape(part)
        if not found.label and kind.endswith(".ClassLabel"):
            found.label = name
            names = folder / f"{name}.labels.txt"
            found.classes = _text(names).splitlines() if names.is_file() else []


def _tfds_shape(part: dict[str, Any]) -> tuple[int, ...]:
    try:
        sizes = [int(size) for size in part["image"]["shape"]["dimensions"]]
    except (KeyError, TypeError, ValueError):
        return ()
    return tuple(sizes) if len(sizes) == 3 and min(sizes) > 0 else ()


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise UnusableSource(f"{show(str(path))} is not valid JSON.") from error
    return value if isinstance(value, dict) else {}


def _text(path: Path) -> str:
    try:
        return read_bytes(path, MAX_METADATA_BYTES, below=path.parent).decode()
    except UnreadableFile as error:
        raise UnusableSource(f"{show(str(path))} cannot be read: {error}.") from error
    except UnicodeDecodeError as error:
        raise UnusableSource(f"{show(str(path))} is not UTF-8 text.") from error
