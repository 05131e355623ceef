"""Downloads of image classification datasets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from digits.data.archives.file_names import numbered_name, unique_names
from digits.data.archives.writing import Entry
from digits.data.manifest import Manifest
from digits.data.records.index import DamagedRecords, IndexCache
from digits.data.records.records import Record
from digits.kinds.versions.export import Export, File, image_file


class Folders(Export):
    """One folder per split, with one folder of images per class."""

    name = "folders"
    title = "Class folders"
    contents = "One folder per split, with one folder of images per class."

    def __init__(self, folder: Path, manifest: Manifest, indexes: IndexCache) -> None:
        super().__init__(folder, manifest, indexes)
        self._folders = unique_names(manifest.target.labels)
        for name, label in zip(self._folders, manifest.target.labels, strict=True):
            if name != label:
                self.table("folders.csv", ["folder", "class"]).add([name, label])

    def convert(self, split: str, number: int, record: Record) -> list[File]:
        label = int(record.target(self.manifest.target))
        if not 0 <= label < len(self._folders):
            raise DamagedRecords(f"record of {record.filename!r} has unknown class {label}")
        path = f"{split}/{self._folders[label]}/{numbered_name(number, record.source)}"
        return [image_file(path, record)]

    def finish(self) -> Iterator[Entry]:
        yield "labels.txt", "".join(f"{label}\n" for label in self.manifest.target.labels).encode()


FORMATS = (Folders,)
