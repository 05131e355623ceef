"""Pages a newcomer can reach, light and dark: no errors, external requests, or accessibility violations."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SCHEMES

PAGES = {
    "home": "/",
    "new dataset": "/datasets/images/classification/new",
    "new model": "/models/images/classification/new",
    "login": "/login",
    "documentation": "/docs/networks.html",
}


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_a_page_has_no_errors(page: Page, check_accessibility, path):
    page.goto(path)
    expect(page.locator("h1").first).to_be_visible()
    check_accessibility(page, SCHEMES)


@pytest.mark.parametrize(
    "path", ["/", *(pytest.param(path, marks=pytest.mark.nightly) for path in [*PAGES.values()][1:])]
)
def test_a_page_opens_in_dark_colors(page: Page, path):
    page.emulate_media(color_scheme="dark")
    page.goto(path)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("h1").first).to_be_visible()


def test_a_missing_page_is_reported(page: Page, page_faults, check_accessibility):
    page_faults.allow(r"/models/20200101-000000-abcdef$")
    answer = page.goto("/models/20200101-000000-abcdef")
    assert answer is not None and answer.status == 404
    expect(page.locator("h1").first).to_contain_text("Not found")
    check_accessibility(page)


def test_injected_inline_scripts_do_not_run(page: Page):
    """The content security policy blocks a script injected into a page."""
    answer = page.goto("/")
    assert answer is not None
    policy = answer.header_value("content-security-policy") or ""
    assert "default-src 'self'" in policy
    assert "script-src" not in policy and "unsafe-eval" not in policy
