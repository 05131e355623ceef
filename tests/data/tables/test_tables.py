"""CSV files that list images: delimiters, headers, faulty rows, and splits."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data.sources.plan import UnusableSource
from digits.data.tables import parquet, tables
from digits.data.tables.tables import Row


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


def test_a_table_above_the_limit_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "table.csv").open("wb") as file:
        file.truncate(tables.MAX_TABLE_BYTES + 1)
    with pytest.raises(UnusableSource, match="is larger than 512 MiB"):
        tables.open_table(tmp_path / "table.csv", lambda cells: True)


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    table = opened(tmp_path, "file,,n\na.png,1,2\n")
    assert table.columns == ["file", "column 2", "n"]
    assert (table.place(""), table.place("n")) == (0, 2)
    assert (table.places([], 0), table.places(["n"], 0)) == ([1, 2], [2])
    with pytest.raises(UnusableSource, match="no column “size”"):
        table.place("size")


@pytest.mark.parametrize(
    ("header", "columns"), [("auto", ["file", "7"]), ("yes", ["file", "7"]), ("no", None)]
)
def test_any_delimiter_and_the_header_can_be_given(
    tmp_path: Path, header: tables.Header, columns: list[str] | None
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("file^7\na.png^1.5\nb.png^-2\n")
    dialect = tables.Dialect("^", header)
    table = tables.open_table(path, lambda cells: cells[0] == "file", dialect=dialect)
    assert table.columns == (columns or ["column 1", "column 2"])
    assert [cells for _, cells in table.rows][-2:] == [["a.png", "1.5"], ["b.png", "-2"]]


def test_a_byte_order_mark_quotes_and_blank_lines_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b'\xef\xbb\xbf"my file",n\r\n\r\n"a, b.png",1\r\n')
    table = tables.open_table(path, lambda cells: True)
    assert table.columns == ["my file", "n"] and list(table.rows) == [(3, ["a, b.png", "1"])]


@given(
    rows=st.lists(
        st.tuples(
            st.text("abc-_ .,;é", min_size=1, max_size=12).filter(lambda name: name == name.strip(". ")),
            st.floats(-1e30, 1e30),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_tables_written_by_csv_writers_are_read(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    text, folder = io.StringIO(), tmp_path_factory.mktemp("table")
    csv.writer(text).writerows([["file", "n"], *rows])
    (folder / "table.csv").write_bytes(text.getvalue().encode())
    table = tables.open_table(folder / "table.csv", lambda cells: True)
    found = [(row.file, row.value) for row in table.parse(folder, 0, lambda cells: float(cells[1]))]
    assert found == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"file,n\n\xc3\xa8\xb9\xb7.png,1\n", r"table.csv, line 2, is not UTF-8"),
        (b"file,n\n\xc3\xa9.png,1\na\xe9.png,1\n", r"table.csv, line 3, is not UTF-8"),
        (b"", "is empty"),
        (b"a,b,b\nx,1,2\n", "two columns have the same name"),
        (b"file,n\n,1\n", "line 2: the path of the image is missing"),
        (b"file,n\n../a.png,1\n", "line 2: “../a.png” is outside the image folder"),
        (b"file,n\n/etc/passwd,1\n", "outside the image folder"),
        (b"file,n\nlink.png,1\n", "outside the image folder"),
        (
            b"file,n\n" + b"a.png,x\n" * 30,
            r"30 lines of table.csv cannot be used: could not convert string to float: 'x': line 2, line 3, line 4 and 27 more\.",
        ),
        (None, "cannot be read: No such file"),
    ],
)
def test_an_unusable_table_is_refused_with_its_line(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path, images = tmp_path / "table.csv", tmp_path / "images"
    if content is not None:
        path.write_bytes(content)
    images.mkdir()
    (images / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(UnusableSource, match=message):
        table = tables.open_table(path, lambda cells: True)
        tables.usable_rows(table.parse(images, 0, lambda cells: float(cells[1])), tables.Faults(path, 0))


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
    assert list(table.rows) == [
        (1, ["1.5", "a.png", '["x", "y z"]', "", ""]),
        (3, ["", "b.png", "", "1", ""]),
    ]


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
    assert [row.value for row in rows] == [("0.5", '["sea", "sky"]'), ("", "[]"), ("2.0", '["sky"]')]
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


def test_the_rule_for_the_paths_of_a_column_is_described(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(3):
        (tmp_path / "images" / f"{number}.png").touch()
    table = opened(
        tmp_path, "image,label\nimages/0.png,a\nimages\\1.png,b\nIMAGES/2.PNG,c\nimages\\3.png,d\n"
    )
    faults = tables.Faults(table.path)
    rows, _ = tables.usable_rows(table.parse(tmp_path, 0, lambda cells: cells[1]), faults)
    assert [row.file for row in rows[:3]] == [f"images/{number}.png" for number in range(3)]
    assert [row.is_missing for row in rows] == [False, False, False, True]
    assert table.remarks == [
        "2 paths of table.csv differ from those of the images, such as “images\\1.png” for images/1.png: in upper or "
        "lower case."
    ]


@pytest.mark.parametrize(
    ("text", "image", "indexes"),
    [
        (",image_id,breed\n0,a1,x\n1,b2,y\n", 1, [0]),
        ("id,filename,breed\n5,a.png,x\n7,b.png,y\n", 1, [0]),
        ("Image,Label\na,x\nb,y\n", 0, []),
        ("label,id_code\n0,a\n1,b\n", 1, []),
        ("score,path\n0,a.png\n1,b.png\n", 1, []),
        (",angle,file\n3,0,a.png\n5,1,b.png\n", 2, []),
    ],
)
def test_columns_of_images_and_of_indexes(tmp_path: Path, text: str, image: int, indexes: list[int]) -> None:
    table = opened(tmp_path, text)
    assert table.place("") == image
    assert [
        place for place in range(len(table.columns)) if place != image and table.is_index(place)
    ] == indexes
