"""Reading of LMDB files, also damaged ones."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import lmdb
import pytest

from digits.data.databases.lmdb_file import LmdbFile, UnusableDatabase


def records_of(path: Path, below: Path | None = None) -> list[tuple[bytes, bytes]]:
    """Return all records of a file, whose number must be right."""
    with LmdbFile(path, below) as file:
        records = list(file.records())
        assert len(records) == file.count
        return records


def write(folder: Path, records: dict[bytes, bytes]) -> Path:
    """Write ``records`` with LMDB itself, in two transactions; return the path of the file."""
    with lmdb.open(str(folder), map_size=1 << 28) as database:
        for part in (list(records.items())[::2], list(records.items())[1::2]):
            with database.begin(write=True) as transaction:
                for key, value in part:
                    transaction.put(key, value)
    return folder / "data.mdb"


def some_records(count: int) -> dict[bytes, bytes]:
    generator = random.Random(1)
    sizes = (0, 3, 300, 900, 1500, 5000, 40_000)
    return {
        f"{number:08d}_{number % 7}".encode(): generator.randbytes(sizes[number % 7])
        for number in range(count)
    }


@pytest.mark.parametrize("count", [0, 1, 2, 50, 3000])
def test_records_are_read_in_order(tmp_path: Path, count: int) -> None:
    records = some_records(count)
    assert records_of(write(tmp_path / "db", records)) == sorted(records.items())


def test_deleted_records_are_gone(tmp_path: Path) -> None:
    records = some_records(500)
    path = write(tmp_path / "db", records)
    with lmdb.open(str(path.parent), map_size=1 << 28) as database, database.begin(write=True) as transaction:
        for key in list(records)[100:400]:
            transaction.delete(key)
            del records[key]
    assert dict(records_of(path)) == records


def test_reading_neither_locks_nor_writes(tmp_path: Path) -> None:
    path = write(tmp_path / "db", some_records(50))
    (path.parent / "lock.mdb").unlink()
    before = path.read_bytes()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert len(records_of(path)) == 50
        assert os.listdir(path.parent) == ["data.mdb"] and path.read_bytes() == before
    finally:
        path.parent.chmod(0o755)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"not a database", "not an LMDB file"),
        (b"\x89HDF\r\n" + bytes(9000), "not an LMDB file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "data.mdb"
    path.write_bytes(content)
    with pytest.raises(UnusableDatabase, match=message):
        records_of(path)


def test_links_and_pipes_are_not_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "db", some_records(5))
    (tmp_path / "link.mdb").symlink_to(path)
    os.mkfifo(tmp_path / "pipe.mdb")
    (tmp_path / "linked").symlink_to(path.parent)
    for name, message in (
        ("link.mdb", "is a link"),
        ("pipe.mdb", "not a regular file"),
        ("linked/data.mdb", r"link|cannot be opened"),
    ):
        with pytest.raises(UnusableDatabase, match=message):
            records_of(tmp_path / name, below=tmp_path if "/" in name else None)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused_with_both_sizes(tmp_path: Path, share: float) -> None:
    path = write(tmp_path / "db", some_records(500))
    size = path.stat().st_size
    os.truncate(path, int(size * share))
    with pytest.raises(
        UnusableDatabase, match=rf"truncated: it contains {int(size * share):,} of {size:,} bytes"
    ):
        records_of(path)


def test_another_version_of_the_format_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "db", some_records(5))
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 20, 2)
    path.write_bytes(data)
    with pytest.raises(UnusableDatabase, match="version 2 of the LMDB format"):
        records_of(path)


def test_damage_anywhere_ends_in_a_message(tmp_path: Path) -> None:
    records = some_records(120)
    path = write(tmp_path / "db", records)
    whole = path.read_bytes()
    generator = random.Random(2)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole)
        # In the heads of pages: the values of records have no checksums.
        page = generator.randrange(len(whole) // 4096) * 4096
        for _ in range(generator.choice((1, 8))):
            damaged[page + generator.randrange(48)] = generator.randrange(256)
        path.write_bytes(damaged)
        try:
            records_of(path)
        except UnusableDatabase:
            refused += 1
    assert refused > 20


def test_pages_that_form_a_circle_are_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "db", some_records(3000))
    data = bytearray(path.read_bytes())
    for start in range(8192, len(data), 4096):
        number, _, flags, lower, _ = struct.unpack_from("<QHHHH", data, start)
        if flags & 1 and number == start // 4096:  # a branch: all its nodes lead back to it
            for place in struct.unpack_from(f"<{(lower - 16) // 2}H", data, start + 16):
                struct.pack_into("<IH", data, start + place, number, 0)
    path.write_bytes(data)
    with pytest.raises(UnusableDatabase, match="pages are damaged"):
        records_of(path)


def test_a_change_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "db", some_records(3000))
    with LmdbFile(path) as file:
        items = file.records()
        next(items)
        with lmdb.open(str(path.parent), map_size=1 << 28) as database, database.begin(write=True) as changes:
            for key in some_records(1500):
                changes.put(key, b"other" * 100)
        with pytest.raises(UnusableDatabase, match="changed while it was read"):
            list(items)
