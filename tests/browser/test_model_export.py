"""Exporting a snapshot on the page of a model."""

from __future__ import annotations

import zipfile
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import REFRESH, check_accessibility

pytestmark = pytest.mark.tensorflow


def test_a_snapshot_is_exported_and_downloaded(page: Page, trained: dict[str, Any]) -> None:
    page.goto(f"/models/{trained['id']}#snapshots")
    page.wait_for_load_state()
    page.get_by_role("link", name="Export Epoch 1").press("Enter")
    expect(page.get_by_role("tab", name="Try")).to_have_attribute("aria-selected", "true")
    panel = page.locator("#export")
    choice = panel.get_by_label("Format")
    expect(panel.get_by_label("Snapshot")).to_have_value("1")
    choice.select_option("ONNX")
    page.evaluate(REFRESH)
    expect(panel.get_by_label("Snapshot")).to_have_value("1")
    expect(panel.locator("#export-use")).to_contain_text("ONNX Runtime")
    check_accessibility(page)
    panel.get_by_role("button", name="Export").click()
    expect(panel.locator("#export-status")).to_be_focused()
    result = panel.get_by_role("link", name="Epoch 1, ONNX")
    expect(result).to_be_visible(timeout=60_000)
    expect(panel).to_contain_text("100% equal predictions")
    check_accessibility(page)
    with page.expect_download() as downloading:
        result.click()
    with zipfile.ZipFile(downloading.value.path()) as archive:
        assert {"model.onnx", "example.py", "labels.txt", "MODEL_CARD.md"} <= set(archive.namelist())

    panel.get_by_label("Format").select_option("Keras")
    panel.get_by_role("button", name="Export").click()
    expect(panel.get_by_text("cannot be exported as a Keras model")).to_be_visible(timeout=60_000)
    check_accessibility(page)
