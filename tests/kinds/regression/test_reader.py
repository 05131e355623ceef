"""Tables of images and numbers: columns, shards, splits, ranges, and errors with line numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data.sources.plan import Plan, Progress, Remark, UnusableSource
from digits.data.tables.tables import MAX_TABLE_BYTES, SourceNotes
from digits.kinds.regression import reader
from digits.kinds.regression.recipe import CreateRegression
from tests.kinds.tables import one_file, write


def table(folder: Path, text: str | bytes, **options: Any) -> Any:
    recipe = CreateRegression(table="numbers.csv", max_unusable_percent=0, **options)
    source = one_file(write(folder, text), folder)
    opened = reader.open_numbers(recipe, source, MAX_TABLE_BYTES)
    rows, values = source.usable_rows(opened, recipe, "train", Progress(), SourceNotes())
    return SimpleNamespace(
        names=opened.names, files=[row.file for row in rows], values=np.array(values, np.float64)
    )


def plan(folder: Path, text: str, **options: object) -> Plan:
    recipe = CreateRegression(table=str(write(folder, text)), folder=str(folder), **options)  # type: ignore[arg-type]
    return reader.read(recipe, Progress())


def test_the_images_of_a_parquet_file_keep_its_order(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"image": [b"x"] * 20, "n": range(20)}), path)
    made = reader.read(CreateRegression(table=str(path), folder=str(tmp_path), seed=1), Progress())
    train, val = made.splits["train"], made.splits["val"]
    assert [len(train), len(val)] == [15, 5]
    assert [f"train.parquet:{target[0]:.0f}" for target in train.targets] == train.files
    assert train.targets == sorted(train.targets) and val.images.read(val.files[0]) == b"x"


def write_shards(folder: Path, *values: list[object]) -> list[Path]:
    """Write the numbers of a split as shards with an image in each row."""
    paths = []
    for number, column in enumerate(values):
        paths.append(folder / f"train-{number:05d}-of-{len(values):05d}.parquet")
        pq.write_table(pa.table({"n": column, "image": [b"x"] * len(column)}), paths[-1])
    return paths


def test_faults_of_shards_name_the_file(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, [1, 2], [3, None])
    with pytest.raises(UnusableSource, match=r"train-00001-of-00002\.parquet, line 2: no value for n"):
        reader.read(CreateRegression(table=str(paths[0]), folder=str(tmp_path)), Progress())
    pq.write_table(pa.table({"size": [1.0], "image": [b"x"]}), paths[1])
    with pytest.raises(UnusableSource, match=r"00001-of-00002\.parquet has the columns size, image"):
        reader.read(CreateRegression(table=str(paths[0]), folder=str(tmp_path)), Progress())
    paths[1].unlink()
    with pytest.raises(UnusableSource, match="1 of 2 shards are missing"):
        reader.read(CreateRegression(table=str(paths[0]), folder=str(tmp_path)), Progress())


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    found = table(tmp_path, "a.png,1\nb.png,2\n")
    assert (found.names, found.values.tolist()) == (["column 2"], [[1], [2]])
    text = "id,path,angle,note\n7,a.png,1,x\n8,b.png,2,y\n"
    found = table(tmp_path, text, image_column="path", target_columns=["angle"])
    assert (found.files, found.names) == (["a.png", "b.png"], ["angle"])
    with pytest.raises(UnusableSource, match="no column “size”") as caught:
        table(tmp_path, text, target_columns=["size"])
    assert "id, path, angle, note" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,n\na.png,1\nb.png,one\n", "line 3: “one” is not a number (n)"),
        ("file,n\na.png,\n", "line 2: no value for n"),
        ("file,n\na.png\n", "line 2: no value for n"),
        ("file,n\na.png,nan\n", "“nan” is not a number"),
        ("file,n\na.png,inf\n", "“inf” is not a number"),
        ("file\na.png\n", "only one column"),
    ],
)
def test_an_unusable_table_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnusableSource) as caught:
        table(tmp_path, text)
    assert message in caught.value.message


ROWS = "file,n\n" + "".join(f"{number}.png,{number}\n" for number in range(100))


def test_a_separate_table_replaces_the_split(tmp_path: Path) -> None:
    val = write(tmp_path, "file,n\nx.png,500\n", "val.csv")
    found = plan(tmp_path, ROWS, val_table=str(val))
    assert len(found.splits["train"]) == 100 and found.splits["val"].files == ["x.png"]
    assert found.splits["val"].source == str(val)
    other = write(tmp_path, "file,m\nx.png,500\n", "other.csv")
    with pytest.raises(UnusableSource, match="the columns m, the train table n"):
        plan(tmp_path, ROWS, val_table=str(other))


def test_mean_and_standard_deviation_use_training_rows_only(tmp_path: Path) -> None:
    found = plan(tmp_path, ROWS, pct_val=50)
    train = [row[0] for row in found.splits["train"].targets]
    assert found.target.mean == pytest.approx([np.mean(train)])
    assert found.target.std == pytest.approx([np.std(train)])
    assert (found.target.names, found.target.shape, found.target.labels) == (["n"], [1], [])


def test_records_are_grouped_by_round_ranges(tmp_path: Path) -> None:
    found = plan(tmp_path, ROWS)
    assert found.groups == [f"{low} to {low + 10}" for low in range(0, 100, 10)]
    for split in found.splits.values():
        assert split.groups == [int(row[0] // 10) for row in split.targets]


@given(
    st.lists(
        st.floats(-1e30, 1e30).filter(lambda value: value == 0 or abs(value) > 1e-30), min_size=1, max_size=60
    )
)
def test_every_number_is_in_one_of_the_ranges(values: list[float]) -> None:
    edges, names = reader.bins(np.array(values))
    assert 1 <= len(names) <= reader.MAX_GROUPS + 2
    assert len(edges) == len(names) - 1
    assert (np.diff(edges) > 0).all()


def test_a_constant_column_is_reported(tmp_path: Path) -> None:
    assert "same value: n" in plan(tmp_path, "file,n\na.png,4\nb.png,4\nc.png,4\n").warnings[0]


def test_decimal_commas_are_read_beside_other_delimiters(tmp_path: Path) -> None:
    text = "\ufeffsep=;\r\nimage;angle;size;\r\na.png;12,5;1.250,5;\r\nb.png;-,5;3;\r\n"
    found = table(tmp_path, text)
    assert found.names == ["angle", "size"]
    assert found.values.tolist() == [[12.5, 1250.5], [-0.5, 3]]
    assert plan(tmp_path, text, pct_val=0).warnings == ["Commas in numbers are decimal commas."]
    with pytest.raises(UnusableSource, match=r"line 3: “1\.234” has a point, while other numbers"):
        table(tmp_path, "image;n\na.png;1,5\nb.png;1.234\n")
    assert table(tmp_path, "a.png\t0,5\nb.png\t1,25\n").values.tolist() == [[0.5], [1.25]]
    with pytest.raises(UnusableSource, match="“0,5” is not a number"):
        table(tmp_path, 'image,n\na.png,"0,5"\nb.png,1\n')


def test_columns_of_text_and_indexes_are_no_targets(tmp_path: Path) -> None:
    text = "id,file,cell_type,target\n" + "".join(f"{n},{n}.png,{'ab'[n % 2]},{n / 2}\n" for n in range(8))
    found = table(tmp_path, text)
    assert found.names == ["target"] and found.files[1] == "1.png" and found.values[1] == [0.5]
    (remark,) = plan(tmp_path, text).warnings
    assert remark == "cell_type is text and id is an index; only target is used." and isinstance(
        remark, Remark
    )
    assert table(tmp_path, text, target_columns=["id"]).names == ["id"]
    with pytest.raises(UnusableSource, match=r"The column “cell_type” of .*csv contains text, such as “a”"):
        table(tmp_path, text, target_columns=["target", "cell_type"])


def test_a_column_declares_the_splits(tmp_path: Path) -> None:
    rows = [f"{n}.png,{n},{('train', 'Valid', 'test')[max(0, n - 5)]}\n" for n in range(8)]
    made = plan(tmp_path, "image,n,subset\n" + "".join(rows))
    assert {name: sorted(split.files) for name, split in made.splits.items()} == {
        "train": [f"{n}.png" for n in range(6)],
        "val": ["6.png"],
        "test": ["7.png"],
    }
    assert made.target.names == ["n"] and made.warnings == ["The column “subset” declares the splits."]
    made = plan(
        tmp_path, "image,n,subset\n" + "".join(f"{n}.png,1,train\n" for n in range(300)) + "b.png,2,later\n"
    )
    assert [item.reason for item in made.unusable] == ["“later” is not a split (subset)"]


def test_repeated_images_count_once(tmp_path: Path) -> None:
    rows = "".join(f"{n}.png,{n}\n" for n in range(8))
    made = plan(tmp_path, f"image,age\n{rows}1.png,1\n2.png,7\n", pct_val=0, max_unusable_percent=20)
    assert sorted(made.splits["train"].files) == [f"{n}.png" for n in range(8) if n != 2]
    assert "1 line repeats an image with its value: 1.png." in made.warnings
    assert [item.path for item in made.unusable] == ["table.csv, 2.png (2 in line 4, 7 in line 11)"]
