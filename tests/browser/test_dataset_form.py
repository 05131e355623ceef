"""The dataset form: the summary of the source, before anything is created."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.conftest import JOB_PAGE, ServerProcess, check_accessibility, fill_size, open_panel
from tests.site import bars


def splits(server: ServerProcess, name: str) -> Path:
    """A folder with images in train/ and test/."""
    for split in ("train", "test"):
        bars(server.data / name / split, each=4)
    return server.data / name


def test_the_splits_of_a_folder_are_used_or_mixed(page: Page, server: ServerProcess) -> None:
    folder = splits(server, "splits")
    page.goto("/datasets/images/classification/new")
    path = page.locator('[name="folder_train"]')
    path.focus()
    page.keyboard.insert_text(str(folder))
    page.keyboard.press("Enter")  # loads the preview, and creates nothing
    contents = page.get_by_role("region", name="Contents of the source")
    findings = page.get_by_role("region", name="Findings in the source")
    expect(contents.locator(".source-previews li")).to_have_count(12)
    expect(contents).to_contain_text("As they will be stored: 16×16 pixels")
    expect(contents.locator("tbody tr")).to_have_count(3)
    expect(findings).to_contain_text("12 images in 3 classes.")
    expect(findings).to_contain_text("The splits of the source are used: train for training, test for test.")
    expect(page.locator("#split-panel summary")).to_contain_text("About 9 training, 3 validation, 12 test")
    expect(findings).to_contain_text("All images have 16×16 pixels.")
    expect(page.get_by_label("Name", exact=True)).to_have_value("splits")
    check_accessibility(page)

    # By keyboard
    page.get_by_role("button", name="Mix them").focus()
    page.keyboard.press("Enter")
    expect(path).to_have_value(str(folder / "train"))
    expect(page.locator('[name="folder_train_more"]')).to_have_value(str(folder / "test"))
    expect(findings).to_be_focused()
    expect(findings).to_contain_text("24 images in 3 classes.")
    expect(page.get_by_role("button", name="Mix them")).to_have_count(0)
    expect(page.locator("#split-panel summary")).to_contain_text("About 18 training, 6 validation")

    # A size chosen by the user replaces the recommended one, which remains one click away.
    page.get_by_role("button", name="Change: Image size").click()
    page.get_by_role("button", name="28", exact=True).click()
    expect(contents).to_contain_text("As they will be stored: 28×28 pixels")
    findings.get_by_role("button", name="Use this").click()
    expect(page.locator('[name="resize_width"]')).to_have_value("16")
    expect(contents).to_contain_text("As they will be stored: 16×16 pixels")

    page.get_by_role("button", name=re.compile("Create")).click()
    expect(page).to_have_url(re.compile(r"/datasets/\d{8}-\d{6}-[0-9a-f]+$"), timeout=30_000)
    expect(page.locator("[data-status]").filter(has_text="Done").first).to_be_visible(timeout=30_000)
    expect(page.locator("#dataset-summary")).to_contain_text("Training images18")


def test_wrong_paths_stop_the_button(page: Page, server: ServerProcess) -> None:
    splits(server, "to-type")
    page.goto("/datasets/images/classification/new")
    path = page.locator('[name="folder_train"]')
    findings = page.get_by_role("region", name="Findings in the source")
    create = page.get_by_role("button", name="Create dataset")
    with page.expect_response("**/scan"):
        path.fill(str(server.data / "to-typ"))
    expect(findings).not_to_contain_text("does not exist")  # while it is typed
    path.blur()
    expect(page.get_by_text("does not exist")).to_have_count(1)
    expect(create).to_be_disabled()
    create.click(force=True)
    expect(page.get_by_text("does not exist")).to_have_count(1)
    page.get_by_role("button", name="Use to-type").click()
    expect(findings).to_contain_text("12 images in 3 classes")
    expect(create).to_be_enabled()

    path.fill("")
    expect(findings).to_be_empty()


# Delays the end of each summary until `release()` is called.
HOLD_SUMMARIES = """
const original = window.fetch;
let held;
window.hold = () => { held = new Promise((resolve) => { window.release = () => { held = null; resolve(); }; }); };
window.fetch = async (url, options) => {
  const response = await original(url, options);
  if (!held || !String(url).endsWith('/scan')) return response;
  const lines = (await response.text()).trim().split('\\n');
  const first = JSON.stringify({ ...JSON.parse(lines[0]), finished: false }) + '\\n';
  const encoder = new TextEncoder();
  const waiting = held;
  return new Response(new ReadableStream({
    async start(controller) {
      controller.enqueue(encoder.encode(first));
      await waiting;
      controller.enqueue(encoder.encode(lines.join('\\n') + '\\n'));
      controller.close();
    },
  }));
};
"""


def test_only_the_last_summary_frees_the_button(page: Page, server: ServerProcess) -> None:
    folder = bars(server.data / "slow", each=4)
    page.add_init_script(HOLD_SUMMARIES)
    page.goto("/datasets/images/classification/new")
    page.locator('[name="folder_train"]').fill(str(folder))
    findings = page.get_by_role("region", name="Findings in the source")
    create = page.get_by_role("button", name="Create dataset")
    expect(findings).to_contain_text("12 images in 3 classes")
    open_panel(page, "Split")
    page.locator('[name="folder_pct_val"]').fill("100")
    expect(create).to_have_attribute("aria-disabled", "true")
    page.evaluate("hold()")
    page.locator('[name="folder_pct_val"]').fill("101")
    expect(findings).to_contain_text("Reading")
    expect(create).to_have_attribute("aria-disabled", "true")
    create.click(force=True)
    page.wait_for_timeout(1000)
    page.evaluate("release()")
    expect(page.locator("#create-status")).to_have_text("Fix the problem above first.")
    assert page.url.endswith("/new")


def test_the_button_waits_for_the_source_that_is_being_read(page: Page, server: ServerProcess) -> None:
    folder = bars(server.data / "awaited", each=4)
    scans: list[str] = []
    page.on("request", lambda request: scans.append(request.url) if request.url.endswith("/scan") else None)
    page.add_init_script(HOLD_SUMMARIES)
    page.goto("/datasets/images/classification/new")
    page.evaluate("hold()")
    page.locator('[name="folder_train"]').fill(str(folder))
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("Reading")
    page.get_by_role("button", name="Create dataset").click()
    expect(page.locator("#create-status")).to_have_text("Reading the source…")
    # Neither is the source read again, nor the dataset created without what it says.
    page.wait_for_timeout(1000)
    expect(page.get_by_role("button", name="Create dataset")).to_be_disabled()
    page.evaluate("release()")
    expect(page).to_have_url(re.compile(f"/datasets/{JOB_PAGE}"), timeout=30_000)
    assert len(scans) == 1


@pytest.mark.parametrize("beside", [["test"], ["val"], ["val", "test"]])
def test_folders_beside_the_training_folder_are_used(
    page: Page, server: ServerProcess, beside: list[str]
) -> None:
    split_title = {"val": "Validation", "test": "Test"}
    folder = server.data / f"beside-{'-'.join(beside)}"
    for split in ("train", *beside):
        bars(folder / split, each=4)
    page.goto("/datasets/images/classification/new")
    page.locator('[name="folder_train"]').fill(str(folder / "train"))
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("All images have 16×16 pixels.")
    places = " and ".join(f"{split}/ for {split_title[split].lower()}" for split in beside)
    expect(findings).to_contain_text(f"Also used: {places}, beside train/.")
    create = page.get_by_role("button", name="Create dataset")
    expect(create).to_be_enabled()
    shares = page.locator("#split-panel summary")
    expect(shares).to_contain_text(f"12 {beside[0] if beside[0] == 'test' else 'validation'}")
    findings.get_by_role("button", name="Leave out").click()
    expect(findings).to_contain_text(f"Found {places}, beside train/.")
    expect(shares).to_contain_text("About 9 training, 3 validation")
    expect(create).to_be_enabled()
    findings.get_by_role("button", name=re.compile("^Use (it|them)$")).click()
    expect(findings).to_contain_text("Also used:")
    create.click()
    expect(page.locator("[data-status]").filter(has_text="Done").first).to_be_visible(timeout=30_000)
    for split in beside:
        expect(page.locator("#dataset-summary")).to_contain_text(f"{split_title[split]} images12")


def test_a_source_of_another_kind_is_one_link_away(page: Page, server: ServerProcess) -> None:
    folder = server.data / "with-masks"
    for name, mode in {"images": "RGB", "masks": "L"}.items():
        (folder / name).mkdir(parents=True)
        for number in range(6):
            Image.new(mode, (16, 16), number % 2).save(folder / name / f"{number}.png")
    page.goto("/datasets/images/classification/new")
    page.locator('[name="folder_train"]').fill(str(folder))
    page.locator('[name="folder_train"]').blur()
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("The folders images and masks in")
    expect(page.get_by_role("button", name="Create dataset")).to_be_disabled()
    check_accessibility(page)
    findings.get_by_role("link", name="Semantic segmentation").click()
    expect(page.locator('[name="feature_folder"]')).to_have_value(str(folder))
    expect(findings).to_contain_text("6 images with label images.")
    expect(page.get_by_role("button", name="Create dataset")).to_be_enabled()


def test_a_table_is_summarized(page: Page, server: ServerProcess) -> None:
    folder = bars(server.data / "with-table")
    rows = [f"left/0{number}.png,{number / 2},steel" for number in range(8)]
    (folder / "train.csv").write_text("\n".join(["image,angle,material", *rows, "left/99.png,3,steel"]))
    (folder / "val.csv").write_text("image,angle,material\nright/00.png,1,steel\n")
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto("/datasets/images/regression/new")
    page.locator('[name="table_train"]').fill(str(folder / "train.csv"))
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("9 rows with a number each: angle.")
    expect(findings).to_contain_text("Ranges: angle 0 to 3.5. material is text; only angle is used.")
    expect(findings).to_contain_text("1 image of train.csv not found: line 10: left/99.png.")
    expect(findings).to_contain_text("Also used: val.csv for validation, beside train.csv.")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    check_accessibility(page)


def test_the_first_objects_and_the_way_on_are_shown_before_anything_is_created(
    page: Page, server: ServerProcess
) -> None:
    folder = server.data / "few"
    for number in range(12):
        for name in ("images", "labels"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20), (number, 90, 90)).save(folder / "images" / f"{number}.png")
        line = "0 0.5 0.5\n" if number == 3 else "0 0.25 0.5 0.5 0.5\n"
        (folder / "labels" / f"{number}.txt").write_text(line)
    page.set_viewport_size({"width": 390, "height": 844})
    # A script can still create it, and the page of the failed dataset offers the remedies.
    fields = {"dataset_name": "few", "train_image_folder": str(folder)}
    job = page.request.post("/datasets/images/detection.json", form=fields).json()
    page.goto(f"/datasets/{job['id']}")
    page.get_by_role("link", name="Skip up to 9% and try again").click()
    expect(page.locator('[name="max_unusable_percent"]')).to_have_value("9")
    page.locator('[name="max_unusable_percent"]').evaluate("field => { field.value = 5 }")
    fill_size(page, 32)
    contents = page.get_by_role("region", name="Contents of the source")
    findings = page.get_by_role("region", name="Findings in the source")
    create = page.get_by_role("button", name="Create dataset")
    expect(contents.locator(".source-previews li")).to_have_count(11)
    expect(contents.locator(".source-previews .box")).to_have_count(11)
    expect(findings).to_contain_text(
        "1 file of labels cannot be used: 3.txt, line 1: 3 columns instead of 5."
    )
    expect(create).to_be_disabled()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    check_accessibility(page)
    findings.get_by_role("button", name="Skip up to 9%").click()
    expect(page.locator('[name="max_unusable_percent"]')).to_have_value("9")
    expect(findings.get_by_role("button", name="Skip up to 9%")).to_have_count(0)
    create.click()
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=30_000)
    expect(page.locator("#skipped-panel")).to_contain_text("3.txt")
