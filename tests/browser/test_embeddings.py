"""The map of embeddings: computing it, going from point to point, hiding classes, and the image of a point."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_accessibility

pytestmark = pytest.mark.tensorflow


def test_a_map_is_explored_with_mouse_and_keyboard(page: Page, trained: dict[str, Any]) -> None:
    page.goto(f"/models/{trained['id']}#evaluation")
    page.get_by_role("link", name="Embedding map").click()
    page.wait_for_load_state()
    form = page.locator("#map-form")
    form.locator('[name="split"]').select_option("Training")
    form.get_by_role("button", name="Compute").click()
    canvas = page.get_by_role("application")
    expect(canvas).to_be_visible(timeout=60_000)
    expect(page.get_by_role("radio", name="t-SNE")).to_be_checked(timeout=60_000)
    expect(page.locator("#embeddings .progress")).to_have_count(0, timeout=60_000)
    page.wait_for_load_state()
    legend = page.locator("#map-legend")
    expect(legend.get_by_role("checkbox")).to_have_count(3)
    check_accessibility(page)

    spoken = page.locator("#map-point")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    expect(spoken).to_have_text(re.compile(r"^Record \d+, (left|middle|right), predicted"))
    first = spoken.inner_text()
    page.keyboard.press("ArrowDown")
    expect(spoken).not_to_have_text(first)
    page.keyboard.press("ArrowUp")
    expect(spoken).to_have_text(first)
    page.keyboard.press("+")
    page.keyboard.press("0")
    expect(spoken).to_have_text(re.compile(r"^Record \d+, "))

    # Hidden points cannot be selected.
    legend.get_by_role("checkbox").nth(0).uncheck()
    legend.get_by_role("checkbox").nth(1).uncheck()
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    expect(spoken).to_have_text(re.compile(r"^Record \d+, right"))
    page.get_by_role("radio", name="PCA").check(force=True)
    page.get_by_role("radio", name="Right or wrong").check(force=True)
    expect(legend).to_contain_text("Right")

    canvas.focus()
    page.keyboard.press("ArrowLeft")
    record = re.sub(r"^Record (\d+),.*", r"\1", spoken.inner_text())
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("#map-record figure")).to_contain_text(f"Record {record}")
    check_accessibility(page)

    # A click on a point opens its image, too.
    canvas.focus()
    page.keyboard.press("ArrowRight")
    place, frame = (
        page.locator("#map-hint").evaluate("({ style }) => [style.left, style.top]"),
        canvas.bounding_box(),
    )
    assert frame
    x, y = (float(each.removesuffix("px")) for each in place)
    page.mouse.click(frame["x"] + x, frame["y"] + y)
    expect(dialog).to_be_visible()
