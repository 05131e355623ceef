"""The summary of a source in the form of a dataset: counts, problems by line, and suggestions."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from digits.kinds.forms import previews
from digits.kinds.forms.summary import SourceSummary
from tests.kinds.dataset_forms import APP, Forms
from tests.site import bars

FOLDER, TABLE, LABELS = "image-classification", "image-regression", "image-multilabel"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def summary(data: Path, kind: str, **fields: Any) -> Any:
    return json.loads(json.dumps(asdict(Forms(kind, data).summary(**fields))))


def test_classes_counts_and_sizes(data: Path) -> None:
    folder = bars(data / "bars")
    (folder / "left" / "00.png").unlink()
    Image.new("RGB", (200, 150)).save(folder / "right" / "wide.jpg")
    found = summary(data, FOLDER, folder_train=str(folder))
    assert found["bars"] == [["left", 7], ["middle", 8], ["right", 9]]
    facts = " ".join(found["facts"])
    assert "24 images in 3 classes." in facts
    assert "smallest class is “left” with 7 images, the largest “right” with 9" in facts
    assert "24 images examined: PNG and JPEG, 16 × 16 to 200 × 150 pixels." in facts
    assert found["problems"] == [] and found["suggestion"] is None
    assert len(found["sizes"]) == 24 and [200, 150] in found["sizes"]


def test_problems_that_creation_would_report_are_listed(data: Path) -> None:
    folder = bars(data / "bars")
    (folder / "left" / "text.jpg").write_text("this is no picture")
    (folder / "left" / "empty.png").touch()
    (folder / "middle" / "away.png").symlink_to("/etc/hostname")
    os.mkfifo(folder / "right" / "pipe.png")
    (folder / "lonely").mkdir()
    shutil.copy(folder / "left" / "00.png", folder / "lonely")
    shutil.copy(folder / "left" / "00.png", folder)
    problems = " ".join(
        summary(data, FOLDER, folder_train=str(folder), folder_train_min_per_class=2)["problems"]
    )
    assert (
        "2 of 26 images examined cannot be used: left/empty.png: the file is empty; left/text.jpg: not an image"
        in problems
    )
    assert "1 link ignored" in problems
    assert "1 special file" in problems
    assert "1 image ignored directly in" in problems
    assert "fewer than 2 images: lonely (1)" in problems
    only = summary(data, FOLDER, folder_train=str(folder / "left"))
    assert "Each class requires a separate sub-folder" in only["problems"][0]


def test_split_folders_are_used_and_suggested(data: Path) -> None:
    for split in ("Train", "val", "test"):
        bars(data / "sets" / split, each=2)
    root = data / "sets"
    found = summary(data, FOLDER, folder_train=str(root))
    assert found["facts"][:2] == [
        "6 images in 3 classes.",
        "The splits of the source are used: Train for training, val for validation, test for test.",
    ]
    mixing = found["suggestion"]
    assert mixing["text"] == "Mix the images of Train/, val/ and test/, and divide them again?"
    assert mixing["fields"]["folder_train_more"] == f"{root / 'val'}\n{root / 'test'}" and not mixing["stops"]
    names = "val/ for validation and test/ for test, beside Train/."
    beside = summary(data, FOLDER, folder_train=str(root / "Train"), beside="y")
    assert (
        beside["splits"] == {"train": 6, "val": 6, "test": 6} and f"Also used: {names}" not in beside["facts"]
    )
    assert beside["suggestion"] == {
        "text": f"Also used: {names}",
        "action": "Leave out",
        "fields": {"beside": False},
        "stops": False,
    }
    script = summary(data, FOLDER, folder_train=str(root / "Train"))
    assert script["suggestion"] == {
        "text": f"Found {names}",
        "action": "Use them",
        "fields": {"beside": True},
        "stops": False,
    }
    assert script["splits"] == {}
    entered = {
        "has_val_folder": "y",
        "folder_val": root / "val",
        "has_test_folder": "y",
        "folder_test": root / "val",
    }
    assert summary(data, FOLDER, folder_train=str(root / "Train"), **entered)["suggestion"] is None


def test_folders_outside_the_roots_are_not_suggested(data: Path) -> None:
    secret = bars(data.with_name("secret"))
    bars(data / "sets" / "train")
    (data / "sets" / "test").symlink_to(secret)
    for folder in ("sets", "sets/train"):
        found = summary(data, FOLDER, folder_train=str(data / folder), beside="y")
        assert found["suggestion"] is None and not found["splits"]


def folder_summaries(folder: Path) -> list[SourceSummary]:
    """All summaries of a folder of classes, in their order."""
    sent: list[SourceSummary] = []
    form = Forms(FOLDER, folder.parent).form(folder_train=folder)
    with APP.app_context():
        last = previews.summarize(form, sent.append)
    return [*sent, last]


def test_large_images_are_not_decoded(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bars(data / "bars")
    Image.new("RGB", (200, 150)).save(folder / "right" / "wide.png")
    assert "to 200 × 150" in " ".join(summary(data, FOLDER, folder_train=str(folder))["facts"])
    monkeypatch.setattr(previews, "MAX_SAMPLE_PIXELS", 200 * 150 - 1)
    found = summary(data, FOLDER, folder_train=str(folder))
    assert "200" not in " ".join(found["facts"]) and found["problems"] == []


def test_images_without_colors_are_recognized_in_any_mode(data: Path) -> None:
    folder = bars(data / "bars", each=2)
    assert not summary(data, FOLDER, folder_train=str(folder))["are_gray"]
    for number, path in enumerate(folder.rglob("*.png")):
        Image.new("L", (16, 16), 90).convert(("L", "RGB", "P", "LA")[number % 4]).save(path)
    assert summary(data, FOLDER, folder_train=str(folder))["are_gray"]


def test_a_large_folder_is_counted_partially(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "MAX_FILES", 10)
    *_, found = folder_summaries(bars(tmp_path / "bars"))
    assert found.facts[0] == "At least 9 images in at least 2 classes."
    assert found.problems == []


def test_what_is_missing_in_a_part_of_a_source_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "MAX_FILES", 5)  # all in the first class
    *_, found = folder_summaries(bars(tmp_path / "bars"))
    assert found.facts[-1] == "The source is examined when the dataset is created."
    assert found.problems == [] and found.errors == {} and not found.refused


def test_a_source_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error", "bars")

    monkeypatch.setattr(previews, "read_source", fail)
    *_, found = folder_summaries(bars(tmp_path / "bars"))
    assert found.errors == {"folder_train": ["[Errno 5] Input/output error: 'bars'."]}


def test_a_slow_scan_reports_what_it_has_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "SECONDS_BETWEEN", 0.0)
    found = folder_summaries(bars(tmp_path / "bars"))
    assert len(found) > 24
    assert [item.finished for item in found] == [False] * (len(found) - 2) + [True, True]
    counts = [int(item.facts[0].split()[0]) for item in found if "read so far" in item.facts[0]]
    assert counts == sorted(counts) and counts[-1] >= 24
    assert sum(count for _, count in found[-1].bars) == 24


def table(data: Path, text: str, name: str = "train.csv") -> str:
    folder = bars(data / "bars")
    (folder / name).write_text(text)
    return str(folder / name)


def test_rows_columns_and_ranges(data: Path) -> None:
    path = table(data, "image,Angle,size\n" + "".join(f"left/0{n}.png,{n - 2.5},{n}\n" for n in range(8)))
    table(data, "image,Angle,size\nleft/00.png,1,2\n", "test.csv")
    found = summary(data, TABLE, table_train=path)
    assert found["facts"] == [
        "8 rows with 2 numbers each: Angle, size.",
        "Ranges: Angle -2.5 to 4.5, size 0 to 7.",
        "8 images examined: PNG, 16 × 16 pixels.",
    ]
    assert sum(count for _, count in found["bars"]) == 8 and found["bars_title"] == "Target distribution"
    assert found["problems"] == []
    suggested = found["suggestion"]
    assert suggested["text"] == "Found test.csv for test, beside train.csv."
    assert suggested["action"] == "Use it" and suggested["fields"] == {"beside": True}
    assert summary(data, TABLE, table_train=path, beside="y")["splits"] == {"train": 8, "test": 1}
    table(data, "image\nleft/00.png\n", "test.csv")  # as in competitions
    assert summary(data, TABLE, table_train=path, beside="y")["splits"] == {}
    one = summary(data, TABLE, table_train=path, target_columns="size")
    assert one["facts"][0] == "8 rows with a number each: size."


def test_invalid_rows_and_missing_images_are_listed_by_line(data: Path) -> None:
    os.mkfifo(bars(data / "bars") / "pipe.png")
    path = table(
        data, "image,angle\nleft/00.png,1\nleft/99.png,2\nleft/01.png,x\n../../x.png,3\npipe.png,4\n"
    )
    found = summary(data, TABLE, table_train=path)
    assert found["problems"] == [
        "2 lines of train.csv cannot be used: line 4: “x” is not a number (angle); line 5: “../../x.png” is outside the image folder. "
        "Write numbers like 1.5.",
        "2 images of train.csv not found: line 3: left/99.png; line 6: pipe.png. Check the names and the folder of the "
        "images.",
        "1 of 3 images examined cannot be used: pipe.png: not a regular file. At most 5% of all images may be unusable. "
        "Correct or remove them.",
    ]
    other = summary(data, TABLE, table_train=path, image_folder=str(data))
    assert "2 images of train.csv not found: line 3: left/99.png; line 6: pipe.png." in " ".join(
        other["problems"]
    )
    other = summary(data, TABLE, table_train=path, image_folder=str(data / "bars" / "right"))
    assert "left/99.png" in " ".join(other["problems"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a\nb\n", "only one column"),
        ("image,x\n", "no rows"),
        ("image,a,a\nb,c,d\n", "same name"),
    ],
)
def test_an_unusable_table_is_reported(data: Path, text: str, words: str) -> None:
    assert words in " ".join(summary(data, TABLE, table_train=table(data, text))["problems"])


def test_labels_and_their_layout(data: Path) -> None:
    path = table(
        data,
        "image,tags\nleft/00.png,thick left\nleft/01.png,left\nleft/02.png,\nleft/01.png,thin\nleft/99.png,x\n",
    )
    found = summary(data, LABELS, table_train=path)
    assert found["facts"] == [
        "5 rows with labels in “tags”, separated by spaces.",
        "4 labels, on average 1.2 per image.",
        "3 images examined: PNG, 16 × 16 pixels.",
    ]
    assert found["bars"] == [["left", 2], ["thick", 1], ["thin", 1], ["x", 1]]
    assert found["bars_title"] == "Images per label"
    assert found["problems"] == [
        "train.csv: 1 line repeats an image; its labels are combined: line 5: left/01.png.",
        "train.csv: 1 image has no labels: line 4: left/02.png.",
        "1 image of train.csv not found: line 6: left/99.png. Check the names and the folder of the images.",
    ]
    by_comma = summary(data, LABELS, table_train=path, separator="comma")
    assert "separated by commas" in by_comma["facts"][0] and ["thin", 1] in by_comma["bars"]
    assert ["thick left", 1] in by_comma["bars"]


def test_columns_of_labels(data: Path) -> None:
    path = table(data, "image,left,thick,big\nleft/00.png,1,0,0\nleft/01.png,1,1,0\nleft/02.png,1,x,0\n")
    found = summary(data, LABELS, table_train=path)
    assert found["facts"][:2] == [
        "3 rows with a column of 0 and 1 for each label.",
        "3 labels, on average 1.5 per image.",
    ]
    assert found["problems"] == [
        "1 line of train.csv cannot be used: line 4: “x” is not 0 or 1 (thick). Correct or remove them.",
        "No training image has the label “big”.",
        "All training images have the label “left”.",
    ]
    as_list = summary(data, LABELS, table_train=path, layout="list")
    assert "several columns that may list the labels: left, thick, big" in as_list["problems"][0]


def test_a_table_that_is_a_folder_or_not_text_is_reported(data: Path) -> None:
    path = table(data, "")
    folder = summary(data, TABLE, table_train=str(data))
    assert "contains no table" in folder["problems"][0]
    Path(path).write_bytes(b"image,angle\nleft/\xff\xfe.png,1\n")
    assert "line 2, is not UTF-8" in summary(data, TABLE, table_train=path)["problems"][0]


def test_a_long_table_is_read_partially(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "MAX_BYTES", 1_000_000)
    path = table(data, "image,angle\n" + f"{'./' * 500}left/00.png,1\n" * 10_000)
    found = summary(data, TABLE, table_train=path)
    assert found["facts"][0].startswith("At least ") and found["problems"] == []


def test_a_parquet_file_of_images_is_a_table(data: Path) -> None:
    path = data / "train.parquet"
    pq.write_table(pa.table({"image": [b"x"] * 4, "size": [1.5, None, 2.5, 4]}), path)
    found = summary(data, TABLE, table_train=str(path))
    assert any("4 rows with a number each: size" in fact for fact in found["facts"])
    assert any(
        "1 line of train.parquet cannot be used: line 2: no value for size" in problem
        for problem in found["problems"]
    )
    assert not any("not found" in problem for problem in found["problems"])
