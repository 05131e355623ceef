"""Semantic segmentation in the browser: from folders to a predicted mask."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import (
    ServerProcess,
    check_accessibility,
    create_dataset,
    customize,
    fill_size,
    train_model,
    write_network,
)

# Much faster than the U-Net.
PIXELS = """class UserModel(Tower):
    @model_property
    def inference(self):
        return slim.conv2d(self.x / 64.0, self.nclasses, 3, activation_fn=None)

    @model_property
    def loss(self):
        return digits.segmentation_loss(self.inference, self.y)
"""


@pytest.fixture
def root(server: ServerProcess) -> Path:
    """Images with a bright right half, and masks of it, in the server's data folder."""
    folder = server.data / "masked-halves"
    chance = np.random.default_rng(0)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for number in range(16):
        pixels = chance.integers(0, 60, (16, 16), np.uint8)
        pixels[:, 8:] += 120
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        Image.fromarray(np.uint8(255) * (pixels >= 100)).save(folder / "masks" / f"{number}.png")
    return folder


@pytest.mark.tensorflow
def test_from_folders_to_a_predicted_mask(page: Page, page_faults: object, root: Path) -> None:
    page.goto("/datasets/images/classification/new")
    page.get_by_role("link", name="Segmentation").click()
    page.locator('[name="feature_folder"]').fill(str(root))
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("16 images with label images.")
    expect(findings).to_contain_text("Used: images/ and masks/. 2 classes: background, foreground.")
    expect(page.locator(".source-previews .mask").first).to_be_visible()
    fill_size(page, 16)
    page.get_by_label("Grayscale").check()
    check_accessibility(page)
    create_dataset(page)
    expect(page.locator("#samples .mask").first).to_be_visible()
    check_accessibility(page)

    page.get_by_role("link", name="Train a model").first.click()
    expect(page.locator("#headline")).to_contain_text("U-Net")
    customize(page)
    page.get_by_role("radio", name="Custom", exact=True).check()
    write_network(page, PIXELS)
    train_model(page, epochs=1)
    for chart in ("loss", "miou", "iou", "pixel-accuracy"):
        expect(page.locator(f'[data-chart="{chart}"]')).to_have_attribute("data-points", re.compile("[1-9]"))
    expect(page.locator('[data-tile="miou-val"]')).to_contain_text("%")

    page.get_by_role("tab", name="Try").click()
    page.locator("#image-file").set_input_files(root / "images" / "3.png")
    mask = page.locator("#predictions .mask")
    expect(mask).to_be_visible(timeout=30_000)
    page.get_by_label("Opacity").fill("0")
    expect(mask).to_have_css("opacity", "0")
    expect(page.get_by_role("list", name="Share of each class")).to_contain_text("%")
    expect(page.get_by_role("link", name="Download mask")).to_have_attribute("download", "mask.png")
    check_accessibility(page)

    # Another view does not predict again, and remembers its settings.
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label("View", exact=True).select_option("Image segmentation")
    width = page.get_by_label("Line width")
    width.focus()
    page.keyboard.press("ArrowRight")
    expect(width).to_have_attribute("aria-valuetext", "4 px")
    page.get_by_label("Threshold").fill("99")
    shares = page.get_by_role("list", name="Share of each class")
    shares.get_by_role("button").first.click()
    expect(shares.get_by_role("button").first).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Colors").select_option("Paired")
    expect(page.locator('[data-highlight="1"] .class-swatch')).to_have_attribute(
        "style", re.compile("a6cee3")
    )
    expect(width).to_have_value("4")
    check_accessibility(page)
    assert not any("infer_one" in url for url in asked)
