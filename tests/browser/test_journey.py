"""A newcomer's first session in a real browser: dataset, network, graph, training, prediction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import check_accessibility, customize, fill_size, start_training, write_network
from tests.worker.networks import LENET as NETWORK

TRAINING_MILLISECONDS = 120_000

FAULTY_LINE = "            model = slim.flatten(modell)"
FAULTY = NETWORK.replace("            model = slim.flatten(model)", FAULTY_LINE)


def points(page: Page, chart: str) -> int:
    """Return the number of values drawn in the chart."""
    return int(page.locator(f'[data-chart="{chart}"]').get_attribute("data-points") or 0)


@pytest.mark.tensorflow
@pytest.mark.slow
def test_from_images_to_a_trained_model(page: Page, page_faults, image_folder: Path) -> None:
    # A dataset from a folder of images
    page.goto("/datasets/images/classification/new")
    page.locator('[name="folder_train"]').fill(str(image_folder))
    fill_size(page, 28)
    page.locator('[name="dataset_name"]').fill("Bars")
    page.get_by_role("button", name=re.compile("Create")).click()
    expect(page).to_have_url(re.compile(r"/datasets/\d{8}-\d{6}-[0-9a-f]+$"))
    expect(page.locator("[data-status], .badge").filter(has_text="Done").first).to_be_visible(timeout=30_000)
    for label in ("left", "middle", "right"):
        expect(page.get_by_text(label, exact=True).first).to_be_visible()
    expect(page.locator('img[src*="/records/train/"]').first).to_be_visible()
    check_accessibility(page)

    # A custom network, first with an error
    page.goto("/models/images/classification/new")
    customize(page)
    page.locator("[name=method][value=custom]").check()
    write_network(page, FAULTY)
    page_faults.allow(r"/models/visualize-network$")
    page.get_by_role("button", name=re.compile("Visualize")).click()
    result = page.locator("#visualize-result")
    expect(result).to_contain_text("modell", timeout=30_000)
    line = FAULTY.splitlines().index(FAULTY_LINE) + 1
    expect(result).to_contain_text(f"{line}")
    expect(page.locator('[name="custom_network"]')).to_have_value(FAULTY)

    # Corrected, it shows its layers and its graph within the form
    write_network(page, NETWORK)
    page.get_by_role("button", name=re.compile("Visualize")).click()
    expect(result.locator("tbody tr").first).to_be_visible(timeout=30_000)
    for layer in ("conv1", "pool1", "fc2"):
        expect(result.locator("tbody")).to_contain_text(layer)
    page_faults.allow(r"/tensorboard/")  # 503 while it starts
    result.get_by_role("tab", name=re.compile("Graph")).click()
    expect(result.locator("iframe")).to_be_visible(timeout=60_000)
    graph = result.frame_locator("iframe")
    expect(graph.get_by_text("Main Graph")).to_be_visible(timeout=60_000)
    expect(graph.locator("g.node").first).to_be_visible(timeout=60_000)

    # Live training
    page.locator('[name="train_epochs"]').fill("12")
    page.locator('[name="batch_size"]').fill("9")
    page.locator('[name="model_name"]').fill("LeNet on bars")
    start_training(page)
    assert points(page, "loss") < 30
    grown = []
    done = page.locator(".page-head, header").get_by_text("Done", exact=True).first
    while not done.is_visible():
        grown.append(points(page, "loss"))
        assert len(grown) * 100 < TRAINING_MILLISECONDS
        page.wait_for_timeout(100)
    assert points(page, "loss") >= 12
    assert points(page, "accuracy") >= 12
    assert points(page, "rate") >= 12
    assert points(page, "speed") >= 12
    assert len(set(grown)) > 2, "the chart did not grow while the network was trained"
    expect(page.locator("#snapshots li")).to_have_count(5)
    drawn = points(page, "loss")
    # Among few validation images, the newest snapshot is preferred.
    newest = page.locator("#snapshots li").first
    expect(newest).to_contain_text("accuracy")
    expect(page.locator("#classify-snapshot")).to_have_value(newest.get_attribute("data-epoch") or "")

    # What needs a snapshot has appeared: prediction for an image of the dataset and an uploaded one, and serving
    page.get_by_role("tab", name="Try").click()
    expect(page.locator("#serving-panel")).to_be_visible()
    page.locator("#examples button").first.click()
    expect(page.locator("#predictions li")).to_have_count(3, timeout=30_000)
    page.locator("#image-file").set_input_files(image_folder / "middle" / "00.png")
    guesses = page.locator("#predictions li")
    expect(guesses).to_have_count(3, timeout=30_000)
    expect(guesses.first).to_contain_text("middle")
    check_accessibility(page)

    # Several images are predicted on a page of their own
    images = [image_folder / name / "01.png" for name in ("left", "middle", "right")]
    page.locator("#image-file").set_input_files(images)
    expect(page).to_have_url(re.compile(r"/models/[^/]+/predictions/[^/]+$"), timeout=30_000)
    expect(page.locator("#prediction-status")).to_have_attribute("data-state", "done", timeout=60_000)
    expect(page.locator(".predictions")).to_have_count(3)

    # The page is complete when reopened
    for reopen in (page.go_back, page.reload):
        reopen()
        expect(page.locator('[data-chart="loss"]')).to_have_attribute("data-points", str(drawn))

    # Home lists the model
    page.goto("/")
    row = page.locator("tr").filter(has_text="LeNet on bars").first
    expect(row).to_contain_text("Done")
    expect(row).to_contain_text("%")
    check_accessibility(page)
