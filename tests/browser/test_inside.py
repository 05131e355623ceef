"""The page of a model's layers: heat maps, tiles, filters, and what they say without a mouse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_accessibility

pytestmark = pytest.mark.tensorflow


def test_from_the_model_to_its_layers_and_heat_maps(
    page: Page, page_faults: Any, trained: dict[str, Any], image_folder: Path
) -> None:
    page_faults.allow("/models/[^/]+/(inside|heat-map)$|/models/image")
    page.goto(f"/models/{trained['id']}")
    page.wait_for_load_state()

    # The predictions for the same images in each epoch.
    page.get_by_role("tab", name="Details").click()
    page.locator("#epochs-panel summary").click()
    epochs = page.locator("#epochs-panel")
    expect(epochs.get_by_role("slider", name="Epoch")).to_have_attribute(
        "aria-valuetext", "Epoch 2", timeout=60_000
    )
    epochs.get_by_role("slider", name="Epoch").press("ArrowLeft")
    expect(epochs.locator("[data-epoch='1']")).to_be_visible()
    expect(epochs.locator("[data-epoch='2']")).to_be_hidden()
    expect(epochs.locator("[data-epoch='1'] figcaption").first).to_contain_text("%")
    check_accessibility(page)

    page.get_by_role("tab", name="Try").click()
    page.get_by_role("link", name="Inside the network").click()

    # A record of the dataset is shown at once.
    heat_map, layers = page.locator("#heat-map"), page.locator("#layer-results")
    overlay = heat_map.get_by_role("img", name="by Grad-CAM")
    expect(overlay).to_be_visible(timeout=60_000)
    expect(layers.get_by_role("img", name="Maps").first).to_be_visible()
    assert overlay.evaluate("image => image.decode().then(() => image.naturalWidth)") == 16
    expect(layers.get_by_role("heading", level=3)).to_have_count(2)  # those with weights
    check_accessibility(page)

    # The latest choice counts: an image, then another method, output and layers.
    page.get_by_label("Or enter a path on the server").fill(str(image_folder / "right" / "00.png"))
    page.get_by_label("Or enter a path on the server").press("Tab")
    expect(page.get_by_label("Or a record of the dataset")).to_have_value("")
    page.get_by_role("radio", name="Integrated gradients").check()
    expect(heat_map.get_by_role("img", name="by Integrated gradients")).to_be_visible()
    expect(page.get_by_label("Layer", exact=True)).to_be_hidden()
    page.get_by_label("Output", exact=True).select_option("right")
    expect(heat_map.get_by_role("img", name="Heat map of right")).to_be_visible()
    page.get_by_role("button", name="All", exact=True).click()
    page.get_by_role("button", name="Show layers").press("Enter")
    expect(layers.get_by_role("heading", level=3)).to_have_count(3)

    page.get_by_role("button", name="Show filters").click()
    slider = page.get_by_role("slider", name="Epoch")
    expect(slider).to_have_attribute("aria-valuetext", "Epoch 2")
    slider.press("ArrowLeft")
    expect(page.get_by_role("img", name="Filters after epoch 1")).to_be_visible()
    expect(page.get_by_role("img", name="Filters after epoch 2")).to_be_hidden()
    check_accessibility(page)

    # A file that is not an image is explained in both parts.
    page.get_by_label("Or enter a path on the server").fill(str(image_folder / "left" / "broken.png"))
    page.get_by_label("Or enter a path on the server").press("Tab")
    expect(heat_map.get_by_role("alert")).to_contain_text("image cannot be read")
    expect(layers.get_by_role("alert")).to_contain_text("image cannot be read")
