"""Multi-label classification in the browser: from a table to predicted labels."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerProcess, create_dataset, fill_size, open_panel, train_model

pytestmark = pytest.mark.browser


@pytest.fixture
def table(server: ServerProcess) -> Path:
    """A table of images with any of a bright left and a bright upper half, in the server's data folder."""
    folder = server.data / "halves"
    folder.mkdir()
    chance = np.random.default_rng(0)
    rows = ["image,bright left,bright top"]
    for number in range(32):
        pixels = chance.integers(0, 60, (16, 16), np.uint8)
        left, top = number & 1, number >> 1 & 1
        pixels[:, :8] += np.uint8(90 * left)
        pixels[:8] += np.uint8(90 * top)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{left},{top}")
    path = folder / "halves.csv"
    path.write_text("\n".join(rows))
    return path


@pytest.mark.nightly
@pytest.mark.tensorflow
def test_from_a_table_to_predicted_labels(
    page: Page, page_faults: object, check_accessibility: Callable[[Page], None], table: Path
) -> None:
    page.goto("/datasets/images/classification/new")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("link", name="Multi-label classification").click()
    page.get_by_label("Table file", exact=True).fill(str(table))
    contents = page.get_by_role("region", name="Contents of the source")
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("32 rows with a column of 0 and 1 for each label.")
    expect(findings).to_contain_text("2 labels, on average 1 per image.")
    # The bars, the head of the table, and its first rows.
    expect(contents.get_by_role("row")).to_have_count(2 + 1 + 5)
    open_panel(page, "Labels")
    page.get_by_label("Layout").select_option("One column lists the labels")
    expect(findings).to_contain_text("several columns that may list the labels")
    page.get_by_label("Layout").select_option("Detect automatically")
    expect(findings).to_contain_text("8 images have no labels")
    fill_size(page, 16)
    page.get_by_label("Grayscale").check()
    check_accessibility(page)
    create_dataset(page)
    expect(page.get_by_role("heading", name="Images per label")).to_be_visible()
    expect(page.locator("#counts-legend")).to_have_text(re.compile(r"^\s*Training\s*Validation\s*$"))
    expect(page.locator("#counts tr")).to_have_count(2)
    expect(page.locator("#counts tr").first).to_contain_text(re.compile(r"bright left.*16", re.S))
    check_accessibility(page)

    page.get_by_role("link", name="Train a model").first.click()
    expect(page.locator("#dataset-summary")).to_contain_text("2 labels")
    expect(page.locator("#headline")).to_have_text("Train the small multi-label CNN from scratch")
    train_model(page, epochs=6)
    for chart in ("loss", "map", "f1"):
        expect(page.locator(f'[data-chart="{chart}"]')).to_have_attribute("data-points", re.compile("[1-9]"))
    expect(page.locator('[data-tile="map-val"]')).to_contain_text("%")

    page.locator("#image-file").set_input_files(table.parent / "3.png")
    rows = page.locator("#predictions .prediction")
    expect(rows).to_have_count(2, timeout=30_000)
    expect(rows.first).to_contain_text(re.compile(r"bright (left|top).*\d%", re.S))
    check_accessibility(page)
