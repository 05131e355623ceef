"""Fixing labels in the gallery: select, exclude, relabel and move images, then save a new version."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerProcess
from tests.site import bars

pytestmark = pytest.mark.browser


@pytest.fixture
def images(server: ServerProcess) -> Path:
    return bars(server.data / "bars")


def test_images_are_changed_in_a_new_version(
    page: Page, page_faults: object, check_accessibility: Callable[[Page], None], images: Path
) -> None:
    page.goto("/datasets/images/classification/new")
    page.locator("#folder_train").fill(str(images))
    for name in ("resize_width", "resize_height"):
        page.locator(f'[name="{name}"]').fill("16")
    page.get_by_label("Name", exact=True).fill("Bars")
    page.get_by_role("button", name="Create dataset").click()
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=30_000)
    page.get_by_role("link", name="Explore").first.click()
    page.get_by_role("button", name="Edit").click()
    choices = page.get_by_role("checkbox")
    expect(page.get_by_role("button", name="Exclude")).to_be_disabled()
    choices.nth(0).click()
    choices.nth(2).click(modifiers=["Shift"])
    expect(page.locator("#edit-status")).to_have_text("3 selected.")
    page.get_by_role("button", name="Exclude").click()
    choices.nth(4).focus()
    page.keyboard.press("Space")
    page.get_by_label("New class").select_option("right")
    page.get_by_role("button", name="Relabel").click()
    choices.nth(5).click()
    page.get_by_label("New split").select_option("Validation")
    page.get_by_role("button", name="Move").click()
    choices.nth(6).focus()
    page.keyboard.press("x")
    choices.nth(6).click()
    page.get_by_role("button", name="Undo changes").click()
    words = "3 images excluded, 1 image relabeled, 1 image moved"
    expect(page.locator("#edit-status")).to_contain_text(words)
    check_accessibility(page)

    # Unsaved changes survive a reload, and the dataset is unchanged.
    page.reload()
    expect(page.locator("#edit-status")).to_contain_text(words)
    expect(page.locator(".change")).to_have_count(5)
    expect(page.locator("#explore-total")).to_contain_text("18 training images")
    page.get_by_role("link", name="Save as new version").click()
    expect(page.locator("#changes")).to_have_text(f"{words}.")
    expect(page.get_by_label("Name", exact=True)).to_have_value("Bars, version 2")
    check_accessibility(page)
    page.get_by_role("button", name="Create version").click()
    expect(page).to_have_url(re.compile(r"/datasets/\d{8}-\d{6}-[0-9a-f]+$"))
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=30_000)
    expect(page.locator("#dataset-facts")).to_contain_text(words)
    expect(page.locator("#dataset-summary")).to_contain_text("14")
    page.locator("#dataset-facts").get_by_role("link", name="Bars").click()
    page.get_by_role("link", name="Explore").first.click()
    expect(page.locator(".change")).to_have_count(0)
