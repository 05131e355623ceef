"""From an export of an annotation tool to a dataset, and back as a download."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerProcess, fill_size

pytestmark = pytest.mark.browser


@pytest.fixture
def folder(server: ServerProcess) -> Path:
    """Images with a bright square each, in the layout in which CVAT exports YOLO files."""
    folder = server.data / "from-cvat"
    (folder / "obj_train_data").mkdir(parents=True)
    (folder / "obj.names").write_text("square\n")
    (folder / "train.txt").write_text("data/obj_train_data/0.png\n")
    chance = np.random.default_rng(0)
    for number in range(12):
        pixels = chance.integers(0, 60, (32, 32), np.uint8)
        pixels[8:24, 4:20] = 220
        Image.fromarray(pixels).save(folder / "obj_train_data" / f"{number}.png")
        (folder / "obj_train_data" / f"{number}.txt").write_text("0 0.375 0.5 0.5 0.5\n")
    return folder


def test_a_dataset_is_created_from_an_export_and_downloaded(
    page: Page, check_accessibility: Callable[[Page], None], folder: Path, tmp_path: Path
) -> None:
    page.goto("/datasets/images/detection/new")
    page.locator('[name="train_image_folder"]').fill(str(folder))
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("YOLO annotations: 12 images with 12 objects of 1 class.")
    expect(findings).to_contain_text("The annotations are beside the images.")
    page.locator('[name="dataset_name"]').fill("From CVAT")
    fill_size(page, 64)
    page.get_by_label("Grayscale").check()
    page.get_by_role("button", name="Create dataset").click()
    expect(page).to_have_url(re.compile(r"/datasets/\d{8}-\d{6}-[0-9a-f]+$"))

    downloads = page.get_by_role("region", name="Download")
    expect(downloads.get_by_role("link")).to_have_text(
        ["COCO", "Pascal VOC", "YOLO", "TFRecord", "Statistics", "Formats"], timeout=60_000
    )
    check_accessibility(page)
    with page.expect_download() as started:
        downloads.get_by_role("link", name="COCO").click()
    started.value.save_as(tmp_path / "coco.zip")
    with zipfile.ZipFile(tmp_path / "coco.zip") as archive:
        assert archive.testzip() is None
        content = json.loads(archive.read("annotations/instances_train.json"))
    assert len(content["images"]) == len(content["annotations"]) == 9
    assert content["annotations"][0]["bbox"] == [8, 16, 32, 32]

    page.get_by_role("link", name="Explore").first.click()
    hint = page.get_by_text("To edit boxes in Label Studio or CVAT")
    expect(hint.get_by_role("link", name="download the dataset as COCO")).to_be_visible()
    check_accessibility(page)
