"""Archives created while they are sent."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from digits.data.archives import unpacking
from digits.data.archives import writing as archive


@pytest.mark.slow
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


def test_an_archive_can_be_uploaded_again(tmp_path: Path) -> None:
    entries = [("a/é.txt", b"1"), ("a/b/large.bin", b"2" * 300_000), ("a/empty", b"")]
    limits = unpacking.Limits(max_bytes=1_000_000, max_files=10, max_ratio=100, spare_bytes=0)
    for ending in ("zip", "tar", "tar.gz"):
        path = tmp_path / f"archive.{ending}"
        path.write_bytes(b"".join(archive.stream(ending, entries)))
        unpacking.unpack(path, tmp_path / f"{ending}-files", limits)
        assert {name: (tmp_path / f"{ending}-files" / name).read_bytes() for name, _ in entries} == dict(
            entries
        )


@pytest.mark.slow
def test_an_archive_can_contain_more_files_than_zip_counts() -> None:
    count = 70_000
    data = b"".join(archive.stream("zip", ((f"{number}", b"") for number in range(count))))
    assert len(zipfile.ZipFile(io.BytesIO(data)).namelist()) == count


def unpacked(ending: str, data: bytes) -> dict[str, bytes]:
    if ending == "zip":
        bundle = zipfile.ZipFile(io.BytesIO(data))
        assert bundle.testzip() is None
        return {name: bundle.read(name) for name in bundle.namelist()}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        opened = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read() for name, file in opened.items() if file}
