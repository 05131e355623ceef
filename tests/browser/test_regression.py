"""Image regression in the browser: from a table to predicted numbers."""

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
    """A table of gray images and their brightness, in the server's data folder."""
    folder = server.data / "levels"
    folder.mkdir()
    chance = np.random.default_rng(0)
    rows = ["image,brightness"]
    for number in range(32):
        level = int(chance.integers(20, 230))
        Image.fromarray(np.full((16, 16), level, np.uint8)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{level}")
    path = folder / "levels.csv"
    path.write_text("\n".join(rows))
    return path


@pytest.mark.nightly
@pytest.mark.tensorflow
def test_from_a_table_to_predicted_numbers(
    page: Page, page_faults: object, check_accessibility: Callable[[Page], None], table: Path
) -> None:
    page.goto("/datasets/images/classification/new")
    page.get_by_role("link", name="Regression").click()
    page.get_by_label("Table file", exact=True).fill(str(table))
    fill_size(page, 16)
    page.get_by_label("Grayscale").check()
    expect(page.get_by_label("Name", exact=True)).to_have_value("levels, 16×16")
    open_panel(page, "Split")
    page.get_by_label("Validation split").fill("50")
    expect(page.locator("#split-bar")).to_have_attribute("aria-label", re.compile("16 validation"))
    check_accessibility(page)
    create_dataset(page)
    expect(page.get_by_role("heading", name="Target distribution")).to_be_visible()
    expect(page.locator("#counts tr").first).to_contain_text(" to ")
    check_accessibility(page)

    page.get_by_role("link", name="Train a model").first.click()
    expect(page.locator("#dataset-summary")).to_contain_text("1 target: brightness")
    expect(page.locator("#headline")).to_have_text("Train the small CNN for regression from scratch")
    train_model(page, epochs=3)
    for chart in ("loss", "error", "r2"):
        expect(page.locator(f'[data-chart="{chart}"]')).to_have_attribute("data-points", re.compile("[1-9]"))
    expect(page.locator('[data-tile="error-val"]')).not_to_have_text("–")

    page.locator("#image-file").set_input_files(table.parent / "0.png")
    row = page.locator("#predictions tbody tr")
    expect(row).to_have_count(1, timeout=30_000)
    expect(row).to_contain_text(re.compile(r"brightness\s*-?\d"))
    best = page.locator("#classify-snapshot").input_value()
    expect(page.locator("#classify-time")).to_contain_text(f"Epoch {best}")
    check_accessibility(page)
