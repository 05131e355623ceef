"""Arrays of jobs are read as NumPy wrote them; damaged, huge and foreign files are refused before memory is allocated."""

from __future__ import annotations

import io
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from digits.core.files import UnreadableFile
from digits.data.arrays import Shape, load_array, read_array, read_blocks, read_rows

ROWS = np.array([(1, 0.5)], [("record", "<u4"), ("weight", "<f4")])
HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"


def npy(header: bytes, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.zeros((0, 5), np.float32),
        np.array(7, np.int64),
        np.array([True, False]),
        ROWS,
    ],
    ids=["rows", "columns", "empty", "scalar", "flags", "structured"],
)
def test_arrays_are_loaded_as_they_were_saved(tmp_path: Path, array: NDArray[Any]) -> None:
    np.save(tmp_path / "array.npy", array)
    found = load_array(tmp_path / "array.npy", below=tmp_path, dtype=array.dtype)
    np.testing.assert_array_equal(found, array, strict=True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"damaged",
        npy(b""),
        npy(b"(" * 9000),
        npy(HEADER, b"\0" * 23),
        npy(HEADER.replace(b"(2, 3)", b"(1000000000000,)"), b"\0" * 24),
        npy(HEADER.replace(b"(2, 3)", b"(1000000000000, 0)"), b"\0" * 24),
        npy(HEADER.replace(b"(2, 3)", b"(-2, -3)"), b"\0" * 24),
        npy(HEADER.replace(b"(2, 3)", b"2"), b"\0" * 24),
        npy(HEADER.replace(b"<f4", b"|O"), b"\0" * 48),
        npy(HEADER.replace(b"<f4", b"|V0"), b"\0" * 48),
        npy(HEADER + b" " * 20_000, b"\0" * 24),
        pickle.dumps([1.0]),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "array.npy").write_bytes(content)
    with pytest.raises(UnreadableFile, match=r"array\.npy cannot be read"):
        load_array(tmp_path / "array.npy", below=tmp_path)


def test_archives_links_and_other_types_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "several.npz", np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "link.npy").symlink_to(tmp_path / "array.npy")
    for name in ("several.npz", "link.npy"):
        with pytest.raises(UnreadableFile):
            load_array(tmp_path / name, below=tmp_path)
    with pytest.raises(UnreadableFile, match=r"got float64 \[3\]"):
        load_array(tmp_path / "array.npy", below=tmp_path, dtype=ROWS.dtype)


def test_a_huge_sparse_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    path.write_bytes(npy(HEADER.replace(b"(2, 3)", b"(900000000,)")))
    os.truncate(path, path.stat().st_size + 3_600_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableFile, match="larger than"):
            load_array(path, below=tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(4, 2), (3,), (3, None, 2), (), (2, ...)])
def test_another_shape_is_refused_before_memory_is_allocated(tmp_path: Path, shape: Shape) -> None:
    path = tmp_path / "array.npy"
    path.write_bytes(npy(HEADER.replace(b"(2, 3)", b"(100000000, 2)")))
    os.truncate(path, path.stat().st_size + 800_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableFile, match=r"got float32 \[100000000, 2\]"):
            load_array(path, below=tmp_path, shape=shape)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(2, 3), (None, 3), (2, ...), (...,), (2, 3, ...)])
def test_arrays_of_the_shape_are_read_from_files_and_memory(shape: Shape) -> None:
    file = io.BytesIO(npy(HEADER, np.arange(6, dtype="<f4").tobytes()))
    assert read_array(file, shape=shape, dtype=np.dtype(np.float32)).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_complete_rows_of_a_growing_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    path.write_bytes(npy(HEADER, np.arange(3, dtype="<f4").tobytes() + b"\0" * 5))
    (block,) = read_blocks(path, below=tmp_path, dtype=np.dtype("<f4"))
    assert block.tolist() == [[0.0, 1.0, 2.0]]
    with pytest.raises(UnreadableFile, match="shorter than its header states"):
        load_array(path, below=tmp_path)


@given(
    st.one_of(st.binary(max_size=200), st.integers(0, 200), st.text("(){}[],:'<f40123 -eFalse", max_size=60))
)
def test_random_headers_raise_only_value_errors(tmp_path_factory: pytest.TempPathFactory, drawn: Any) -> None:
    whole = npy(HEADER, b"\0" * 24)
    content = (
        whole[:drawn]
        if isinstance(drawn, int)
        else npy(drawn if isinstance(drawn, bytes) else drawn.encode())
    )
    path = tmp_path_factory.getbasetemp() / "drawn.npy"
    path.write_bytes(content)
    with path.open("rb") as file:
        try:
            read_array(file, 1000)
        except ValueError:
            pass
    path.unlink()


def test_rows_are_read_in_blocks_while_they_are_written(tmp_path: Path) -> None:
    path, rows = tmp_path / "rows.npy", np.arange(35, dtype="<f4").reshape(7, 5)
    np.save(path, rows)
    path.write_bytes(path.read_bytes()[:-7])  # the last row is incomplete
    blocks = [*read_blocks(path, below=tmp_path, dtype=rows.dtype, block_bytes=45)]
    assert [len(block) for block in blocks] == [2, 2, 2]
    np.testing.assert_array_equal(np.concatenate(blocks), rows[:6])
    for other in (rows[0], rows.astype("<f8"), np.asfortranarray(rows)):
        np.save(path, other)
        with pytest.raises(UnreadableFile, match="unexpected format"):
            next(read_blocks(path, below=tmp_path, dtype=rows.dtype))
    path.write_bytes(b"damaged")
    with pytest.raises(UnreadableFile):
        next(read_blocks(path, below=tmp_path, dtype=rows.dtype))


def test_rows_are_read_one_by_one(tmp_path: Path) -> None:
    path, rows = tmp_path / "rows.npy", np.arange(24, dtype="<f4").reshape(4, 3, 2)
    for array in (rows, rows[:, 0, 0].copy(), rows[:0]):
        np.save(path, array)
        assert [row.tolist() for row in read_rows(path, below=tmp_path)] == array.tolist()
    for other in (np.float32(1), np.asfortranarray(rows), np.array([{}])):
        np.save(path, other, allow_pickle=True)
        with pytest.raises(UnreadableFile):
            next(read_rows(path, below=tmp_path))
    path.write_bytes(npy(HEADER.replace(b"(2, 3)", b"(1, 1099511627776)"), b"\0" * 24))
    with pytest.raises(UnreadableFile, match="shorter than its header"):
        next(read_rows(path, below=tmp_path))
