"""Export the records of datasets as archives of files.

The module ``export`` of a kind lists its formats, subclasses of `Export`, as ``FORMATS``. Records are converted one by
one while the archive is sent; tables and lists of annotations, which are at the end of an archive, are collected in
temporary files.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, ClassVar

from digits.core.files import MissingFile, UnreadableFile, open_plain
from digits.data.archives.file_names import numbered_name
from digits.data.archives.writing import SPOOLED_BYTES, Entry
from digits.data.images import images
from digits.data.manifest import (
    FEATURES_FILE,
    FILE_NAME,
    LABELS_FILE,
    MEAN_ARRAY_FILE,
    MEAN_IMAGE_FILE,
    Manifest,
    SplitRecords,
)
from digits.data.records.index import DamagedRecords, IndexCache
from digits.data.records.records import Record, SplitReader, write_frame
from digits.kinds import Kind

File = tuple[str, bytes]

DAMAGE_FILE = "damaged.csv"
_ENDINGS = {"png": "png", "jpeg": "jpg"}


class Files:
    """The files at the end of an archive, which are collected in temporary files while it is sent; `close` them."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._tables: dict[str, Table] = {}
        self._lists: dict[str, IO[bytes]] = {}

    def finish(self) -> Iterator[Entry]:
        """Yield the files that follow those of the records, besides the tables and lists."""
        return iter(())

    def collected(self) -> Iterator[Entry]:
        """Yield all files."""
        yield from self.finish()
        for name, table in self._tables.items():
            yield name, table.file
        yield from self._lists.items()

    def table(self, name: str, columns: list[str]) -> Table:
        """Return the CSV file ``name`` with these columns, which is added at the end of the archive."""
        if name not in self._tables:
            self._tables[name] = Table(self.temporary_file(), columns)
        return self._tables[name]

    def lines(self, name: str) -> IO[bytes]:
        """Return the text file ``name``, which is added at the end of the archive."""
        if name not in self._lists:
            self._lists[name] = self.temporary_file()
        return self._lists[name]

    def temporary_file(self) -> IO[bytes]:
        """Return a file that is deleted by `close`."""
        return self._opened.enter_context(SpooledTemporaryFile(SPOOLED_BYTES))

    def close(self) -> None:
        """Delete the temporary files."""
        self._opened.close()


class Export(Files):
    """An archive of the dataset with ``manifest`` in ``folder``. Iterate over `entries` once, then call `close`.

    ``name`` identifies the format in URLs, ``title`` on pages, and ``contents`` describes the files. A subclass
    overrides `convert`, and `finish` if there are files besides those of the records.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    contents: ClassVar[str]

    def __init__(self, folder: Path, manifest: Manifest, indexes: IndexCache) -> None:
        super().__init__()
        self.folder, self.manifest, self.indexes = folder, manifest, indexes

    def convert(self, split: str, number: int, record: Record) -> Iterable[File]:
        """Return the files of a record; raises DamagedRecords before anything is added to tables."""
        raise NotImplementedError

    def entries(self) -> Iterator[Entry]:
        """Yield the files of the archive. Records that are damaged are left out and listed in `DAMAGE_FILE`."""
        for split, content in self.manifest.splits.items():
            yield from self._split_entries(split, content)
        yield from self.collected()

    def _split_entries(self, split: str, content: SplitRecords) -> Iterator[Entry]:
        reader = self._open_split(split, content)
        if reader is None:
            return
        with reader:
            for number in range(len(reader)):
                try:
                    files = list(self.convert(split, number, reader.read(number)))
                except DamagedRecords as error:
                    self.report_damage(split, number, str(error))
                    if not self.folder.is_dir():
                        return  # the dataset was deleted
                else:
                    yield from files

    def _open_split(self, split: str, content: SplitRecords) -> SplitReader | None:
        """Open the records of a split; if they are damaged, report it and return None."""
        try:
            return SplitReader(self.folder, content, self.indexes.get(self.folder, content))
        except UnreadableFile as error:
            self.report_damage(split, None, str(error))
            return None

    def report_damage(self, split: str, number: int | None, reason: str) -> None:
        """List a record, or a whole split, as left out."""
        rows = self.table(DAMAGE_FILE, ["split", "record", "reason"])
        rows.add([split, "all" if number is None else number, reason])


class Table:
    """A CSV file in UTF-8 that is written row by row."""

    def __init__(self, file: IO[bytes], columns: list[str]) -> None:
        self.file = file
        self.add(columns)

    def add(self, cells: list[Any]) -> None:
        text = io.StringIO()
        csv.writer(text).writerow(cells)
        self.file.write(text.getvalue().encode("utf-8", "replace"))


def number_text(value: float) -> str:
    """Return a float32 as text that is read as the same number."""
    return f"{value:.9g}"


def image_file(path: str, record: Record) -> File:
    """Return the image of a record as a file whose name is ``path`` and an ending; raises DamagedRecords."""
    if record.format in _ENDINGS:
        return f"{path}.{_ENDINGS[record.format]}", record.data
    return f"{path}.png", images.encode(record.as_array(), "png")


class TableExport(Export):
    """One folder of images per split, and a CSV file of targets."""

    name = "csv"
    title = "Images and CSV"
    contents = "One folder of images per split, and a CSV file of targets."

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        file = image_file(f"{split}/{numbered_name(number, record.source)}", record)
        values = record.target(self.manifest.target).tolist()
        columns = ["image", *self.manifest.target.names]
        self.table(f"{split}.csv", columns).add([file[0], *map(number_text, values)])
        return [file]


class TFRecords(Export):
    """The shards of a dataset, and the files that describe them."""

    name = "tfrecords"
    title = "TFRecord"
    contents = "Records for tf.data, their feature specification, the labels and the mean image."

    def entries(self) -> Iterator[Entry]:
        for name in (FILE_NAME, FEATURES_FILE, LABELS_FILE, MEAN_IMAGE_FILE, MEAN_ARRAY_FILE):
            try:
                with open_plain(self.folder / name, below=self.folder) as file:
                    yield name, file
            except MissingFile:
                continue
            except UnreadableFile as error:
                self.report_damage("", None, str(error))
        yield from super().entries()

    def _split_entries(self, split: str, content: SplitRecords) -> Iterator[Entry]:
        reader = self._open_split(split, content)
        if reader is None:
            return
        with reader:
            first = 0
            for index, shard in enumerate(reader.shards):
                numbers = range(first, first + len(reader.offsets(index)))
                damaged = self._damaged(split, reader, numbers)
                first = numbers.stop
                if damaged:
                    with SpooledTemporaryFile(SPOOLED_BYTES) as repaired:
                        for number in (number for number in numbers if number not in damaged):
                            write_frame(repaired, reader.payload(number))
                        yield shard.name, repaired
                    continue
                try:
                    with open_plain(shard, below=self.folder) as file:
                        yield shard.name, file
                except UnreadableFile as error:
                    self.report_damage(split, None, str(error))

    def _damaged(self, split: str, reader: SplitReader, numbers: range) -> set[int]:
        damaged = set()
        for number in numbers:
            try:
                reader.payload(number)
            except DamagedRecords as error:
                self.report_damage(split, number, str(error))
                damaged.add(number)
        return damaged


def formats_of(kind: Kind) -> dict[str, type[Export]]:
    """Return the formats of a kind by name, the usual one first."""
    module = kind.load_optional("export")
    formats: list[type[Export]] = [*(module.FORMATS if module else ()), TFRecords]
    return {item.name: item for item in formats}


def append(target: IO[bytes], source: IO[bytes]) -> None:
    """Copy a temporary file to the end of another one."""
    source.seek(0)
    shutil.copyfileobj(source, target)
