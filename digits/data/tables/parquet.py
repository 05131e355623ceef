"""Read images and labels from Parquet files, such as those of the Hugging Face Hub, in batches of a few rows.

A column of images contains the encoded files, or structures of ``bytes`` and ``path``. The package pyarrow is
required, which the extra ``parquet`` installs.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from digits.data.images.images import UnusableImage, read_source
from digits.data.loose_json import InvalidJson, load
from digits.data.sources.plan import Located, UnusableSource, first_line_of, listed, path_below, show

MAX_IMAGE_ROWS = 256
MAX_BATCH_ROWS = 65536
BATCH_BYTES = 4 << 20
# If all values of a batch are the largest one of their column.
LARGEST_BATCH_BYTES = 32 << 20
MAX_ROW_BYTES = 256 << 20
BYTES_PER_NUMBER = 8
BUFFER_BYTES = 1 << 20


@dataclass(frozen=True)
class Columns:
    """The names of the columns of images and labels; ``classes`` are the names of the label indexes, if known."""

    image: str
    label: str
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParquetTable:
    """The rows of a file as text, with their numbers from 1.

    ``images`` are the columns of images, whose cells are names in `ParquetImages`. ``classes`` are the names of the
    classes in columns of class indexes. Lists are JSON. ``is_whole``: these are all rows. Iteration raises
    UnusableSource.
    """

    columns: list[str]
    images: list[str]
    classes: dict[str, tuple[str, ...]]
    rows: Iterator[tuple[int, list[str]]]
    is_whole: bool


class _Rows:
    """A forward reader of one column of a file."""

    def __init__(self, path: Path, column: str) -> None:
        self._file = _open(path)
        self._batches = _batches(self._file, [column], MAX_IMAGE_ROWS)
        self._values: Any = None
        self._paths: Any = None
        self._start = self._stop = 0

    @property
    def start(self) -> int:
        """The first row that can still be read."""
        return self._start

    def read(self, row: int) -> tuple[bytes | None, str | None]:
        """Return the image in ``row``, or the path of its file.

        The row must not be before `start`. Raises StopIteration behind the last row.
        """
        if row >= self._stop:
            while row >= self._stop:
                batch = next(self._batches)
                self._start, self._stop = self._stop, self._stop + len(batch)
            self._divide(batch.column(0))
        place = row - self._start
        data = self._values[place].as_py()
        path = self._paths[place].as_py() if data is None and self._paths is not None else None
        return data, path

    def _divide(self, column: Any) -> None:
        """Divide structures into bytes and paths, because converting whole structures is slow."""
        self._values, self._paths = column, None
        if _is_struct(column.type):
            fields = dict(zip(column.type.names, column.flatten(), strict=True))
            self._values, self._paths = fields["bytes"], fields.get("path")

    def close(self) -> None:
        self._file.close()


@dataclass
class ParquetImages(Located):
    """Images in Parquet files below ``root``; their names are ``path:row``.

    Reading is fast in the order of the rows: memory holds one batch of rows, and a step back reads the file again.
    """

    root: Path
    column: str
    _path: str = field(default="", compare=False, repr=False)
    _rows: _Rows | None = field(default=None, compare=False, repr=False)

    def read(self, name: str) -> bytes:
        path, _, row = name.rpartition(":")
        place = int(row)
        if self._rows is None or path != self._path or place < self._rows.start:
            if self._rows is not None:
                self._rows.close()
            self._rows, self._path = _Rows(self.root / path, self.column), path
        try:
            data, inner = self._rows.read(place)
        except StopIteration:
            raise UnusableImage("the file has fewer rows than before") from None
        except OSError:
            raise
        except Exception as error:  # pyarrow raises various errors for damaged files
            self._rows = None
            raise UnusableImage(f"the Parquet file is damaged: {_first_line(error)}") from error
        if data is None and inner:
            return self._read_file(inner)
        if not isinstance(data, bytes):
            raise UnusableImage("the row has no image")
        return data

    def _read_file(self, path: str) -> bytes:
        root = os.path.realpath(self.root)
        try:
            return read_source(os.path.join(root, path_below(root, str(path))))
        except ValueError as error:
            raise UnusableImage(str(error)) from error


def find_objects(path: Path, boxes: str, names: Sequence[str], known: Columns | None = None) -> Columns:
    """Return the columns of images and of objects of the file ``path``; raises UnusableSource.

    Objects are structures, or lists of structures, with a field ``boxes`` and one of ``names`` with the classes. By
    default, the first such column is used; in further files of a source, the columns ``known``.
    """
    with _open(path) as file:
        schema = file.schema_arrow
    images = [name for name in schema.names if _is_image(schema.field(name).type)]
    objects = [name for name in schema.names if boxes in _fields_of(schema.field(name).type)]
    place, columns = show(path.name), f"Its columns are {listed(schema.names)}."
    for candidates, column, what in (
        (images, known and known.image, "images"),
        (objects, known and known.label, f"objects, which have the field “{boxes}”"),
    ):
        if column and column not in candidates:
            raise UnusableSource(f"{place} has no column “{show(column)}” of {what}.", columns)
        if not candidates:
            raise UnusableSource(f"{place} has no column of {what}.", columns)
    label = known.label if known else objects[0]
    key = next((name for name in names if name in _fields_of(schema.field(label).type)), "")
    classes = _names_of_field(_features(schema.metadata or {}).get(label), key)
    return Columns(known.image if known else images[0], label, classes)


def values(path: Path, column: str) -> Iterator[Any]:
    """Yield the value of a column in each row as Python objects; raises UnusableSource."""
    return (row[0] for row in _read_rows(path, [column]))


def _read_rows(path: Path, columns: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the values of the columns in each row as Python objects; raises UnusableSource."""
    row = 0
    with _open(path) as file:
        try:
            for batch in _batches(file, columns):
                parts = [batch.column(name) for name in columns]
                for index in range(len(batch)):
                    row += 1
                    yield [part[index].as_py() for part in parts]
        except UnusableSource:
            raise
        except Exception as error:  # pyarrow raises various errors for damaged files
            raise UnusableSource(f"{show(path.name)}, after row {row:,}: {_first_line(error)}.") from error


def read_table(path: Path, root: Path, max_rows: int) -> ParquetTable:
    """Return the first ``max_rows`` of a file below ``root`` as text; class indexes become names.

    Raises UnusableSource.
    """
    with _open(path) as file:
        schema, count = file.schema_arrow, file.metadata.num_rows
    images = [name for name in schema.names if _is_image(schema.field(name).type)]
    features = _features(schema.metadata or {})
    classes = {name: names for name in schema.names if (names := _class_names(features.get(name)))}
    rows = _text_rows(path, path.relative_to(root), schema, images, classes, max_rows)
    return ParquetTable(schema.names, images, classes, rows, count <= max_rows)


def in_row_order(names: list[str]) -> list[int]:
    """Return the places of ``names`` in `ParquetImages` in the order in which reading is fast."""

    def row(place: int) -> tuple[str, int]:
        path, _, number = names[place].rpartition(":")
        return path, int(number)

    return sorted(range(len(names)), key=row)


def _text_rows(
    path: Path,
    below: Path,
    schema: Any,
    images: list[str],
    classes: Mapping[str, tuple[str, ...]],
    max_rows: int,
) -> Iterator[tuple[int, list[str]]]:
    read = [name for name in schema.names if name not in images]
    names = [classes.get(name, ()) for name in read]
    for number, row in enumerate(islice(_read_rows(path, read), max_rows), 1):
        texts = map(_as_text, row, names)
        cells = dict(zip(read, texts, strict=True)) | dict.fromkeys(images, f"{below}:{number - 1}")
        yield number, [cells.get(name, "") for name in schema.names]


def _class_names(feature: Any) -> tuple[str, ...]:
    """The names of class indexes, or of lists of them; empty for other features."""
    if isinstance(feature, list):
        return _class_names(feature[0]) if feature else ()
    if not isinstance(feature, dict):
        return ()
    names = feature.get("names")
    return tuple(map(str, names)) if isinstance(names, list) else _class_names(feature.get("feature"))


def _names_of_field(feature: Any, field: str) -> tuple[str, ...]:
    """The names of the class indexes in a field of a structure, or of a list of structures."""
    if isinstance(feature, list):
        return _names_of_field(feature[0], field) if feature else ()
    if not isinstance(feature, dict):
        return ()
    return (
        _class_names(feature[field]) if field in feature else _names_of_field(feature.get("feature"), field)
    )


def _as_text(value: Any, classes: tuple[str, ...]) -> str:
    if isinstance(value, list):
        return _list_text([_as_text(item, classes) for item in value])
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(classes):
        return classes[value]
    return cell_text(value)


def cell_text(value: Any) -> str:
    """Return a value as the text of a table's cell: truth values as 1 and 0, lists as JSON, nothing for other types."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list):
        return _list_text(list(map(cell_text, value)))
    return str(value).strip() if isinstance(value, (str, int, float)) else ""


def _list_text(items: list[str]) -> str:
    return json.dumps(items, ensure_ascii=False)


def _open(path: Path) -> Any:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UnusableSource(
            "Parquet files require the package pyarrow.", "Install it with: pip install 'digits[parquet]'"
        ) from error
    try:
        # Stream the pages of large row groups, instead of reading them whole.
        return parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False)
    except OSError as error:
        raise UnusableSource(f"{show(str(path))} cannot be read: {_first_line(error)}.") from error
    except ValueError as error:
        raise UnusableSource(f"{show(str(path))} is not a Parquet file: {_first_line(error)}.") from error


def _batches(file: Any, columns: Sequence[str], most: int = MAX_BATCH_ROWS) -> Iterator[Any]:
    """Yield batches of at most ``most`` rows that take about `BATCH_BYTES` in memory; raises UnusableSource."""
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        row = _Size()
        for index in range(group.num_columns):
            part, leaf = group.column(index), file.schema.column(index)
            if any(f"{part.path_in_schema}.".startswith(f"{name}.") for name in columns):
                row += _Size.of_row(part, leaf, group.num_rows)
        if row.mean > MAX_ROW_BYTES:
            raise UnusableSource(
                f"The rows of {listed(columns)} take {row.mean / 2**20:,.0f} MiB of memory each.",
                f"At most {MAX_ROW_BYTES >> 20} MiB are supported.",
            )
        rows = int(min(most, BATCH_BYTES / row.mean, LARGEST_BATCH_BYTES / row.largest))
        yield from file.iter_batches(
            batch_size=max(1, rows), row_groups=[number], columns=list(columns), use_threads=False
        )


@dataclass(frozen=True)
class _Size:
    """The mean size of a row in memory, and the ``largest`` possible one, in bytes.

    A value that repeats can take almost nothing in the file.
    """

    mean: float = 1.0
    largest: float = 1.0

    def __add__(self, other: _Size) -> _Size:
        return _Size(self.mean + other.mean, self.largest + other.largest)

    @classmethod
    def of_row(cls, part: Any, leaf: Any, rows: int) -> _Size:
        """Return the size of the part of a row in a column of a row group with ``rows`` rows.

        ``part`` and ``leaf`` are the metadata and the schema of the column.
        """
        values = part.num_values / max(1, rows)
        if leaf.physical_type != "BYTE_ARRAY":
            width = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else BYTES_PER_NUMBER
            return cls(values * width, values * width)
        # A column is stored in pages without, and with a dictionary, which is at most as large as all of them.
        stored = part.total_uncompressed_size
        largest = stored if part.has_dictionary_page else 0
        return cls(stored / max(1, rows), stored / max(1, rows) + values * largest)


def _is_struct(kind: Any) -> bool:
    return bool(importlib.import_module("pyarrow.types").is_struct(kind))


def _fields_of(kind: Any) -> list[str]:
    """Return the names of the fields of a structure, or of the structures in a list."""
    kind = kind.value_type if _is_list(kind) else kind
    return list(kind.names) if _is_struct(kind) else []


def _is_list(kind: Any) -> bool:
    types = importlib.import_module("pyarrow.types")
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_image(kind: Any) -> bool:
    types = importlib.import_module("pyarrow.types")
    if types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _features(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    try:
        features = load(metadata.get(b"huggingface", b"{}"))["info"]["features"]
    except (InvalidJson, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _first_line(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "its next rows need more memory than there is. Write the file with smaller values"
    return first_line_of(error)
