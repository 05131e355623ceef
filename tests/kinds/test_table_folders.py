"""The files of tables: separate splits, delimiters, and datasets of the Hugging Face Hub."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from digits.kinds.recipes import load_recipe, read_source
from tests.kinds.tables import Silent
from tests.site import Site

pytestmark = pytest.mark.integration

# The route of each kind, the fields for its tables, and the rows of the tables, which name the same files.
FORMS = {
    "images/regression": (("table_train", "table_val"), "image,size\n{}.png,1\n{}.png,2\n"),
    "images/multilabel": (("table_train", "table_val"), "image,labels\n{}.png,a\n{}.png,b\n"),
    "images/pairs": (("pair_source", "val_source"), "{0}.png,{1}.png,1\n{1}.png,{0}.png,0\n"),
}


@pytest.mark.parametrize("route", FORMS)
def test_images_of_validation_are_beside_their_table(site: Site, route: str) -> None:
    fields, text = FORMS[route]
    tables = dict(zip(fields, (_table(site.data / name, text) for name in ("train", "val")), strict=True))
    size = {"resize_width": 8, "resize_height": 8, "resize_channels": 1}
    job = site.post(f"/datasets/{route}.json", dataset_name="d", **size, **tables).get_json()["id"]
    assert site.wait_for_end(job) == "Done"
    plan = read_source(load_recipe(site.services.store.folder / job / "create"), Silent())
    for name, split in plan.splits.items():
        for place in range(len(split)):
            images = plan.read(split, place)
            assert images and all(image == (site.data / name / "0.png").read_bytes() for image in images)
    page = site.get(f"/datasets/{route}/new?clone={job}").get_data(as_text=True)
    field = re.search(r"<input[^>]*name=\"image_folder\"[^>]*>", page)
    assert field and 'value=""' in field[0]


def _table(folder: Path, text: str) -> str:
    """Write a table and two equal images, which differ from those of other folders."""
    folder.mkdir()
    for number in range(2):
        Image.new("L", (8, 8), len(folder.name) * 20).save(folder / f"{number}.png")
    (folder / "table.csv").write_text(text.format(0, 1))
    return str(folder / "table.csv")


SCANS = {
    "regression": ("^", {"target_columns": "size"}, ["image (image)", "size (target)"]),
    "multilabel": ("^", {"layout": "list"}, ["image (image)", "size (labels)"]),
    "classification": ("^", {"method": "csv"}, ["image (image)", "size (label)"]),
}


@pytest.mark.parametrize("kind", SCANS)
def test_the_first_rows_show_the_columns_of_any_delimiter(site: Site, kind: str) -> None:
    delimiter, fields, head = SCANS[kind]
    table = site.data / "table.csv"
    rows = [[f"{number}.png", str(number)] for number in range(7)]
    table.write_text("\n".join(delimiter.join(row) for row in [["image", "size"], *rows]))
    fields = {"table_train": str(table), "delimiter": delimiter, **fields}
    route = f"/datasets/images/{kind}"
    found = json.loads(site.post(f"{route}/scan", **fields).text.splitlines()[-1])
    assert (found["table_head"], found["table"]) == (head, rows[:5])
    refused = site.post(f"{route}.json", dataset_name="d", **{**fields, "delimiter": "ab"})
    assert refused.get_json()["errors"]["delimiter"] == ["Enter one character, or “tab”."]


@pytest.mark.parametrize("path", ["hub", "hub/data/train-00000-of-00002.parquet", "hub/data/train-*"])
def test_a_dataset_of_the_hub_becomes_a_dataset(site: Site, path: str) -> None:
    folder = site.data / "hub" / "data"
    folder.mkdir(parents=True)
    image = io.BytesIO()
    Image.new("L", (8, 8)).save(image, "PNG")
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test"):
        content = pa.table({"image": [image.getvalue()] * 4, "size": range(4)})
        pq.write_table(content, folder / f"{name}.parquet")
    fields = {"table_train": str(site.data / path), "pct_val": 25, "delimiter": "tab", "header": "yes"}
    found = json.loads(site.post("/datasets/images/regression/scan", **fields).text.splitlines()[-1])
    files = ["2 files for train" + (", 1 file for test." if path == "hub" else ".")]
    assert found["facts"][:2] == [*files, "8 rows with a number each: size."] and not found["problems"]
    suggested = {"table_test": str(folder / "test.parquet")}
    assert (found["suggestion"] or {}).get("fields") == (None if path == "hub" else suggested)
    size = {"resize_width": 8, "resize_height": 8, "resize_channels": 1}
    answer = site.post("/datasets/images/regression.json", dataset_name="d", **size, **fields)
    job = answer.get_json()["id"]
    assert site.wait_for_end(job) == "Done"
    recipe = load_recipe(site.services.store.folder / job / "create")
    splits = {name: len(split) for name, split in read_source(recipe, Silent()).splits.items()}
    assert splits == {"train": 6, "val": 2} | ({"test": 4} if path == "hub" else {})
    page = site.get(f"/datasets/images/regression/new?clone={job}").get_data(as_text=True)
    for name, value in (("image_folder", ""), ("delimiter", "tab"), ("table_train", str(site.data / path))):
        field = re.search(f'<input[^>]*name="{name}"[^>]*>', page)
        assert field and f'value="{value}"' in field[0]
