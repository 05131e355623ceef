"""Evaluating a model: the button on its page, the confusion matrix, and the images behind its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.tensorflow


def test_a_number_of_the_matrix_opens_its_images(
    page: Page,
    dataset: dict[str, Any],
    trained: dict[str, Any],
    check_accessibility: Callable[[Page], None],
) -> None:
    page.goto(f"/models/{trained['id']}")
    page.wait_for_load_state()
    panel = page.locator("#evaluation")
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


def test_the_report_is_one_page_with_all_results(
    page: Page,
    dataset: dict[str, Any],
    trained: dict[str, Any],
    check_accessibility: Callable[[Page], None],
) -> None:
    assert page.request.post(f"/models/{trained['id']}/evaluation", form={"split": "train"}).ok
    page.goto(f"/models/{trained['id']}")
    expect(page.locator("#evaluation").get_by_role("link", name="Epoch 2, training")).to_be_visible(
        timeout=60_000
    )

    page.get_by_role("link", name="Report", exact=True).click()
    expect(page.get_by_role("heading", name="Trained", level=1)).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Loss: at the end: loss"))).to_be_visible()
    expect(page.get_by_role("table", name="Confusion matrix")).to_be_visible()
    picture = page.get_by_role("img", name=re.compile("^Image of ")).first
    expect(picture).to_have_js_property("naturalWidth", 16)
    check_accessibility(page)
    page.evaluate("window.print = () => { document.body.dataset.printed = 'yes' }")
    page.get_by_role("button", name="Print").click()
    expect(page.locator("body")).to_have_attribute("data-printed", "yes")
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation")).to_be_hidden()
    with page.expect_download() as started:
        page.emulate_media(media="screen")
        page.get_by_role("link", name="Download HTML").click()
    assert started.value.suggested_filename == "Trained-report.html"
