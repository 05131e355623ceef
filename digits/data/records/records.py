"""Records of a dataset: TFRecord shards of ``tf.train.Example``, written and read without TensorFlow.

A shard is a sequence of frames in the TFRecord format: the payload's length
(8 bytes), its checksum (4), the payload, its checksum (4), all little-endian.
Each shard has an index, an array of `INDEX_DTYPE`, so that reading record n is one
read and the records of a group (a class, for instance) are found without opening the shard. The names
of its sources, and the classes if records can contain several, are in further files beside it; see
`digits.data.records.index`.

A payload is an Example with these features:

    image/encoded   bytes of the image: a PNG or JPEG file, or uint8 [height, width, channels]; for an array of
                    numbers float32 [height, width, channels], little-endian
    image/format    png, jpeg, raw, or float32
    image/height, image/width, image/channels   pixels
    image/filename  path of the source, relative to its folder, in the file system's bytes
    image/source/width, image/source/height   pixels of the source before it was resized
    image/source/mode                         Pillow mode of the source, such as RGB, L, P or CMYK

and those of the dataset's kind: any number of named lists of bytes, integers (int64) or
floats (float32), such as ``image/class/label``.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Self, TypeVar, cast

import google_crc32c
import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from digits.core.files import sync_file
from digits.data.manifest import FILE_NAME as MANIFEST_FILE
from digits.data.manifest import SplitRecords
from digits.data.records.example_pb2 import Example, Feature
from digits.data.records.index import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    INDEX_DTYPE,
    DamagedRecords,
    SplitIndex,
    classes_path,
    index_path,
    join_names,
    names_path,
    open_shard,
    pack_classes,
)
from digits.data.targets.target import Features as Features
from digits.data.targets.target import Target

# Records of a network file system that are read at the same time: each waits for an answer of the other machine.
READERS = 16

_Value = TypeVar("_Value", bytes, int)
_IMAGE_FEATURES = frozenset(
    (
        "image/encoded image/format image/height image/width image/channels image/filename image/source/width "
        "image/source/height image/source/mode"
    ).split()
)
_MAX_INT64 = (1 << 63) - 1
_MEDIA_TYPES = {"png": "image/png", "jpeg": "image/jpeg"}


class Record(msgspec.Struct, frozen=True):
    """An image and its features.

    ``data`` is a PNG or JPEG file, for the format ``raw`` the pixels, uint8 [height, width, channels], or for
    ``float32`` an array of numbers of this shape.
    ``features`` are those of the dataset's kind, such as the label. ``source`` contains the bytes of the file name.
    ``source_size`` is the width and height of the source, and ``source_mode`` its Pillow mode, if they are known.
    """

    data: bytes
    format: str
    height: int
    width: int
    channels: int
    features: Features = {}
    source: bytes = b""
    source_size: tuple[int, int] = (0, 0)
    source_mode: str = ""

    @property
    def filename(self) -> str:
        """The source's path for display: bytes that are not UTF-8 appear as ``\\xff``."""
        return self.source.decode("utf-8", "backslashreplace")

    def as_browser_image(self) -> tuple[bytes, str]:
        """Return the image in a format that browsers display, and its media type; raises DamagedRecords.

        Images that are stacked along the channels are shown side by side. An array is scaled to its own range.
        """
        if self.format in _MEDIA_TYPES:
            return self.data, _MEDIA_TYPES[self.format]
        from digits.data.images import images  # imported late: most readers of records do not need it

        return images.encode(self._as_shown(), "png"), "image/png"

    def as_thumbnail(self, side: int) -> bytes:
        """Return the image as a JPEG file whose sides are at most ``side`` pixels; raises DamagedRecords."""
        from digits.data.images import images  # see as_browser_image

        if self.format not in _MEDIA_TYPES:
            return images.thumbnail(images.as_image(self._as_shown()), side)
        try:
            with images.open_limited(self.data, ["PNG", "JPEG"]) as picture:
                return images.thumbnail(picture, side)
        except (ValueError, OSError, SyntaxError) as error:
            raise DamagedRecords(f"record of {self.filename!r}: {error}") from error

    def _as_shown(self) -> NDArray[np.uint8]:
        """Return the pixels for display, uint8 [height, width, 1 or 3]; raises DamagedRecords."""
        from digits.data.images import images  # see as_browser_image

        try:
            pixels = images.side_by_side(self.as_pixels())
        except (ValueError, TypeError) as error:
            raise DamagedRecords(f"record of {self.filename!r}: {error}") from error
        # A vector is one pixel high.
        return np.repeat(pixels, max(1, pixels.shape[1] // 8), axis=0) if len(pixels) == 1 else pixels

    def target(self, spec: Target) -> Any:
        """Return the target that ``spec`` describes: a number, or an array as it is decoded for training.

        Raises DamagedRecords if the record has no such target.
        """
        values = self.features.get(spec.feature, [])
        try:
            return spec.decode(values)
        except (ValueError, TypeError, IndexError, OSError, SyntaxError) as error:
            raise DamagedRecords(f"record of {self.filename!r} has no target: {error}") from error

    def as_pixels(self) -> NDArray[np.uint8]:
        """Return the pixels, uint8 [height, width, channels]; an array is scaled. Raises DamagedRecords."""
        from digits.data.images import images  # see as_browser_image

        array = self.as_array()
        return images.scale_to_pixels(array) if self.format == "float32" else array

    def as_array(self) -> NDArray[Any]:
        """Decode the pixels, uint8 [height, width, channels], or the array, float32; raises DamagedRecords."""
        shape = (self.height, self.width, self.channels)
        try:
            if self.format == "float32":
                return np.frombuffer(self.data, "<f4").reshape(shape)
            if self.format == "raw":
                return np.frombuffer(self.data, np.uint8).reshape(shape)
            from digits.data.images.limits import open_limited  # see as_browser_image

            with open_limited(self.data, ["PNG", "JPEG"]) as picture:
                return np.asarray(picture, np.uint8).reshape(shape)
        except (ValueError, OSError, SyntaxError) as error:
            raise DamagedRecords(f"record of {self.filename!r}: {error}") from error


def encode_example(record: Record) -> bytes:
    """Serialize ``record`` as a ``tf.train.Example``; raises TypeError for a feature of mixed types."""
    # Concatenated messages are merged when they are parsed.
    return b"".join(
        (
            *_serialized_parts(_own_features(record)),
            _serialize_shared(record.format, record.height, record.width, record.channels),
            _serialize_source(record.source_size, record.source_mode),
        )
    )


def all_features(record: Record) -> Features:
    """Return the features of the Example of ``record``."""
    return {
        **_own_features(record),
        **_shared_features(record.format, record.height, record.width, record.channels),
        **_source_features(record.source_size, record.source_mode),
    }


def _own_features(record: Record) -> Features:
    return {"image/encoded": [record.data], "image/filename": [record.source], **record.features}


@functools.lru_cache
def _serialize_shared(format_name: str, height: int, width: int, channels: int) -> bytes:
    """Serialize the features that are the same for all records of a dataset."""
    return serialize(_shared_features(format_name, height, width, channels))


@functools.lru_cache(maxsize=4096)
def _serialize_source(size: tuple[int, int], mode: str) -> bytes:
    """Serialize the features of a source; many sources of a dataset have the same size and mode."""
    return serialize(_source_features(size, mode))


def _source_features(size: tuple[int, int], mode: str) -> Features:
    if not mode:
        return {}
    return {
        "image/source/width": [size[0]],
        "image/source/height": [size[1]],
        "image/source/mode": [mode.encode()],
    }


def _shared_features(format_name: str, height: int, width: int, channels: int) -> Features:
    return {
        "image/format": [format_name.encode()],
        "image/height": [height],
        "image/width": [width],
        "image/channels": [channels],
    }


def serialize(features: Features) -> bytes:
    """Return an Example of ``features``."""
    return b"".join(_serialized_parts(features))


def _serialized_parts(features: Features) -> list[bytes]:
    """Serialize an Example of ``features`` in parts, without copying images; single values without protobuf."""
    parts: list[bytes] = [b""]
    others: dict[str, Sequence[Any]] = {}
    for name, values in features.items():
        value = values[0] if len(values) == 1 else None
        if type(value) is bytes:
            parts += (_entry_head(name, len(value)), value)
        elif type(value) is int and 0 <= value <= _MAX_INT64:
            parts.append(_integer_entry(name, value))
        else:
            others[name] = values
    if len(parts) > 1:
        parts[0] = b"\n" + _varint(sum(map(len, parts)))
    if others:
        parts.append(_serialize_by_protobuf(others))
    return parts


@functools.lru_cache(maxsize=16384)
def _entry_head(name: str, size: int) -> bytes:
    """Serialize an entry of `Features` with a list of one string of ``size`` bytes, up to this string."""
    head = b"\n" + _varint(size)
    head = b"\n" + _varint(len(head) + size) + head
    head = _key(name) + _varint(len(head) + size) + head
    return b"\n" + _varint(len(head) + size) + head


@functools.lru_cache(maxsize=4096)
def _integer_entry(name: str, value: int) -> bytes:
    """Serialize an entry of `Features` with a list of one integer."""
    number = _varint(value)
    numbers = b"\n" + _varint(len(number)) + number
    feature = b"\x1a" + _varint(len(numbers)) + numbers
    entry = _key(name) + _varint(len(feature)) + feature
    return b"\n" + _varint(len(entry)) + entry


@functools.lru_cache
def _key(name: str) -> bytes:
    """Serialize the key of an entry and the tag of its value."""
    key = name.encode()
    return b"\n" + _varint(len(key)) + key + b"\x12"


@functools.lru_cache(maxsize=16384)
def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _serialize_by_protobuf(features: Mapping[str, Sequence[Any]]) -> bytes:
    example = Example()
    entries = example.features.feature
    for name, values in features.items():
        first = next(iter(values), 0)
        if isinstance(first, bytes):
            entries[name].bytes_list.value.extend(values)
        elif isinstance(first, (int, np.integer)):
            entries[name].int64_list.value.extend(values)
        else:
            entries[name].float_list.value.extend(values)
    return bytes(example.SerializeToString(deterministic=True))


def decode_example(payload: bytes) -> Record:
    """Parse a serialized Example; raises DamagedRecords."""
    try:
        return record_of(Example.FromString(payload).features.feature)
    except DecodeError as error:
        raise DamagedRecords("a record is not an image example") from error


def record_of(features: Mapping[str, Feature]) -> Record:
    """Return the record with the ``features`` of an Example; raises DamagedRecords if some are missing."""
    contents = {name: _values(feature) for name, feature in features.items()}

    def only(name: str, type_: type[_Value]) -> _Value:
        values = contents.get(name, [])
        if len(values) != 1 or not isinstance(values[0], type_):
            raise DamagedRecords(f"a record lacks the feature {name!r}")
        return values[0]

    return Record(
        data=only("image/encoded", bytes),
        format=only("image/format", bytes).decode("ascii", "replace"),
        height=only("image/height", int),
        width=only("image/width", int),
        channels=only("image/channels", int),
        source=only("image/filename", bytes),
        source_size=(_first(contents, "image/source/width", 0), _first(contents, "image/source/height", 0)),
        source_mode=_first(contents, "image/source/mode", b"").decode("ascii", "replace"),
        features={name: contents[name] for name in sorted(contents) if name not in _IMAGE_FEATURES},
    )


def _first(features: Mapping[str, list[Any]], name: str, default: _Value) -> _Value:
    """Return the only value of an optional feature."""
    values = features.get(name, [])
    return values[0] if len(values) == 1 and isinstance(values[0], type(default)) else default


def _values(feature: Feature) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return getattr(feature, kind).value[:] if kind else []  # copies without iterating in Python


def shard_name(split: str, number: int, total: int) -> str:
    """Return the file name of a shard, such as ``train-00000-of-00004.tfrecord``."""
    return f"{split}-{number:05d}-of-{total:05d}.tfrecord"


def temporary_path(path: Path) -> Path:
    """Return the name under which `ShardWriter` writes ``path`` until it is complete."""
    return path.with_name(f".{path.name}.tmp")


class ShardWriter:
    """Writes one shard, its index, the names of its sources and, if it ``lists_classes``, those of each record.

    All files appear under their names at `close`. As a context manager, it closes at the end of the block, and removes
    its files if the block raises.
    """

    def __init__(self, path: Path, *, lists_classes: bool = False) -> None:
        self.path = path
        self._entries: list[tuple[int, int, int]] = []
        self._names: list[bytes] = []
        self._classes: list[NDArray[np.int64]] | None = [] if lists_classes else None
        self._offset = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO = open(temporary_path(path), "wb", buffering=1 << 20)  # noqa: SIM115 - close() closes it

    def add(
        self, payload: bytes, group: int = -1, source: bytes = b"", classes: NDArray[np.int64] | None = None
    ) -> None:
        """Append an Example of the group with index ``group``, the name of its ``source``, and its ``classes``."""
        frame = _frame(payload)
        self._file.write(frame)
        self._hash.update(frame)
        self._entries.append((self._offset + HEADER_BYTES, len(payload), group))
        self._names.append(source)
        if self._classes is not None and classes is not None:
            self._classes.append(classes)
        self._offset += HEADER_BYTES + len(payload) + CHECKSUM_BYTES

    @property
    def size_bytes(self) -> int:
        """Size of the shard so far, in bytes."""
        return self._offset

    @property
    def sha256(self) -> str:
        """The SHA-256 hash of the shard so far, in hexadecimal."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Finish the files, make their contents durable, and rename them to their final names."""
        beside = {
            index_path(self.path): np.array(self._entries, INDEX_DTYPE).tobytes(),
            names_path(self.path): join_names(self._names),
        }
        if self._classes is not None:
            beside[classes_path(self.path)] = pack_classes(self._classes)
        try:
            self._file.close()
            for path, data in beside.items():
                temporary_path(path).write_bytes(data)
            for path in (*beside, self.path):
                sync_file(temporary_path(path))
                temporary_path(path).replace(path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Discard what was written."""
        try:
            self._file.close()
        except OSError:
            pass  # unflushed data is discarded with the rest
        for path in (self.path, index_path(self.path), names_path(self.path), classes_path(self.path)):
            temporary_path(path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class SplitReader:
    """Random and bulk access to the records of a split, in the order of its shards.

    Opening reads only the indexes, unless they are given as ``index``. Raises DamagedRecords (an UnreadableFile) if
    files are missing or inconsistent. Owns its file descriptors: use it as a context manager, or call `close`.

    If the folder is on a network file system (``is_remote``), `payloads` reads several records at the same time.
    """

    def __init__(
        self,
        job_folder: Path,
        split: SplitRecords,
        index: SplitIndex | None = None,
        *,
        is_remote: bool = False,
    ) -> None:
        self.index = index or SplitIndex(job_folder, split)
        self._job_folder = job_folder
        self._hashes = split.hashes
        self._files: dict[Path, BinaryIO] = {}
        self._opening = threading.Lock()
        self._pool = ThreadPoolExecutor(READERS, "records") if is_remote else None

    def __len__(self) -> int:
        return len(self.index)

    @property
    def groups(self) -> NDArray[np.int32]:
        """The group of each record, int32 [records]; -1 for none."""
        return self.index.groups

    @property
    def shards(self) -> list[Path]:
        """The shard files, in the order of the records."""
        return list(self.index.shards)

    def offsets(self, shard: int) -> NDArray[Any]:
        """Return the positions of the payloads of a shard: an array of `INDEX_DTYPE`."""
        return self.index.entries[shard]

    def read(self, number: int) -> Record:
        """Return record ``number``, counted from 0; raises IndexError and DamagedRecords."""
        return decode_example(self.payload(number))

    def payload(self, number: int) -> bytes:
        """Return the Example bytes of record ``number``, verified against their checksum."""
        shard, offset, length = self.index.locate(number)
        frame = os.pread(self._file(shard).fileno(), length + CHECKSUM_BYTES, offset)
        payload = frame[:length]
        if frame[length:] != masked_checksum(payload):
            raise DamagedRecords(f"{shard.name}: record {number} does not match its checksum")
        return payload

    def payloads(self, numbers: NDArray[np.int64]) -> list[bytes]:
        """Return the Example bytes of several records, as `payload` does."""
        each = map(int, numbers)
        if self._pool is None:
            return [self.payload(number) for number in each]
        return list(self._pool.map(self.payload, each))

    def verify(self, shard: int) -> None:
        """Compare a shard with its SHA-256 hash in the manifest, if there is one; raises DamagedRecords."""
        if shard >= len(self._hashes):
            return
        path = self.index.shards[shard]
        # Processes that were forked share the positions of open files.
        with open_shard(path, self._job_folder) as file:
            digest = hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()
        if digest != self._hashes[shard]:
            raise DamagedRecords(f"{path.name} does not match its SHA-256 hash in {MANIFEST_FILE}")

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _file(self, shard: Path) -> BinaryIO:
        if shard not in self._files:
            with self._opening:
                if shard not in self._files:
                    self._files[shard] = open_shard(shard, self._job_folder)
        return self._files[shard]


def write_frame(file: IO[bytes], payload: bytes) -> None:
    """Append an Example to a shard without an index."""
    file.write(_frame(payload))


def _frame(payload: bytes) -> bytes:
    length = len(payload).to_bytes(8, "little")
    return b"".join((length, masked_checksum(length), payload, masked_checksum(payload)))


def masked_checksum(data: bytes) -> bytes:
    """Return the checksum of ``data`` as TFRecord files store it: 4 bytes, little-endian."""
    # TFRecord stores masked CRC-32C values: rotated and offset, so that the checksum of data that contains
    # checksums remains meaningful.
    value: int = google_crc32c.value(data)
    return ((((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(CHECKSUM_BYTES, "little")
