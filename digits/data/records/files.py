"""Find TFRecord files: a single file, a sharded set, a glob pattern, or a folder with files for each split.

A folder that TensorFlow Datasets (TFDS) has prepared contains ``dataset_info.json`` and ``features.json``, which
describe its files: see https://www.tensorflow.org/datasets/external_tfrecord.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from digits.core.files import UnreadableFile, read_bytes
from digits.core.splits import SPLITS
from digits.data.loose_json import InvalidJson, load
from digits.data.records.shards import check_shards, files_at, files_in, folders_in, is_shard
from digits.data.sources.declared_splits import split_named, split_of
from digits.data.sources.plan import UnusableSource, count_of, listed, show

INFO_FILE, FEATURES_FILE = "dataset_info.json", "features.json"
MAX_METADATA_BYTES = 16 << 20
_ENDINGS = re.compile(r"\.(tfrecords?|tfrec|records?)([.-].*)?$", re.IGNORECASE)
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
    contents = _in_folder(place) if place.is_dir() else RecordFiles(place.parent, {"train": paths_at(path)})
    for split, other in (others or {}).items():
        if other:
            contents.splits[split] = paths_at(other)
    if others and any(others.values()):
        every = [str(path.parent) for paths in contents.splits.values() for path in paths]
        contents.root = Path(os.path.commonpath(every))
    contents.splits = {name: contents.splits[name] for name in SPLITS if name in contents.splits}
    return contents


def paths_at(path: str) -> list[Path]:
    """Return the files of a path: all files of a folder, or those of `files_at`; raises UnusableSource."""
    place = Path(path)
    return _need(_records_in(place), place) if place.is_dir() else files_at(path)


def _in_folder(folder: Path) -> RecordFiles:
    if not (folder / INFO_FILE).is_file():
        versions = [item for item in folders_in(folder) if (item / INFO_FILE).is_file()]
        if versions:
            folder = max(versions, key=_version)
    if (folder / INFO_FILE).is_file():
        return _read_tfds(folder)
    files = _records_in(folder)
    if not files:
        named = [item for item in folders_in(folder) if split_named(item.name)]
        files = [path for item in named for path in _records_in(item)]
    contents = RecordFiles(folder)
    for path in _need(files, folder):
        contents.splits.setdefault(split_of(path), []).append(path)
    if "train" not in contents.splits:
        if len(contents.splits) > 1:
            raise UnusableSource(
                f"{show(str(folder))} contains no training files: {listed(path.name for path in files)}.",
                "Rename the training files so that their names start with “train”.",
            )
        contents.splits = {"train": files}
    for paths in contents.splits.values():
        check_shards(paths)
    return contents


def _need(files: list[Path], folder: Path) -> list[Path]:
    if not files:
        raise UnusableSource(
            f"{show(str(folder))} contains no TFRecord files.",
            "File names must end with .tfrecord, .tfrecords, .record, or a shard number such as 00000-of-00004.",
        )
    return files


def _records_in(folder: Path) -> list[Path]:
    return [path for path in files_in(folder) if _ENDINGS.search(path.name) or is_shard(path)]


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
    contents = RecordFiles(
        folder, title=f"TensorFlow Datasets, {show(name)} {show(str(info.get('version', '')))}".strip()
    )
    splits = info.get("splits")
    for item in splits if isinstance(splits, list) else []:
        split = str(item.get("name", "")) if isinstance(item, dict) else ""
        shards = item.get("shardLengths") if split else None
        target = split_named(split)
        if target is None or target in contents.splits or not isinstance(shards, list):
            contents.ignored.append(split)
            continue
        contents.splits[target] = _tfds_shards(
            folder, name, split, str(item.get("filepathTemplate", "")), len(shards)
        )
    if "train" not in contents.splits:
        raise UnusableSource(f"The dataset {show(name)} has no training split: {listed(contents.ignored)}.")
    features = _json(folder / FEATURES_FILE) if (folder / FEATURES_FILE).is_file() else {}
    _read_tfds_features(folder, features, contents)
    return contents


def _tfds_shards(folder: Path, name: str, split: str, template: str, count: int) -> list[Path]:
    form = template or "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    values = {"DATASET": name, "SPLIT": split, "FILEFORMAT": "tfrecord"}
    paths = []
    for number in range(count):
        text = form
        for key, value in {**values, "SHARD_X_OF_Y": f"{number:05d}-of-{count:05d}"}.items():
            text = text.replace(f"{{{key}}}", value)
        paths.append(folder / os.path.basename(text))
    present = {path.name for path in files_in(folder)}
    missing = [path.name for path in paths if path.name not in present]
    if missing:
        raise UnusableSource(f"{len(missing):,} of {count:,} shards are missing: {listed(missing)}.")
    return paths


def _read_tfds_features(folder: Path, features: dict[str, Any], contents: RecordFiles) -> None:
    """Set the image, the label and the class names from the feature descriptions."""
    parts = features.get("featuresDict")
    parts = parts.get("features") if isinstance(parts, dict) else None
    for name, part in parts.items() if isinstance(parts, dict) else ():
        kind = str(part.get("pythonClassName", "")) if isinstance(part, dict) else ""
        if not contents.image and kind.endswith(".Image"):
            contents.image = name
            contents.shape = _tfds_shape(part)
        if not contents.label and kind.endswith(".ClassLabel"):
            contents.label = name
            names = folder / f"{name}.labels.txt"
            contents.classes = _text(names).splitlines() if names.is_file() else []


def _tfds_shape(part: dict[str, Any]) -> tuple[int, ...]:
    try:
        sizes = [int(size) for size in part["image"]["shape"]["dimensions"]]
    except (KeyError, TypeError, ValueError):
        return ()
    return tuple(sizes) if len(sizes) == 3 and min(sizes) > 0 else ()


def _json(path: Path) -> dict[str, Any]:
    try:
        value = load(_text(path))
    except InvalidJson as error:
        raise UnusableSource(f"{show(str(path))} is not valid JSON: {error}.") from error
    return value if isinstance(value, dict) else {}


def _text(path: Path) -> str:
    try:
        return read_bytes(path, MAX_METADATA_BYTES, below=path.parent).decode()
    except UnreadableFile as error:
        raise UnusableSource(f"{show(str(path))} cannot be read: {error}.") from error
    except UnicodeDecodeError as error:
        raise UnusableSource(f"{show(str(path))} is not UTF-8 text.") from error
