"""Long names, names from right to left, and many classes, on every page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerProcess, finished

LONG = "a-name-without-any-space-" * 8
RIGHT_TO_LEFT = "תמונות של חתולים وكلاب"
# Turns the direction of everything that comes after it in the same paragraph or isolate.
OVERRIDE = "\N{RIGHT-TO-LEFT OVERRIDE}overridden"
CLASSES = 200
SHOWN = 100

# What a page at its present width keeps out of sight: itself, and links and controls that are outside of the window
# or of a part of the page that would have to be scrolled sideways.
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
    """Two pictures in each of many classes, some of whose names are odd; one has a broken file too."""
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
    """A dataset of two classes that has failed, since most of its files are no images."""
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
    """Models whose names are odd, aborted before they train."""
    fields = {"dataset": wide_dataset["id"], "method": "standard", "standard_networks": "lenet"}
    models = [create("models", model_name=name, group_name=LONG, **fields) for name in (RIGHT_TO_LEFT, LONG)]
    for model in models:
        urlopen(server / f"models/{model['id']}/abort", b"").close()
    return [finished(server, model, "Aborted") for model in models]


def test_no_name_widens_a_page_or_hides_its_actions(
    page: Page,
    page_faults,
    wide_dataset: dict[str, Any],
    failed_dataset: dict[str, Any],
    named_models: list[dict[str, Any]],
    check_accessibility: Callable[[Page], None],
):
    dataset, (model, long_model) = wide_dataset["id"], named_models
    explore = f"/datasets/images/classification/explore?job_id={dataset}"
    prediction = {"predictions": [[name, 50.0] for name in (LONG, RIGHT_TO_LEFT)], "milliseconds": 1.0}
    page.route("**/classify_one.json", lambda route: route.fulfill(json=prediction))
    page_faults.allow("abcdef$")

    def check(path: str, prepare: Callable[[], Any] = lambda: None) -> None:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(path)
        prepare()
        hidden = {"1280": page.evaluate(OUT_OF_SIGHT)}
        check_accessibility(page)
        page.set_viewport_size({"width": 390, "height": 844})
        hidden["390"] = page.evaluate(OUT_OF_SIGHT)
        assert hidden == {"1280": [], "390": []}, path

    def ask_to_delete() -> None:
        page.locator(f'tr[data-job="{dataset}"] [data-action="delete"]').click()
        page.locator("#confirm-yes").click()
        expect(page.locator("#confirm-refusal")).to_contain_text(LONG)

    def enlarge() -> None:
        page.locator("[data-enlarge]").first.click()
        expect(page.locator("#viewer-label")).to_have_text(LONG)

    def classify() -> None:
        page.locator("#image-path").fill("/image.png")
        page.get_by_role("button", name="Classify", exact=True).click()
        expect(page.locator(".prediction-label")).to_have_text([LONG, RIGHT_TO_LEFT])

    check("/")
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
    check("/", ask_to_delete)
    check(f"/?q={LONG}x")
    check(f"/datasets/{dataset}", page.locator("#skipped-panel summary").click)
    check(f"/datasets/{dataset}", page.get_by_role("button", name="Edit name and group").click)
    check(f"/datasets/{failed_dataset['id']}")
    check(explore)
    check(f"{explore}&label=1", enlarge)
    check(f"/models/{model['id']}")
    check(f"/models/{long_model['id']}", classify)
    check(f"/models/images/classification/new?dataset={dataset}")
    check(f"/models/images/classification/new?clone={long_model['id']}")
    check(f"/datasets/images/classification/new?clone={dataset}")
    check(f"/login?next={LONG}")
    check("/models/20200101-000000-abcdef")
