"""Find the tables and images of datasets in the layouts that the Hugging Face library ``datasets`` loads.

See https://huggingface.co/docs/datasets/image_dataset. A folder contains Parquet files, or images with a file
``metadata.csv`` or ``metadata.jsonl``, or images only: directly, or in folders named after the splits. The
names of Parquet files and of their folders contain the split, such as ``data/train-00000-of-00002.parquet``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from digits.core.splits import SPLIT_TITLES, SPLITS
from digits.data.records.shards import check_shards, files_at, is_pattern
from digits.data.sources.declared_splits import affixed_splits, named_splits, split_named, split_of
from digits.data.sources.plan import UnusableSource, count_of, listed, show

METADATA = ("metadata.csv", "metadata.jsonl")
PARQUET = ".parquet"
TABLES = (".csv", ".tsv", ".jsonl")
MAX_HEAD_BYTES = 1 << 16


@dataclass
class Contents:
    """The folders of the splits below ``root``, and the ``tables`` that list their images; none for class folders.

    Parquet files are named relative to ``root``, which may contain the images to which they refer.
    """

    root: Path
    folders: dict[str, Path] = field(default_factory=dict)
    tables: dict[str, list[Path]] = field(default_factory=dict)

    @property
    def is_parquet(self) -> bool:
        """Whether the tables are Parquet files."""
        return any(path.suffix.lower() == PARQUET for paths in self.tables.values() for path in paths)

    def describe(self) -> str:
        """Return a sentence about the layout and the files of each split."""
        if not self.tables:
            return f"A folder per class. Splits: {', '.join(self.folders)}."
        if not self.is_parquet:
            return f"Images with {self.tables['train'][0].name}. Splits: {', '.join(self.tables)}."
        return f"Parquet: {describe_files(self.tables)}."

    def need_tables(self) -> None:
        """Use the CSV or JSON Lines files of the folder if no others list the images; raises UnusableSource.

        There is only one, or there is one for each split, such as ``train.csv`` and ``test.csv``.
        """
        if self.tables:
            return
        found = sorted(path for path in self.root.glob("*") if path.suffix.lower() in TABLES)
        self.tables = {"train": found} if len(found) == 1 else _tables_of_splits(found)
        if found and not self.tables:
            raise UnusableSource(
                f"{show(str(self.root))} contains several tables: {listed(path.name for path in found)}.",
                "Enter the path of one of them.",
            )
        if not self.tables:
            raise UnusableSource(
                f"{show(str(self.root))} contains no table.",
                "Enter a CSV, JSON Lines or Parquet file, or a folder that contains one, directly or in folders such "
                "as train and validation.",
            )


def find(path: str | Path) -> Contents:
    """Return the contents of a folder, or the files that `files_at` returns for a file, a shard or a pattern.

    Raises UnusableSource if they cannot be read, or if none is for training.
    """
    place = Path(path)
    contents = _in_folder(place) if place.is_dir() else _at(path)
    for paths in contents.tables.values():
        check_shards(paths)
    contents.folders = {name: contents.folders[name] for name in SPLITS if name in contents.folders}
    contents.tables = {name: contents.tables[name] for name in SPLITS if name in contents.tables}
    return contents


def _tables_of_splits(tables: list[Path]) -> dict[str, list[Path]]:
    """Return the ``tables`` named after splits whose first line is that of the training table."""
    groups = [*affixed_splits(path.stem for path in tables).values()]
    if len(groups) != 1:
        return {}
    splits = {
        split: next(path for path in tables if path.stem == stem) for split, (stem, *_) in groups[0].items()
    }
    head = _header(splits["train"])
    return {split: [path] for split, path in splits.items() if _header(path) == head}


def _header(path: Path) -> bytes:
    if path.suffix.lower() == ".jsonl":
        return b""
    with open(path, "rb") as file:
        return file.readline(MAX_HEAD_BYTES).rstrip()


def describe_files(splits: dict[str, list[Path]]) -> str:
    """Return the files of the ``splits`` in words, such as ``2 files for training, val.csv for validation``."""
    return ", ".join(
        f"{show(splits[name][0].name) if len(splits[name]) == 1 else count_of(len(splits[name]), 'file')} "
        f"for {SPLIT_TITLES[name].lower()}"
        for name in SPLITS
        if name in splits
    )


def _at(path: str | Path) -> Contents:
    place, files = Path(path), files_at(path)
    tables: dict[str, list[Path]] = {}
    if is_pattern(str(path)):
        for file in files:
            tables.setdefault(split_of(file), []).append(file)
    # All files of a path are for training, unless it names several splits.
    return Contents(
        place.parent, tables=tables if len(tables) > 1 and "train" in tables else {"train": files}
    )


def _in_folder(root: Path) -> Contents:
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        contents = Contents(root, named_splits(root) or _only_train(folders) or {"train": root})
        places = [root, root / "data", *(path for path in folders if path.name != "data")]
        files = [path for place in places for path in sorted(place.glob(f"*{PARQUET}")) if path.is_file()]
    except OSError as error:
        raise UnusableSource(f"The folder {show(str(root))} cannot be read: {error.strerror}.") from error
    for path in files:
        contents.tables.setdefault(split_of(path), []).append(path)
    if files and "train" not in contents.tables:
        raise UnusableSource(
            f"None of the Parquet files is for training: {listed(path.name for path in files)}."
        )
    if not files:
        listed_in = {split: _metadata_in(folder) for split, folder in contents.folders.items()}
        contents.tables = {split: [path] for split, path in listed_in.items() if path}
        without = [folder for split, folder in contents.folders.items() if split not in contents.tables]
        if contents.tables and without:
            raise UnusableSource(
                f"{show(str(without[0]))} has no {METADATA[0]} or {METADATA[1]}, unlike other splits."
            )
    return contents


def _only_train(folders: Iterable[Path]) -> dict[str, Path]:
    return next(({"train": path} for path in folders if split_named(path.name) == "train"), {})


def _metadata_in(folder: Path) -> Path | None:
    return next((folder / name for name in METADATA if (folder / name).is_file()), None)
