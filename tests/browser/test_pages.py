"""Pages a newcomer can reach, light and dark: no errors, external requests, or accessibility violations."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SCHEMES, check_accessibility

PAGES = {
    "home": "/",
    "new dataset": "/datasets/images/classification/new",
    "new model": "/models/images/classification/new",
    "login": "/login",
    "documentation": "/docs/networks.html",
}


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_a_page_has_no_errors(page: Page, path):
    page.goto(path)
    expect(page.locator("h1").first).to_be_visible()
    check_accessibility(page, SCHEMES)


def test_a_page_opens_in_dark_colors(page: Page):
    page.emulate_media(color_scheme="dark")
    page.goto("/")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("h1").first).to_be_visible()


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/datasets/images/classification/new", "folder_train"),
        ("/models/images/classification/new", "dataset"),
    ],
)
def test_the_first_field_of_a_form_is_a_few_keys_away(page: Page, dataset, path: str, field: str):
    page.goto(path)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the form")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(4):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == field:
            break
    expect(page.locator(f'[name="{field}"]')).to_be_focused()
