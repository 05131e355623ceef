"""Long names, right-to-left names and many classes on every page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerProcess, check_accessibility, finished, open_part

LONG = "a-name-without-any-space-" * 8
RIGHT_TO_LEFT = "תמונות של חתולים وكلاب"
# Overrides the direction of all following text in the same paragraph or isolate.
OVERRIDE = "\N{RIGHT-TO-LEFT OVERRIDE}overridden"
CLASSES = 60

# Content hidden at the page's current width: the page itself, and links and controls that can only be reached by
# scrolling the window or a part of the page sideways.
OUT_OF_SIGHT = """() => {
  const found = [];
  const { clientWidth, scrollWidth } = document.documentElement;
  if (scrollWidth > clientWidth) found.push(`the page is ${scrollWidth} pixels wide`);
  for (const element of document.querySelectorAll('a, button, input, select, textarea, summary')) {
    const { left, right, width } = element.getBoundingClientRect();
    if (width <= 1 || !element.checkVisibility() || element.closest('.visually-hidden, .skip-link')) continue;
    let [start, end] = [0, clientWidth];
    for (let box = element.parentElement; box; box = box.parentElement) {
      if (getComputedStyle(box).overflowX === 'visible') continue;
      const edges = box.getBoundingClientRect();
      [start, end] = [Math.max(start, edges.left), Math.min(end, edges.right)];
    }
    if (left < start - 1 || right > end + 1) found.push(`${element.outerHTML.slice(0, 150)}: ${left} to ${right} of ${start} to ${end}`);
  }
  return found;
}"""


@pytest.fixture(scope="session")
def wide_folder(server: ServerProcess) -> Path:
    """Many classes with two images each, some with unusual names; one also has a damaged file."""
    folder = server.data / "wide"
    names = [LONG, RIGHT_TO_LEFT, *(f"class {number:03}" for number in range(CLASSES - 2))]
    random = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir(parents=True)
        for number, file in enumerate((f"{name}.png", "2.png")):
            pixels = random.integers(0, 255, (16, 16, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / file, compress_level=number)
    (folder / LONG / f"broken-{LONG}.png").write_text("no image")
    return folder


@pytest.fixture(scope="session")
def wide_dataset(
    server: ServerProcess, create: Callable[..., dict[str, Any]], wide_folder: Path
) -> dict[str, Any]:
    fields = {"resize_width": 16, "resize_height": 16, "folder_pct_val": 0, "group_name": RIGHT_TO_LEFT}
    return finished(
        server, create("datasets", dataset_name=LONG, method="folder", folder_train=wide_folder, **fields)
    )


@pytest.fixture(scope="session")
def failed_dataset(
    server: ServerProcess, create: Callable[..., dict[str, Any]], wide_folder: Path
) -> dict[str, Any]:
    """A dataset of two classes that failed because most of its files are not images."""
    folder = server.data / LONG
    for name in (RIGHT_TO_LEFT, "other"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            (folder / name / f"{number}-{LONG}.png").write_text("no image")
    fields = {"resize_width": 16, "resize_height": 16, "group_name": LONG}
    job = create("datasets", dataset_name=OVERRIDE, method="folder", folder_train=folder, **fields)
    return finished(server, job, "Error")


@pytest.fixture(scope="session")
def named_models(
    server: ServerProcess, create: Callable[..., dict[str, Any]], wide_dataset: dict[str, Any]
) -> list[dict[str, Any]]:
    """Models with unusual names, aborted before training."""
    fields = {"dataset": wide_dataset["id"], "standard_networks": "lenet", "train_epochs": 10_000}
    models = [create("models", model_name=name, group_name=LONG, **fields) for name in (RIGHT_TO_LEFT, LONG)]
    for model in models:
        urlopen(server / f"models/{model['id']}/abort", b"").close()
    return [finished(server, model, "Aborted") for model in models]


def test_no_name_widens_a_page_or_hides_its_actions(
    page: Page,
    page_faults,
    wide_folder: Path,
    wide_dataset: dict[str, Any],
    failed_dataset: dict[str, Any],
    named_models: list[dict[str, Any]],
):
    dataset, (model, long_model) = wide_dataset["id"], named_models
    explore = f"/datasets/images/classification/explore?job_id={dataset}"
    prediction = {"predictions": [[name, 50.0] for name in (LONG, RIGHT_TO_LEFT)], "milliseconds": 1.0}
    labels = "".join(
        f'<li class="prediction"><span class="prediction-label"><bdi class="clipped" title="{label}">{label}</bdi></span>'
        f'<span class="prediction-percent number">{percent}%</span></li>'
        for label, percent in prediction["predictions"]
    )
    drawn = f'<ol class="plain predictions">{labels}</ol><p data-note>Epoch 1</p>'
    page.route("**/infer_one", lambda route: route.fulfill(body=drawn, content_type="text/html"))
    page_faults.allow("abcdef$")

    def check(path: str, prepare: Callable[[], Any] = lambda: None, *, with_axe: bool = False) -> None:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(path)
        prepare()
        hidden = {"1280": page.evaluate(OUT_OF_SIGHT)}
        if with_axe:
            check_accessibility(page)
        page.set_viewport_size({"width": 390, "height": 844})
        hidden["390"] = page.evaluate(OUT_OF_SIGHT)
        assert hidden == {"1280": [], "390": []}, path

    def ask_to_delete() -> None:
        page.locator(f'tr[data-job="{dataset}"] [data-action="delete"]').click()
        page.locator("#confirm-yes").click()
        expect(page.locator("#confirm-refusal")).to_contain_text(LONG)

    def open_all() -> None:
        page.locator("#skipped-panel summary").click()
        page.get_by_role("button", name="Edit name and group").click()

    def enlarge() -> None:
        page.locator("[data-enlarge]").first.click()
        expect(page.locator("#viewer-label")).to_have_text(LONG)

    def classify() -> None:
        # The model has no snapshot; the prediction is made up.
        page.get_by_role("tab", name="Try").click()
        page.locator("#classify-panel").evaluate("panel => { panel.hidden = false; }")
        page.locator("#image-path").fill(str(wide_folder / LONG / "2.png"))
        page.get_by_role("button", name="Classify", exact=True).click()
        expect(page.locator(".prediction-label")).to_have_text([LONG, RIGHT_TO_LEFT])

    check(f"/?q={LONG}")
    names = page.locator("#models-table .job-link bdi")
    expect(names).to_have_text([LONG, RIGHT_TO_LEFT])
    expect(names.first).to_have_attribute("title", LONG)
    assert [names.nth(index).evaluate("name => getComputedStyle(name).direction") for index in (0, 1)] == [
        "ltr",
        "rtl",
    ]
    assert names.first.evaluate("name => name.clientHeight") == names.last.evaluate(
        "name => name.clientHeight"
    )
    page_faults.allow(rf"/datasets/{dataset}$")
    check("/", ask_to_delete, with_axe=True)
    check(f"/?q={LONG}x")
    check(f"/datasets/{dataset}", open_all, with_axe=True)
    check(f"/datasets/{failed_dataset['id']}", with_axe=True)
    check(explore)
    check(f"{explore}&label=0", enlarge, with_axe=True)
    check(f"/models/{model['id']}")
    check(f"/models/{model['id']}", lambda: open_part(page, "Details"))
    check(f"/models/{long_model['id']}", classify)
    check(f"/projects/{dataset}", with_axe=True)
    check(f"/models/images/classification/new?dataset={dataset}")
    check(f"/models/images/classification/new?clone={long_model['id']}")
    check(f"/datasets/images/classification/new?clone={dataset}")
    check("/datasets/images/classification/new")
    check(f"/login?next={LONG}")
    check("/models/20200101-000000-abcdef", with_axe=True)


def test_a_dataset_of_many_classes_states_which_samples_are_shown(page: Page, wide_dataset: dict[str, Any]):
    page.goto(f"/datasets/{wide_dataset['id']}")
    expect(page.locator(".counts-table tr")).to_have_count(CLASSES)
    expect(page.locator(".sample-class")).to_have_count(12)
    expect(page.locator("#samples")).to_contain_text(f"first 12 of {CLASSES} classes")


def test_a_failed_dataset_page_explains_what_is_missing(
    page: Page, server: ServerProcess, create, failed_dataset
):
    """The page shows no empty chart, lists skipped files, and offers a remedy without a stack trace."""
    page.goto(f"/datasets/{failed_dataset['id']}")
    expect(page.get_by_role("link", name="skipped.csv")).to_be_visible()
    expect(page.locator("#skipped-panel tbody tr").first).to_be_visible()
    badge = page.locator("#job-status [data-status]")
    dot = "element => getComputedStyle(element, '::before').backgroundColor"
    assert page.locator("#job-history li").last.evaluate(dot) == badge.evaluate(dot)

    table = server.data / "unlabeled.csv"
    table.write_text("image,label\na.png,cat\nb.png,\n")
    empty = create("datasets", dataset_name="Empty", method="csv", table_train=table)
    page.goto(f"/datasets/{empty['id']}")
    expect(page.locator("#job-status")).to_contain_text("Error")
    expect(page.locator("#counts-panel")).to_be_hidden()
    error = page.locator("#job-error")
    expect(error.locator(".hint")).to_contain_text("Correct or remove them.")
    expect(error.get_by_role("link", name="Edit and try again")).to_be_visible()
    # With a remedy, the frames of the program are omitted.
    expect(error.locator("details, .trace")).to_have_count(0)


def test_exploring_images_preserves_the_focus(page: Page, wide_dataset: dict[str, Any]):
    page.goto(f"/datasets/images/classification/explore?job_id={wide_dataset['id']}")
    total, images = page.locator("#explore-total"), page.locator(".gallery img")
    page.get_by_role("link", name="Next").focus()
    page.keyboard.press("Enter")
    expect(total).to_contain_text("page 2 of 3")
    expect(page.get_by_role("link", name="Next")).to_be_focused()
    select = page.locator('[name="label"]')
    expect(select.locator("option", has_text="class 007")).to_contain_text("(2)")
    select.focus()
    select.select_option(str(CLASSES - 1))
    expect(total).to_contain_text(f"2 training images in the class “{RIGHT_TO_LEFT}”")
    expect(select).to_be_focused()
    expect(images).to_have_count(2)
    page.go_back()
    expect(total).to_contain_text("page 2 of 3")
    expect(select).to_have_value("")
    expect(images).to_have_count(50)


def test_an_image_and_its_neighbors_can_be_enlarged(page: Page, wide_dataset: dict[str, Any]):
    page.goto(f"/datasets/images/classification/explore?job_id={wide_dataset['id']}&label=7")
    links, viewer = page.locator("[data-enlarge]"), page.locator("#viewer")
    links.first.focus()
    page.keyboard.press("Enter")
    image = viewer.locator("img")
    expect(viewer).to_contain_text("16 × 16 pixels")
    expect(viewer).to_contain_text("16 × 16, 3 channels, PNG")
    viewer.get_by_text("Raw record").click()
    expect(viewer).to_contain_text("image/class/label")
    viewer.get_by_role("button", name="Close").focus()
    expect(viewer.get_by_role("button", name="Close")).to_be_focused()
    assert image.evaluate("image => image.clientWidth % image.naturalWidth") == 0
    assert image.evaluate("image => image.clientWidth > 2 * image.naturalWidth")
    expect(viewer.get_by_role("button", name="Previous")).to_be_disabled()
    page.keyboard.press("ArrowRight")
    expect(image).to_have_attribute("src", re.compile(links.nth(1).get_attribute("href") or "no link"))
    expect(viewer.get_by_role("button", name="Next")).to_be_disabled()
    page.keyboard.press("Escape")
    expect(viewer).to_be_hidden()
    expect(links.nth(1)).to_be_focused()
