"""Images in an LMDB database of Caffe or DIGITS 4 to 6."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from digits.data.databases import caffe
from digits.data.databases.caffe import Entry, Shape
from digits.data.databases.lmdb_file import LmdbFile, UnusableDatabase
from digits.data.images.images import UnusableImage
from digits.data.sources.plan import Located, UnusableSource, show

DATA_FILE = "data.mdb"
LMDB_ENDINGS = (".mdb", ".lmdb")


def is_lmdb(path: Path) -> bool:
    """Return whether ``path`` is a folder that contains an LMDB database."""
    return (path / DATA_FILE).is_file()


_NO_SHAPE = Shape(0, 0, 0)


class LmdbImages(Located):
    """The images of the database ``path``, a folder with ``data.mdb``, or such a file; their names are the keys."""

    format = "LMDB"

    def __init__(self, path: Path, below: Path | None = None) -> None:
        """Open the database; raises UnusableSource."""
        self.root = path
        try:
            self._file = LmdbFile(path / DATA_FILE if path.is_dir() else path, below)
        except (UnusableDatabase, OSError) as error:
            raise self._refused(error) from error

    @property
    def count(self) -> int:
        """The number of records."""
        return self._file.count

    def entries(self) -> Iterator[Entry]:
        """Yield the records in the order of their keys; raises UnusableSource if the database is damaged."""
        for key, value in self._records():
            name = os.fsdecode(key)
            try:
                datum = caffe.parse(value)
                caffe.check_size(datum)
            except ValueError as error:
                yield Entry(name, -1, _NO_SHAPE, "", str(error))
                continue
            yield Entry(name, datum.label, caffe.shape_of(datum), caffe.encoding_of(datum))

    def names(self) -> list[str]:
        """Return the names of all records; raises UnusableSource if the database is damaged."""
        return [os.fsdecode(key) for key, _ in self._records()]

    def vectors(self) -> Iterator[tuple[str, list[float]]]:
        """Yield the name and the values of each record; raises UnusableSource that names a record without values."""
        for key, value in self._records():
            try:
                yield os.fsdecode(key), caffe.vector_of(caffe.parse(value))
            except ValueError as error:
                raise UnusableSource(
                    f"The record {show(os.fsdecode(key))} of {self.describe()} cannot be used: {error}."
                ) from error

    def read(self, name: str) -> bytes:
        try:
            return caffe.image_file(caffe.parse(self._file.get(os.fsencode(name))))
        except UnusableImage:
            raise
        except KeyError:
            raise UnusableImage("the record does not exist") from None
        except ValueError as error:
            raise UnusableImage(str(error)) from error

    def close(self) -> None:
        self._file.close()

    def _records(self) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from self._file.records()
        except (UnusableDatabase, OSError) as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> UnusableSource:
        return UnusableSource(
            f"The database {self.describe()} cannot be read: {error}.", "Copy the complete database again."
        )
