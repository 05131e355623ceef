"""Downloads of all kinds: the files of each format, read again by the readers of datasets."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from digits.data.archives.writing import stream
from digits.data.images import images
from digits.data.records.index import IndexCache
from digits.data.records.records import Record
from digits.data.sources.plan import Progress
from digits.data.targets.box_matching import IGNORED_BOX
from digits.data.targets.boxes import Boxes
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.label_set import LabelSet
from digits.data.targets.mask import Mask
from digits.data.targets.numbers import Numbers
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage
from digits.kinds import BUILT_IN, kind_named
from digits.kinds.detection.recipe import CreateDetection
from digits.kinds.gan.recipe import CreateGan
from digits.kinds.multilabel.recipe import CreateMultilabel
from digits.kinds.pairs.recipe import CreatePairs
from digits.kinds.recipes import read_source
from digits.kinds.regression.recipe import CreateRegression
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageFolders
from digits.kinds.text.recipe import CreateText
from digits.kinds.versions.export import formats_of
from tests.data.archives.test_writing import unpacked
from tests.datasets import write_dataset

WIDTH, HEIGHT = 30, 20
SIZE = {"width": WIDTH, "height": HEIGHT}


def record(target: Target, value: Any, source: str = "a/b.jpg", channels: int = 1) -> Record:
    pixels = np.random.default_rng(len(source)).integers(0, 255, (HEIGHT, WIDTH, channels), np.uint8)
    data, format_name = (images.encode(pixels, "png"), "png") if channels == 1 else (pixels.tobytes(), "raw")
    return Record(data, format_name, HEIGHT, WIDTH, channels, {target.feature: value}, source=source.encode())


def png(pixels: Any) -> bytes:
    return images.encode(np.asarray(pixels, np.uint8), "png")


def export(
    tmp_path: Path, kind: str, format_name: str, target: Target, records: list[Record], ending: str = "zip"
) -> Path:
    """Write records as the train and validation split of a dataset, and unpack a download of it."""
    splits = {"train": records, "val": records[:1]}
    manifest = write_dataset(tmp_path / "dataset", kind, target, splits, records[0].channels)
    made = formats_of(kind_named(kind))[format_name](tmp_path / "dataset", manifest, IndexCache(1000))
    data = b"".join(stream(ending, made.entries()))
    made.close()
    for name, content in unpacked(ending, data).items():
        path = tmp_path / "unpacked" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "unpacked"


def read(recipe: Any) -> Any:
    return read_source(recipe, Progress())


def test_every_kind_has_a_format_besides_tfrecords() -> None:
    for kind in BUILT_IN:
        few = 1 if kind.name == "generic" else 2  # its records are TFRecords already
        assert list(formats_of(kind))[-1] == "tfrecords" and len(formats_of(kind)) >= few, kind.name


NAMES = ["a cat", "it's", 'a "dog"', "猫: # 1"]
OBJECTS = [
    [0.1, 0.2, 10.3, 12.7, 0],
    [3.0, 4.0, 29.999, 19.5, 2],
    [7.123456, 1.5, 8.25, 2.75, 3],
    [1, 2, 3, 4, 1],
    [0, 1, 20, 9.5, IGNORED_BOX],
]


@pytest.mark.parametrize(
    ("format_name", "images_at", "labels_at"),
    [
        ("coco", "images/train", "annotations/instances_train.json"),
        ("voc", "JPEGImages/train", "Annotations/train"),
        ("yolo", "images/train", "labels/train"),
    ],
)
def test_boxes_are_equal_after_a_download(
    tmp_path: Path, format_name: str, images_at: str, labels_at: str
) -> None:
    target = Boxes.of(NAMES, len(OBJECTS))
    rows = np.array(OBJECTS, np.float32)
    none = [-1.0] * rows.size
    records = [record(target, rows.ravel().tolist(), "x/one.png"), record(target, none, "y/one.jpg")]
    found = export(tmp_path, "image-object-detection", format_name, target, records)
    plan = read(
        CreateDetection(images=str(found / images_at), labels=str(found / labels_at), pct_val=0, **SIZE)
    )
    train = plan.splits["train"]
    by_file = dict(zip(train.files, train.targets, strict=True))
    assert sorted(by_file) == ["000000_one.png", "000001_one.png"]
    # YOLO has no regions to ignore.
    rows = rows[rows[:, 4] >= 0] if format_name == "yolo" else rows
    names = {IGNORED_BOX: "ignored", **dict(enumerate(plan.target.names))}
    expected = {IGNORED_BOX: "ignored", **dict(enumerate(NAMES))}
    found_rows = by_file["000000_one.png"]
    assert [names[place] for place in found_rows[:, 4]] == [expected[place] for place in rows[:, 4]]
    np.testing.assert_allclose(found_rows[:, :4], rows[:, :4], rtol=1e-6)
    assert not len(by_file["000001_one.png"])
    data = (found / images_at / "000000_one.png").read_bytes()
    assert data == records[0].data


def test_classes_become_folders_with_valid_names(tmp_path: Path) -> None:
    labels = ["cat/dog", "cat\\dog", "\u202egpj.exe", "CON", "Con_", "é" * 200, ".."]
    target = ClassIndex.of(labels)
    sources = ["../../etc/passwd", "n" * 300 + ".png", "a\nb.jpg", "", "é.png", "日本.png", "c"]
    records = [record(target, [place], source) for place, source in enumerate(sources)]
    found = export(tmp_path, "image-classification", "folders", target, records)
    folders = [path.name for path in (found / "train").iterdir()]
    assert len({name.casefold() for name in folders}) == len(labels)
    assert all(len(name.encode()) <= 255 for name in folders) and {"cat_dog", "cat_dog_2"} < set(folders)
    files = list((found / "train").rglob("*.png"))
    assert len(files) == len(sources) and all(len(path.name.encode()) <= 255 for path in files)
    assert (found / "labels.txt").read_text().splitlines() == labels
    rows = list(csv.DictReader(io.StringIO((found / "folders.csv").read_text())))
    assert {row["class"] for row in rows} == {label for label in labels if label != "Con_"}
    assert all((found / "train" / row["folder"]).is_dir() for row in rows)


def test_masks_are_equal_after_a_download(tmp_path: Path) -> None:
    target = Mask.of(["background", "road", "car"], HEIGHT, WIDTH)
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    pixels[5:9, 2:20], pixels[:3, :4], pixels[-2:, -2:] = 1, 2, 255
    records = [record(target, [png(pixels[..., None])])]
    found = export(tmp_path, "image-segmentation", "masks", target, records)
    places = {"images": found / "JPEGImages/train", "targets": found / "SegmentationClass/train"}
    folders = TargetImageFolders(**{name: str(path) for name, path in places.items()})
    names = str(found / "labels.txt")
    plan = read(CreateSegmentation(train=folders, class_labels_file=names, pct_val=0, processes=1, **SIZE))
    geometry = images.Geometry((WIDTH, HEIGHT), WIDTH, HEIGHT, "squash")
    (data,) = plan.features(plan.splits["train"], 0, geometry)[target.feature]
    assert plan.target.names == target.names
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), pixels)
    assert (found / "labelmap.txt").read_text().splitlines()[1] == "background:0,0,0::"


def test_tables_are_equal_after_a_download(tmp_path: Path) -> None:
    values = np.array([0.1, -3.7e-12], np.float32).tolist()
    target = Numbers.of(["x", "y"], [0, 0], [1, 1])
    found = export(tmp_path / "a", "image-regression", "csv", target, [record(target, values)] * 2)
    recipe = CreateRegression(table=str(found / "train.csv"), folder=str(found), pct_val=0, **SIZE)
    train = read(recipe).splits["train"]
    assert np.float32(train.targets).tolist() == [values, values]
    assert all((found / file).is_file() for file in train.files)

    target = LabelSet.of(["sun", "sea, sand"], [0.5, 0.5], [0.5, 0.5])
    found = export(tmp_path / "b", "image-multilabel", "csv", target, [record(target, [1.0, 0.0])] * 2)
    plan = read(CreateMultilabel(table=str(found / "train.csv"), folder=str(found), pct_val=0, **SIZE))
    assert [plan.target.describe(value) for value in plan.splits["train"].targets] == ["sun"] * 2


def test_attributes_are_equal_after_a_download(tmp_path: Path) -> None:
    target = LabelSet.of(["Dark", "Young"], [0.5, 0.5], [0.5, 0.5])
    records = [record(target, [1.0, 0.0], "a face.jpg"), record(target, [0.0, 1.0])]
    found = export(tmp_path / "a", "image-gan", "celeba", target, records)
    train = read(CreateGan(folder=str(found), file_list=str(found / "train.txt"))).splits["train"]
    assert sorted(map(list, train.targets)) == [[0, 1], [1, 0]]
    assert all((found / file).is_file() for file in train.files)
    nothing = Target(feature="target/numbers", dtype="float32")
    found = export(tmp_path / "b", "image-gan", "celeba", nothing, [record(nothing, [0.0])])
    assert (found / "train/000000_b.png").is_file() and not (found / "train.txt").exists()


def test_pairs_and_texts_are_equal_after_a_download(tmp_path: Path) -> None:
    target = ClassIndex.of(["different", "same"])
    pairs = [record(target, [label], f"{label} | x", channels=6) for label in (0, 1)]
    found = export(tmp_path / "a", "image-pairs", "csv", target, pairs)
    recipe = CreatePairs(source=str(found / "train.csv"), folder=str(found), pct_val=0, **SIZE)
    train = read(recipe).splits["train"]
    both = dict(zip(train.targets, train.pairs, strict=True))[1]
    pixels = [np.asarray(Image.open(found / name)) for name in both]
    assert np.array_equal(np.concatenate(pixels, axis=2), pairs[1].as_array())

    target = ClassIndex.of(["news", "spam"])
    texts = [record(target, [label]) for label in (0, 1)]
    for item, text in zip(texts, (b'a "quoted", text', b"= 1\n2"), strict=True):
        item.features["text/snippet"] = [text]
    found = export(tmp_path / "b", "text-classification", "csv", target, texts)
    plan = read(CreateText(table=str(found / "train.csv"), pct_val=0, width=40))
    train = plan.splits["train"]
    assert {
        plan.target.names[label]: train.images.text(name)
        for name, label in zip(train.files, train.targets, strict=True)
    } == {"news": 'a "quoted", text', "spam": "= 1 2"}


def test_target_images_are_paired_by_name(tmp_path: Path) -> None:
    target = TargetImage.of(HEIGHT, WIDTH, 3)
    pixels = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    found = export(tmp_path, "image-processing", "pairs", target, [record(target, [png(pixels)])], "tar.gz")
    assert (found / "train/images/000000_b.png").is_file()
    assert np.array_equal(np.asarray(Image.open(found / "train/targets/000000_b.png")), pixels)


@pytest.mark.parametrize("format_name", ["folders", "tfrecords"])
def test_a_damaged_record_is_left_out_and_listed(tmp_path: Path, format_name: str) -> None:
    target = ClassIndex.of(["cat", "dog"])
    records = [record(target, [number % 2], f"{number}.png") for number in range(4)]
    folder = tmp_path / "dataset"
    manifest = write_dataset(folder, "image-classification", target, {"train": records})
    shard = folder / manifest.splits["train"].shards[0]
    data = bytearray(shard.read_bytes())
    data[len(data) // 4 + 40] ^= 1
    shard.write_bytes(data)
    made = formats_of(BUILT_IN[0])[format_name](folder, manifest, IndexCache(1000))
    found = unpacked("tar", b"".join(stream("tar", made.entries())))
    made.close()
    (row,) = csv.DictReader(io.StringIO(found["damaged.csv"].decode()))
    assert (row["split"], row["record"]) == ("train", "1") and "checksum" in row["reason"]
    if format_name == "folders":
        assert [name for name in found if name.endswith(".png")] == [
            "train/cat/000000_0.png",
            "train/cat/000002_2.png",
            "train/dog/000003_3.png",
        ]
    else:
        assert 0 < len(found[shard.name]) < len(data)
        assert json.loads(found["dataset.json"])["kind"] == "image-classification"


def test_a_dataset_deleted_during_the_download_ends_the_archive(tmp_path: Path) -> None:
    target = ClassIndex.of(["cat", "dog"])
    folder = tmp_path / "dataset"
    splits = {"train": [record(target, [0])], "val": [record(target, [1])]}
    manifest = write_dataset(folder, "image-classification", target, splits)
    made = formats_of(BUILT_IN[0])["folders"](folder, manifest, IndexCache(1000))
    entries = made.entries()
    first = next(entries)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    found = unpacked("zip", b"".join(stream("zip", [first, *entries])))
    made.close()
    assert list(found) == ["train/cat/000000_b.png", "labels.txt", "damaged.csv"]
    assert b"val,all" in found["damaged.csv"]
