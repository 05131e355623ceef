"""The page of step traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.tensorflow


def test_the_operations_of_a_step_are_drawn_and_listed(
    page: Page,
    trained: dict[str, Any],
    check_accessibility: Callable[[Page], None],
) -> None:
    page.goto(f"/models/{trained['id']}")
    page.get_by_role("link", name="Step traces").click()
    operations = page.locator("#operations tr")
    expect(operations.first).to_be_visible()
    assert 5 < operations.count() <= 20
    canvas = page.locator("#timeline-canvas")
    drawn = (
        "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
    )
    assert canvas.evaluate(drawn)
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Reset").click()
    check_accessibility(page)
