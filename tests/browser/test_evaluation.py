"""Evaluating a model: the button on its page, the confusion matrix, and the images behind its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerProcess, finished

pytestmark = [pytest.mark.browser, pytest.mark.tensorflow]

NETWORK = """class UserModel(Tower):
    @model_property
    def inference(self):
        flat = tf.reshape(self.x, [-1, 16 * 16 * 3]) / 255.0
        return slim.fully_connected(flat, self.nclasses, activation_fn=None)

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""


def test_a_number_of_the_matrix_opens_its_images(
    page: Page,
    server: ServerProcess,
    create: Callable[..., dict[str, Any]],
    dataset: dict[str, Any],
    check_accessibility: Callable[[Page], None],
) -> None:
    network = {"method": "custom", "custom_network": NETWORK, "select_gpu": "cpu", "use_mean": "none"}
    fields = {"model_name": "Judged", "dataset": dataset["id"], "train_epochs": 1, "batch_size": 6}
    model = finished(server, create("models", **fields, **network, learning_rate=0.02, random_seed=1))
    page.goto(f"/models/{model['id']}")
    page.wait_for_load_state()
    panel = page.locator("#evaluation")
    panel.locator('[name="split"]').select_option("Training")
    panel.get_by_role("button", name="Evaluate").click()
    result = panel.get_by_role("link", name="Epoch 1, training")
    expect(result).to_be_visible(timeout=60_000)
    check_accessibility(page)

    result.click()
    expect(page.get_by_role("heading", name="Evaluation of Judged")).to_be_visible()
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
    expect(page.locator("#filter-evaluation")).to_contain_text("Sorted by the error of “Judged”")
    page.locator("#filter-predicted").press("Enter")
    expect(page.locator("#filter-predicted")).to_have_count(0)
    check_accessibility(page)

    page.goto(f"/datasets/{dataset['id']}/results?split=train")
    check_accessibility(page)
    page.get_by_role("button", name="Promote Judged").click()
    dialog = page.get_by_role("dialog", name="Promote “Judged”")
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
    server: ServerProcess,
    create: Callable[..., dict[str, Any]],
    dataset: dict[str, Any],
    check_accessibility: Callable[[Page], None],
) -> None:
    network = {"method": "custom", "custom_network": NETWORK, "select_gpu": "cpu", "use_mean": "none"}
    fields = {"model_name": "Reported", "dataset": dataset["id"], "train_epochs": 1, "batch_size": 6}
    model = finished(server, create("models", **fields, **network, learning_rate=0.02, random_seed=1))
    page.goto(f"/models/{model['id']}")
    page.wait_for_load_state()
    panel = page.locator("#evaluation")
    panel.locator('[name="split"]').select_option("Training")
    panel.get_by_role("button", name="Evaluate").click()
    expect(panel.get_by_role("link", name="Epoch 1, training")).to_be_visible(timeout=60_000)

    page.get_by_role("link", name="Report", exact=True).click()
    expect(page.get_by_role("heading", name="Reported", level=1)).to_be_visible()
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
    assert started.value.suggested_filename == "Reported-report.html"
