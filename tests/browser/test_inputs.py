"""Models that predict from something other than an image file: a text, slopes, and two images."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import (
    PageFaults,
    ServerProcess,
    check_accessibility,
    create_dataset,
    fill_size,
    finished,
)


def create(server: ServerProcess, path: str, **fields: Any) -> dict[str, Any]:
    """Create a job as a script would, and wait until it is done."""
    with urlopen(server / f"{path}.json", urlencode(fields).encode(), timeout=60) as answer:
        return finished(server, json.load(answer))


@pytest.fixture
def texts(server: ServerProcess) -> Path:
    """A table of texts of two classes."""
    folder = server.data / "topics"
    folder.mkdir()
    path = folder / "train.csv"
    path.write_text("class,text\n" + "animal,the cat and the dog\nnumber,twelve and thirty\n" * 20)
    return path


@pytest.mark.nightly
@pytest.mark.tensorflow
def test_from_a_table_to_the_class_of_a_text(
    page: Page, server: ServerProcess, page_faults: object, texts: Path
) -> None:
    page.goto("/datasets/text/classification/new")
    page.get_by_label("CSV file", exact=True).fill(str(texts))
    expect(page.locator("#source-findings")).to_contain_text("40 texts in 2 classes.")
    expect(page.get_by_label("Name", exact=True)).to_have_value("topics")
    page.get_by_label("Characters per text").fill("64")
    check_accessibility(page)
    create_dataset(page)
    dataset = page.url.rsplit("/", 1)[1]
    page.get_by_role("link", name="Explore", exact=True).first.click()
    expect(page.locator(".gallery .snippet").first).to_contain_text(re.compile("cat|twelve"))
    check_accessibility(page)

    model = create(server, "models/text/classification", model_name="Topics", dataset=dataset, train_epochs=1)
    page.goto(f"/models/{model['id']}#try")
    expect(page.locator("#drop")).to_have_count(0)
    page.get_by_label("Text", exact=True).fill("The dog\nand the cat")
    page.get_by_role("button", name="Classify", exact=True).click()
    expect(page.locator("#predictions .prediction")).to_have_count(2, timeout=30_000)
    expect(page.locator("#classify-time")).to_contain_text("Epoch")
    check_accessibility(page)


@pytest.mark.nightly
@pytest.mark.tensorflow
def test_slopes_are_predicted_from_fields_and_drawn(
    page: Page, server: ServerProcess, page_faults: PageFaults
) -> None:
    page.goto("/datasets/images/gradients/new")
    page.get_by_label("Training images").fill("64")
    page.get_by_label("Validation images").fill("16")
    page.get_by_label("Name", exact=True).fill("Ramps")
    check_accessibility(page)
    create_dataset(page)
    dataset = page.url.rsplit("/", 1)[1]

    # The recommended settings do not shift or flip the images, because this would change their slopes.
    page.goto(f"/models/images/gradients/new?dataset={dataset}")
    expect(page.locator('[name="aug_pad_crop"]')).to_have_count(0)
    expect(page.locator(".edited-note")).to_have_count(0)
    expect(page.locator("[data-state]")).to_have_text("Recommended")
    expect(page.locator('[name="use_mean"]:checked')).to_have_value("pixel")

    model = create(server, "models/images/gradients", model_name="Ramps", dataset=dataset, train_epochs=1)
    page.goto(f"/datasets/images/gradients/explore?job_id={dataset}")
    expect(page.locator(".gallery .arrow-drawing").first).to_be_visible()
    page.goto(f"/models/{model['id']}#try")
    page.get_by_label("Horizontal gradient").fill("0.4")
    page.get_by_label("Vertical gradient").fill("-0.2")
    page.get_by_role("button", name="Predict", exact=True).first.click()
    expect(page.locator("#predictions .arrow-drawing")).to_be_visible(timeout=30_000)
    expect(page.locator("#predictions tbody tr")).to_have_count(2)
    check_accessibility(page)
    page_faults.allow("/infer_one")
    page.get_by_label("Vertical gradient").fill("")
    page.get_by_role("button", name="Predict", exact=True).first.click()
    expect(page.locator("#predictions")).to_contain_text("must be a number from -0.5 to 0.5")


@pytest.mark.tensorflow
def test_two_images_are_compared(
    page: Page, server: ServerProcess, image_folder: Path, page_faults: object
) -> None:
    # Other tests add a file that is not an image, which may be in more pairs than the limit allows.
    folder = server.data / "compared"
    shutil.copytree(image_folder, folder, ignore=shutil.ignore_patterns("broken.png"))
    page.goto("/datasets/images/pairs/new")
    page.get_by_label("CSV file or folder", exact=True).fill(str(folder))
    expect(page.locator("#source-findings")).to_contain_text("in 3 classes.")
    page.get_by_label("Training pairs").fill("48")
    fill_size(page, 16)
    check_accessibility(page)
    create_dataset(page)
    dataset = page.url.rsplit("/", 1)[1]
    model = create(server, "models/images/pairs", model_name="Pairs", dataset=dataset, train_epochs=1)
    page.goto(f"/datasets/images/pairs/explore?job_id={dataset}")
    expect(page.locator(".gallery img").first).to_be_visible()
    check_accessibility(page)
    page.goto(f"/models/{model['id']}#try")
    page.get_by_label("First image").set_input_files(image_folder / "left" / "00.png")
    expect(page.locator(".drop-image").first).to_be_visible()
    form = page.locator("form").filter(has=page.get_by_label("First image"))
    form.get_by_label("Or its path on the server").last.fill(str(image_folder / "left" / "01.png"))
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#predictions")).to_contain_text(re.compile("Same|Different"), timeout=30_000)
    check_accessibility(page)
