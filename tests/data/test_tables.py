"""CSV files that list images: delimiters, headers, faulty rows, and splits."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from digits.data import parquet, tables
from digits.data.sources import UnusableSource
from digits.data.tables import Row


def opened(folder: Path, text: str, has_header: bool = True) -> tables.TableFile:
    path = folder / "table.csv"
    path.write_text(text)
    return tables.open_table(path, lambda cells: has_header)


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("a.png;1,5\nb.png;2,5\n", ["a.png", "1,5"]),
        ("a.png,x;y\nb.png,z;w\n", ["a.png", "x;y"]),
        ("a.png|x,y|1\nb.png|z|2\n", ["a.png", "x,y", "1"]),
        ('"a, b.png"\t1\n"c.png"\t2\n', ["a, b.png", "1"]),
        (" a.png , x \n b.png , y \n", ["a.png", "x"]),
    ],
)
def test_the_delimiter_separates_the_path_of_the_image(tmp_path: Path, text: str, cells: list[str]) -> None:
    table = opened(tmp_path, text, has_header=False)
    assert next(table.rows) == (1, cells)
    assert table.columns == [f"column {place}" for place in range(1, len(cells) + 1)]
    assert table.is_whole


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    table = opened(tmp_path, "file,,n\na.png,1,2\n")
    assert table.columns == ["file", "column 2", "n"]
    assert (table.place(""), table.place("n")) == (0, 2)
    assert (table.places([], 0), table.places(["n"], 0)) == ([1, 2], [2])
    with pytest.raises(UnusableSource, match="no column “size”"):
        table.place("size")


def test_an_unclosed_quotation_mark_is_found(tmp_path: Path) -> None:
    rest = "".join(f"{number}.png,1\n" for number in range(40))
    with pytest.raises(UnusableSource, match="line 3: the row cannot be read"):
        list(opened(tmp_path, 'file,n\na.png,1\nb.png,"1\n' + rest).rows)
    # A later quotation mark closes the cell.
    table = opened(tmp_path, 'file,n\n"b.png\nc.png",1\nd.png,1\n')
    first, second = table.parse(tmp_path, 0, lambda cells: cells[1])
    assert first.line == 2 and "“b.png…” continues on the next line" in first.fault
    assert (second.line, second.file) == (4, "d.png")


def test_rows_have_values_or_faults_with_their_lines(tmp_path: Path) -> None:
    table = opened(tmp_path, "file,n\na.png,1\n\n../b.png,2\nc.png,x\n")
    rows = list(table.parse(tmp_path, 0, lambda cells: int(cells[1])))
    assert rows[0] == Row(2, "a.png", 1, is_missing=True)
    assert [(row.line, row.value) for row in rows[1:]] == [(4, None), (5, None)]
    assert "outside the image folder" in rows[1].fault and "invalid literal" in rows[2].fault
    with pytest.raises(UnusableSource, match=r"2 lines of table.csv cannot be used: line 4: .*; line 5"):
        tables.usable_rows(rows, tables.Faults(table.path, 60))
    faults = tables.Faults(table.path, 70, "train")
    assert tables.usable_rows(rows, faults)[1] == [1]
    assert [(item.path, item.split) for item in faults.unusable] == [
        ("table.csv, line 4", "train"),
        ("table.csv, line 5", "train"),
    ]


def test_a_part_of_a_table_ends_with_a_complete_line(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("file,n\n" + "a.png,1\n" * 100)
    part = tables.open_table(path, lambda cells: True, max_bytes=50)
    assert not part.is_whole
    assert [cells for _, cells in part.rows] == [["a.png", "1"]] * 5


def test_json_lines_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "metadata.jsonl"
    items = [
        {"n": 1.5, "file_name": "a.png", "tags": ["x", "y z"]},
        {"file_name": "b.png", "good": True, "n": None, "more": {"a": 1}},
    ]
    path.write_text("\n\n".join(map(json.dumps, items)))
    table = tables.open_table(path, lambda cells: False)
    assert table.columns == ["n", "file_name", "tags", "good", "more"] and table.place("") == 1
    assert list(table.rows) == [(1, ["1.5", "a.png", "x|y z", "", ""]), (3, ["", "b.png", "", "1", ""])]


@pytest.mark.parametrize(
    ("text", "message"), [("{", "line 1, is not a JSON"), ("[1]", "line 1"), ("\n", "empty")]
)
def test_faults_of_json_lines_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "metadata.jsonl"
    path.write_text(text)
    with pytest.raises(UnusableSource, match=message):
        tables.open_table(path, lambda cells: False)


def test_a_parquet_file_is_a_table_of_its_images(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    images = [{"bytes": bytes([number]), "path": None} for number in range(3)]
    columns = {"n": [0.5, None, 2.0], "image": images, "tags": [[0, 1], [], [1]]}
    names = {"feature": {"names": ["sea", "sky"], "_type": "ClassLabel"}, "_type": "Sequence"}
    about = json.dumps({"info": {"features": {"tags": names}}})
    pq.write_table(pa.table(columns).replace_schema_metadata({"huggingface": about}), path)
    table = tables.open_table(path, lambda cells: False)
    assert table.is_whole and table.place("") == 1 and table.columns == ["n", "image", "tags"]
    rows = list(table.parse(tmp_path, 1, lambda cells: (cells[0], cells[2])))
    assert [row.value for row in rows] == [("0.5", "sea|sky"), ("", ""), ("2.0", "sky")]
    source = table.images_in(1)
    assert source is not None and [source.read(row.file) for row in rows] == [b"\0", b"\1", b"\2"]
    assert parquet.in_row_order([rows[2].file, rows[0].file]) == [1, 0]
    with pytest.raises(UnusableSource, match=r"“image” of train\.parquet contains images"):
        table.need_paths(1)


def test_a_damaged_parquet_file_is_not_a_table(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(UnusableSource, match="not a Parquet file"):
        tables.open_table(path, lambda cells: False)
