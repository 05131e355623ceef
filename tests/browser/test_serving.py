"""Production models: promoting a snapshot on the page of a model, and the list of names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_accessibility

pytestmark = pytest.mark.tensorflow


def test_a_model_is_promoted_used_and_removed(
    page: Page, trained: dict[str, Any], image_folder: Path
) -> None:
    page.goto(f"/models/{trained['id']}#try")
    page.wait_for_load_state()
    panel = page.locator("#serving-panel")
    panel.locator("summary").click()
    expect(panel.locator("#production-names")).to_have_count(0)
    panel.get_by_label("Production name").fill("promoted-bars")
    check_accessibility(page)
    panel.get_by_role("button", name="Promote").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Production models")
    row = page.get_by_role("row").filter(has_text="promoted-bars")
    expect(row.get_by_role("link", name="Trained")).to_be_visible()
    check_accessibility(page)
    image = {"name": "image.png", "mimeType": "image/png"}
    upload = {"image": {**image, "buffer": sorted(image_folder.rglob("*.png"))[0].read_bytes()}}
    answer = page.request.post("/serve/promoted-bars", multipart=upload)
    assert answer.ok, answer.text()
    assert len(answer.json()["predictions"]) == 1

    row.get_by_role("link", name="Trained").click()
    page.wait_for_load_state()
    page.get_by_role("tab", name="Try").click()
    panel.locator("summary").click()
    expect(panel.locator("#production-names")).to_contain_text("/serve/promoted-bars")

    page.goto("/")
    page.get_by_role("link", name="Production models").click()
    page.wait_for_load_state()
    row.get_by_role("button", name="Remove promoted-bars").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    assert page.request.post("/serve/promoted-bars", multipart=upload).status == 404
