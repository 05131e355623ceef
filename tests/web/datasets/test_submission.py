"""The form of datasets: what the server fills in after each change, from what was found in the source."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from PIL import Image

from tests.site import Site, bars

FORM = "/datasets/images/classification"

pytestmark = pytest.mark.integration


class Page:
    """The page of the form: it reads the source and sends its fields, as dataset_form.js does."""

    def __init__(self, site: Site, **fields: Any) -> None:
        self.site, self.fields = site, {"own": "", "method": "folder", **fields}

    def change(self, **fields: Any) -> str:
        self.fields |= fields
        self.text = html.unescape(self.site.post(f"{FORM}/form", **self.fields).text)
        names = re.findall(r'name="(stopped|scan|dataset_name|resize_width|resize_height)"', self.text)
        self.fields |= {name: self.value(name) for name in names}
        return self.text

    def value(self, name: str) -> str:
        control = re.search(rf'<input[^>]*name="{name}"[^>]*?value="([^"]*)"', self.text)
        return control[1] if control else ""

    def read(self) -> str:
        """Read the source, and show what was found."""
        (*_, line) = self.site.post(f"{FORM}/scan", **self.fields).text.splitlines()
        found = json.loads(line)
        self.drawn = found.pop("html")
        return self.change(found=json.dumps(found), found_scan=self.fields["scan"])


def test_open_fields_follow_the_source(site: Site) -> None:
    page = Page(site, resize_width="256", resize_height="256")
    folder = bars(site.data / "photos")
    assert "source-first" not in page.change()
    page.change(folder_train=str(folder))
    assert "data-given" in page.text and page.value("dataset_name") == "photos"
    page.read()
    assert page.value("resize_width") == "16" and page.value("dataset_name") == "photos"
    assert "24 images in 3 classes." in page.text and "About 18 training, 6 validation" in page.text
    assert "As they will be stored: 16×16 pixels" in page.drawn and "aria-disabled" not in page.text

    # A size that was entered stays, and the recommended one is offered.
    scan = page.value("scan")
    page.change(own="resize_width,dataset_name", resize_width="20", dataset_name="mine")
    assert page.value("resize_width") == "20" and page.value("dataset_name") == "mine"
    assert page.value("scan") != scan and "data-recommended>Use this" in page.text


def test_problems_stop_the_button_and_folders_beside_the_given_one_do_not(site: Site) -> None:
    page = Page(site, folder_train=str(site.data / "nothing"))
    page.change()
    page.read()
    assert "does not exist" in page.text and 'data-reason="Fix the problem above first."' in page.text
    for split in ("train", "test"):
        bars(site.data / "split" / split)
    page.change(folder_train=str(site.data / "split" / "train"), beside="y")
    assert "Fix the problem above first." in page.text and "Reading the source" in page.text
    page.read()
    assert "aria-disabled" not in page.text and "Reading the source" not in page.text
    assert "Also used: test/ for test, beside train/." in page.text and "24 test" in page.text
    del page.fields["beside"]
    page.change()
    page.read()
    assert "Found test/ for test, beside train/." in page.text and "24 test" not in page.text


def test_images_without_colors_are_stored_in_grayscale(site: Site) -> None:
    folder = bars(site.data / "gray", each=2)
    for path in folder.rglob("*.png"):
        Image.open(path).convert("L").convert("RGB").save(path)
    page = Page(site, folder_train=str(folder), resize_channels="3")
    page.change()
    page.read()
    assert re.search(r'name="resize_channels" value="1" checked', page.text)
    assert "No image examined has colors" in page.text
    assert re.search(r'name="resize_channels" value="3" checked', page.change(own="resize_channels"))


def test_errors_of_a_refused_form_are_shown(site: Site) -> None:
    page = Page(site, refused=json.dumps({"folder_train": ["Enter a folder."], "nothing": ["odd"]}))
    assert (
        "Please fix these fields" in page.change() and 'id="folder_train-error">Enter a folder.' in page.text
    )


def test_a_form_that_is_sent_before_the_source_was_read_leaves_the_size_to_the_server(site: Site) -> None:
    fields = {"own": "", "folder_train": str(bars(site.data / "photos")), "dataset_name": "early"}
    sizes = {"resize_width": "256", "resize_height": "256", "resize_mode": "squash"}
    job_id = site.post(f"{FORM}.json", **fields, **sizes).get_json()["id"]
    assert site.wait_for_end(job_id) == "Done"
    assert "16×16" in site.get(f"/datasets/{job_id}").text
