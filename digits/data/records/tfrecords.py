"""Read TFRecord files from other programs, with one ``tf.train.Example`` per record and any features.

Files may be compressed with GZIP or ZLIB, as `tf.io.TFRecordWriter` writes them. Lengths and checksums are verified.
Memory holds one record. Records are counted from 0.
"""

from __future__ import annotations

import os
import stat
import zlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from google.protobuf.message import DecodeError

from digits.data.images.images import UnusableImage
from digits.data.records.example_pb2 import Example
from digits.data.records.features import ExampleFeatures, ImageFeature
from digits.data.records.index import CHECKSUM_BYTES, HEADER_BYTES, MAX_PAYLOAD_BYTES
from digits.data.records.records import masked_checksum
from digits.data.sources.plan import Located, UnusableSource, show

BUFFER_BYTES = 1 << 20
_LENGTH_BYTES = HEADER_BYTES - CHECKSUM_BYTES
_READ_BYTES = 64 << 10
_GZIP = b"\x1f\x8b"
# Detects the headers of GZIP and ZLIB.
_WINDOW_BITS = 32 + zlib.MAX_WBITS


class DamagedFile(UnusableSource):
    """A TFRecord file is truncated or modified, or contains something else; the message names file and record."""


class Frame(NamedTuple):
    """A record of a file: its ``number``, the position of its frame in the decompressed file, and its payload."""

    number: int
    offset: int
    payload: bytes


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end."""

    def close(self) -> None: ...


class _Inflated:
    """The decompressed contents of a file in the format GZIP, with any number of members, or ZLIB."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflater: Any = None
        self._pending = b""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; raises zlib.error and EOFError."""
        data = bytearray()
        while len(data) < size:
            packed = self._pending or self._file.read(_READ_BYTES)
            if self._inflater is None:
                if not packed:
                    break
                self._inflater = zlib.decompressobj(_WINDOW_BITS)
            part = self._inflater.decompress(packed, size - len(data))
            data += part
            self._pending = self._inflater.unconsumed_tail
            if self._inflater.eof:
                self._pending, self._inflater = self._inflater.unused_data, None
            elif not packed and not part:
                raise EOFError
        return bytes(data)

    def close(self) -> None:
        self._file.close()


def frames(path: Path) -> Iterator[Frame]:
    """Yield the records of the file ``path``; raises DamagedFile that names the record."""
    name, number, offset = show(path.name), 0, 0
    stream, size, is_compressed = _open(path)

    def damaged(fault: str, hint: str = "") -> DamagedFile:
        return DamagedFile(f"{name}, record {number:,}: {fault}.", hint)

    with closing(stream):
        try:
            while header := stream.read(HEADER_BYTES):
                if len(header) < HEADER_BYTES:
                    raise damaged(_TRUNCATED)
                length = int.from_bytes(header[:_LENGTH_BYTES], "little")
                if header[_LENGTH_BYTES:] != masked_checksum(header[:_LENGTH_BYTES]):
                    if number == 0:
                        raise DamagedFile(
                            f"{name} is not a TFRecord file.",
                            "TFRecord files may be uncompressed, or compressed with GZIP or ZLIB.",
                        )
                    raise damaged("the length does not match its checksum", _CREATE_AGAIN)
                if length > MAX_PAYLOAD_BYTES:
                    raise damaged(f"{length:,} bytes exceeds the limit of {MAX_PAYLOAD_BYTES:,} bytes")
                if not is_compressed and offset + HEADER_BYTES + length + CHECKSUM_BYTES > size:
                    raise damaged(_TRUNCATED, _CREATE_AGAIN)
                payload, checksum = stream.read(length), stream.read(CHECKSUM_BYTES)
                if len(payload) < length or len(checksum) < CHECKSUM_BYTES:
                    raise damaged(_TRUNCATED, _CREATE_AGAIN)
                if checksum != masked_checksum(payload):
                    raise damaged("the contents do not match their checksum", _CREATE_AGAIN)
                yield Frame(number, offset, payload)
                number += 1
                offset += HEADER_BYTES + length + CHECKSUM_BYTES
        except zlib.error as error:
            raise damaged("the compressed data is damaged", _CREATE_AGAIN) from error
        except EOFError as error:
            raise damaged(_TRUNCATED, _CREATE_AGAIN) from error
        except OSError as error:
            raise damaged(f"it cannot be read: {error.strerror}") from error


_TRUNCATED = "truncated: the file ends too early"
_CREATE_AGAIN = "Copy or create the file again."


def examples(path: Path) -> Iterator[tuple[Frame, ExampleFeatures]]:
    """Yield the records of the file ``path`` with their features; raises DamagedFile that names the record."""
    for frame in frames(path):
        try:
            yield frame, parse_features(frame.payload)
        except ValueError as error:
            raise DamagedFile(f"{show(path.name)}, record {frame.number:,}: {error}.") from error


def first_example(path: Path) -> ExampleFeatures | None:
    """Return the features of the first record, or None if the file is empty; raises DamagedFile."""
    records = examples(path)
    payload = next(records, None)
    records.close()  # type: ignore[attr-defined]
    return payload[1] if payload else None


def parse_features(payload: bytes) -> ExampleFeatures:
    """Return the features of a serialized Example by name; raises ValueError."""
    try:
        features: Mapping[str, Any] = Example.FromString(payload).features.feature
    except DecodeError as error:
        raise ValueError("not a tf.train.Example") from error
    if not features:
        raise ValueError("not a tf.train.Example, or it has no features")
    return features


def is_compressed(path: Path) -> bool:
    """Return whether a file is compressed, so that its records can only be read in order; raises DamagedFile."""
    stream, _, found = _open(path)
    stream.close()
    return found


def _open(path: Path) -> tuple[_Stream, int, bool]:
    """Open a regular file: its decompressed contents, its size, and whether it is compressed; raises DamagedFile."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise DamagedFile(f"{show(path.name)} is not a regular file.")
        file = open(descriptor, "rb", buffering=BUFFER_BYTES)  # noqa: SIM115 - the caller closes it
        head = file.read(HEADER_BYTES)
        file.seek(0)
    except OSError as error:
        raise DamagedFile(f"{show(str(path))} cannot be read: {error.strerror}.") from error
    # A length can look like the header of a compressed file, but then it matches its checksum.
    is_plain = head[_LENGTH_BYTES:] == masked_checksum(head[:_LENGTH_BYTES])
    is_zlib = len(head) > 1 and head[0] & 15 == zlib.DEFLATED and int.from_bytes(head[:2], "big") % 31 == 0
    if not is_plain and (head.startswith(_GZIP) or is_zlib):
        return _Inflated(file), status.st_size, True
    return file, status.st_size, False


@dataclass
class TFRecordImages(Located):
    """Images in TFRecord files below ``root``; their names are ``path:number``.

    ``offsets`` are the positions of the records of each file; those of compressed files are not used: such files are
    read in order, and a step back reads them again.
    """

    root: Path
    image: ImageFeature
    offsets: dict[str, array[int]] = field(default_factory=dict)
    compressed: set[str] = field(default_factory=set)
    _path: str = field(default="", compare=False, repr=False)
    _frames: Iterator[Frame] | None = field(default=None, compare=False, repr=False)
    _next: int = field(default=0, compare=False, repr=False)

    def add(self, path: str, frame: Frame) -> str:
        """Register a record of the file ``path``, and return its name."""
        self.offsets.setdefault(path, array("Q")).append(frame.offset)
        return f"{path}:{frame.number}"

    def read(self, name: str) -> bytes:
        return self.image.encoded(self.features(name))

    def features(self, name: str) -> ExampleFeatures:
        """Return the features of the record ``name``; raises UnusableImage and OSError."""
        path, _, number = name.rpartition(":")
        try:
            return parse_features(self._payload(path, int(number)))
        except DamagedFile as error:
            raise UnusableImage(error.message.rstrip(".")) from error
        except ValueError as error:
            raise UnusableImage(str(error)) from error

    def _payload(self, path: str, number: int) -> bytes:
        if path in self.compressed:
            return self._payload_in_order(path, number)
        offset = self.offsets[path][number]
        with open(self.root / path, "rb", buffering=0) as file:
            descriptor = file.fileno()
            length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, offset), "little")
            if length > MAX_PAYLOAD_BYTES:
                raise UnusableImage(_CHANGED)
            frame = os.pread(descriptor, length + CHECKSUM_BYTES, offset + HEADER_BYTES)
        if len(frame) < CHECKSUM_BYTES or frame[length:] != masked_checksum(frame[:length]):
            raise UnusableImage(_CHANGED)
        return frame[:length]

    def _payload_in_order(self, path: str, number: int) -> bytes:
        if self._frames is None or path != self._path or number < self._next:
            if self._frames is not None:
                self._frames.close()  # type: ignore[attr-defined]
            self._frames, self._path, self._next = frames(self.root / path), path, 0
        for frame in self._frames:
            self._next = frame.number + 1
            if frame.number == number:
                return frame.payload
        raise UnusableImage(_CHANGED)


_CHANGED = "the file was changed while it was read"
