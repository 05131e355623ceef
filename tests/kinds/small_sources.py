"""A small source of real files for each kind and each form of source, to damage one of its files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from digits.core.recipe import CreateDataset
from digits.kinds.classification.recipe import (
    CreateClassification,
    DatasetFolder,
    FolderSplit,
    LabeledRecords,
    ListedSplit,
    Tables,
    TextFiles,
)
from digits.kinds.detection.recipe import BoxRecords, CreateDetection
from digits.kinds.generic.recipe import CreateGeneric
from digits.kinds.image_to_image.recipe import CreateImageToImage
from digits.kinds.multilabel.recipe import CreateMultilabel, LabelRecords
from digits.kinds.pairs.recipe import CreatePairs
from digits.kinds.regression.recipe import CreateRegression, NumberRecords
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageFolders, TargetImageRecords, TargetImageTable
from digits.kinds.text.recipe import CreateText
from tests.kinds import annotation_files
from tests.tfrecord_files import example, write_records

COUNT = 8
WIDTH, HEIGHT = 12, 8
SETTINGS = {
    "width": WIDTH,
    "height": HEIGHT,
    "processes": 1,
    "seed": 1,
    "pct_val": 0.0,
    "max_unusable_percent": 90.0,
}

Make = Callable[[Path], CreateDataset]


def encoded(number: int) -> bytes:
    """A PNG file whose pixels depend on ``number``."""
    pixels = np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def names() -> list[str]:
    """The names of all images: eight in each of the folders ``a`` and ``b``."""
    return [f"{label}/{number}.png" for label in "ab" for number in range(COUNT)]


def write_images(folder: Path) -> Path:
    """Write all images into sub-folders of ``folder``."""
    for number, name in enumerate(names()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(number))
    return folder


def _lines(folder: Path, line: Callable[[str], str], header: str = "", file: str = "list.csv") -> Path:
    path = folder.parent / file
    path.write_text(header + "".join(f"{line(name)}\n" for name in names()))
    return path


def _class_folders(images: Path) -> CreateDataset:
    return CreateClassification(train=FolderSplit(folder=str(images)), **SETTINGS)


def _text_files(images: Path) -> CreateDataset:
    train = _lines(images, lambda name: f"{name} {'ab'.index(name[0])}", file="train.txt")
    (images.parent / "labels.txt").write_text("a\nb\n")
    split = ListedSplit(file=str(train), folder=str(images))
    return CreateClassification(
        files=TextFiles(train=split, labels=str(images.parent / "labels.txt")), **SETTINGS
    )


def _csv(images: Path) -> CreateDataset:
    table = _lines(images, lambda name: f"{name},{name[0]}", "image,label\n")
    return CreateClassification(
        files=Tables(train=ListedSplit(file=str(table), folder=str(images))), **SETTINGS
    )


def _json_lines(folder: Path, **values: Callable[[str], Any]) -> Path:
    rows = ({"file_name": name} | {key: value(name) for key, value in values.items()} for name in names())
    path = folder / "metadata.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def _metadata(images: Path) -> CreateDataset:
    _json_lines(images, label=lambda name: name[0])
    return CreateClassification(files=DatasetFolder(folder=str(images)), **SETTINGS)


def _parquet(images: Path) -> CreateDataset:
    """Images that are links to files beside the Parquet file."""
    rows = {
        "image": [{"bytes": None, "path": f"files/{name}"} for name in names()],
        "label": [name[0] for name in names()],
    }
    folder = images.parent / "parquet"
    folder.mkdir()
    images.rename(folder / "files")
    images.symlink_to(folder / "files")
    pq.write_table(pa.table(rows), folder / "train-00000-of-00001.parquet")
    return CreateClassification(files=DatasetFolder(folder=str(folder)), **SETTINGS)


def _multilabel(images: Path) -> CreateDataset:
    table = _lines(images, lambda name: f"{name},{name[0]} c", "image,labels\n")
    return CreateMultilabel(table=str(table), folder=str(images), **SETTINGS)


def _regression(images: Path) -> CreateDataset:
    table = _lines(images, lambda name: f"{name},{name[2]}.5", "image,size\n")
    return CreateRegression(table=str(table), folder=str(images), **SETTINGS)


def _parquet_numbers(images: Path) -> CreateDataset:
    recipe = _parquet(images)
    assert isinstance(recipe, CreateClassification) and isinstance(recipe.files, DatasetFolder)
    path = Path(recipe.files.folder) / "train-00000-of-00001.parquet"
    table = pq.read_table(path).drop_columns("label")
    pq.write_table(table.append_column("size", [[int(name[2]) for name in names()]]), path)
    return CreateRegression(table=str(path), folder=recipe.files.folder, **SETTINGS)


def _json_labels(images: Path) -> CreateDataset:
    path = _json_lines(images, labels=lambda name: [name[0], "c"])
    return CreateMultilabel(table=str(path), folder=str(images), **SETTINGS)


def _boxes(images: Path) -> CreateDataset:
    table = _lines(images, lambda name: f"{name},cat,1,1,6,5", "image,class,left,top,right,bottom\n")
    return CreateDetection(images=str(images), labels=str(table), **SETTINGS)


def _hub_boxes(images: Path) -> CreateDataset:
    objects = {"bbox": [[1, 1, 5, 4]], "categories": ["cat"]}
    path = _json_lines(images, objects=lambda name: objects)
    return CreateDetection(images=str(images), labels=str(path), **SETTINGS)


def _coco(images: Path) -> CreateDataset:
    path = images.parent / "coco.json"
    boxes = [(name, [("cat", 1.0, 1.0, 6.0, 5.0)]) for name in names()]
    path.write_text(annotation_files.coco(boxes, [(WIDTH, HEIGHT)] * len(boxes)))
    return CreateDetection(images=str(images), labels=str(path), **SETTINGS)


def _label_files(suffix: str, text: str) -> Make:
    def make(images: Path) -> CreateDataset:
        labels = images.parent / "labels"
        for name in names():
            path = (labels / name).with_suffix(suffix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return CreateDetection(images=str(images), labels=str(labels), **SETTINGS)

    return make


def _masks(images: Path) -> CreateDataset:
    targets = images.parent / "masks"
    for name in names():
        path = targets / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.arange(HEIGHT * WIDTH, dtype=np.uint8).reshape(HEIGHT, WIDTH) % 2).save(path)
    return CreateSegmentation(train=TargetImageFolders(images=str(images), targets=str(targets)), **SETTINGS)


def _targets(images: Path) -> CreateDataset:
    targets = write_images(images.parent / "targets")
    return CreateImageToImage(train=TargetImageFolders(images=str(images), targets=str(targets)), **SETTINGS)


def _own_targets(images: Path) -> CreateDataset:
    return CreateImageToImage(train=TargetImageFolders(images=str(images)), **SETTINGS)


def _listed_pairs(images: Path) -> CreateDataset:
    table = _lines(images, lambda name: f"{name},b/{(int(name[2]) + 1) % COUNT}.png,{int(name[0] == 'b')}")
    return CreatePairs(source=str(table), folder=str(images), **SETTINGS)


def _random_pairs(images: Path) -> CreateDataset:
    return CreatePairs(source=str(images), folder=str(images), pairs=60, **SETTINGS)


# Sources that list the images of a folder, and sources whose files name them.
SCANNED: dict[str, Make] = {
    "class folders": _class_folders,
    "kitti": _label_files(".txt", "car 0 0 0 1 1 6 5 1 1 1 0 0 0 0"),
    "voc": _label_files(".xml", annotation_files.voc([("cat", 1, 1, 6, 5)])),
    "yolo": _label_files(".txt", "0 0.5 0.5 0.25 0.25"),
    "masks": _masks,
    "image to image": _targets,
    "auto-encoder": _own_targets,
    "random pairs": _random_pairs,
}
LISTED: dict[str, Make] = {
    "text files": _text_files,
    "csv": _csv,
    "metadata": _metadata,
    "parquet": _parquet,
    "multi-label": _multilabel,
    "regression": _regression,
    "numbers in parquet": _parquet_numbers,
    "labels in json": _json_labels,
    "boxes": _boxes,
    "boxes in json": _hub_boxes,
    "coco": _coco,
    "listed pairs": _listed_pairs,
}
ALL = SCANNED | LISTED


def _records(images: Path) -> dict[str, str]:
    """Write a record for each image with targets of all kinds; return the settings of the file and its images."""
    mask = io.BytesIO()
    Image.fromarray(np.arange(96, dtype=np.uint8).reshape(8, 12) % 2).save(mask, "PNG")
    box = {f"image__object__bbox__{side}min": [0.1, 0.2] for side in "xy"}
    box |= {f"image__object__bbox__{side}max": [0.5, 0.9] for side in "xy"}
    payloads = [
        example(
            image__encoded=encoded(number),
            image__class__label=number % 3,
            labels=[number % 4, 4],
            size=number + 0.5,
            mask=mask.getvalue(),
            image__object__class__text=[b"cat", f"dog {number % 5}".encode()],
            **box,
        )
        for number in range(len(names()))
    ]
    path = write_records(images.parent / "a.tfrecord", payloads)
    return {"train": str(path), "image_feature": "image/encoded"}


def _texts(images: Path) -> str:
    path = images.parent / "texts.csv"
    path.write_text("".join(f"{name[0]},text {name}\n" for name in names()))
    return str(path)


def _target_images(images: Path) -> TargetImageTable:
    path = images.parent / "pairs.csv"
    path.write_text("image,target\n" + "".join(f"{name},{name}\n" for name in names()))
    return TargetImageTable(table=str(path), folder=str(images))


def _generic(images: Path) -> CreateDataset:
    shape: dict[str, Any] = {"shape": [8, 12, 3], "input_feature": "image/encoded", "target_feature": "size"}
    return CreateGeneric(train=_records(images)["train"], **shape, **SETTINGS)


EVERY: dict[str, Make] = ALL | {
    "labeled records": lambda images: CreateClassification(
        files=LabeledRecords(**_records(images), label_feature="image/class/label"), **SETTINGS
    ),
    "records of labels": lambda images: CreateMultilabel(
        records=LabelRecords(**_records(images), label_features=["labels"], layout="list"), **SETTINGS
    ),
    "records of numbers": lambda images: CreateRegression(
        records=NumberRecords(**_records(images), target_features=["size"]), **SETTINGS
    ),
    "records of boxes": lambda images: CreateDetection(
        records=BoxRecords(
            **_records(images),
            box_features=[f"image/object/bbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax")],
            box_units="relative",
            class_feature="image/object/class/text",
        ),
        **SETTINGS,
    ),
    "records of masks": lambda images: CreateSegmentation(
        records=TargetImageRecords(**_records(images), target_feature="mask"), **SETTINGS
    ),
    "table of targets": lambda images: CreateImageToImage(table=_target_images(images), **SETTINGS),
    "generic": _generic,
    "texts": lambda images: CreateText(table=_texts(images), **SETTINGS | {"height": 1, "channels": 1}),
}


def with_validation(recipe: CreateDataset) -> bool:
    """Use the training source for validation too; return whether the recipe can have another one."""
    if isinstance(recipe, CreateMultilabel | CreateRegression) and recipe.table:
        recipe.val_table, recipe.val_folder = recipe.table, recipe.folder
    elif isinstance(recipe, CreateText):
        recipe.val_table = recipe.table
    elif isinstance(recipe, CreateDetection) and recipe.labels:
        recipe.val_labels = recipe.labels
    elif isinstance(recipe, CreatePairs):
        recipe.val_source, recipe.val_folder = recipe.source, recipe.folder
    elif isinstance(recipe, CreateGeneric):
        recipe.val = recipe.train
    elif getattr(recipe, "train", None):
        recipe.val = recipe.train  # type: ignore[attr-defined]
    elif isinstance(recipe, CreateClassification) and hasattr(recipe.files, "val"):
        recipe.files = msgspec.structs.replace(recipe.files, val=recipe.files.train)  # type: ignore[union-attr,arg-type,type-var]
    elif getattr(recipe, "records", None):
        recipe.records = msgspec.structs.replace(recipe.records, val=recipe.records.train)  # type: ignore[attr-defined]
    else:
        return False
    return True
