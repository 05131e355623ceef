"""The classes that records contain."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.files import UnreadableFile
from digits.data.manifest import SplitRecords
from digits.data.records.index import SplitIndex, classes_path, select_containing
from digits.data.records.records import ShardWriter, shard_name

CLASSES = 5
LISTS = st.lists(st.lists(st.sets(st.integers(0, CLASSES - 1)), max_size=6), max_size=4)


def write(folder: Path, *shards: list[set[int]]) -> SplitIndex:
    """Write shards of records that contain these classes."""
    names = [shard_name("train", number, len(shards)) for number in range(len(shards))]
    for name, found in zip(names, shards, strict=True):
        with ShardWriter(folder / name, lists_classes=True) as writer:
            for classes in found:
                writer.add(b"payload", classes=np.array(sorted(classes), np.int64))
    return SplitIndex(folder, SplitRecords(count=sum(map(len, shards)), bytes=0, shards=names))


@given(LISTS)
def test_records_are_selected_by_each_class_that_they_contain(shards: list[list[set[int]]]) -> None:
    records = [classes for shard in shards for classes in shard]
    with tempfile.TemporaryDirectory() as folder:
        index = write(Path(folder), *shards)
        for number in range(CLASSES):
            selected = select_containing(Path(folder), index, number, CLASSES)
            assert selected.tolist() == [number in classes for classes in records]
        without = select_containing(Path(folder), index, CLASSES, CLASSES)
        assert without.tolist() == [not classes for classes in records]


@pytest.mark.parametrize("damage", ["missing", "truncated", "of another shard"])
def test_damaged_classes_are_reported(tmp_path: Path, damage: str) -> None:
    index = write(tmp_path, [{0, 1}, {2}])
    path = classes_path(index.shards[0])
    data = path.read_bytes()
    path.unlink()
    if damage == "truncated":
        path.write_bytes(data[:-3])
    elif damage == "of another shard":
        path.write_bytes(np.array([[7, 0]], "<u4").tobytes())
    with pytest.raises(UnreadableFile, match=r"train-00000-of-00001\.classes"):
        select_containing(tmp_path, index, 0, CLASSES)


def test_shards_of_single_classes_have_no_such_file(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "train-00000-of-00001.tfrecord") as writer:
        writer.add(b"payload", 0)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".index", ".names", ".tfrecord"]
