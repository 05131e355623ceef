"""Paths in a CSV file are relative to its own folder, also in that of a separate split."""

from __future__ import annotations

import re
from pathlib import Path

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
