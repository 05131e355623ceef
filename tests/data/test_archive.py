"""Archives created while they are sent."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from digits.data import archive


@pytest.mark.parametrize("ending", archive.MEDIA_TYPES)
def test_an_archive_is_streamed_completely(tmp_path: Path, ending: str) -> None:
    contents = {
        "about.json": b"{}",
        "large.bin": bytes(range(256)) * 4100,
        "odd.bin": b"x" * 777,
        "last.txt": b"end",
    }
    for name in list(contents)[1:]:
        (tmp_path / name).write_bytes(contents[name])
    files = {name: (tmp_path / name, tmp_path) for name in list(contents)[1:]}
    entries = [("about.json", contents["about.json"]), *archive.existing(files)]
    pieces = list(archive.stream(ending, entries))
    assert max(map(len, pieces)) <= 2 * archive.CHUNK_BYTES
    assert unpacked(ending, b"".join(pieces)) == contents


def unpacked(ending: str, data: bytes) -> dict[str, bytes]:
    if ending == "zip":
        bundle = zipfile.ZipFile(io.BytesIO(data))
        assert bundle.testzip() is None
        return {name: bundle.read(name) for name in bundle.namelist()}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        opened = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read() for name, file in opened.items() if file}
