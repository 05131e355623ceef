"""Fine-tune in the form: the choice of weights, the settings it applies, and a training."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import (
    PageFaults,
    ask_server,
    check_accessibility,
    customize,
    finished,
    open_part,
    start_training,
)

NEW_MODEL = "/models/images/classification/new"
STEP_MILLISECONDS = 120_000


def test_imagenet_weights_turn_fine_tune_on(
    page: Page, create: Callable[..., dict[str, Any]], server: Any, image_folder: Any
) -> None:
    size = {"resize_width": 32, "resize_height": 32, "resize_channels": 3}
    dataset = finished(
        server, create("datasets", dataset_name="Medium", method="folder", folder_train=image_folder, **size)
    )
    address = f"/models/recommendation.json?dataset={dataset['id']}"
    settings = page.request.get(address).json()["recommendation"]["fine_tune"]
    scratch = page.request.get(f"{address}&from_scratch=1").json()["recommendation"]
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.locator('[name="standard_networks"][value="lenet"]').check(force=True)
    expect(page.locator("#standard-weights")).to_be_hidden()
    page.get_by_text("Older and other networks").click()
    page.locator('[name="standard_networks"][value="resnet50"]').check(force=True)
    page.get_by_text("Initial weights & fine-tuning").click()
    expect(page.locator('[name="fine_tune"]')).to_be_hidden()
    weights = page.get_by_role("group", name="Initial weights", exact=True)
    weights.get_by_role("radio", name="ImageNet", exact=True).check()
    expect(page.locator('[data-weights="resnet50"]')).to_contain_text("MB")
    expect(page.locator('[name="fine_tune"]')).to_be_checked()
    expect(page.get_by_label("Trunk factor")).to_have_value(settings["trunk_factor"])
    expect(page.get_by_label("Batch size")).to_have_value(settings["batch_size"])
    expect(page.locator("#headline")).to_have_text("Fine-tune ResNet-50 from ImageNet weights")
    check_accessibility(page)
    page.locator('[name="standard_networks"][value="mobilenetv3"]').check(force=True)
    expect(page.get_by_label("Optimizer")).to_have_value("ADAM")
    page.locator('[name="standard_networks"][value="resnet50"]').check(force=True)
    weights.get_by_role("radio", name="File", exact=True).check()
    expect(page.locator('[name="custom_network_snapshot"]')).to_be_visible()
    weights.get_by_role("radio", name="Random", exact=True).check()
    expect(page.locator('[name="fine_tune"]')).not_to_be_checked()
    expect(page.get_by_label("Epochs", exact=True)).to_have_value(
        scratch["networks"]["resnet50"]["settings"]["train_epochs"]
    )


def test_weights_are_downloaded_when_the_form_opens_or_a_choice_is_offered(
    page: Page, page_faults: PageFaults, create: Callable[..., dict[str, Any]], server: Any, image_folder: Any
) -> None:
    size = {"resize_width": 64, "resize_height": 64, "resize_channels": 3}
    dataset = finished(
        server, create("datasets", dataset_name="Photos", method="folder", folder_train=image_folder, **size)
    )
    held: list[Route] = []
    ask_server(page)
    page.route("**/models/weights/*", lambda route: held.append(route))
    page.route(
        "**/models/preflight/progress?*",
        lambda route: route.fulfill(json={"doing": "Halfway", "progress": 50}),
    )
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    headline = str(page.locator("#headline").text_content())
    assert headline.endswith("from ImageNet weights")
    download = page.locator("#weights-download")
    expect(download).to_contain_text("Halfway")
    expect(download.locator(".progress-fill")).to_have_attribute("style", re.compile("--value: 50"))
    check_accessibility(page)
    page_faults.allow(r"/models/weights/\w+$")
    held[0].fulfill(status=400, json={"error": {"message": "No internet"}})
    missing = page.locator("[data-missing]:visible")
    expect(missing).to_contain_text("could not be downloaded")
    expect(download).to_be_hidden()
    check_accessibility(page)

    # A training needs them, too.
    page.get_by_role("button", name="Train", exact=True).click()
    expect(download).to_be_visible()
    expect(download).to_contain_text("Halfway")  # after the request
    held[1].fulfill(status=400, json={"error": {"message": "No internet"}})
    expect(page.locator("#create-status")).to_have_text("The weights are missing.")
    missing.get_by_role("button", name="Upload the file").click()
    expect(page.locator("#tuning-weights [data-upload-files]")).to_be_focused()
    page.get_by_role("button", name="Use the recommended settings").click()
    missing.get_by_role("button", name="Train from scratch instead").click()
    expect(page.locator("#headline")).to_have_text("Train ResNet-32 from scratch")
    expect(page.locator("[data-state]")).to_have_text("Recommended")
    expect(missing).to_have_count(0)
    assert len(held) == 2


@pytest.mark.nightly
@pytest.mark.tensorflow
def test_an_earlier_model_is_fine_tuned(page: Page, dataset: dict[str, Any], trained: dict[str, Any]) -> None:
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="Previous", exact=True).check()
    page.locator("label.choice-title", has_text="Trained").click()
    page.locator(f'[name="{trained["id"]}-snapshot"]').select_option("1")
    page.get_by_text("Initial weights & fine-tuning").click()
    page.locator('[name="fine_tune"]').check()
    page.get_by_label("Epochs", exact=True).fill("2")
    page.get_by_label("Name", exact=True).fill("Fine-tuned from an earlier model")
    start_training(page)
    expect(page.locator("#snapshots li")).not_to_have_count(0, timeout=STEP_MILLISECONDS)
    expect(page.locator(".page-head, header").get_by_text("Done", exact=True).first).to_be_visible(
        timeout=STEP_MILLISECONDS
    )
    open_part(page, "Details")
    expect(page.get_by_text(re.compile(r"trunk factor 0\.\d"))).to_be_visible()
