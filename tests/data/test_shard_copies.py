"""Reading records through the copies of their shards."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digits.data import node_cache, records, shard_copies
from digits.data.manifest import SplitRecords
from digits.data.node_cache import NodeCache
from digits.data.records import ShardWriter, SplitReader, shard_name
from tests.waiting import wait_until

SHARDS, EACH = 3, 4
TOTAL = SHARDS * EACH
EVERY = np.arange(TOTAL)


@pytest.fixture
def split(tmp_path: Path) -> SplitRecords:
    """Three shards of four records in ``tmp_path``."""
    names, hashes = [shard_name("train", number, SHARDS) for number in range(SHARDS)], []
    for number, name in enumerate(names):
        with ShardWriter(tmp_path / name) as writer:
            for place in range(EACH):
                writer.add(payload(number * EACH + place))
        hashes.append(writer.sha256)
    return SplitRecords(count=TOTAL, bytes=0, shards=names, hashes=hashes)


def payload(number: int) -> bytes:
    return f"record {number}".encode() * (number + 1)


@pytest.fixture
def open_reader(tmp_path: Path, split: SplitRecords) -> Iterator[Callable[..., SplitReader]]:
    opened: list[SplitReader] = []

    def open_reader(limit: int = 10**6) -> SplitReader:
        cache = NodeCache(tmp_path / "cache", limit)
        opened.append(SplitReader(tmp_path, split, is_remote=True, cache=cache))
        return opened[-1]

    yield open_reader
    for reader in opened:
        reader.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "node cache"]


def copied(reader: SplitReader) -> list[int]:
    assert reader.copies
    return [place for place, shard in enumerate(reader.shards) if reader.copies.file(shard)]


def read_ahead(reader: SplitReader, *batches: Any) -> None:
    """Let a reader copy what the batches need, to the end."""
    assert reader.copies
    reader.copies.read_ahead(map(np.asarray, batches))
    wait_until(lambda: reader.copies._thread is None)


def assert_right(reader: SplitReader) -> None:
    assert reader.payloads(EVERY) == [payload(number) for number in EVERY]


def test_records_are_read_from_copies(open_reader: Any, tmp_path: Path, split: Any, caplog: Any) -> None:
    reader = open_reader()
    read_ahead(reader, EVERY)
    assert copied(reader) == [0, 1, 2]
    for name in split.shards:  # as if the other machine did not answer
        (tmp_path / name).unlink()
    assert_right(reader)
    with pytest.raises(records.DamagedRecords):  # a task that starts now cannot read the index
        open_reader()


def test_a_second_reader_uses_the_copies_of_the_first_one(
    open_reader: Any, monkeypatch: Any, caplog: Any
) -> None:
    read_ahead(open_reader(), EVERY)
    monkeypatch.setattr(node_cache, "_transfer", None)
    other = open_reader()
    read_ahead(other, EVERY)
    assert copied(other) == [0, 1, 2] and not [each for each in caplog.records if each.levelname != "INFO"]
    assert_right(other)


def test_shards_are_copied_in_the_order_of_reading(open_reader: Any, monkeypatch: Any) -> None:
    reader, order = open_reader(), []
    transfer = node_cache._transfer

    def note(source: Any, *more: Any) -> bool:
        order.append([shard.name for shard in reader.shards].index(Path(source_name(source)).name))
        return transfer(source, *more)

    monkeypatch.setattr(node_cache, "_transfer", note)
    # All records of shard 2, then one half of shard 0, less than half of shard 1, and the other half of shard 0.
    read_ahead(reader, [11, 10], [9, 8, 0, 5], [1])
    assert order == [2, 0] and copied(reader) == [0, 2]
    read_ahead(reader, [4], [5])
    assert order == [2, 0, 1]


def source_name(file: Any) -> str:
    return os.readlink(f"/proc/self/fd/{file.fileno()}")


def test_what_does_not_fit_is_read_from_the_source(
    open_reader: Any, tmp_path: Path, split: Any, caplog: Any
) -> None:
    caplog.set_level("INFO")
    sizes = [(tmp_path / name).stat().st_size for name in split.shards]
    reader = open_reader(sizes[0] + sizes[2])
    read_ahead(reader, EVERY)
    assert copied(reader) == [0, 1]
    assert_right(reader)
    other = open_reader(sizes[0] + sizes[2])  # the copies are in use
    read_ahead(other, np.flip(EVERY))
    assert copied(other) == [0, 1]
    assert [record.getMessage().startswith("2 of 3 shards of “train”") for record in caplog.records] == [
        True
    ] * 2


def test_a_damaged_copy_is_not_used(open_reader: Any, tmp_path: Path, split: Any, caplog: Any) -> None:
    reader = open_reader()
    read_ahead(reader, EVERY)
    copy = tmp_path / "cache" / split.hashes[1]
    contents = bytearray(copy.read_bytes())
    contents[-20] ^= 1
    copy.write_bytes(contents)
    assert_right(reader)
    assert copied(reader) == [0, 2] and not copy.exists()
    assert [record.getMessage() for record in caplog.records] == [
        f"The copy of {split.shards[1]} in {tmp_path / 'cache'} is damaged; the original is used."
    ]
    read_ahead(reader, EVERY)
    assert copied(reader) == [0, 1, 2]


def test_a_disk_that_fails_is_not_used_any_more(open_reader: Any, monkeypatch: Any, caplog: Any) -> None:
    transfer, calls = node_cache._transfer, []

    def fill(*arguments: Any) -> bool:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return transfer(*arguments)

    monkeypatch.setattr(node_cache, "_transfer", fill)
    reader = open_reader()
    for _ in range(2):
        read_ahead(reader, EVERY)
    assert copied(reader) == [0] and len(calls) == 2
    assert_right(reader)
    (record,) = caplog.records
    assert record.getMessage().endswith("No space left on device.")


def test_a_damaged_source_is_not_copied(open_reader: Any, tmp_path: Path, split: Any) -> None:
    shard = tmp_path / split.shards[1]
    contents = bytearray(shard.read_bytes())
    contents[-20] ^= 1
    shard.write_bytes(contents)
    reader = open_reader()
    read_ahead(reader, EVERY)
    assert copied(reader) == [0, 2]
    with pytest.raises(records.DamagedRecords, match="does not match its checksum"):
        assert_right(reader)


def test_a_reader_can_wait_for_copies(open_reader: Any, tmp_path: Path, split: Any, monkeypatch: Any) -> None:
    reader, go = open_reader(), threading.Event()
    transfer = node_cache._transfer

    def slow(*arguments: Any) -> bool:
        go.wait()
        return transfer(*arguments)

    monkeypatch.setattr(node_cache, "_transfer", slow)
    reader.copies.read_ahead([EVERY])
    assert_right(reader)  # without waiting
    assert copied(reader) == []
    go.set()
    found = [reader.copies.wait(shard) for shard in reader.shards]
    assert copied(reader) == [0, 1, 2] and not set(found) & set(reader.shards)
    assert [path.read_bytes() for path in found] == [shard.read_bytes() for shard in reader.shards]


def test_nobody_waits_for_another_process(open_reader: Any, monkeypatch: Any) -> None:
    reader = open_reader()
    monkeypatch.setattr(shard_copies, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(node_cache, "_lock_unused", lambda path: None)  # as if the parts were locked
    parts = [reader.copies._cache.folder / f"{digest}{node_cache.PART}" for digest in reader._hashes]
    for part in parts[:2]:
        part.touch()
    reader.copies.read_ahead([EVERY])
    assert [reader.copies.wait(shard) for shard in reader.shards[:2]] == reader.shards[:2]
    for part in parts[:2]:
        part.unlink()
    wait_until(lambda: copied(reader) == [0, 1, 2])


def test_several_records_of_a_network_file_system_are_read_at_the_same_time(
    tmp_path: Path, split: Any, monkeypatch: Any
) -> None:
    together, payload_of = threading.Barrier(2, timeout=60), SplitReader.payload

    def wait_for_another(self: SplitReader, number: int) -> bytes:
        together.wait()
        return payload_of(self, number)

    expected = [payload(number) for number in EVERY]
    with SplitReader(tmp_path, split, is_remote=True) as reader:
        with monkeypatch.context() as patched:
            patched.setattr(SplitReader, "payload", wait_for_another)
            assert reader.payloads(EVERY) == expected
        (tmp_path / split.shards[2]).unlink()
        with pytest.raises(records.DamagedRecords):
            SplitReader(tmp_path, split, is_remote=True)
        assert reader.payloads(np.flip(EVERY)) == expected[::-1]  # from the open files
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("records")]


def test_older_datasets_without_hashes_are_not_copied(tmp_path: Path, split: Any) -> None:
    split.hashes = []
    with SplitReader(tmp_path, split, cache=NodeCache(tmp_path / "cache")) as reader:
        assert reader.copies is None
        assert_right(reader)
