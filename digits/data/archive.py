"""Archives created while they are sent, so that they need neither memory nor disk."""

from __future__ import annotations

import io
import os
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

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
_TAR_MODES = {"tar": "w|", "tar.gz": "w|gz", "tgz": "w|gz", "tar.bz2": "w|bz2"}


class _Sink:
    """A buffer for the output of the archive since the last `take`. Not seekable, like a connection."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is buffered elsewhere."""

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def take(self) -> bytes:
        data = bytes(self._written)
        self._written.clear()
        return data


# A file, and the folder below which links are not followed.
Source = tuple[Path, Path]


def stream(ending: str, texts: Mapping[str, bytes], files: Mapping[str, Source]) -> Iterator[bytes]:
    """Stream an archive of ``texts`` and ``files``, both keyed by their names in the archive.

    ``ending`` is one of `MEDIA_TYPES`. Missing files are skipped. Raises UnreadableFile if a
    file is not a regular file.
    """
    files = {name: (path, below) for name, (path, below) in files.items() if exists(path, below=below)}
    if ending == "zip":
        return _zip_stream(texts, files)
    return _tar_stream(_TAR_MODES[ending], texts, files)


def _zip_stream(texts: Mapping[str, bytes], files: Mapping[str, Source]) -> Iterator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, data in texts.items():
            archive.writestr(name, data)
        for name, (path, below) in files.items():
            with (
                archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as entry,
                open_plain(path, below=below) as file,
            ):
                while chunk := file.read(CHUNK_BYTES):
                    entry.write(chunk)
                    yield sink.take()
    yield sink.take()


def _tar_stream(mode: str, texts: Mapping[str, bytes], files: Mapping[str, Source]) -> Iterator[bytes]:
    sink = _Sink()
    with tarfile.open(fileobj=sink, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in texts.items():
            archive.addfile(_entry(name, len(data)), io.BytesIO(data))
        for name, (path, below) in files.items():
            # Write the content here, because `addfile` would write it all at once.
            with open_plain(path, below=below) as file:
                size = os.fstat(file.fileno()).st_size
                archive.addfile(_entry(name, size))
                while chunk := file.read(CHUNK_BYTES):
                    archive.fileobj.write(chunk)
                    yield sink.take()
            archive.fileobj.write(bytes(-size % tarfile.BLOCKSIZE))
            archive.offset += size + -size % tarfile.BLOCKSIZE
    yield sink.take()


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mtime = int(time.time())
    return entry
