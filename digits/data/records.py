"""Records of a dataset: TFRecord shards of ``tf.train.Example``, written and read without TensorFlow.

A shard is a sequence of frames as TensorFlow's TFRecord readers take them: the
payload's length (8 bytes), its checksum (4), the payload, its checksum (4), all
little-endian. Beside each shard lies an index, an array of `INDEX_DTYPE`, so that
record n is one read and the records of a class are found without opening the shard.

A payload is an Example with these features:

    image/encoded     bytes of the image: a PNG or JPEG file, or uint8 [height, width, channels]
    image/format      png, jpeg or raw
    image/height, image/width, image/channels, image/class/label
    image/class/text  the label's name, UTF-8
    image/filename    path of the source, relative to its folder, in the file system's bytes
"""

from __future__ import annotations

import functools
import io
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from digits.core.files import UnreadableFile, open_plain, read_bytes, sync_file
from digits.data.manifest import Split

INDEX_DTYPE = np.dtype([("offset", "<u8"), ("length", "<u4"), ("label", "<i4")])
MAX_PAYLOAD_BYTES = 256 << 20
MAX_INDEX_BYTES = 256 << 20

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_Value = TypeVar("_Value", bytes, int)
_MEDIA_TYPES = {"png": "image/png", "jpeg": "image/jpeg"}


class DamagedRecords(UnreadableFile):
    """A shard or its index is cut short, altered, or not what the manifest says."""


@dataclass(frozen=True, slots=True)
class Record:
    """One image of a dataset and what is known of it.

    ``data`` is a PNG or JPEG file, or for format ``raw`` the pixels, uint8
    [height, width, channels]. ``source`` holds the bytes of the file name.
    """

    data: bytes
    format: str
    height: int
    width: int
    channels: int
    label: int
    text: str = ""
    source: bytes = b""

    @property
    def filename(self) -> str:
        """The source's path, fit to be shown: bytes that are not UTF-8 appear as ``\\xff``."""
        return self.source.decode("utf-8", "backslashreplace")

    def as_browser_image(self) -> tuple[bytes, str]:
        """The image in a format that browsers display, and its media type; raises DamagedRecords."""
        if self.format in _MEDIA_TYPES:
            return self.data, _MEDIA_TYPES[self.format]
        from PIL import Image  # here, because most readers of records never need it

        pixels = self.as_array()
        try:
            picture = Image.fromarray(pixels[:, :, 0] if self.channels == 1 else pixels)
        except (ValueError, TypeError) as error:
            raise DamagedRecords(f"record of {self.filename!r}: {error}") from error
        file = io.BytesIO()
        picture.save(file, "PNG", compress_level=1)
        return file.getvalue(), "image/png"

    def as_array(self) -> NDArray[np.uint8]:
        """The pixels, uint8 [height, width, channels]; raises DamagedRecords."""
        shape = (self.height, self.width, self.channels)
        try:
            if self.format == "raw":
                return np.frombuffer(self.data, np.uint8).reshape(shape)
            from PIL import Image  # see as_browser_image

            with Image.open(io.BytesIO(self.data), formats=["PNG", "JPEG"]) as picture:
                return np.asarray(picture, np.uint8).reshape(shape)
        except (ValueError, OSError, SyntaxError) as error:
            raise DamagedRecords(f"record of {self.filename!r}: {error}") from error


def encode_example(record: Record) -> bytes:
    """``record`` as a serialized ``tf.train.Example``."""
    shared = _shared_features(
        record.format, record.height, record.width, record.channels, record.label, record.text
    )
    own = _bytes_feature(b"image/encoded", record.data) + _bytes_feature(b"image/filename", record.source)
    return _FIRST + _varint(len(own) + len(shared)) + own + shared


def decode_example(payload: bytes) -> Record:
    """The record in a serialized Example; raises DamagedRecords."""
    try:
        features = _features(payload)
    except (IndexError, ValueError, TypeError) as error:
        raise DamagedRecords(f"a record is not an image example: {error}") from error

    def feature(name: bytes, kind: type[_Value]) -> _Value:
        value = features.get(name)
        if not isinstance(value, kind):
            raise DamagedRecords(f"a record lacks the feature {name.decode()!r}")
        return value

    return Record(
        data=feature(b"image/encoded", bytes),
        format=feature(b"image/format", bytes).decode("ascii", "replace"),
        height=feature(b"image/height", int),
        width=feature(b"image/width", int),
        channels=feature(b"image/channels", int),
        label=feature(b"image/class/label", int),
        text=feature(b"image/class/text", bytes).decode("utf-8", "backslashreplace"),
        source=feature(b"image/filename", bytes),
    )


def shard_name(split: str, number: int, total: int) -> str:
    """File name of a split's shard, such as ``train-00000-of-00004.tfrecord``."""
    return f"{split}-{number:05d}-of-{total:05d}.tfrecord"


def index_path(shard: Path) -> Path:
    """Where the index of ``shard`` lies."""
    return shard.with_suffix(".index")


def temporary_path(path: Path) -> Path:
    """The name under which `ShardWriter` writes ``path`` until it is complete."""
    return path.with_name(f".{path.name}.tmp")


class ShardWriter:
    """Writes one shard and its index; both appear under their names at `close`.

    As a context manager it closes at the end of the block, and leaves nothing
    behind when the block raises.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[tuple[int, int, int]] = []
        self._offset = 0
        self._file: BinaryIO = open(temporary_path(path), "wb", buffering=1 << 20)  # noqa: SIM115 - close() closes it

    def add(self, payload: bytes, label: int) -> None:
        """Append an Example of class ``label``."""
        length = len(payload).to_bytes(8, "little")
        self._file.write(length + _masked_checksum(length))
        self._file.write(payload)
        self._file.write(_masked_checksum(payload))
        self._entries.append((self._offset + _HEADER.size, len(payload), label))
        self._offset += _HEADER.size + len(payload) + _CHECKSUM.size

    @property
    def size_bytes(self) -> int:
        """Bytes of the shard so far."""
        return self._offset

    def close(self) -> None:
        """Finish both files, make their contents durable, and rename them to their final names."""
        index = index_path(self.path)
        try:
            self._file.close()
            temporary_path(index).write_bytes(np.array(self._entries, INDEX_DTYPE).tobytes())
            for path in (index, self.path):
                sync_file(temporary_path(path))
                temporary_path(path).replace(path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Give up: remove what was written."""
        try:
            self._file.close()
        except OSError:
            pass  # what could not be flushed is thrown away with the rest
        for path in (self.path, index_path(self.path)):
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

    Opening reads the indexes only. Raises DamagedRecords (an UnreadableFile) when
    files are missing or do not fit together. Owns its file descriptors: use it as
    a context manager, or call `close`.
    """

    def __init__(self, job_folder: Path, split: Split) -> None:
        self._job_folder = job_folder
        self._paths = [job_folder / name for name in split.shards]
        self._files: dict[int, BinaryIO] = {}
        self._indexes = [_read_index(path, job_folder) for path in self._paths]
        self._starts = np.cumsum([0, *map(len, self._indexes)])
        if len(self) != split.count:
            raise DamagedRecords(f"the shards hold {len(self)} records, the manifest says {split.count}")

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def labels(self) -> NDArray[np.int32]:
        """The class of each record, int32 [records]."""
        if not self._indexes:
            return np.zeros(0, np.int32)
        return np.concatenate([index["label"] for index in self._indexes]).astype(np.int32)

    @property
    def shards(self) -> list[Path]:
        """The shard files, in the order of the records."""
        return list(self._paths)

    def offsets(self, shard: int) -> NDArray[Any]:
        """Where the payloads of a shard lie: an array of `INDEX_DTYPE`."""
        return self._indexes[shard]

    def read(self, number: int) -> Record:
        """Record ``number``, counted from 0; raises IndexError and DamagedRecords."""
        return decode_example(self.payload(number))

    def payload(self, number: int) -> bytes:
        """The Example bytes of record ``number``, checked against their checksum."""
        if not 0 <= number < len(self):
            raise IndexError(f"record {number} of {len(self)}")
        shard = int(np.searchsorted(self._starts, number, side="right")) - 1
        entry = self._indexes[shard][number - self._starts[shard]]
        offset, length = int(entry["offset"]), int(entry["length"])
        frame = os.pread(self._file(shard).fileno(), length + _CHECKSUM.size, offset)
        payload = frame[:length]
        if frame[length:] != _masked_checksum(payload):
            raise DamagedRecords(f"{self._paths[shard].name}: record {number} fails its checksum")
        return payload

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _file(self, shard: int) -> BinaryIO:
        if shard not in self._files:
            self._files[shard] = _open_shard(self._paths[shard], self._job_folder)
        return self._files[shard]


def _open_shard(path: Path, job_folder: Path) -> BinaryIO:
    try:
        return open_plain(path, below=job_folder)
    except UnreadableFile as error:
        raise DamagedRecords(str(error)) from error


def _read_index(shard: Path, job_folder: Path) -> NDArray[Any]:
    """The index of ``shard``, known to lie inside the shard without overlaps."""
    try:
        data = read_bytes(index_path(shard), MAX_INDEX_BYTES, below=job_folder)
    except UnreadableFile as error:
        raise DamagedRecords(str(error)) from error
    if len(data) % INDEX_DTYPE.itemsize:
        raise DamagedRecords(f"{index_path(shard).name} is cut short")
    index = np.frombuffer(data, INDEX_DTYPE)
    with _open_shard(shard, job_folder) as file:
        shard_bytes = os.fstat(file.fileno()).st_size
    # Frames lie one after the other, so the lengths alone say where each must be.
    frames = index["length"].astype(np.uint64) + np.uint64(_HEADER.size + _CHECKSUM.size)
    ends = np.cumsum(frames)
    starts = ends - frames + np.uint64(_HEADER.size)
    expected_bytes = int(ends[-1]) if len(ends) else 0
    if len(index) and int(index["length"].max()) > MAX_PAYLOAD_BYTES:
        raise DamagedRecords(
            f"{index_path(shard).name} names a record of more than {MAX_PAYLOAD_BYTES:,} bytes"
        )
    if expected_bytes != shard_bytes or not np.array_equal(starts, index["offset"]):
        raise DamagedRecords(f"{shard.name} and its index do not fit together: one is cut short or damaged")
    return index


def _masked_checksum(data: bytes) -> bytes:
    # TFRecord stores CRC-32C rotated and offset, so that the checksum of data that
    # contains checksums stays meaningful.
    value = google_crc32c.value(data)
    return _CHECKSUM.pack((((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


# The part of the protocol buffer wire format that an Example needs. A field's key is
# its number times 8 plus its wire type: 2 for length-delimited, 0 for a variable-length integer.
_FIRST, _SECOND, _THIRD = b"\x0a", b"\x12", b"\x1a"


def _varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _delimited(key: bytes, data: bytes) -> bytes:
    return key + _varint(len(data)) + data


@functools.lru_cache(maxsize=4096)
def _shared_features(format: str, height: int, width: int, channels: int, label: int, text: str) -> bytes:
    """The features that all records of a class have in common."""
    return b"".join(
        (
            _bytes_feature(b"image/format", format.encode()),
            _integer_feature(b"image/height", height),
            _integer_feature(b"image/width", width),
            _integer_feature(b"image/channels", channels),
            _integer_feature(b"image/class/label", label),
            _bytes_feature(b"image/class/text", text.encode()),
        )
    )


def _bytes_feature(name: bytes, value: bytes) -> bytes:
    return _entry(name, _delimited(_FIRST, _delimited(_FIRST, value)))


def _integer_feature(name: bytes, value: int) -> bytes:
    return _entry(name, _delimited(_THIRD, _delimited(_FIRST, _varint(value))))


def _entry(name: bytes, feature: bytes) -> bytes:
    return _delimited(_FIRST, _delimited(_FIRST, name) + _delimited(_SECOND, feature))


def _features(payload: bytes) -> dict[bytes, Any]:
    """The features of an Example, each as its first value: bytes or an integer."""
    features: dict[bytes, Any] = {}
    for number, container in _fields(payload, 0, len(payload)):
        if number != 1 or isinstance(container, int):
            continue
        for _, entry in _fields(payload, *container):
            parts = dict(_fields(payload, *entry))
            if 1 not in parts or 2 not in parts:
                raise ValueError("a feature has no name or no value")
            features[payload[slice(*parts[1])]] = _first_value(payload, *parts[2])
    return features


def _first_value(payload: bytes, start: int, end: int) -> bytes | int:
    for kind, (list_start, list_end) in _fields(payload, start, end):
        for _, value in _fields(payload, list_start, list_end):
            if kind == 1:
                return payload[slice(*value)]
            if kind == 3:
                # Writers pack integers into one field or give each its own.
                number = value if isinstance(value, int) else _read_varint(payload, value[0])[0]
                return number - (1 << 64) if number >> 63 else number
    raise ValueError("a feature has no value of a known kind")


def _fields(payload: bytes, start: int, end: int) -> Iterator[tuple[int, Any]]:
    """The fields of a message: (number, (start, end)), or (number, integer)."""
    while start < end:
        key, start = _read_varint(payload, start)
        wire_type = key & 7
        if wire_type == 2:
            length, start = _read_varint(payload, start)
            if start + length > end:
                raise ValueError("a field is longer than its message")
            yield key >> 3, (start, start + length)
            start += length
        elif wire_type == 0:
            value, start = _read_varint(payload, start)
            yield key >> 3, value
        else:
            raise ValueError("a field is of a kind that an Example does not have")


def _read_varint(payload: bytes, start: int) -> tuple[int, int]:
    value = payload[start]
    start += 1
    if value < 0x80:
        return value, start
    value &= 0x7F
    shift = 7
    while True:
        byte = payload[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, start
        shift += 7
        if shift > 63:
            raise ValueError("an integer is too long")
