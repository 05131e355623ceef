"""Several jobs are selected in the lists of the home page, and compared, grouped or deleted together."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PageFaults, ServerProcess, check_accessibility


@pytest.fixture(scope="session")
def server(start_server_with_jobs: Callable[..., ServerProcess]) -> ServerProcess:
    """A server with jobs of its own, since they are deleted."""
    return start_server_with_jobs(1, 120)


def test_selected_jobs_are_grouped_and_deleted(page: Page, page_faults: PageFaults) -> None:
    page.goto("/?q=net+11")
    rows = page.locator("#models-table tbody tr")
    expect(rows).to_have_count(11)
    bar = page.get_by_role("group", name="Selected jobs")
    expect(bar).to_be_hidden()
    everything = page.get_by_label("Select all models on this page")
    everything.check()
    expect(bar).to_contain_text("11 selected")
    # At most ten models are compared, and none is running.
    expect(bar.get_by_role("button", name="Compare")).to_be_disabled()
    expect(bar.get_by_role("button", name="Abort")).to_be_hidden()
    page.get_by_label("Select net 11", exact=True).uncheck()
    assert everything.evaluate("input => input.indeterminate")
    expect(bar.get_by_role("button", name="Compare 10")).to_be_enabled()
    check_accessibility(page)

    bar.get_by_role("button", name="Group").click()
    dialog = page.get_by_role("dialog", name="Group 10 jobs")
    dialog.get_by_label("Group", exact=True).fill("Sunny days")
    check_accessibility(page)
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("Moved 10 jobs to the group “Sunny days”.")
    expect(rows.filter(has_text="Sunny days")).to_have_count(10)

    # A dataset is still used by the other models. Jobs remain selected while others are searched.
    page.get_by_label("Search").fill("birds 0")
    page.get_by_label("Select birds 0", exact=True).check()
    bar.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete 11 jobs?")
    expect(dialog).to_contain_text(re.compile("“net 119”, .*, and 6 more: their folders"))
    page_faults.allow("/jobs$")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text(
        "1 of 11 jobs were not deleted: “birds 0” is used by “net"
    )
    check_accessibility(page)
    dialog.get_by_role("button", name="Cancel").click()
    expect(bar).to_contain_text("1 selected")
    bar.get_by_role("button", name="Clear the selection").click()
    expect(bar).to_be_hidden()

    page.get_by_label("Search").fill("net 11")
    expect(rows).to_have_count(1)
    everything.check()
    bar.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog", name="Delete 1 job?").get_by_role("button", name="Delete").click()
    expect(page.locator("#toasts")).to_contain_text("Deleted 1 job.")
    expect(page.get_by_text("No model matches “net 11”")).to_be_visible()
    expect(bar).to_be_hidden()
    expect(page.locator("#main")).to_be_focused()

    # The dialog on the page of a dataset names the models that use it, and deletes them with it.
    page.get_by_label("Search").fill("")
    page.get_by_role("link", name="birds 0", exact=True).click()
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog", name="Delete “birds 0”?")
    expect(dialog).to_contain_text("and 104 more use it and are deleted with it.")
    check_accessibility(page)
    dialog.get_by_role("button", name="Delete all 110").click()
    expect(page).to_have_url(re.compile("/$"))
    expect(page.get_by_text("birds 0")).to_have_count(0)
