"""Masks that are not read: run lengths in tables, and arrays. They are named, with what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.kinds.dataset_forms import Forms

REMEDY = "Convert them to label images (PNG), or to a COCO file with run lengths (size and counts)."
TABLES = {
    "EncodedPixels": "ImageId,EncodedPixels\n0.png,1 5 40 3\n1.png,\n",
    "ClassId": "ImageId,ClassId,EncodedPixels\n0.png,1,1 5 40 3\n",
    "segmentation": "id,class,segmentation\n0,bowel,1 5 40 3\n1,bowel,\n",
    "rle_mask": "id,rle_mask\n0,\n",
    "Label": "ID,Label,width\n0.png,3 4 9 2 12 1,48\n1.png,3 4 9 2,48\n",
}


def write(root: Path) -> Path:
    for number in range(2):
        path = root / "images" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (48, 32)).save(path)
    return root


@pytest.mark.parametrize("column", TABLES)
def test_run_lengths_in_tables_are_named(tmp_path: Path, column: str) -> None:
    root = write(tmp_path / "set")
    (root / "train.csv").write_text(TABLES[column])
    name = "EncodedPixels" if column == "ClassId" else column
    words = f"The column “{name}” of train.csv contains masks as run lengths (RLE), which are not read from tables. "
    segmentation, detection = (Forms(kind, root) for kind in ("image-segmentation", "image-object-detection"))
    folders = {"feature_folder": root / "images", "label_folder": root / "train.csv"}
    table = {"method": "csv", "table_train": root / "train.csv", "table_image_folder": root / "images"}
    for fields in (folders, {"feature_folder": root}, table):
        assert segmentation.summary(**fields).problems == [words + REMEDY]
    assert segmentation.errors(feature_folder=root)["label_folder"] == [words + REMEDY]
    assert detection.summary(train_image_folder=root).problems == [words + REMEDY]
    assert detection.errors(train_image_folder=root)["train_label_folder"] == [words + REMEDY]


def test_arrays_are_named(tmp_path: Path) -> None:
    root = write(tmp_path / "set")
    (root / "masks").mkdir()
    for number in range(2):
        np.save(root / "masks" / f"{number}.npy", np.zeros((32, 48), np.uint8))
    forms = Forms("image-segmentation", root)
    (problem,) = forms.summary(feature_folder=root).problems
    assert "2 files .npy are not read: save their arrays as PNG." in problem
    assert problem in forms.errors(feature_folder=root)["label_folder"]
