"""Choosing a cluster in the forms, and the page of the compute targets."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from digits.core.task import EVENTS_FILE
from digits.web.services import SERVER_FOLDER
from tests.browser.conftest import JOB_PAGE, PageFaults, ServerProcess, customize, finished
from tests.fake_cluster import RESULT_FILE
from tests.finished_jobs import write_jobs
from tests.site import bars
from tests.waiting import wait_until

PASSED = {"id": "preview-1", "result": {"verdict": "The network learns.", "verdict_level": "good"}}


@pytest.fixture(scope="session")
def server(
    start_server: Callable[..., ServerProcess], tmp_path_factory: pytest.TempPathFactory
) -> ServerProcess:
    """A server with a cluster, one dataset and one model."""
    folder = tmp_path_factory.mktemp("jobs")
    write_jobs(folder, 1, 1)
    started = start_server("--no-standby", "--jobs-dir", str(folder), module="tests.fake_cluster")
    return replace(started, jobs=folder)


def assert_fits_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1280, "height": 900})


def test_a_training_is_sent_to_a_cluster(
    page: Page, page_faults: PageFaults, check_accessibility: Callable[[Page], None]
) -> None:
    page_faults.allow(r"/models/images/classification.json$")
    page.route("**/models/preflight", lambda route: route.fulfill(json=PASSED))
    page.goto("/models/images/classification/new")
    customize(page)
    compute = page.get_by_role("region", name="Compute")
    devices = page.get_by_role("region", name="Device & precision")
    expect(compute.get_by_label("Partition")).to_be_hidden()
    compute.get_by_role("radio", name="Slurm").check()
    expect(devices.get_by_text("No GPU found on this machine.")).to_be_hidden()
    compute.get_by_label("Partition").select_option("long")
    compute.get_by_label("Time limit").fill("90")
    compute.get_by_label("Workers").fill("2")
    devices.get_by_label("GPUs per worker").fill("4")
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


def test_the_page_of_the_targets_checks_a_cluster(
    page: Page, check_accessibility: Callable[[Page], None]
) -> None:
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


def test_a_dataset_is_sent_to_a_cluster(page: Page, check_accessibility: Callable[[Page], None]) -> None:
    page.goto("/datasets/images/classification/new")
    page.locator("#compute > summary").click()
    panel = page.locator("#compute")
    expect(panel.get_by_label("Time limit")).to_be_hidden()
    panel.get_by_role("radio", name="Slurm").check()
    expect(panel.get_by_label("Time limit")).to_be_visible()
    expect(panel.get_by_label("Workers")).to_have_count(0)
    check_accessibility(page)


@pytest.fixture
def bars_dataset(server: ServerProcess) -> str:
    """A dataset that was created on this machine, unlike those of the server, whose files are missing."""
    bars(server.data / "bars")
    fields = {"dataset_name": "bars", "folder_train": server.data / "bars"}
    address = server / "datasets/images/classification.json"
    with urlopen(address, urlencode(fields).encode(), timeout=30) as answer:
        return str(finished(server, json.load(answer))["id"])


def task_of(server: ServerProcess) -> Path:
    """Return the folder of the latest measurement."""
    return max(measurements(server), key=lambda folder: folder.stat().st_mtime_ns)


def measurements(server: ServerProcess) -> list[Path]:
    return [path for path in server.jobs.glob(f"{SERVER_FOLDER}/measurements/*/preflight") if path.is_dir()]


def play(folder: Path, **event: object) -> None:
    with open(folder / EVENTS_FILE, "a") as log:
        log.write(json.dumps({"at": time.time(), **event}) + "\n")


def test_workers_are_measured_on_the_nodes_before_a_training_is_queued(
    server: ServerProcess, page: Page, bars_dataset: str, check_accessibility: Callable[[Page], None]
) -> None:
    estimate = {
        "workers": 2,
        "speedup": 0.8,
        "is_faster": False,
        "message": "2 workers: slower than one. This network is assumed.",
    }
    remedy = {"words": "Use one worker", "fields": {"compute_workers": "1"}}
    checked = PASSED | {"result": PASSED["result"] | {"workers": estimate}, "remedies": [remedy]}
    page.route("**/models/preflight", lambda route: route.fulfill(json=checked))
    page.goto(f"/models/images/classification/new?dataset={bars_dataset}")
    customize(page)
    compute = page.get_by_role("region", name="Compute")
    compute.get_by_role("radio", name="Slurm").check()
    compute.get_by_label("Workers").fill("2")
    result = page.get_by_role("region", name="Network visualization")
    measure = result.get_by_role("button", name="Measure on the nodes")
    check = page.get_by_role("button", name="Check", exact=True)

    check.click()
    measure.click()
    expect(result).to_contain_text(
        "Waiting at Slurm because the partition’s resources are in use; expected to start in 20 minutes"
    )
    expect(result).not_to_contain_text("is assumed")
    check_accessibility(page)
    assert_fits_phone(page)
    result.get_by_role("button", name="Cancel").click()
    expect(result).to_contain_text("This network is assumed.")
    wait_until(lambda: not measurements(server))

    measure.click()
    wait_until(lambda: measurements(server))
    folder = task_of(server)
    play(folder, event="progressed", fraction=0.5, doing="Measuring 2 workers")
    expect(result).to_contain_text("Measuring 2 workers on n[1-2]…")
    play(folder, event="failed", message="The network cannot be divided.", hint="Train with one worker.")
    (folder / RESULT_FILE).write_text("1")
    expect(result.get_by_role("alert")).to_contain_text("Train with one worker.")
    check_accessibility(page)

    measure.click()
    wait_until(lambda: len(measurements(server)) == 1)
    folder = task_of(server)
    words = "2 workers: about 1.9 times as fast as one, measured on n1, n2."
    play(folder, event="finished", result={"workers": estimate | {"is_faster": True, "message": words}})
    (folder / RESULT_FILE).write_text("0")
    expect(result).to_contain_text(words)
    expect(measure).to_have_count(0)
    check_accessibility(page)

    # Train and leaving the page remove a measurement from the queue.
    check.click()
    measure.click()
    expect(result).to_contain_text("Waiting at Slurm")
    page.get_by_role("button", name="Train", exact=True).click()
    wait_until(lambda: not measurements(server))
    before = page.get_by_role("region", name="Check before the training")
    before.get_by_role("button", name="Measure on the nodes").click()
    expect(before).to_contain_text("Waiting at Slurm")
    before.get_by_role("button", name="Use one worker").click()
    expect(compute.get_by_label("Workers")).to_have_value("1")
    wait_until(lambda: not measurements(server))
    compute.get_by_label("Workers").fill("2")
    check.click()
    measure.click()
    expect(result).to_contain_text("Waiting at Slurm")
    page.goto("/")
    wait_until(lambda: not measurements(server))
