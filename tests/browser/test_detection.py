"""Object detection in the browser: from annotations to boxes on an image."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import (
    JOB_PAGE,
    ServerProcess,
    check_accessibility,
    create_dataset,
    fill_size,
    open_panel,
    train_model,
)


@pytest.fixture(scope="module")
def folder(server: ServerProcess) -> Path:
    """Images of a bright square, and their YOLO files, in the server's data folder."""
    folder = server.data / "squares"
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    (folder / "classes.txt").write_text("square\n")
    chance = np.random.default_rng(0)
    for number in range(32):
        pixels = chance.integers(0, 60, (32, 32), np.uint8)
        top, left = chance.integers(0, 20, 2)
        pixels[top : top + 12, left : left + 12] = 220
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        line = f"0 {(left + 6) / 32} {(top + 6) / 32} {12 / 32} {12 / 32}"
        (folder / "labels" / f"{number}.txt").write_text(line)
    return folder


@pytest.mark.tensorflow
def test_from_annotations_to_detected_objects(page: Page, page_faults: object, folder: Path) -> None:
    page.goto("/datasets/images/classification/new")
    page.get_by_role("link", name="Detection").click()
    page.locator('[name="train_image_folder"]').fill(str(folder / "images"))
    open_panel(page, "Annotations elsewhere")
    page.locator('[name="train_label_folder"]').fill(str(folder / "labels"))
    contents = page.get_by_role("region", name="Contents of the source")
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("YOLO annotations: 32 images with 32 objects of 1 class.")
    page.get_by_label("Format", exact=True).select_option("KITTI")
    expect(findings).to_contain_text("5 columns instead of 15")
    page.get_by_label("Format", exact=True).select_option("Detect automatically")
    expect(contents).to_contain_text("Objects per class")
    fill_size(page, 32)
    page.get_by_label("Grayscale").check()
    check_accessibility(page)
    create_dataset(page)
    expect(page.get_by_role("heading", name="Objects per class")).to_be_visible()
    formats = page.get_by_role("region", name="Download").get_by_role("link")
    expect(formats).to_have_text(["COCO", "Pascal VOC", "YOLO", "TFRecord", "Statistics", "Formats"])
    check_accessibility(page)
    explored = page.request.get(f"/datasets/images/detection/explore?job_id={page.url.rsplit('/', 1)[1]}")
    assert "To edit boxes in Label Studio or CVAT" in explored.text()

    page.get_by_role("link", name="Train a model").first.click()
    expect(page.locator("#headline")).to_contain_text("detector")
    train_model(page, epochs=6)
    expect(page.locator('[data-chart="map"]')).to_have_attribute("data-points", re.compile("[1-9]"))

    page.get_by_role("tab", name="Try").click()
    page.locator("#image-file").set_input_files(folder / "images" / "3.png")
    slider = page.get_by_role("slider", name="Minimum score")
    slider.focus()
    slider.press("Home")
    boxes, rows = page.locator("#predictions .box"), page.locator("#predictions li")
    total = rows.count()
    expect(page.locator("#predictions [data-count]")).to_have_text(f"{total} of {total} detections shown")
    expect(rows.first).to_contain_text("square")
    assert boxes.count() == total > 0
    check_accessibility(page)
    slider.press("End")
    expect(page.locator("#predictions .box:visible")).to_have_count(0)
    expect(slider).to_have_attribute("aria-valuetext", "100%")


def test_annotated_images_are_added_and_a_new_class_is_asked_about(
    page: Page, page_faults: object, server: ServerProcess, folder: Path
) -> None:
    fields = {
        "dataset_name": "squares",
        "train_image_folder": str(folder),
        "resize_width": 32,
        "resize_height": 32,
    }
    created = page.request.post("/datasets/images/detection.json", form=fields).json()["id"]
    page.goto(f"/datasets/{created}")
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=30_000)
    page.get_by_role("link", name="Add images").click()
    expect(page.get_by_role("heading", name="Add images", level=1)).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("squares, version 2")
    more = server.data / "more"
    for name in ("images", "labels"):
        (more / name).mkdir(parents=True)
    for number in range(4):
        pixels = np.full((32, 32), 10 * number, np.uint8)
        Image.fromarray(pixels).save(more / "images" / f"{number}.png")
        (more / "labels" / f"{number}.txt").write_text(f"{number % 2} 0.5 0.5 0.25 0.25")
    (more / "classes.txt").write_text("square\ncircle\n")
    page.locator('[name="train_image_folder"]').fill(str(more))
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("YOLO annotations: 4 images with 4 objects of 2 classes.")
    expect(findings).to_contain_text("The dataset does not have 1 class of the new images: circle.")
    button = page.get_by_role("button", name="Create version")
    expect(button).to_have_attribute("aria-disabled", "true")
    check_accessibility(page)
    findings.get_by_role("button", name="Add new classes").click()
    expect(page.get_by_label("Add classes that the dataset does not have")).to_be_checked()
    expect(button).not_to_have_attribute("aria-disabled", "true")
    check_accessibility(page)
    button.click()
    page.wait_for_url(re.compile(JOB_PAGE))
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=30_000)
    expect(page.get_by_text("images added")).to_be_visible()
    expect(page.get_by_role("heading", name="Objects per class")).to_be_visible()
    expect(page.locator("#counts")).to_contain_text("circle")
