"""Archives that are created while they are sent, without buffering them in memory or on disk.

The size of an archive and the number of its files are not limited: tar archives use PAX headers, zip archives ZIP64
(https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT). Those of the standard library keep a list of all files in
memory.
"""

from __future__ import annotations

import bz2
import contextlib
import io
import os
import struct
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Protocol

from digits.core.files import exists, open_plain

CHUNK_BYTES = 256 * 1024
# The media type of each file name extension.
MEDIA_TYPES = {
    "zip": "application/zip",
    "tar": "application/x-tar",
    "tar.gz": "application/gzip",
    "tgz": "application/gzip",
    "tar.bz2": "application/x-bzip2",
}

# A file, and the folder below which links are not followed.
Source = tuple[Path, Path]
# A name in the archive, and the contents: bytes, a file of a job, or an open file from its start.
Entry = tuple[str, bytes | Source | IO[bytes]]

# The size of a temporary file that is kept in memory.
SPOOLED_BYTES = 1 << 20


def existing(files: Mapping[str, Source]) -> list[Entry]:
    """Return the entries of the ``files`` that exist; raises UnreadableFile if one is not a regular file."""
    return [(name, (path, below)) for name, (path, below) in files.items() if exists(path, below=below)]


def stream(ending: str, entries: Iterable[Entry]) -> Iterator[bytes]:
    """Stream an archive of ``entries`` in pieces of about `CHUNK_BYTES`. ``ending`` is one of `MEDIA_TYPES`."""
    if ending == "zip":
        return _joined(_zip_pieces(entries))
    return _joined(_compressed(_tar_pieces(entries), _COMPRESSORS[ending]))


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= CHUNK_BYTES:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


@contextlib.contextmanager
def as_file(content: bytes | Source | IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield the contents of an entry as an open file."""
    if isinstance(content, bytes):
        yield io.BytesIO(content)
    elif isinstance(content, tuple):
        with open_plain(content[0], below=content[1]) as file:
            yield file
    else:
        content.seek(0)
        yield content


def _size(file: IO[bytes]) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def _chunks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield ``size`` bytes of a file, zeros if it has become shorter."""
    while size > 0:
        chunk = file.read(min(CHUNK_BYTES, size)) or bytes(min(CHUNK_BYTES, size))
        size -= len(chunk)
        yield chunk


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def _gzip() -> _Compressor:
    return zlib.compressobj(wbits=16 + zlib.MAX_WBITS)


_COMPRESSORS: dict[str, Callable[[], _Compressor] | None] = {
    "tar": None,
    "tar.gz": _gzip,
    "tgz": _gzip,
    "tar.bz2": bz2.BZ2Compressor,
}


def _compressed(pieces: Iterator[bytes], new: Callable[[], _Compressor] | None) -> Iterator[bytes]:
    if new is None:
        yield from pieces
        return
    compressor = new()
    for piece in pieces:
        yield compressor.compress(piece)
    yield compressor.flush()


def _tar_pieces(entries: Iterable[Entry]) -> Iterator[bytes]:
    for name, content in entries:
        with as_file(content) as file:
            header = tarfile.TarInfo(name)
            header.size, header.mtime = _size(file), int(time.time())
            yield header.tobuf(tarfile.PAX_FORMAT)
            yield from _chunks(file, header.size)
            yield bytes(-header.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_DESCRIPTOR = struct.Struct("<4sI2Q")
_CENTRAL_HEADER = struct.Struct("<4s6H3I5H2I")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")
_UTF8_NAME, _HAS_DESCRIPTOR = 0x800, 0x8
_VERSION = 45
_UNIX = 3 << 8
_REGULAR_FILE = 0o100644 << 16
_MOST_16, _MOST_32 = 0xFFFF, 0xFFFFFFFF


def _zip_pieces(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield a zip archive of stored files. Its directory, which is at the end, is collected in a temporary file."""
    offset = count = 0
    now = time.localtime()
    day = (now.tm_year - 1980) << 9 | now.tm_mon << 5 | now.tm_mday
    times = (now.tm_hour << 11 | now.tm_min << 5 | now.tm_sec // 2, day)
    with SpooledTemporaryFile(SPOOLED_BYTES) as directory:
        for name, content in entries:
            encoded = name.encode()
            checksum, start = 0, offset
            flags, extra, sizes = _UTF8_NAME, b"", (_MOST_32, _MOST_32)
            if isinstance(content, bytes):  # simple readers require the size before the data
                checksum, sizes = zlib.crc32(content), (len(content), len(content))
            else:
                flags |= _HAS_DESCRIPTOR
                extra = struct.pack("<2H2Q", 1, 16, 0, 0)
            fields = (_VERSION, flags, 0, *times, checksum, *sizes, len(encoded), len(extra))
            header = _LOCAL_HEADER.pack(b"PK\3\4", *fields) + encoded + extra
            yield header
            with as_file(content) as file:
                size = _size(file)
                for chunk in _chunks(file, size):
                    checksum = zlib.crc32(chunk, checksum) if flags & _HAS_DESCRIPTOR else checksum
                    yield chunk
            offset += len(header) + size
            if flags & _HAS_DESCRIPTOR:
                yield _DESCRIPTOR.pack(b"PK\7\10", checksum, size, size)
                offset += _DESCRIPTOR.size
            directory.write(_central_header(encoded, flags, times, checksum, size, start))
            count += 1
        length = _size(directory)
        yield from _chunks(directory, length)
    if count >= _MOST_16 or max(length, offset) >= _MOST_32:
        versions = (_UNIX | _VERSION, _VERSION)
        yield _END64.pack(b"PK\6\6", _END64.size - 12, *versions, 0, 0, count, count, length, offset)
        yield _LOCATOR64.pack(b"PK\6\7", 0, offset + length, 1)
    counts = (min(count, _MOST_16),) * 2
    yield _END.pack(b"PK\5\6", 0, 0, *counts, min(length, _MOST_32), min(offset, _MOST_32), 0)


def _central_header(
    name: bytes, flags: int, times: tuple[int, int], checksum: int, size: int, start: int
) -> bytes:
    extra, place = b"", (size, size, start)
    if max(place) >= _MOST_32:
        extra, place = struct.pack("<2H3Q", 1, 24, *place), (_MOST_32,) * 3
    versions = (_UNIX | _VERSION, _VERSION)
    lengths = (len(name), len(extra), 0, 0, 0)
    packed = _CENTRAL_HEADER.pack(
        b"PK\1\2", *versions, flags, 0, *times, checksum, *place[:2], *lengths, _REGULAR_FILE, place[2]
    )
    return packed + name + extra
