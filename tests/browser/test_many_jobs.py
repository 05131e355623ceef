"""Lists with more jobs than fit on a page, by keyboard, with and without scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import PageFaults, ServerProcess, check_accessibility, customize

MODELS = 120
DATASETS = 60


@pytest.fixture(scope="session")
def server(start_server_with_jobs: Callable[..., ServerProcess]) -> ServerProcess:
    """A server with many finished jobs."""
    return start_server_with_jobs(DATASETS, MODELS)


def rename(server: ServerProcess, name: str, new_name: str) -> None:
    """Rename a model like another user."""
    with urlopen(server / f"models.json?q={name.replace(' ', '+')}") as answer:
        job = next(job for job in json.load(answer)["models"] if job["name"] == name)
    body = f"job_name={new_name}".encode()
    with urlopen(Request(server / f"jobs/{job['id']}", body, method="PUT")) as answer:
        assert answer.status == 200


def test_pages_are_navigated_with_the_keyboard(page: Page, server: ServerProcess) -> None:
    page.goto("/")
    shown = page.locator("#models-range")
    rows = page.locator("#models-table tbody tr")
    following = page.locator("#models-page-next")
    expect(shown).to_have_text("1–50 of 120")
    check_accessibility(page)

    # Next keeps the focus.
    following.focus()
    page.keyboard.press("Enter")
    expect(shown).to_have_text("51–100 of 120")
    expect(page).to_have_url(re.compile(r"models_page=2"))
    expect(following).to_be_focused()
    expect(rows.first).to_contain_text("net 69")
    expect(page.locator("#models-title")).to_be_in_viewport()
    # Datasets are paginated separately.
    expect(page.locator("#datasets-range")).to_have_text("1–50 of 60")

    # The last page has no Next link, so the link to the current page gets the focus.
    following.press("Enter")
    expect(shown).to_have_text("101–120 of 120")
    expect(page.locator("#models-page-3")).to_be_focused()
    expect(page.locator("#models-page-3")).to_have_attribute("aria-current", "page")
    check_accessibility(page)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(shown).to_have_text("51–100 of 120")

    # Going back in the browser, or changing a job, keeps the page.
    page.go_back()
    expect(shown).to_have_text("101–120 of 120")
    rename(server, "net 3", "renamed")
    expect(page.locator("#models-table")).to_contain_text("renamed")
    expect(shown).to_have_text("101–120 of 120")

    # Searching or sorting returns to the first page, and pages keep both.
    page.locator("#jobs-search").fill("net")
    expect(shown).to_have_text(re.compile("^1–50 of "))
    page.locator("#models-table").get_by_role("link", name="Validation").press("Enter")
    expect(page).to_have_url(re.compile("sort=last_accuracy"))
    following.press("Enter")
    expect(shown).to_have_text(re.compile("^51–100 of "))
    page.reload()
    expect(shown).to_have_text(re.compile("^51–100 of "))
    expect(page.locator("#jobs-search")).to_have_value("net")
    expect(page.locator("#models-table th[aria-sort=descending]")).to_contain_text("Validation")


def test_a_search_while_the_server_is_away_is_reported_and_repeated(
    page: Page, page_faults: PageFaults
) -> None:
    page_faults.allow(r"/\?q=")
    page.goto("/")
    page.route(re.compile(r"/\?q="), lambda route: route.abort())
    page.get_by_label("Search").fill("net 11")
    problem = page.locator("#jobs-problem")
    expect(problem).to_contain_text("The server does not respond.")
    check_accessibility(page)
    page.unroute(re.compile(r"/\?q="))
    expect(page.locator("#jobs")).to_contain_text("net 119")
    expect(page.locator("#jobs")).not_to_contain_text("net 99")
    expect(problem).to_be_hidden()


def test_what_is_typed_before_the_script_is_loaded_is_searched(page: Page) -> None:
    def type_first(route: Route) -> None:
        page.get_by_label("Search").fill("net 11")
        route.continue_()

    page.route("**/js/home_page.js*", type_first)
    page.goto("/")
    expect(page.locator("#jobs")).to_contain_text("net 119")
    expect(page.locator("#jobs")).not_to_contain_text("net 99")


def test_the_models_of_a_dataset_are_paginated(page: Page) -> None:
    page.goto("/datasets/20260101-000000-000000")
    expect(page.locator("#models-range")).to_have_text("1–25 of 120")
    page.locator("#models-page-next").press("Enter")
    expect(page.locator("#models-range")).to_have_text("26–50 of 120")
    check_accessibility(page)


def test_a_dataset_and_a_model_are_found_in_the_form(page: Page) -> None:
    page.goto("/models/images/classification/new")
    dataset = page.locator("#dataset")
    expect(dataset.locator("option")).to_have_count(50)
    expect(dataset.locator("option").first).to_have_text("birds 59")
    page.get_by_label("Find a dataset").focus()
    page.keyboard.type("birds 3")
    # The chosen one remains listed, in addition to birds 3, 13, 23, 30 to 39, 43 and 53.
    expect(dataset.locator("option")).to_have_count(16)
    page.keyboard.type("7")
    expect(dataset.locator("option")).to_have_count(2)
    expect(page.locator("#dataset-found")).to_have_text("1 found")
    page.keyboard.press("Enter")
    expect(dataset).to_be_focused()
    expect(dataset.locator("option:checked")).to_have_text("birds 37")
    expect(page.locator('[name="model_name"]')).to_have_value(re.compile("on birds 37$"))

    customize(page)
    page.get_by_role("radio", name="Previous", exact=True).check()
    expect(page.locator('[name="previous_networks"]')).to_have_count(25)
    page.get_by_label("Find a model").click()
    page.keyboard.type("net 40")
    models = page.locator('[name="previous_networks"]')
    expect(models).to_have_count(1)
    page.keyboard.press("Enter")
    expect(models.first).to_be_checked()
    check_accessibility(page)

    # After a reload, both are still found and chosen.
    page.reload()
    expect(dataset.locator("option:checked")).to_have_text("birds 37")
    expect(models).to_have_count(1)
    expect(models.first).to_be_checked()


def test_groups_are_suggested_while_typing(page: Page, server: ServerProcess) -> None:
    with urlopen(
        Request(server / "jobs/20260101-000000-000001", b"group_name=Rainy+days", method="PUT")
    ) as answer:
        assert answer.status == 200
    page.goto("/datasets/20260101-000000-000002")
    page.get_by_role("button", name="Edit name and group").click()
    with page.expect_response(re.compile("/autocomplete/group")) as suggested:
        page.locator("#group-input").fill("rain")
    assert suggested.value.json() == {"suggestions": ["Rainy days"]}
    expect(page.locator("#groups option")).to_have_count(1)
