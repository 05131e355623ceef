"""Sources without any image, text or row are refused in the form, at the field that names them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


@pytest.mark.parametrize(
    ("route", "fields", "field", "words"),
    [
        ("images/classification", {"folder_train": "DATA/classes"}, "folder_train", NO_IMAGES),
        (
            "images/classification",
            {"method": "huggingface", "dataset_folder": "DATA/empty"},
            "dataset_folder",
            NO_IMAGES,
        ),
        (
            "images/classification",
            {"method": "huggingface", "dataset_folder": "DATA/hub"},
            "dataset_folder",
            NO_IMAGES,
        ),
        (
            "images/classification",
            {"method": "huggingface", "dataset_folder": "DATA/table"},
            "dataset_folder",
            NO_ROWS,
        ),
        (
            "images/classification",
            {"method": "huggingface", "dataset_folder": "DATA/hub.parquet"},
            "dataset_folder",
            NO_ROWS,
        ),
        (
            "images/classification",
            {"method": "csv", "table_train": "DATA/header.csv"},
            "table_train_file",
            NO_ROWS,
        ),
        (
            "images/classification",
            {
                "method": "textfile",
                "textfile_use_local_files": "y",
                "textfile_use_val": "",
                "textfile_local_train_images": "DATA/blank.csv",
                "textfile_local_labels_file": "DATA/labels.txt",
            },
            "textfile_local_train_images",
            "is empty",
        ),
        ("images/detection", {"train_image_folder": "DATA/empty"}, "train_label_folder", "No annotations"),
        (
            "images/detection",
            {"train_image_folder": "DATA/empty", "train_label_folder": "DATA/box.csv"},
            "train_image_folder",
            NO_IMAGES,
        ),
        (
            "images/detection",
            {"train_image_folder": "DATA/bars", "train_label_folder": "DATA/boxes.csv"},
            "train_label_folder",
            NO_ROWS,
        ),
        ("images/segmentation", {"feature_folder": "DATA/both"}, "feature_folder", NO_IMAGES),
        (
            "images/segmentation",
            {"feature_folder": "DATA/bars", "label_folder": "DATA/empty"},
            "label_folder",
            NO_IMAGES,
        ),
        ("images/segmentation", {"method": "csv", "table_train": "DATA/masks.csv"}, "table_train", "no"),
        ("images/processing", {"feature_folder": "DATA/empty"}, "feature_folder", NO_IMAGES),
        (
            "images/processing",
            {
                "feature_folder": "DATA/bars",
                "has_val_folder": "y",
                "validation_feature_folder": "DATA/empty",
            },
            "validation_feature_folder",
            NO_IMAGES,
        ),
        ("images/gan", {"image_folder": "DATA/empty"}, "image_folder", NO_IMAGES),
        ("images/pairs", {"pair_source": "DATA/empty"}, "pair_source", NO_IMAGES),
        ("images/pairs", {"pair_source": "DATA/header.csv"}, "pair_source", NO_ROWS),
        ("images/pairs", {"pair_source": "DATA/bars", "val_source": "DATA/empty"}, "val_source", NO_IMAGES),
        ("images/regression", {"table_train": "DATA/header.csv"}, "table_train", NO_ROWS),
        ("images/multilabel", {"table_train": "DATA/labels.csv"}, "table_train", NO_ROWS),
        ("text/classification", {"train_data_file": "DATA/texts.csv"}, "train_data_file", NO_ROWS),
        ("text/classification", {"train_data_file": "DATA/blank.csv"}, "train_data_file", NO_ROWS),
    ],
)
def test_an_empty_source_is_an_error_of_its_field(
    site: Site, route: str, fields: dict[str, str], field: str, words: str
) -> None:
    write_sources(site.data)
    filled = {name: value.replace("DATA", str(site.data)) for name, value in fields.items()}
    answer = site.post(
        f"/datasets/{route}.json", dataset_name="a", resize_width=16, resize_height=16, **filled
    )
    assert answer.status_code == 400, answer.get_json()
    assert words in " ".join(answer.get_json()["errors"][field])


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
