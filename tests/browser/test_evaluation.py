"""Evaluating a model: the button on its page, the confusion matrix, and the images behind its numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_accessibility

pytestmark = pytest.mark.tensorflow


def test_a_number_of_the_matrix_opens_its_images(
    page: Page, dataset: dict[str, Any], trained: dict[str, Any]
) -> None:
    page.goto(f"/models/{trained['id']}")
    page.wait_for_load_state()
    panel = page.locator("#evaluation")
    panel.locator("summary").click()
    panel.locator('[name="split"]').select_option("Training")
    panel.get_by_role("button", name="Evaluate").click()
    result = panel.get_by_role("link", name="Epoch 2, training")
    expect(result).to_be_visible(timeout=60_000)
    check_accessibility(page)

    result.click()
    expect(page.get_by_role("heading", name="Evaluation of Trained")).to_be_visible()
    numbers = page.locator(".matrix td a")
    expect(numbers.first).to_be_visible()
    check_accessibility(page)
    slider = page.get_by_role("slider", name="Threshold")
    slider.focus()
    slider.press("Home")
    expect(page.locator("#threshold-words")).to_contain_text("recall 100.0%")
    page.get_by_role("link", name="Most confused first").click()
    expect(page.get_by_role("link", name="Most confused first")).to_have_attribute("aria-current", "true")

    count = numbers.first.inner_text()
    numbers.first.press("Enter")
    expect(page.locator("#explore-total")).to_contain_text(
        re.compile(rf"^\s*{count} of \d+ training images match")
    )
    expect(page.locator("#filter-evaluation")).to_contain_text("Sorted by the error of “Trained”")
    page.locator("#filter-predicted").press("Enter")
    expect(page.locator("#filter-predicted")).to_have_count(0)
    check_accessibility(page)

    page.goto(f"/datasets/{dataset['id']}/results?split=train")
    check_accessibility(page)
    page.get_by_role("button", name="Promote Trained").click()
    dialog = page.get_by_role("dialog", name="Promote “Trained”")
    expect(dialog.get_by_label("Production name")).to_be_focused()
    check_accessibility(page)
    page.keyboard.type("judge")
    dialog.get_by_role("button", name="Promote").click()
    expect(page.get_by_role("heading", name="Production models")).to_be_visible()
    page.goto(f"/datasets/{dataset['id']}/results?split=train")
    expect(page.get_by_role("link", name="Production: judge")).to_be_visible()
    assert page.request.delete("/serve/judge").ok


def test_printed_pages_show_all_sections_in_light_colors_without_controls(
    page: Page, trained: dict[str, Any]
) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"/models/{trained['id']}")
    expect(page.locator("#chart-loss")).to_have_attribute("data-state", "ready")
    network = page.locator("#network-text")
    expect(network).to_be_hidden()
    page.evaluate("window.print = () => dispatchEvent(new Event('beforeprint'))")
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("button", name="Print", exact=True).click()
    page.emulate_media(media="print")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    for part in (network, page.locator("#chart-loss canvas"), page.get_by_text("Dataset hash")):
        expect(part).to_be_visible()
    expect(page.get_by_role("button")).to_have_count(0)
    expect(page.locator("input, select").and_(page.locator(":visible"))).to_have_count(0)
    paper, chart = page.locator("#main").bounding_box(), page.locator("#chart-loss canvas").bounding_box()
    assert paper and chart and chart["width"] < paper["width"] / 2
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
