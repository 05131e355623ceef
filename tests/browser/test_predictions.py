"""Predictions for many images, from the page of a model to the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_accessibility

pytestmark = pytest.mark.tensorflow

# The headless shell of Chromium has no camera. This one shows a drawing.
CAMERA = """isAllowed => {
  navigator.mediaDevices.getUserMedia = async () => {
    if (!isAllowed) throw new DOMException('', 'NotAllowedError');
    const canvas = Object.assign(document.createElement('canvas'), { width: 320, height: 240 });
    const context = canvas.getContext('2d');
    setInterval(() => context.fillRect(Math.random() * 320, Math.random() * 240, 20, 20), 50);
    return canvas.captureStream();
  };
}"""


def test_a_folder_is_predicted_and_wrong_images_are_shown(
    page: Page, trained: dict[str, Any], image_folder: Path, tmp_path: Path
) -> None:
    page.goto(f"/models/{trained['id']}#try")
    page.wait_for_load_state()
    panel = page.locator("#many-panel")
    panel.locator("summary").click()
    panel.get_by_label("Folder or archive on the server").fill(str(image_folder))
    check_accessibility(page)
    panel.get_by_role("button", name="Predict all").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Predictions for")
    expect(page.locator("#prediction-tiles")).to_contain_text("Accuracy", timeout=60_000)
    expect(page.locator("#prediction-status")).to_have_attribute("data-state", "done", timeout=60_000)
    cards = page.locator(".prediction-cards > li")
    expect(cards.first).to_contain_text("%")
    assert cards.first.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    check_accessibility(page)
    page.get_by_role("link", name="Top per class").click()
    expect(page.locator(".top-images").first.locator("img").first).to_be_visible()
    check_accessibility(page)

    # A list with a class that is out of range.
    first = sorted(image_folder.rglob("*.png"))[0]
    images = tmp_path / "list.txt"
    images.write_text(f"{first} 99\n")
    page.goto(f"/models/{trained['id']}#try")
    page.wait_for_load_state()
    panel.locator("summary").click()
    expect(panel.get_by_role("link", name=image_folder.name)).to_be_visible()
    panel.locator("#many-files").set_input_files(images)
    panel.get_by_role("button", name="Predict all").click()
    expect(page.get_by_text("1 problem in the list")).to_be_visible()
    page.get_by_text("1 problem in the list").click()
    expect(page.get_by_text("Line 1: The class 99 is not between")).to_be_visible()
    expect(page.locator(".prediction-cards > li")).to_have_count(1, timeout=60_000)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Trained")
    expect(panel.locator("li")).to_have_count(1)

    # A photo of the camera; without the permission, a message.
    page.goto(f"/models/{trained['id']}#try")
    page.wait_for_load_state()
    page.evaluate(CAMERA, False)
    page.get_by_role("button", name="Use camera").click()
    dialog = page.get_by_role("dialog", name="Camera")
    expect(dialog.get_by_role("alert")).to_contain_text("may not use the camera")
    check_accessibility(page)
    dialog.get_by_role("button", name="Cancel").click()
    page.evaluate(CAMERA, True)
    page.get_by_role("button", name="Use camera").click()
    dialog.get_by_role("button", name="Take photo").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#predictions")).to_contain_text("%", timeout=60_000)
    assert page.locator("#classify-image").evaluate("image => image.naturalWidth") == 320
