"""Sources without any image, text or row are refused in the form, at the field that names them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kinds.dataset_forms import Forms
from tests.site import Site, bars

NO_IMAGES, NO_ROWS = "No images found in", "has no rows"


TABLES = {
    "labels.txt": "a\nb\n",
    "header.csv": "image,label,other\n",
    "labels.csv": "image,labels\n",
    "masks.csv": "image,mask\n",
    "boxes.csv": "image,left,top,right,bottom,class\n",
    "box.csv": "a.png,1,1,5,5,cat\n",
    "texts.csv": "class,text\n",
    "table/metadata.csv": "file_name,label\n",
    "classes/a/notes.txt": "\n",
    "blank.csv": "\n",
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images and of empty sources of all types."""
    folder = tmp_path_factory.mktemp("sources")
    bars(folder / "bars")
    for name in ("empty", "classes/a", "classes/b", "hub/train/a", "both/images", "both/masks", "table"):
        (folder / name).mkdir(parents=True)
    for name, text in TABLES.items():
        (folder / name).write_text(text)
    table = pa.table({"image": pa.array([], pa.struct([("bytes", pa.binary()), ("path", pa.string())]))})
    pq.write_table(table.append_column("label", [pa.array([], pa.string())]), folder / "hub.parquet")
    return folder


HUB = {"method": "huggingface"}
CSV = {"method": "csv", "table_train": "DATA/header.csv"}
TEXT_FILES = {"method": "textfile", "textfile_use_local_files": "y", "textfile_use_val": ""}
TEXT_FILES["textfile_local_labels_file"] = "DATA/labels.txt"
BARS = "DATA/bars"
VALIDATION = {"has_val_folder": "y", "feature_folder": BARS}
NO_ANNOTATED = {"train_label_folder": "DATA/box.csv"}
NO_BOXES = {"train_image_folder": "DATA/empty"}
# The kind, the fields besides the one with the error, that field, its value and words of the error.
CASES: list[tuple[str, dict[str, str], str, str, str]] = [
    ("image-classification", {}, "folder_train", "DATA/classes", NO_IMAGES),
    ("image-classification", HUB, "dataset_folder", "DATA/empty", NO_IMAGES),
    ("image-classification", HUB, "dataset_folder", "DATA/hub", NO_IMAGES),
    ("image-classification", HUB, "dataset_folder", "DATA/table", NO_ROWS),
    ("image-classification", HUB, "dataset_folder", "DATA/hub.parquet", NO_ROWS),
    ("image-classification", CSV, "table_train_file", "", NO_ROWS),
    ("image-classification", TEXT_FILES, "textfile_local_train_images", "DATA/blank.csv", "is empty"),
    ("image-object-detection", NO_BOXES, "train_label_folder", "", NO_IMAGES),
    ("image-object-detection", NO_ANNOTATED, "train_image_folder", "DATA/empty", NO_IMAGES),
    ("image-object-detection", {"train_image_folder": BARS}, "train_label_folder", "DATA/boxes.csv", NO_ROWS),
    ("image-segmentation", {}, "feature_folder", "DATA/both", NO_IMAGES),
    ("image-segmentation", {"feature_folder": BARS}, "label_folder", "DATA/empty", NO_IMAGES),
    ("image-segmentation", {"method": "csv"}, "table_train", "DATA/masks.csv", "no"),
    ("image-processing", {}, "feature_folder", "DATA/empty", NO_IMAGES),
    ("image-processing", VALIDATION, "validation_feature_folder", "DATA/empty", NO_IMAGES),
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
    sources: Path, kind: str, others: dict[str, str], field: str, value: str, words: str
) -> None:
    sent = {name: text.replace("DATA", str(sources)) for name, text in {field: value, **others}.items()}
    assert words in " ".join(Forms(kind, sources).errors(**sent)[field])


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
