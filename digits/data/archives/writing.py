"""Archives that are created while they are sent, without buffering them in memory or on disk.

The size of an archive and the number of its files are not limited: tar archives use PAX headers, zip archives ZIP64.
While a zip archive is sent, memory holds about half a kilobyte for each of its files.
"""

from __future__ import annotations

import bz2
import contextlib
import io
import os
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

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
_REGULAR_FILE = 0o100644 << 16


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
def _opened(content: bytes | Source | IO[bytes]) -> Iterator[IO[bytes]]:
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
        with _opened(content) as file:
            header = tarfile.TarInfo(name)
            header.size, header.mtime = _size(file), int(time.time())
            yield header.tobuf(tarfile.PAX_FORMAT)
            yield from _chunks(file, header.size)
            yield bytes(-header.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


class _Sink(io.RawIOBase):
    """Collects what is written, until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._pieces += data
        return len(data)

    def take(self) -> bytes:
        """Return what was written since the last call."""
        taken = bytes(self._pieces)
        self._pieces.clear()
        return taken


def _zip_pieces(entries: Iterable[Entry]) -> Iterator[bytes]:
    sink, now = _Sink(), time.localtime()[:6]
    with zipfile.ZipFile(sink, "w") as bundle:
        for name, content in entries:
            header = zipfile.ZipInfo(name, now)
            header.external_attr = _REGULAR_FILE
            with _opened(content) as file, bundle.open(header, "w", force_zip64=True) as target:
                for chunk in _chunks(file, _size(file)):
                    target.write(chunk)
                    yield sink.take()
    yield sink.take()
