"""Searching the names of records."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.files import UnreadableFile
from digits.data.manifest import SplitRecords
from digits.data.records.index import find_names, names_path
from digits.data.records.records import ShardWriter, shard_name


def write(folder: Path, *shards: list[bytes]) -> SplitRecords:
    """Write shards of records with these source names."""
    names = [shard_name("train", number, len(shards)) for number in range(len(shards))]
    for name, sources in zip(names, shards, strict=True):
        with ShardWriter(folder / name) as writer:
            for source in sources:
                writer.add(b"payload", source=source)
    return SplitRecords(count=sum(map(len, shards)), bytes=0, shards=names)


def test_names_are_found_in_all_shards(tmp_path: Path) -> None:
    split = write(tmp_path, [b"Cats/one.JPG", b"dogs/cat.png"], [], [b"birds/1.jpg", "cats/é.jpg".encode()])
    for text, numbers in (
        ("cat", [0, 1, 3]),
        (".jpg", [0, 2, 3]),
        ("s/", [0, 1, 2, 3]),
        ("É", []),
        ("é.JPG", [3]),
        ("one.JPGdogs", []),
        ("x" * 1000, []),
    ):
        assert find_names(tmp_path, split, text).tolist() == numbers, text


@given(st.lists(st.text("aAbB/.1\n", max_size=8), max_size=30), st.text("aAbB/.1\n", min_size=1, max_size=3))
def test_a_name_is_found_if_it_contains_the_text(names: list[str], text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        split = write(Path(folder), [name.encode() for name in names])
        expected = [number for number, name in enumerate(names) if text.lower() in name.lower()]
        assert find_names(Path(folder), split, text).tolist() == expected


@pytest.mark.parametrize("data", [b"a.png\0b.p", b"a.png\0", b"a\0b\0c\0", b"", None])
def test_damaged_names_are_reported(tmp_path: Path, data: bytes | None) -> None:
    split = write(tmp_path, [b"a.png", b"b.png"])
    path = names_path(tmp_path / split.shards[0])
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UnreadableFile):
        find_names(tmp_path, split, "a")
