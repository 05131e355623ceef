"""Tables of images and labels: both layouts, separators, splits, groups, and errors with line numbers."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.data.tables.tables import SourceNotes
from digits.kinds.multilabel import reader
from digits.kinds.multilabel.recipe import CreateMultilabel
from tests.kinds.tables import one_file, write


def read(folder: Path, text: str | bytes, **options: Any) -> dict[str, list[str]]:
    recipe = CreateMultilabel(table="labels.csv", max_unusable_percent=0, **options)
    source = one_file(write(folder, text), folder)
    images, _ = reader.read_table(recipe, source, "train", Progress(), SourceNotes())
    return {file: sorted(labels) for file, labels in images.labels_of.items()}


def plan(folder: Path, text: str, **options: object) -> Plan:
    recipe = CreateMultilabel(table=str(write(folder, text)), folder=str(folder), **options)  # type: ignore[arg-type]
    return reader.read(recipe, Progress())


TWO = {"a.png": ["cat", "dog"], "b.png": ["cat"], "c.png": []}


@pytest.mark.parametrize(
    "text",
    [
        "image,labels\na.png,dog cat\nb.png,cat\nc.png,\n",
        "image;labels\r\na.png;dog,cat\r\nb.png;cat\r\nc.png;\r\n",
        'image,labels\na.png,"dog, cat"\nb.png,cat\nc.png,""\n',
        "image\tlabels\na.png\tcat|dog\nb.png\tcat\nc.png\t\n",
        "a.png,dog;cat\nb.png,cat;\nc.png,\n",
        "\N{BYTE ORDER MARK}image,labels\na.png,dog  cat\nb.png,cat\nc.png\n",
        "image,dog,cat\na.png,1,1\nb.png,0,1\nc.png,0,0\n",
        "image;dog;cat\na.png;True;yes\nb.png;False;yes\nc.png;no;FALSE\n",
        "image,dog,cat\na.png,1.0,1\nb.png,-1,1\nc.png,0.0,0\n",
    ],
)
def test_the_layout_the_delimiter_and_the_separator_are_detected(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == TWO


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    text = "id,path,tags,note\n7,a.png,x y,1\n8,b.png,y,0\n"
    assert read(tmp_path, text, image_column="path", label_columns=["tags"]) == {
        "a.png": ["x", "y"],
        "b.png": ["y"],
    }
    with pytest.raises(UnusableSource, match="several columns that may list the labels: tags, note"):
        read(tmp_path, text)
    with pytest.raises(UnusableSource, match="no column “size”"):
        read(tmp_path, text, label_columns=["size"])


def test_the_layout_and_the_separator_can_be_given(tmp_path: Path) -> None:
    lights = "image,labels\na.png,traffic light\n"
    assert read(tmp_path, lights) == {"a.png": ["light", "traffic"]}
    assert read(tmp_path, lights, separator="comma") == {"a.png": ["traffic light"]}
    digits = "image,digits\na.png,1\nb.png,0\n"
    assert read(tmp_path, digits) == {"a.png": ["digits"], "b.png": []}
    assert read(tmp_path, digits, layout="list") == {"a.png": ["1"], "b.png": ["0"]}
    assert read(tmp_path, "image,0,1,2\na.png,0,1,1\n") == {"a.png": ["1", "2"]}


def test_all_shards_and_splits_of_a_folder_are_read(tmp_path: Path) -> None:
    for name, labels in (
        ("train-00000-of-00002", [["sea"], []]),
        ("train-00001-of-00002", [["sky", "sea"]]),
        ("test", [["sky"]]),
    ):
        images = [name.encode()] * len(labels)
        pq.write_table(pa.table({"image": images, "tags": labels}), tmp_path / f"{name}.parquet")
    recipe = CreateMultilabel(table=str(tmp_path), folder=str(tmp_path), pct_val=0)
    made = reader.read(recipe, Progress())
    assert made.target.names == ["sea", "sky"]
    found = {name: [target.tolist() for target in split.targets] for name, split in made.splits.items()}
    assert found == {"train": [[1, 0], [0, 0], [1, 1]], "test": [[0, 1]]}
    train = made.splits["train"]
    assert train.images.read(train.files[2]) == b"train-00001-of-00002"
    assert made.warnings == [
        "train-00000-of-00002.parquet: 1 image has no labels: train-00000-of-00002.parquet, line 2: "
        "train-00000-of-00002.parquet:1."
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,a,b\nx.png,1,0\ny.png,0,maybe\n", "line 3: “maybe” is not 0 or 1 (b)"),
        ("image,a,b\nx.png,1,\n", "line 2: no value for b"),
        ("image,a,b\nx.png,1\n", "line 2: no value for b"),
        ("image,labels\na.png,x\nb.png,x,y\n", "line 3: 3 cells in 2 columns"),
        ("image\na.png\n", "only one column"),
        ("image," + ",".join(f"l{n}" for n in range(1001)) + "\nx.png" + ",1" * 1001, "1,001 labels"),
    ],
)
def test_an_unusable_table_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnusableSource) as caught:
        read(tmp_path, text)
    assert message in caught.value.message


def test_too_many_or_no_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableSource, match="1,001 labels are too many"):
        plan(tmp_path, "image,labels\n" + "".join(f"{n}.png,l{n}\n" for n in range(1001)))
    with pytest.raises(UnusableSource, match="column “labels” has no labels"):
        plan(tmp_path, "image,labels\na.png,\nb.png,\n")


LABEL = st.text("abcé01_-", min_size=1, max_size=6)
ROWS = st.dictionaries(
    st.text("abc-_ é", min_size=1, max_size=8).map(lambda name: f"{name.strip()}x.png"),
    st.lists(LABEL, unique=True, max_size=4),
    min_size=1,
    max_size=12,
)


@given(rows=ROWS, layout=st.sampled_from(["list", "columns"]), separator=st.sampled_from(" ;|,"))
def test_tables_written_by_csv_writers_are_read(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, list[str]], layout: str, separator: str
) -> None:
    labels = sorted({label for found in rows.values() for label in found} | {"extra"})
    if layout == "list":
        lines = [["file", "labels"], *([file, separator.join(found)] for file, found in rows.items())]
    else:
        lines = [
            ["file", *labels],
            *([file, *(int(label in found) for label in labels)] for file, found in rows.items()),
        ]
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    names = {" ": "space", ";": "semicolon", "|": "bar", ",": "comma"}
    options = {"layout": layout, "separator": names[separator]}
    found = read(tmp_path_factory.mktemp("table"), text.getvalue(), **options)
    assert found == {file: sorted(labels) for file, labels in rows.items()}


MANY = "image,labels\n" + "".join(
    f"{n}.png,{'common' if n % 10 else ''} {'rare' if n % 5 == 0 else ''}\n" for n in range(100)
)


def test_images_are_counted_by_label_and_grouped_by_their_rarest_label(tmp_path: Path) -> None:
    text = "image,labels\na.png,common rare\nb.png,common\nc.png,common\nd.png,\n"
    found = plan(tmp_path, text, pct_val=0)
    train = found.splits["train"]
    assert found.groups == ["common", "rare", "no label"]
    groups = dict(zip(train.files, (found.groups[group] for group in train.groups), strict=True))
    assert groups == {"a.png": "rare", "b.png": "common", "c.png": "common", "d.png": "no label"}
    assert found.counted == ["common", "rare"]
    assert found.counts(train, range(4)).tolist() == [3, 1]
    assert found.counts(train, [train.files.index("a.png"), train.files.index("d.png")]).tolist() == [1, 1]


def test_statistics_are_those_of_training_images_and_a_separate_table_replaces_the_split(
    tmp_path: Path,
) -> None:
    val = write(tmp_path, "image,labels\nx.png,rare new\n", "val.csv")
    divided = plan(tmp_path, MANY, pct_val=50)
    train = np.array(divided.splits["train"].targets)
    assert divided.target.mean == pytest.approx(train.mean(axis=0).tolist())
    assert divided.target.std == pytest.approx(train.std(axis=0).tolist())
    found = plan(tmp_path, MANY, val_table=str(val))
    assert len(found.splits["train"]) == 100 and found.splits["val"].files == ["x.png"]
    assert found.target.names == ["common", "new", "rare"]
    assert list(found.splits["val"].targets[0]) == [0, 1, 1]
    assert "No training image has the label “new”." in found.warnings
    other = write(tmp_path, "image,b\nx.png,1\n", "other.csv")
    columns = "image,a,b\ny.png,1,0\nz.png,0,1\n"
    with pytest.raises(UnusableSource, match=r"other.csv has no column “a”"):
        plan(tmp_path, columns, val_table=str(other))
    order = write(tmp_path, "image,b,a\nx.png,1,0\n", "order.csv")
    assert list(plan(tmp_path, columns, val_table=str(order)).splits["val"].targets[0]) == [0, 1]


def test_repeated_and_unlabeled_images_and_useless_labels_are_reported(tmp_path: Path) -> None:
    text = "image,always,never,some\na.png,1,0,0\nb.png,1,0,1\n./a.png,0,0,1\n"
    found = plan(tmp_path, text, pct_val=0)
    assert found.warnings == [
        "table.csv: 1 line repeats an image; its labels are combined: line 4: a.png.",
        "No training image has the label “never”.",
        "All training images have the labels always, some.",
    ]
    assert len(found.splits["train"]) == 2
    empty = plan(tmp_path, "image,labels\na.png,x\nb.png,\nc.png,y\n", pct_val=0)
    assert empty.warnings == ["table.csv: 1 image has no labels: line 3: b.png."]


def test_ids_with_numbers_for_labels(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"ISIC_{number:07d}.jpg").touch()
    text = "image;MEL;NV\nISIC_0000000;1.0;0.0\nISIC_0000001;0,0;1,0\nISIC_0000002;0.0;0.0\n"
    assert read(tmp_path, text) == {
        "ISIC_0000000.jpg": ["MEL"],
        "ISIC_0000001.jpg": ["NV"],
        "ISIC_0000002.jpg": [],
    }


@pytest.mark.parametrize(
    "cells",
    [
        ("['dog', 'cat']", "['cat']", "[]"),
        ('["dog", "cat"]', '["cat"]', ""),
        ("['dog' 'cat']", "['cat']", "[]"),
        ("{dog,cat}", "{cat}", "{}"),
        ("[dog, cat]", "[cat]", "[]"),
        ("'dog','cat'", "'cat'", ""),
    ],
)
def test_lists_in_the_words_of_other_programs(tmp_path: Path, cells: tuple[str, ...]) -> None:
    file = io.StringIO()
    csv.writer(file).writerows([("image", "labels"), *zip(TWO, cells, strict=True)])
    assert read(tmp_path, file.getvalue()) == TWO


def test_lists_only_in_later_objects(tmp_path: Path) -> None:
    tags: list[Any] = [*["sea"] * 30, ["sea", "big sky"], "big sky"]
    lines = [json.dumps({"image": f"{number}.png", "tags": each}) for number, each in enumerate(tags)]
    path = write(tmp_path, "\n".join(lines), "table.jsonl")
    images, _ = reader.read_table(
        CreateMultilabel(table="a"), one_file(path, tmp_path), "train", Progress(), SourceNotes()
    )
    assert images.labels_of["30.png"] == {"sea", "big sky"} and images.labels_of["31.png"] == {"big sky"}


def test_a_separator_after_many_rows(tmp_path: Path) -> None:
    rows = [f"{number}.png,red car\n" for number in range(1500)]
    assert read(tmp_path, "image,tags\n" + "".join(rows) + "x.png,red car;bus\n")["x.png"] == [
        "bus",
        "red car",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "image,tags\na.png,\"['x', 'y']\"\nb.png,x\n",
            "line 2: .* is a list in brackets, unlike other cells",
        ),
        (
            "image,tags\na.png,[x y]\nb.png,[x]\n",
            "“\\[x y\\]” .tags. may be a list of one label or of several",
        ),
        ("image,cat,dog\na.png,0.9,0.1\nb.png,0.2,0.8\n", "The columns cat, dog .* numbers between 0 and 1"),
        ("image,cat,dog,fox\na.png,0.9,1,0\nb.png,0.2,0,1\n", "cat, dog, fox .* numbers between 0 and 1"),
    ],
)
def test_unclear_labels_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnusableSource, match=message):
        read(tmp_path, text)


def test_columns_of_other_values_are_not_labels(tmp_path: Path) -> None:
    text = "image,cat,dog,city\na.png,1,0,Rome\nb.png,0,1,Oslo\nc.png,1,1,Rome\n"
    made = plan(tmp_path, text)
    assert made.target.names == ["cat", "dog"]
    assert made.warnings[0] == "city has other values than 0 and 1: not used as labels."


def test_an_image_in_several_splits_is_refused(tmp_path: Path) -> None:
    text = "image,labels,split\na.png,x,train\nb.png,y,val\na.png,y,val\n"
    with pytest.raises(UnusableSource, match=r"line 4: a\.png is in the splits train and val"):
        plan(tmp_path, text)
