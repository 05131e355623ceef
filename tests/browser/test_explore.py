"""The gallery of a dataset: filters, and reviewing labels that are likely wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from digits.data import manifest as manifests
from digits.data.health import label_check
from digits.data.health.label_errors import LABEL_ERROR_DTYPE
from tests.browser.conftest import ServerProcess, check_accessibility, finished
from tests.site import bars


@pytest.fixture(scope="module")
def shapes(server: ServerProcess, create: Callable[..., dict[str, Any]]) -> str:
    """The id of a dataset of 36 images, 27 of them to train with."""
    fields = {"resize_width": 16, "resize_height": 16, "folder_pct_val": 25, "method": "folder"}
    folder = bars(server.data / "explored", each=12)
    job = create("datasets", dataset_name="Explored", folder_train=folder, **fields)
    return str(finished(server, job)["id"])


def test_records_are_filtered(page: Page, page_faults: object, shapes: str) -> None:
    page.goto(f"/datasets/{shapes}")
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.locator(".bins").first).to_be_visible()
    page.get_by_role("link", name="Explore").first.click()
    total, labels = page.locator("#explore-total"), page.locator(".gallery-label")
    expect(total).to_have_text("27 training images")

    # With the keyboard only
    search = page.get_by_role("searchbox", name="Search file names")
    search.focus()
    page.keyboard.type("LEFT/0")
    expect(total).to_contain_text("of 27 training images match")
    expect(search).to_be_focused()
    page.keyboard.type("3")
    expect(page).to_have_url(re.compile(r"q=left%2F03|q=LEFT%2F03"))
    page.get_by_role("radio", name="All").focus()
    page.keyboard.press("Space")
    expect(total).to_have_text("1 of 36 images matches")
    check_accessibility(page)
    page.get_by_role("link", name="Remove the filter: Name contains").focus()
    page.keyboard.press("Enter")
    expect(total).to_have_text("36 images")
    expect(search).to_be_focused()
    expect(search).to_have_value("")

    page.locator("#explore-label").select_option("2")
    page.get_by_text("Size and brightness").click()
    page.get_by_label("Source width below").fill("16")
    page.get_by_label("Source width below").press("Enter")
    expect(page.get_by_role("heading", name="No images match")).to_be_visible()
    check_accessibility(page)
    page.get_by_label("Source width below").fill("17")
    page.get_by_label("Source width below").press("Tab")
    expect(labels).to_have_count(12)
    assert set(labels.all_inner_texts()) == {"right"}
    chips = page.get_by_role("list", name="Active filters").get_by_role("link")
    expect(chips).to_have_text(
        ["Remove the filter: Class “right”", re.compile("width below 17 px"), "Clear filters"]
    )

    # The filters are in the URL.
    page.reload()
    expect(labels).to_have_count(12)
    expect(page.locator("#explore-label")).to_have_value("2")
    page.go_back()
    expect(page.get_by_role("heading", name="No images match")).to_be_visible()
    expect(page.get_by_label("Source width below")).to_have_value("16")
    page.get_by_role("link", name="Clear filters").first.click()
    expect(total).to_have_text("36 images")
    expect(page.locator("#explore-label")).to_have_value("")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.fixture
def wrong(server: ServerProcess, shapes: str) -> int:
    """Add the result of a search for wrong labels, and return their number."""
    folder: Path = server.jobs / shapes
    manifest = manifests.load(folder)
    found = np.zeros(12, LABEL_ERROR_DTYPE)
    found["number"], found["confidence"], found["suggested"] = range(12), 0.93, 2
    finding = label_check.describe(found, 36, "LeNet")
    check = label_check.LabelCheck(
        content_hash=manifest.content_hash,
        model_id="20261120-093000-a1b2c3",
        model_name="LeNet",
        snapshot="snapshot_1.ckpt",
        images=36,
        accuracy={"train": 0.6, "val": 0.5},
        seconds=1.0,
        finding=finding,
    )
    label_check.save(folder, check, found)
    return len(found)


def test_wrong_labels_are_reviewed_and_corrected(
    page: Page, page_faults: object, shapes: str, wrong: int
) -> None:
    page.goto(f"/datasets/{shapes}")
    finding = page.locator("#finding-label_errors")
    expect(finding).to_contain_text(str(wrong))
    finding.get_by_role("link", name="Likely wrong labels").click()
    expect(page.locator("#explore-total")).to_have_text("12 of 36 images match")
    expect(page.locator(".gallery-suggestion").first).to_have_text("Suggested: →right93%")
    page.get_by_role("button", name="Edit").click()
    page.locator("#explore-size").select_option("10")
    expect(page.locator("[data-suggested]")).to_have_count(10)
    choices = page.get_by_role("checkbox")
    choices.nth(1).click()
    choices.nth(2).focus()
    page.keyboard.press("Space")
    # A selection continues on the next page.
    page.get_by_role("link", name="Next").click()
    expect(page.locator("[data-suggested]")).to_have_count(2)
    choices.first.click()
    expect(page.locator("#edit-status")).to_have_text("3 selected.")
    page.get_by_role("button", name="Relabel as suggested").click()
    expect(page.locator("#edit-status")).to_contain_text("3 images relabeled")
    expect(page.locator(".change")).to_have_text("→ right")
    check_accessibility(page)
    page.get_by_role("link", name="Save as new version").click()
    expect(page.locator("#changes")).to_have_text("3 images relabeled.")
