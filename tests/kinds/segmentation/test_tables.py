"""Images with masks in tables: columns of Parquet files, paths in CSV files, and datasets over HTTP."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from digits.data.images.images import Geometry, UnusableImage
from digits.data.sources.plan import Plan, Progress, UnusableSource
from digits.kinds.segmentation import reader
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageTable
from tests.kinds.dataset_forms import Forms
from tests.kinds.segmentation.test_records import mask, scenes
from tests.kinds.tables import write
from tests.tfrecord_files import picture, write_records

GEOMETRY = Geometry((8, 6), 8, 6, "squash")


def write_parquet(path: Path, rows: range, **others: list[Any]) -> None:
    """Write a file of images and masks; below row 1 + number % 5, the pixels of a mask have the class 1."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "label": [{"bytes": mask(1 + number % 5), "path": f"{number}.png"} for number in rows],
        "number": list(rows),
        "pixel_values": [picture()] * len(rows),
    }
    pq.write_table(pa.table({**columns, **others}), path, row_group_size=3)


def write_dataset(folder: Path) -> Path:
    """Write two shards of six rows for training, and two rows for testing."""
    for number in range(2):
        path = folder / "data" / f"train-{number:05d}-of-00002.parquet"
        write_parquet(path, range(6 * number, 6 * number + 6))
    write_parquet(folder / "data" / "test-00000-of-00001.parquet", range(2))
    return folder


def plan(table: Path, folder: Path, **columns: Any) -> Plan:
    source = TargetImageTable(table=str(table), folder=str(folder), **columns)
    settings: dict[str, Any] = {"width": 8, "height": 6, "processes": 2, "pct_val": 25.0, "seed": 1}
    return reader.read(CreateSegmentation(table=source, **settings), Progress())


def edges(found: Plan, split: str) -> list[int]:
    """The number of rows without the class 1 in each mask of a split."""
    part = found.splits[split]
    stored = [found.features(part, place, GEOMETRY)[found.target.feature][0] for place in range(len(part))]
    pixels = [np.asarray(Image.open(io.BytesIO(data))) for data in stored]  # type: ignore[arg-type]
    return [int((item[:, 0] == 0).sum()) for item in pixels]


def test_masks_are_read_from_a_column_of_all_shards(tmp_path: Path) -> None:
    found = plan(write_dataset(tmp_path), tmp_path)
    assert found.target.names == ["background", "class 1"]
    assert {name: len(split) for name, split in found.splits.items()} == {"train": 9, "val": 3, "test": 2}
    for split in ("train", "val"):
        part = found.splits[split]
        assert part.files == sorted(part.files) and found.read(part, 0) == [picture()]
        names = [name.partition("train-0000")[2].split("-of-00002.parquet:") for name in part.files]
        assert edges(found, split) == [1 + (6 * int(shard) + int(row)) % 5 for shard, row in names]
    assert edges(found, "test") == [1, 2]


def test_a_row_without_a_mask_is_skipped_with_its_image(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", range(4), label=[mask(1), None, mask(1, (2, 2)), b"no image"])
    found = plan(tmp_path / "a.parquet", tmp_path)
    reasons = {}
    for split in found.splits.values():
        for place, name in enumerate(split.files):
            try:
                found.features(split, place, GEOMETRY)
            except UnusableImage as error:
                reasons[name] = error.reason
    assert set(reasons) == {"a.parquet:1", "a.parquet:2", "a.parquet:3"}
    assert "the row has no image" in reasons["a.parquet:1"] and "2×2" in reasons["a.parquet:2"]


def write_folders(folder: Path) -> None:
    """Write four images and their masks as files."""
    for name, data in (("images", picture()), ("masks", None)):
        (folder / name).mkdir()
        for number in range(4):
            (folder / name / f"{number}.png").write_bytes(data or mask(1 + number))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("file_name,note,mask\nimages/{0}.png,x,masks/{0}.png\n", {}),
        ("masks/{0}.png^images/{0}.png\n", {"delimiter": "^", "image_column": "column 2"}),
        ("one;two\nmasks/{0}.png;images/{0}.png\n", {"target_column": "one", "header": "yes"}),
    ],
)
def test_tables_can_list_the_paths_of_masks(tmp_path: Path, text: str, columns: dict[str, Any]) -> None:
    write_folders(tmp_path)
    *header, line = text.splitlines(keepends=True)
    table = write(tmp_path, "".join([*header, *(line.format(number) for number in range(4))]))
    found = plan(table, tmp_path, **columns)
    for split in found.splits.values():
        numbers = [int(Path(name).stem) for name in split.files]
        assert edges(found, "train" if len(numbers) == 3 else "val") == [1 + number for number in numbers]


def test_rows_without_a_path_are_skipped_and_listed(tmp_path: Path) -> None:
    write_folders(tmp_path)
    rows = "".join(f"images/{number}.png,masks/{number}.png\n" for number in range(4))
    table = write(tmp_path, f"image,mask\n{rows}images/0.png,\n")
    source = TargetImageTable(table=str(table), folder=str(tmp_path))
    settings: dict[str, Any] = {"width": 8, "height": 6, "processes": 1, "max_unusable_percent": 20}
    found = reader.read(CreateSegmentation(table=source, **settings), Progress())
    assert [(item.path, item.reason, item.split) for item in found.unusable] == [
        ("table.csv, line 6", "the path of the image is missing", "train")
    ]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("image,n\na.png,1\n", {}, "table.csv has no column of label images"),
        ("image,mask\na.png,../b.png\n", {}, "table.csv cannot be used: line 2: “../b.png” is outside"),
        ("image,mask\na.png,b.png\nc.png,\n", {}, "line 3: the path of the image is missing"),
        ("image,mask\na.png,b.png\n", {"target_column": "size"}, "has no column “size”"),
        ("image,mask\na.png,b.png\n", {"target_column": "-"}, "has no column “-”"),
    ],
)
def test_faults_of_tables_are_named(tmp_path: Path, text: str, columns: dict[str, str], message: str) -> None:
    with pytest.raises(UnusableSource, match=message):
        plan(write(tmp_path, text), tmp_path, **columns)


def test_a_dataset_of_the_hub_becomes_a_dataset(tmp_path: Path) -> None:
    forms = Forms("image-segmentation", tmp_path / "data")
    fields = {"method": "csv", "table_train": write_dataset(forms.data / "hub")}
    found = forms.summary(**fields)
    assert found.table_head == ["label (label image)", "number", "pixel_values (image)"]
    assert found.facts[:3] == [
        "12 rows with an image and a label image each.",
        "2 files for training, test-00000-of-00001.parquet for test.",
        "2 classes: background, class 1.",
    ]
    assert found.bars == [("background", 12), ("class 1", 12)] and not found.problems
    assert "no column “tilt”" in forms.errors(**fields, target_column="tilt")["table_train"][0]
    errors = forms.errors(method="csv", table_train="")
    assert errors == {"table_train": ["Enter a CSV, JSON Lines or Parquet file."]}
    made = forms.create(**fields, resize_width=8, resize_height=6, folder_pct_val=25)
    assert made.counts == {"train": 9, "val": 3, "test": 2}


@pytest.mark.parametrize("method", ["csv", "tfrecord"])
def test_images_can_be_their_own_targets(tmp_path: Path, method: str) -> None:
    forms = Forms("image-processing", tmp_path / "data")
    if method == "csv":
        fields = {"table_train": write_dataset(forms.data / "hub"), "image_column": "pixel_values"}
    else:
        fields = {"record_train": write_records(forms.data / "a.tfrecord", scenes())}
    fields |= {"method": method, "resize_width": 8, "resize_height": 6, "resize_channels": 3}
    for target in ("", "-"):
        fields["target_column" if method == "csv" else "target_feature"] = target
        facts = forms.summary(**fields).facts
        assert ("Without target images, each image is its own target." in facts) == bool(target)
        made = forms.create(**fields)
        pairs = [(record.target(made.manifest.target), record.as_pixels()) for record in made.records()]
        assert {np.array_equal(*pair) for pair in pairs} == {bool(target)}
