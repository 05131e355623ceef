"""Sources without any image, text or row are refused in the form, at the field that names them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kinds.forms import Forms
from tests.site import Site, bars

NO_IMAGES, NO_ROWS = "No images found in", "has no rows"


def write_sources(folder: Path) -> None:
    """Write images and empty sources of all types into ``folder``."""
    bars(folder / "bars")
    for name in ("empty", "classes/a", "classes/b", "hub/train/a", "both/images", "both/masks", "table"):
        (folder / name).mkdir(parents=True)
    for name in ("classes/a/notes.txt", "blank.csv"):
        (folder / name).write_text("\n")
    (folder / "labels.txt").write_text("a\nb\n")
    (folder / "header.csv").write_text("image,label,other\n")
    (folder / "labels.csv").write_text("image,labels\n")
    (folder / "masks.csv").write_text("image,mask\n")
    (folder / "boxes.csv").write_text("image,left,top,right,bottom,class\n")
    (folder / "box.csv").write_text("a.png,1,1,5,5,cat\n")
    (folder / "texts.csv").write_text("class,text\n")
    (folder / "table" / "metadata.csv").write_text("file_name,label\n")
    table = pa.table({"image": pa.array([], pa.struct([("bytes", pa.binary()), ("path", pa.string())]))})
    for name in ("hub.parquet",):
        pq.write_table(table.append_column("label", [pa.array([], pa.string())]), folder / name)


HUB: dict[str, str] = {"method": "huggingface"}
TEXT_FILES = {
    "method": "textfile",
    "textfile_use_local_files": "y",
    "textfile_use_val": "",
    "textfile_local_labels_file": "DATA/labels.txt",
}
BARS = "DATA/bars"
VALIDATION = {"has_val_folder": "y", "validation_feature_folder": "DATA/empty"}
# The kind, the fields besides the one with the error, that field, its value and words of the error.
CASES: list[tuple[str, dict[str, str], str, str, str]] = [
    ("image-classification", {}, "folder_train", "DATA/classes", NO_IMAGES),
    ("image-classification", HUB, "dataset_folder", "DATA/empty", NO_IMAGES),
    ("image-classification", HUB, "dataset_folder", "DATA/hub", NO_IMAGES),
    ("image-classification", HUB, "dataset_folder", "DATA/table", NO_ROWS),
    ("image-classification", HUB, "dataset_folder", "DATA/hub.parquet", NO_ROWS),
    (
        "image-classification",
        {"method": "csv", "table_train": "DATA/header.csv"},
        "table_train_file",
        "",
        NO_ROWS,
    ),
    ("image-classification", TEXT_FILES, "textfile_local_train_images", "DATA/blank.csv", "is empty"),
    (
        "image-object-detection",
        {"train_image_folder": "DATA/empty"},
        "train_label_folder",
        "",
        "No annotations",
    ),
    (
        "image-object-detection",
        {"train_label_folder": "DATA/box.csv"},
        "train_image_folder",
        "DATA/empty",
        NO_IMAGES,
    ),
    ("image-object-detection", {"train_image_folder": BARS}, "train_label_folder", "DATA/boxes.csv", NO_ROWS),
    ("image-segmentation", {}, "feature_folder", "DATA/both", NO_IMAGES),
    ("image-segmentation", {"feature_folder": BARS}, "label_folder", "DATA/empty", NO_IMAGES),
    ("image-segmentation", {"method": "csv"}, "table_train", "DATA/masks.csv", "no"),
    ("image-processing", {}, "feature_folder", "DATA/empty", NO_IMAGES),
    (
        "image-processing",
        {"feature_folder": BARS, **VALIDATION},
        "validation_feature_folder",
        "DATA/empty",
        NO_IMAGES,
    ),
    ("image-gan", {}, "image_folder", "DATA/empty", NO_IMAGES),
    ("image-pairs", {}, "pair_source", "DATA/empty", NO_IMAGES),
    ("image-pairs", {}, "pair_source", "DATA/header.csv", NO_ROWS),
    ("image-pairs", {"pair_source": BARS}, "val_source", "DATA/empty", NO_IMAGES),
    ("image-regression", {}, "table_train", "DATA/header.csv", NO_ROWS),
    ("image-multilabel", {}, "table_train", "DATA/labels.csv", NO_ROWS),
    ("text-classification", {}, "train_data_file", "DATA/texts.csv", NO_ROWS),
    ("text-classification", {}, "train_data_file", "DATA/blank.csv", NO_ROWS),
]


@pytest.mark.parametrize(("kind", "others", "field", "value", "words"), CASES)
def test_an_empty_source_is_an_error_of_its_field(
    tmp_path: Path, kind: str, others: dict[str, str], field: str, value: str, words: str
) -> None:
    write_sources(tmp_path)
    fields = {field: value, **others}
    sent = {name: text.replace("DATA", str(tmp_path)) for name, text in fields.items()}
    assert words in " ".join(Forms(kind, tmp_path).errors(**sent)[field])


@pytest.mark.integration
def test_a_folder_of_one_class_needs_a_confirmation(site: Site) -> None:
    folder = site.data / "single"
    bars(site.data / "bars")
    (folder).mkdir()
    (site.data / "bars" / "left").rename(folder / "left")
    fields = {"dataset_name": "a", "folder_train": str(folder), "resize_width": 16, "resize_height": 16}
    answer = site.post("/datasets/images/classification.json", **fields)
    assert answer.status_code == 400
    errors = answer.get_json()["errors"]
    assert "only “left”" in errors["folder_train"][0] and "accuracy" in errors["one_class"][0]
    page = site.post("/datasets/images/classification", **fields)
    assert page.status_code == 400 and "Create with one class" in page.text
    dataset = site.post("/datasets/images/classification.json", one_class="y", **fields).get_json()["id"]
    assert site.wait_for_end(dataset) == "Done"
    page = site.get(f"/datasets/{dataset}").text
    assert "Only one class found (left): accuracy will always be 100%." in page
    clone = site.get(f"/datasets/images/classification/new?clone={dataset}").text
    assert 'checked id="one_class"' in clone
