"""Choosing a cluster in the forms, and the page of the compute targets."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import JOB_PAGE, PageFaults, ServerProcess, check_accessibility, customize


@pytest.fixture(scope="session")
def server(start_server_with_jobs: Callable[..., ServerProcess]) -> ServerProcess:
    """A server with a cluster, one dataset and one model."""
    return start_server_with_jobs(1, 1, module="tests.fake_cluster")


def assert_fits_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize("width", [390, 320])
def test_all_links_of_the_bar_fit_on_a_phone_and_are_reached_with_keys(
    page: Page, page_faults: PageFaults, width: int
) -> None:
    page_faults.allow(r"/socket\.io/")
    page.route("**/socket.io/**", lambda route: route.abort())
    page.set_viewport_size({"width": width, "height": 844})
    page.goto("/")
    links = page.get_by_role("navigation", name="Main").get_by_role("link")
    expect(links).to_have_text(["New dataset", "New model", "Compute"])
    expect(page.locator("#connection")).to_be_visible()
    for control in page.locator(".topbar :is(a, button, #connection):visible").all():
        box = control.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width, control.text_content()
    names = []
    page.locator(".skip-link").focus()
    for _ in range(5):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.textContent.trim()"))
        assert page.evaluate("document.activeElement.getBoundingClientRect().width") > 20
    assert names == [
        "DIGITS",
        "New dataset",
        "New model",
        "Compute",
        "",
    ]  # the last one is that of the colors
    check_accessibility(page)


def test_a_training_is_sent_to_a_cluster(page: Page, page_faults: PageFaults) -> None:
    page_faults.allow(r"/models/images/classification.json$")
    page.goto("/models/images/classification/new")
    customize(page)
    compute = page.get_by_role("region", name="Compute")
    devices = page.locator("#device")
    expect(compute.get_by_label("Partition")).to_be_hidden()
    compute.get_by_role("radio", name="Slurm").check()
    expect(devices.get_by_text("No GPU found on this machine.")).to_be_hidden()
    compute.get_by_label("Partition").select_option("long")
    compute.get_by_label("Time limit").fill("90")
    compute.get_by_label("Workers").fill("2")
    devices.get_by_label("Number of GPUs").fill("4")
    compute.get_by_label("Memory", exact=True).fill("64000")
    compute.get_by_text("Account, QoS, options").click()
    compute.get_by_label("Additional options").fill("constraint=a100")
    check_accessibility(page)
    assert_fits_phone(page)
    page.get_by_role("button", name="Train", exact=True).click()
    error = compute.locator(".error-text")
    expect(error).to_contain_text("Enter options such as --constraint=a100")

    compute.get_by_label("Additional options").fill("--constraint=a100")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page).to_have_url(re.compile(f"/models/{JOB_PAGE}"))
    expect(page.locator("#job-status")).to_contain_text(
        "Waiting at Slurm because the partition’s resources are in use; expected to start in 20 minutes"
    )
    expect(page.locator("#job-facts")).to_contain_text("Slurm, partition long, 2 workers")
    check_accessibility(page)


def test_the_page_of_the_targets_checks_a_cluster(page: Page) -> None:
    page.goto("/")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Compute").click()
    slurm = page.get_by_role("region", name="Slurm", exact=True)
    expect(page.get_by_role("region", name="This machine")).to_contain_text("No GPU found on this machine.")
    expect(slurm.get_by_role("row").filter(has_text="n3")).to_contain_text("disk is full")
    slurm.get_by_role("button", name="Check").click()
    expect(slurm.get_by_role("status")).to_contain_text("1 check failed")
    expect(slurm.get_by_role("status")).to_contain_text("Install DIGITS in a folder that all nodes share.")
    check_accessibility(page)
    assert_fits_phone(page)


def test_a_dataset_is_sent_to_a_cluster(page: Page) -> None:
    page.goto("/datasets/images/classification/new")
    page.locator("#compute > summary").click()
    panel = page.locator("#compute")
    expect(panel.get_by_label("Time limit")).to_be_hidden()
    panel.get_by_role("radio", name="Slurm").check()
    expect(panel.get_by_label("Time limit")).to_be_visible()
    expect(panel.get_by_label("Workers")).to_have_count(0)
    check_accessibility(page)
