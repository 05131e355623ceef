"""The memory that reading Parquet files takes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from digits.data.sources.plan import UnusableSource
from digits.data.tables import parquet
from digits.data.tables.parquet import ParquetImages

ROWS = 20_000
TEXT = "x" * 9000


@pytest.fixture
def repeated(tmp_path: Path) -> Path:
    """A file of a few kilobytes, whose columns take 180 MB each: a text, the same in each row, in three types."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), [TEXT])
    lists = pa.ListArray.from_arrays(pa.array(np.arange(ROWS + 1, dtype=np.int32)), texts)
    data = pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), [TEXT.encode()])
    images = pa.StructArray.from_arrays([data], ["bytes"])
    path = tmp_path / "a.parquet"
    # Without Arrow's schema, the columns are read as texts and bytes.
    pq.write_table(pa.table({"text": texts, "list": lists, "image": images}), path, store_schema=False)
    assert path.stat().st_size < 10_000
    return path


def largest(steps: Iterable[object]) -> tuple[int, int]:
    """Return the number of steps, and the most bytes that Arrow had allocated after one of them."""
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for _ in steps:
        count, most = count + 1, max(most, pa.total_allocated_bytes() - before)
    return count, most


@pytest.mark.slow
def test_values_that_repeat_are_read_in_small_batches(repeated: Path) -> None:
    images = ParquetImages(repeated.parent, "image")
    readers: dict[str, Iterable[object]] = {
        "table": parquet.read_table(repeated, repeated.parent, ROWS).rows,
        "values": parquet.values(repeated, "list"),
        "images": (images.read(f"a.parquet:{row}") for row in range(ROWS)),
    }
    for name, steps in readers.items():
        count, most = largest(steps)
        assert count == ROWS and most < 2 * parquet.LARGEST_BATCH_BYTES, f"{name}: {most:,} bytes"


def test_a_row_that_takes_too_much_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_ROW_BYTES", 4 << 20)
    path = tmp_path / "a.parquet"
    values = pa.array(np.zeros((4 << 20) // parquet.BYTES_PER_NUMBER + 1, np.int8))
    rows = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    pq.write_table(pa.table({"zeros": rows}), path)
    assert path.stat().st_size < 10_000
    with pytest.raises(UnusableSource, match="rows of zeros take 4 MiB of memory each"):
        next(iter(parquet.values(path, "zeros")))
