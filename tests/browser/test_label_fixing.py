"""Fixing labels in the gallery: select, exclude, relabel and move images, then save a new version."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerProcess, check_accessibility, create_dataset, fill_size, finished
from tests.site import bars


@pytest.fixture
def images(server: ServerProcess) -> Path:
    return bars(server.data / "bars")


def test_images_are_changed_in_a_new_version(page: Page, page_faults: object, images: Path) -> None:
    page.goto("/datasets/images/classification/new")
    page.locator("#folder_train").fill(str(images))
    fill_size(page, 16)
    page.get_by_label("Name", exact=True).fill("Bars")
    create_dataset(page)
    page.get_by_role("link", name="Explore").first.click()
    page.get_by_role("button", name="Edit").click()
    choices = page.get_by_role("checkbox")
    expect(page.get_by_role("button", name="Exclude")).to_be_disabled()
    choices.nth(0).click()
    choices.nth(2).click(modifiers=["Shift"])
    expect(page.locator("#edit-status")).to_have_text("3 selected.")
    page.get_by_role("button", name="Exclude").click()
    choices.nth(4).focus()
    page.keyboard.press("Space")
    page.get_by_role("group", name="Relabel as").get_by_role("button", name="right").click()
    choices.nth(5).click()
    page.get_by_label("New split").select_option("Validation")
    page.get_by_role("button", name="Move").click()
    choices.nth(6).focus()
    page.keyboard.press("x")
    choices.nth(6).click()
    page.get_by_role("button", name="Undo changes").click()
    words = "3 images excluded, 1 image relabeled, 1 image moved"
    expect(page.locator("#edit-status")).to_contain_text(words)
    check_accessibility(page)

    # The server keeps unsaved changes, and the dataset is unchanged.
    page.reload()
    expect(page.locator("#edit-status")).to_contain_text(words)
    expect(page.locator(".change")).to_have_count(5)
    expect(page.locator("#explore-total")).to_contain_text("18 training images")

    # In the large view, keys change an image and undo its change.
    page.get_by_role("button", name="Edit").click()
    page.locator("[data-enlarge]").nth(7).click()
    change = page.locator("#viewer-edit").get_by_role("status")
    page.keyboard.press("x")
    expect(change).to_have_text("Change for a new version: Excluded")
    page.keyboard.press("u")
    expect(change).to_have_text("")
    for key, name in (("1", "left"), ("2", "middle"), ("3", "right")):
        expect(page.locator("#viewer-edit").get_by_role("button", name=name)).to_contain_text(key)
    check_accessibility(page)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Save as new version").click()
    expect(page.locator("#changes")).to_have_text(f"{words}.")
    expect(page.get_by_label("Name", exact=True)).to_have_value("Bars, version 2")
    check_accessibility(page)
    page.get_by_role("button", name="Create version").click()
    expect(page).to_have_url(re.compile(r"/datasets/\d{8}-\d{6}-[0-9a-f]+$"))
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=30_000)
    expect(page.locator("#dataset-facts")).to_contain_text(words)
    expect(page.locator("#dataset-summary")).to_contain_text("14")
    page.locator("#dataset-facts").get_by_role("link", name="Bars").click()
    page.get_by_role("link", name="Explore").first.click()
    expect(page.locator(".change")).to_have_count(0)


@pytest.mark.parametrize(
    ("kind", "table", "changed"),
    [
        (
            "multilabel",
            "image,day,sea\n0.png,1,0\n1.png,0,0\n2.png,1,1",
            ["+ sea", "− day · + sea", "day, sea"],
        ),
        pytest.param(
            "regression",
            "image,angle,age\n0.png,1,30\n1.png,2,40\n2.png,3,50",
            ["age = 7.5", "age = -1", "3 · 50"],
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_labels_and_numbers_are_changed(
    server: ServerProcess, page: Page, page_faults: object, kind: str, table: str, changed: list[str]
) -> None:
    folder = server.data / f"fixed-{kind}"
    folder.mkdir()
    for number in range(3):
        Image.new("RGB", (16, 16), (80 * number, 0, 0)).save(folder / f"{number}.png")
    (folder / "table.csv").write_text(table)
    fields = {"dataset_name": kind, "table_train": folder / "table.csv", "pct_val": 0, "seed": 1}
    side = {"resize_width": 16, "resize_height": 16}
    with urlopen(server / f"datasets/images/{kind}.json", urlencode(fields | side).encode()) as answer:
        job = finished(server, json.load(answer))
    page.goto(f"/datasets/images/{kind}/explore?job_id={job['id']}")
    page.get_by_role("button", name="Edit").click()
    captions = page.locator("figcaption")
    images = [page.get_by_role("checkbox", name=re.compile(f"{number}.png")) for number in range(3)]
    for image in images[:2]:
        image.focus()
        page.keyboard.press("Space")
    if kind == "multilabel":
        page.get_by_label("Label", exact=True).select_option("sea")
        page.get_by_role("button", name="Add label").click()
        images[1].click()
        page.get_by_label("Label", exact=True).select_option("day")
        page.get_by_role("button", name="Remove label").click()
    else:
        page.get_by_label("Number to set").select_option("age")
        page.get_by_label("New value").fill("7.5")
        page.keyboard.press("Enter")
        images[1].click()
        page.get_by_label("New value").fill("-1")
        page.get_by_role("button", name="Set").click()
    for number, words in enumerate(changed):
        expect(captions.filter(has_text=f"{number}.png")).to_contain_text(words)
    expect(page.locator("#edit-status")).to_contain_text("Changes: 2 images relabeled.")
    check_accessibility(page)
    page.get_by_role("link", name="Save as new version").click()
    expect(page.locator("#changes")).to_have_text("2 images relabeled.")
    page.get_by_role("button", name="Create version").click()
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=30_000)
    expect(page.locator("#dataset-facts")).to_contain_text("2 images relabeled")
    page.get_by_role("link", name="Explore").first.click()
    after = {"multilabel": ["day, sea", "sea", "day, sea"], "regression": ["1 · 7.5", "2 · -1", "3 · 50"]}
    for number, words in enumerate(after[kind]):
        expect(captions.filter(has_text=f"{number}.png")).to_contain_text(words)
