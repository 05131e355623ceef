"""Text files, CSV files, and folders and Parquet files in the layouts of Hugging Face: plans and messages."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from digits.data.images.images import UnusableImage
from digits.data.sources.plan import ImageFolder, Plan, Progress, Unusable, UnusableSource
from digits.data.tables.parquet import ParquetImages
from digits.kinds.classification import listing, reader
from digits.kinds.classification.recipe import (
    CreateClassification,
    DatasetFolder,
    FolderSplit,
    ListedSplit,
    Tables,
    TextFiles,
)
from tests.kinds.tables import write

LABELS = "cat\ndog\n"
LINES = "".join(f"{'cat' if number % 2 else 'dog'} s/{number}.png {number % 2}\n" for number in range(8))


def plan(source: Any, **settings: Any) -> Plan:
    """Plan a dataset from ``source``, by default without shares for validation and testing."""
    recipe = CreateClassification(files=source, **{"pct_val": 0, "seed": 1, **settings})
    return reader.read(recipe, Progress())


def text_files(
    folder: Path, lines: str | bytes = LINES, labels: str | bytes = LABELS, **others: Any
) -> TextFiles:
    train = write(folder, lines, "train.txt")
    names = write(folder, labels, "labels.txt")
    return TextFiles(train=ListedSplit(file=str(train), folder=str(folder)), labels=str(names), **others)


def table(folder: Path, text: str | bytes, **others: Any) -> Tables:
    path = write(folder, text)
    return Tables(train=ListedSplit(file=str(path), folder=str(folder)), **others)


def image(color: str = "red") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4), color).save(file, "PNG")
    return file.getvalue()


def test_a_text_file_lists_paths_with_spaces_and_class_indexes(tmp_path: Path) -> None:
    lines = b'\xef\xbb\xbfa  b.png 1\r\n\r\n"c 0.png"\t0\r\nd.png 1'
    made = plan(text_files(tmp_path, lines, b"\xef\xbb\xbfcat\r\ndog\r\nbird\r\n\r\n", shuffle=False))
    train = made.splits["train"]
    assert train.files == ["a  b.png", "c 0.png", "d.png"]
    assert train.targets == train.groups == [1, 0, 1]
    assert made.groups == ["cat", "dog", "bird"] and set(made.splits) == {"train"}
    assert "Classes without training images: bird." in made.warnings
    assert any("3 images of train.txt not found: line 1: a  b.png; line 3" in text for text in made.warnings)


@pytest.mark.parametrize(
    ("lines", "labels", "message"),
    [
        ("a.png 0\nb.png 2\n", LABELS, r"train.txt .*line 2: the class 2 is not between 0 and 1"),
        ("a.png 0\nb.png -1\n", LABELS, r"train.txt .*line 2: the class -1 is not between 0 and 1"),
        ("a.png 0\nb.png\n", LABELS, r"train.txt .*line 2: not a path followed by the index"),
        ("a.png 0\nb.png one\n", LABELS, r"train.txt .*line 2: not a path"),
        (
            "../a.png 0\n/etc/b.png 1\n",
            LABELS,
            r"2 lines of train.txt .*outside.*: line 1 .*a.png.*, line 2 .*b.png",
        ),
        ("a.png 0\nb\0.png 1\n", LABELS, r"train.txt, line 2, contains a null character"),
        (b"a.png 0\n\xff.png 1\n", LABELS, r"train.txt, line 2, is not UTF-8"),
        ("", LABELS, r"train.txt has no rows"),
        ("a.png 0\nb.png 0\n", LABELS, r"All images in .*train.txt have the label “cat”"),
        (LINES, "", r"labels.txt is empty"),
        (LINES, "cat\n\ndog\n", r"labels.txt, line 2, is empty"),
        (LINES, "cat\ndog\ncat\n", r"labels.txt, line 3, repeats “cat” of line 1"),
        ("x" * 1_100_000 + " 0\n", LABELS, r"train.txt, line 1, is longer than 1 MiB"),
    ],
)
def test_faults_of_text_files_are_reported_with_their_lines(
    tmp_path: Path, lines: str | bytes, labels: str, message: str
) -> None:
    with pytest.raises(UnusableSource, match=message):
        plan(text_files(tmp_path, lines, labels))


@pytest.mark.slow
def test_a_long_text_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    with open(path, "w") as file:
        file.writelines(f"{number:040d}.png {number % 2}\n" for number in range(15_000))
    tracemalloc.start()
    count = sum(1 for _ in listing.text_rows(path, tmp_path, ["cat", "dog"], []))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 15_000 and peak < 30 * path.stat().st_size


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("image,label\na.png,cat\nb.png,dog\n", {}),
        ('label\tfile\n"cat"\t"a.png"\ndog\tb.png\n', {"image_column": "file", "label_column": "label"}),
        ("a.png~cat\nb.png~dog\n", {"delimiter": "~"}),
        ("path,label\na.png,cat\nb.png,dog\n", {"header": "yes"}),
        (
            "id,image,species\n1,a.png,cat\n2,b.png,dog\n",
            {"image_column": "image", "label_column": "species"},
        ),
    ],
)
def test_a_csv_file_has_columns_of_images_and_labels(
    tmp_path: Path, text: str, settings: dict[str, Any]
) -> None:
    made = plan(table(tmp_path, text, **settings))
    assert made.groups == ["cat", "dog"]
    train = made.splits["train"]
    assert sorted(zip(train.files, train.targets, strict=True)) == [("a.png", 0), ("b.png", 1)]


def test_integer_labels_are_sorted_by_value(tmp_path: Path) -> None:
    made = plan(table(tmp_path, "".join(f"{number}.png,{number}\n" for number in range(12))))
    assert made.groups == [str(number) for number in range(12)]


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("image,label\na.png,cat\nb.png,\n", {}, r"table.csv .*line 3: the label is missing"),
        ("image,label\na.png,cat\n", {"label_column": "kind"}, r"table.csv has no column “kind”"),
        ("image\na.png\n", {}, r"table.csv has only one column"),
    ],
)
def test_faults_of_csv_files_are_reported_with_their_lines(
    tmp_path: Path, text: str | bytes, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnusableSource, match=message):
        plan(table(tmp_path, text, **settings))


def test_labels_without_training_images_are_refused(tmp_path: Path) -> None:
    val = write(tmp_path, "image,label\nc.png,cat\nd.png,bird\n", "val.csv")
    source = table(
        tmp_path, "image,label\na.png,cat\nb.png,dog\n", val=ListedSplit(file=str(val), folder=str(tmp_path))
    )
    with pytest.raises(UnusableSource, match=r"val.csv .*line 3: no training image has the label “bird”"):
        plan(source)


def test_folders_are_merged_by_class(tmp_path: Path) -> None:
    for name in ("one/cat/1.png", "one/cat/deep/2.png", "one/dog/3.png", "two/cat/1.png", "two/bird/5.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    folders = FolderSplit(folder=str(tmp_path / "one"), more_folders=[str(tmp_path / "two")], min_per_class=1)
    made = reader.read(CreateClassification(train=folders, pct_val=0), Progress())
    train = made.splits["train"]
    assert made.groups == ["bird", "cat", "dog"] and train.images == ImageFolder(tmp_path)
    assert sorted(train.files) == [
        "one/cat/1.png",
        "one/cat/deep/2.png",
        "one/dog/3.png",
        "two/bird/5.png",
        "two/cat/1.png",
    ]


def metadata(folder: Path, split: str, text: str, name: str = "metadata.csv") -> None:
    (folder / split).mkdir(exist_ok=True)
    write(folder / split, text, name)


def test_metadata_files_label_the_images_of_split_folders(tmp_path: Path) -> None:
    metadata(tmp_path, "train", "file_name,label\na.png,cat\nsub/b.png,dog\n")
    lines = [{"file_name": "c.png", "label": "dog"}, {"file_name": "d.png", "label": "cat"}]
    metadata(tmp_path, "Validation", "\n".join(map(json.dumps, lines)), "metadata.jsonl")
    metadata(tmp_path, "test", "label,file_name\ncat,e.png\n")
    made = plan(DatasetFolder(folder=str(tmp_path)), pct_val=50)
    assert {
        name: sorted(zip(split.files, split.targets, strict=True)) for name, split in made.splits.items()
    } == {
        "train": [("a.png", 0), ("sub/b.png", 1)],
        "val": [("c.png", 1), ("d.png", 0)],
        "test": [("e.png", 0)],
    }


def test_split_folders_of_classes_are_recognized(tmp_path: Path) -> None:
    for name in ("train/cat/1.png", "train/dog/2.png", "dev/cat/3.png", "test/dog/4.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    made = plan(DatasetFolder(folder=str(tmp_path)))
    assert made.groups == ["cat", "dog"]
    assert {name: split.files for name, split in made.splits.items() if name != "train"} == {
        "val": ["cat/3.png"],
        "test": ["dog/4.png"],
    }


def parquet(path: Path, labels: list[Any], names: list[str] | None = None, **columns: Any) -> None:
    """Write a file of small images with ``labels``, in row groups of three rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colors = ["red", "green", "blue"]
    images = [{"bytes": image(colors[place % 3]), "path": None} for place in range(len(labels))]
    content = pa.table({"image": images, "label": labels, **columns})
    if names:
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        content = content.replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": features}})}
        )
    pq.write_table(content, path, row_group_size=3)


def test_parquet_files_are_read_with_their_class_names(tmp_path: Path) -> None:
    for number in range(2):
        parquet(
            tmp_path / "data" / f"train-0000{number}-of-00002.parquet", [0, 1, 1, 0], ["cat", "dog", "bird"]
        )
    parquet(tmp_path / "data" / "validation-00000-of-00001.parquet", [1], ["cat", "dog", "bird"])
    made = plan(DatasetFolder(folder=str(tmp_path)), pct_test=25)
    assert made.groups == ["cat", "dog", "bird"]
    assert {name: len(split) for name, split in made.splits.items()} == {"train": 6, "val": 1, "test": 2}
    train = made.splits["train"]
    assert train.files == sorted(train.files)
    source = ParquetImages(tmp_path, "image")
    name = "data/train-00001-of-00002.parquet"
    assert [source.read(f"{name}:{row}") for row in (3, 1, 2)] == [
        image("red"),
        image("green"),
        image("blue"),
    ]
    with pytest.raises(UnusableImage, match="fewer rows"):
        source.read(f"{name}:4")


def test_binary_columns_and_text_labels_of_parquet_files(tmp_path: Path) -> None:
    content = pa.table({"picture": [image(), None, image("blue")], "kind": ["b", "a", "b"]})
    pq.write_table(content, tmp_path / "train.parquet")
    made = plan(DatasetFolder(folder=str(tmp_path), label_column="kind"))
    assert made.groups == ["a", "b"] and made.splits["train"].targets == [1, 0, 1]
    source = made.splits["train"].images
    assert source.read("train.parquet:2") == image("blue")
    with pytest.raises(UnusableImage, match="the row has no image"):
        source.read("train.parquet:1")


@pytest.mark.parametrize(
    ("labels", "names", "column", "message"),
    [
        ([0, 2], ["cat", "dog"], "", r"train.parquet .*line 2: the label 2 is not between 0 and 1"),
        ([0, -1], ["cat", "dog"], "", r"train.parquet .*line 2: the label -1 is not between 0 and 1"),
        ([0, None], None, "", r"train.parquet .*line 2: the label is missing"),
        ([0, 1], None, "kind", r"train.parquet has no column “kind”"),
    ],
)
def test_faults_of_parquet_files_are_reported_with_their_rows(
    tmp_path: Path, labels: list[Any], names: list[str] | None, column: str, message: str
) -> None:
    parquet(tmp_path / "train.parquet", labels, names)
    with pytest.raises(UnusableSource, match=message):
        plan(DatasetFolder(folder=str(tmp_path), label_column=column))


def test_a_few_rows_without_labels_are_skipped(tmp_path: Path) -> None:
    parquet(tmp_path / "train.parquet", [0, None, 1, 0], ["cat", "dog"])
    made = plan(DatasetFolder(folder=str(tmp_path)), max_unusable_percent=25.0)
    assert made.splits["train"].files == [f"train.parquet:{row}" for row in (0, 2, 3)]
    assert made.unusable == [Unusable("train.parquet, line 2", "the label is missing", "train")]


def test_parquet_files_need_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet(tmp_path / "train.parquet", [0, 1])
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(UnusableSource, match="require the package pyarrow") as refusal:
        plan(DatasetFolder(folder=str(tmp_path)))
    assert "digits[parquet]" in refusal.value.hint


def _saved_by_excel() -> dict[str, bytes]:
    rows = [("image", "label"), *((f"{n}.png", ("Käfer", "Weißling")[n % 2]) for n in range(6))]
    lines = {mark: "\r\n".join(map(mark.join, rows)) for mark in (";", "\t")}
    quoted = "\r\n".join(f'"{image}","{label}",' for image, label in rows)
    return {
        "cp1252": lines[";"].encode("cp1252"),
        "separator": f"\ufeffsep=;\r\n{lines[';']}".encode(),
        "utf-16": lines["\t"].encode("utf-16"),
        "utf-16-be": b"\xfe\xff" + lines["\t"].encode("utf-16-be"),
        "quotes": quoted.encode(),
    }


@pytest.mark.parametrize("name", _saved_by_excel())
def test_tables_that_spreadsheets_save(tmp_path: Path, name: str) -> None:
    made = plan(table(tmp_path, _saved_by_excel()[name]))
    assert made.target.names == ["Käfer", "Weißling"] and len(made.splits["train"]) == 6
    notes = [warning for warning in made.warnings if "Windows-1252" in warning]
    assert len(notes) == (name == "cp1252") and all("“0.png;Käfer”" in note for note in notes)


@pytest.mark.parametrize("encoding", ["gbk", "shift-jis", "euc-kr"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str) -> None:
    names = {"gbk": "猫狗", "shift-jis": "猫犬", "euc-kr": "고양"}[encoding]
    text = "image,label\n" + "".join(f"{n}.png,{names[n % 2]}\n" for n in range(6))
    with pytest.raises(UnusableSource, match="is not UTF-8"):
        plan(table(tmp_path, text.encode(encoding)))


def test_paths_of_windows_and_ids_in_tables_and_text_files(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / "photos" / "cat").mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / "cat" / f"{number}bec180eb.png").touch()
    files = [f"photos/cat/{number}bec180eb.png" for number in range(4)]
    windows = [file.replace("/", "\\") for file in files]
    for paths in (
        windows,
        [f"C:\\Users\\ann\\{path}" for path in windows],
        [Path(file).stem for file in files],
    ):
        made = plan(table(tmp_path, "id,label\n" + "".join(f"{p},{n % 2}\n" for n, p in enumerate(paths))))
        assert sorted(made.splits["train"].files) == files
        assert made.warnings[0].startswith("4 paths of table.csv differ from those of the images, such as “")
        lines = "".join(f"{path} {number % 2}\n" for number, path in enumerate(paths))
        assert sorted(plan(text_files(tmp_path, lines)).splits["train"].files) == files


def test_a_column_of_a_table_declares_the_splits(tmp_path: Path) -> None:
    usage = ["Training"] * 4 + ["PublicTest", "PrivateTest"] * 2
    text = "label,image,Usage\n" + "".join(
        f"{'ab'[n // 2 % 2]},{n}.png,{word}\n" for n, word in enumerate(usage)
    )
    made = plan(table(tmp_path, text), pct_val=50)
    files = {name: sorted(split.files) for name, split in made.splits.items()}
    assert files == {
        "train": ["0.png", "1.png", "2.png", "3.png"],
        "val": ["4.png", "6.png"],
        "test": ["5.png", "7.png"],
    }
    assert made.target.names == ["a", "b"] and "The column “Usage” declares the splits." in made.warnings


def _picture(number: int, channels: int = 1) -> np.ndarray[Any, Any]:
    """A smooth picture, uint8 [6, 6, channels]."""
    rows, columns, colors = np.mgrid[:6, :6, :channels]
    return (rows * 3 + columns * 5 + colors * 90 + number).astype(np.uint8)


def _decoded(made: Plan, split: str = "train") -> dict[str, Any]:
    """Return the pixels of the images of a split by name."""
    images = made.splits[split].images
    return {name: np.asarray(Image.open(io.BytesIO(images.read(name)))) for name in made.splits[split].files}


@pytest.mark.parametrize(
    ("channels", "is_planar", "has_header"),
    [(1, False, True), (1, False, False), (3, False, True), (3, True, True)],
)
def test_columns_of_pixels_are_images(
    tmp_path: Path, channels: int, is_planar: bool, has_header: bool
) -> None:
    pictures = [_picture(number, channels) for number in range(4)]
    flat = [(picture.transpose(2, 0, 1) if is_planar else picture).ravel().tolist() for picture in pictures]
    header = ["label", *(f"pixel{n}" for n in range(36 * channels))]
    rows = [header] * has_header + [[number % 2, *pixels] for number, pixels in enumerate(flat)]
    made = plan(table(tmp_path, "\n".join(",".join(map(str, row)) for row in rows)))
    found, first = _decoded(made), 1 + has_header
    assert made.target.names == ["0", "1"] and sorted(found) == [f"table.csv:{first + n}" for n in range(4)]
    for number, picture in enumerate(pictures):
        assert (found[f"table.csv:{first + number}"] == picture.squeeze()).all()
    color = "gray" if channels == 1 else "in color"
    assert f"The rows of table.csv are the pixels of images: 6 × 6, {color}." in made.warnings


def test_one_column_of_pixels_with_declared_splits(tmp_path: Path) -> None:
    lines = [
        f"{n % 2},{' '.join(map(str, _picture(n).ravel()))},{'Training' if n < 4 else 'PublicTest'}"
        for n in range(6)
    ]
    lines.append("1,1 2 3,Training")
    made = plan(table(tmp_path, "\r\n".join(["emotion,pixels,Usage", *lines])))
    assert len(made.splits["train"]) == 5 and sorted(made.splits["val"].files) == [
        "table.csv:6",
        "table.csv:7",
    ]
    assert (_decoded(made, "val")["table.csv:7"] == _picture(5)[..., 0]).all()
    with pytest.raises(UnusableImage, match="the row has 3 instead of 36 pixels"):
        made.splits["train"].images.read("table.csv:8")


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (range(40), "have 40 pixels, which are no square image"),
        ([number * 37 % 251 for number in range(48)], "The order of the colors"),
        ([300] * 48, "is not an integer from 0 to 255"),
    ],
)
def test_pixels_without_a_clear_shape_are_refused(tmp_path: Path, pixels: Any, message: str) -> None:
    names = ",".join(f"pixel{n}" for n in range(len(pixels)))
    rows = "".join(f"{n},{','.join(map(str, pixels))}\n" for n in range(2))
    with pytest.raises(UnusableSource, match=message):
        plan(table(tmp_path, f"label,{names}\n{rows}"))


def _label_studio(choices: list[list[str]]) -> dict[str, list[dict[str, Any]]]:
    files = [f"/data/upload/1/0a1b2c3d-{number}.png" for number in range(len(choices))]
    return {
        "JSON": [
            {
                "id": number,
                "data": {"image": file},
                "annotations": [
                    {"result": [{"from_name": "choice", "type": "choices", "value": {"choices": [each]}}]}
                    for each in answers
                ],
            }
            for number, (file, answers) in enumerate(zip(files, choices, strict=True))
        ],
        "JSON-MIN": [
            {"id": number, "image": file, "choice": answers[0] if len(answers) == 1 else None, "annotator": 1}
            for number, (file, answers) in enumerate(zip(files, choices, strict=True))
        ],
    }


@pytest.mark.parametrize(
    ("export", "name"), [("JSON", "result.json"), ("JSON-MIN", "result.json"), ("JSON-MIN", "upload.txt")]
)
def test_choices_of_label_studio_are_labels(tmp_path: Path, export: str, name: str) -> None:
    for number in range(4):
        (tmp_path / f"0a1b2c3d-{number}.png").touch()
    tasks = _label_studio([["a"], ["b"], ["a"], ["a", "b"]])[export]
    path = write(tmp_path, json.dumps(tasks), name)
    source = Tables(train=ListedSplit(file=str(path), folder=str(tmp_path)))
    made = plan(source, max_unusable_percent=30)
    train = made.splits["train"]
    labels = {file: made.target.names[number] for file, number in zip(train.files, train.groups, strict=True)}
    assert labels == {"0a1b2c3d-0.png": "a", "0a1b2c3d-1.png": "b", "0a1b2c3d-2.png": "a"}
    assert [item.reason for item in made.unusable] == ["the label is missing"]


@pytest.mark.parametrize(
    ("text", "message"), [('{"images": []}', "not a list of JSON objects"), ("[1", "not valid JSON")]
)
def test_other_json_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text, "coco.json")
    with pytest.raises(UnusableSource, match=message):
        plan(Tables(train=ListedSplit(file=str(path), folder=str(tmp_path))))


def test_an_index_is_no_label(tmp_path: Path) -> None:
    text = ",file,breed\n" + "".join(f"{number},{number}.png,{'ab'[number % 2]}\n" for number in range(4))
    assert plan(table(tmp_path, text)).target.names == ["a", "b"]


ROWS = [(f"{number}.png", ("cat", "dog")[number % 2]) for number in range(8)]


@pytest.mark.parametrize(("yes", "no"), [("1", "0"), ("1.0", "0.0"), ("True", "False")])
@pytest.mark.parametrize("more", ["", ",17"])
def test_a_column_of_each_class(tmp_path: Path, yes: str, no: str, more: str) -> None:
    lines = [
        f"{file}{more},{','.join(yes if label == name else no for name in ('cat', 'dog'))}\n"
        for file, label in ROWS
    ]
    made = plan(table(tmp_path, f"image{',age' if more else ''},cat,dog\n" + "".join(lines)))
    train = made.splits["train"]
    assert {file: made.groups[group] for file, group in zip(train.files, train.groups, strict=True)} == dict(
        ROWS
    )
    assert "The classes are the columns with 1: cat, dog." in made.warnings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "image,cat,dog\na.png,1,1\nb.png,0,1\n",
            r"line 2: several labels: “cat, dog”\..* multi-label classification",
        ),
        ("image,cat,dog\na.png,0,0\nb.png,0,1\n", "line 2: no label"),
        ("image,cat,dog\na.png,0.9,0.1\nb.png,0.2,0.8\n", "cat, dog of .* numbers between 0 and 1"),
        ("image,score\na.png,0.9\nb.png,0.25\n", "“score” of .* create a dataset for regression"),
        ("image,label\na.png,\"['cat', 'dog']\"\nb.png,['cat']\n", "line 2: several labels: “cat, dog”"),
        (
            "image,label\na.png,cat\nb.png,dog\na.png,dog\n",
            r"a.png \(cat in line 2, dog in line 4\): several labels\. Keep one label",
        ),
    ],
)
def test_images_with_several_labels_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnusableSource) as caught:
        plan(table(tmp_path, text), max_unusable_percent=0)
    assert re.search(message, caught.value.sentences)


def test_lists_of_one_label(tmp_path: Path) -> None:
    made = plan(table(tmp_path, "image,label\n" + "".join(f"{file},['{label}']\n" for file, label in ROWS)))
    assert made.groups == ["cat", "dog"]


def test_repeated_images_count_once(tmp_path: Path) -> None:
    lines = [f"{file},{label}\n" for file, label in [*ROWS, ROWS[3], ("0.png", "dog"), ("0.png", "cat")]]
    made = plan(table(tmp_path, "image,label\n" + "".join(lines)), max_unusable_percent=20)
    assert sorted(made.splits["train"].files) == [file for file, _ in ROWS[1:]]
    assert "2 lines repeat an image with its label: 3.png, 0.png." in made.warnings
    assert [item.path for item in made.unusable] == ["table.csv, 0.png (cat in line 2, dog in line 11)"]


def test_images_in_several_splits_are_named(tmp_path: Path) -> None:
    text = "image,label,split\n" + "".join(f"{file},{label},train\n" for file, label in ROWS)
    made = plan(table(tmp_path, text + "0.png,cat,val\n1.png,cat,val\n"))
    assert [text for text in made.warnings if "several splits" in text] == [
        "1 image in several splits: 0.png.",
        "1 image in several splits with different labels: 1.png.",
    ]


def test_the_column_of_texts_contains_the_labels(tmp_path: Path) -> None:
    text = "image,width,breed\n" + "".join(f"{file},{40 + len(label)},{label}\n" for file, label in ROWS)
    made = plan(table(tmp_path, text))
    assert (
        made.groups == ["cat", "dog"] and "The labels are those in “breed”; not used: width." in made.warnings
    )


def test_a_name_that_only_the_last_object_has(tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [{"image": f"{number}.png"} for number in range(30)]
    items.append({"image": "30.png", "late": "x"})
    path = write(tmp_path, "\n".join(map(json.dumps, items)), "table.jsonl")
    source = Tables(train=ListedSplit(file=str(path), folder=str(tmp_path)), label_column="late")
    with pytest.raises(UnusableSource, match=r"30 lines of table\.jsonl .*the label is missing"):
        plan(source)
