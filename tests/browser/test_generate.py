"""Images generated from latent vectors in the browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PageFaults, ServerProcess, check_accessibility, finished

pytestmark = pytest.mark.tensorflow

GENERATOR = """
class UserModel(Tower):
    @model_property
    def inference(self):
        z = tf.reshape(self.x, [-1, 4]) if self.is_inference else tf.random_normal([tf.shape(self.x)[0], 4])
        return tf.reshape(tf.layers.dense(z, 768), [-1, 16, 16, 3])

    @model_property
    def loss(self):
        return digits.mse_loss(self.inference, self.x)
"""


def test_a_grid_of_images_from_a_seed_and_from_own_vectors(
    page: Page,
    page_faults: PageFaults,
    server: ServerProcess,
    create: Callable[..., dict[str, Any]],
    dataset: dict[str, Any],
) -> None:
    network = {"method": "custom", "custom_network": GENERATOR, "train_epochs": 1, "select_gpu": "cpu"}
    job = finished(server, create("models", model_name="Generator", dataset=dataset["id"], **network))
    page.goto(f"/models/{job['id']}#try")
    expect(page.locator("#classify-panel")).to_be_hidden()
    panel = page.get_by_role("region", name="Generate images")
    panel.get_by_label("Rows").fill("2")
    panel.get_by_label("Columns").fill("3")
    panel.get_by_label("Seed").fill("5")
    panel.get_by_role("button", name="Generate", exact=True).click()
    picture = panel.get_by_alt_text("Generated images: 2 rows of 3")
    expect(picture).to_be_visible(timeout=30_000)
    assert picture.evaluate("image => image.naturalWidth") == 3 * 16 + 2 * 2
    expect(panel.get_by_role("status")).to_contain_text("Epoch 1")
    with page.expect_download() as download:
        panel.get_by_role("link", name="Download PNG").click()
    assert download.value.suggested_filename == "generated-5.png"
    check_accessibility(page)

    panel.get_by_text("Custom latent vectors").click()
    panel.get_by_label("One vector per line").fill("1 0 0 0\n0, 1, 0, 0")
    panel.get_by_label("Interpolate").check()
    panel.get_by_role("button", name="Generate", exact=True).click()
    panel.get_by_text("Latent vectors", exact=True).click()
    vectors = panel.get_by_label("Latent vectors, one per line")
    expect(vectors).to_have_value(re.compile(r"^1\.0 0\.0 0\.0 0\.0\n0\.7071"))
    page_faults.allow("/generate$")
    panel.get_by_label("One vector per line").fill("1 2")
    panel.get_by_role("button", name="Generate", exact=True).click()
    expect(panel).to_contain_text("A vector has 2 numbers; the network requires 4.")
