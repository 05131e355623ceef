"""Archives made while they are sent, so that neither memory nor disk holds them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CHUNK_BYTES = 256 * 1024


class _Sink:
    """What the archive has written since it was last emptied. Not seekable, as a connection is not."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """Nothing is held open."""

    def take(self) -> bytes:
        data = bytes(self._written)
        self._written.clear()
        return data


def zip_stream(texts: Mapping[str, bytes], files: Sequence[Path]) -> Iterator[bytes]:
    """A zip archive, uncompressed, with ``texts`` by name and ``files`` under their own names."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, data in texts.items():
            archive.writestr(name, data)
        for path in files:
            with (
                archive.open(zipfile.ZipInfo(path.name), "w", force_zip64=True) as entry,
                open(path, "rb") as file,
            ):
                while chunk := file.read(CHUNK_BYTES):
                    entry.write(chunk)
                    yield sink.take()
    yield sink.take()
