"""Archives that are made while they are sent."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from digits import archive


def test_an_archive_arrives_in_pieces_and_whole(tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(range(256)) * 4096)
    pieces = list(archive.zip_stream({"about.json": b"{}"}, [large]))
    assert max(map(len, pieces)) <= archive.CHUNK_BYTES + 1000
    bundle = zipfile.ZipFile(io.BytesIO(b"".join(pieces)))
    assert bundle.testzip() is None
    assert bundle.read("about.json") == b"{}"
    assert bundle.read("large.bin") == large.read_bytes()
