"""Uploads in the browser: a folder becomes a dataset, and an interrupted archive resumes."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import JOB_PAGE, check_accessibility
from tests.datasets import photos
from tests.site import bars

# Paste an image into the element that the argument selects.
PASTE = """
selector => {
  const clipboardData = new DataTransfer();
  clipboardData.items.add(new File(['pixels'], 'pasted.png', { type: 'image/png' }));
  document.querySelector(selector).dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true }));
}
"""


def test_a_folder_is_uploaded_and_becomes_a_dataset(page: Page, tmp_path: Path) -> None:
    folder = bars(tmp_path / "uploaded bars")
    long_name = "left/" + "ü" * 60 + ".png"
    (folder / "left" / "00.png").rename(folder / long_name)
    page.goto("/datasets/images/classification/new")
    check_accessibility(page)
    box = page.get_by_role("group", name="Upload: Training images")
    with page.expect_file_chooser() as chooser:
        box.get_by_role("button", name="Folder…").click()
    chooser.value.set_files(folder)
    path = page.locator('[name="folder_train"]')
    expect(path).to_have_value(re.compile("/uploaded bars$"))
    expect(box).to_contain_text("Uploaded uploaded bars: 24 files")
    expect(path).to_be_hidden()  # the name is enough
    expect(page.locator("#source-findings")).to_contain_text("24 images in 3 classes")
    server_folder = Path(path.input_value())
    assert (server_folder / long_name).read_bytes() == (folder / long_name).read_bytes()
    page.get_by_role("button", name="Create dataset").click()
    expect(page.locator("[data-status]").filter(has_text="Done").first).to_be_visible(timeout=30_000)

    page.goto("/uploads")
    check_accessibility(page)
    page.get_by_role("link", name="New dataset from uploaded bars").click()
    expect(page.locator("#source-findings")).to_contain_text("24 images in 3 classes")
    page.get_by_role("link", name="Segmentation").click()
    expect(page.get_by_role("group", name="Upload: Images")).to_contain_text(
        "Uploaded uploaded bars: 24 files."
    )
    page.get_by_role("button", name="Enter a path instead").click()
    expect(page.locator('[name="feature_folder"]')).to_be_focused()
    page.goto("/uploads")
    page.get_by_role("button", name="Delete uploaded bars").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("row", name=re.compile("uploaded bars"))).to_have_count(0)
    assert not server_folder.exists()


def test_an_upload_of_another_kind_is_taken_to_its_form(page: Page, tmp_path: Path) -> None:
    for name in ("images", "masks"):
        (tmp_path / "roads" / name).mkdir(parents=True)
        for number in range(6):
            Image.new("L", (16, 16), number % 2).save(tmp_path / "roads" / name / f"{number}.png")
    page.goto("/datasets/images/classification/new")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Folder…").first.click()
    chooser.value.set_files(tmp_path / "roads")
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("The folders images and masks in roads are not classes")
    findings.get_by_role("link", name="Semantic segmentation").click()
    expect(page.get_by_role("group", name="Upload: Images")).to_contain_text("Uploaded roads: 12 files.")
    expect(findings).to_contain_text("6 images with label images.")


def test_an_interrupted_archive_resumes_after_a_reload(page: Page, tmp_path: Path) -> None:
    archive = tmp_path / "large.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("a/large.bin", os.urandom(20_000_000))
    chunks: list[int] = []

    def let_one_chunk_pass(route: Route) -> None:
        if route.request.method == "PATCH":
            chunks.append(int(route.request.headers["upload-offset"]))
        if len(chunks) == 2:
            return  # no response, as if the connection was lost
        route.continue_()

    page.route("**/uploads/*", let_one_chunk_pass)
    page.goto("/datasets/images/classification/new")
    box = page.get_by_role("group", name="Upload: Training images")
    files = box.locator("[data-upload-files-input]")
    files.set_input_files(archive)
    expect(box.get_by_role("progressbar")).to_have_attribute("aria-valuenow", re.compile("^[1-9]"))
    check_accessibility(page)
    box.get_by_role("button", name="Pause").click()
    expect(box).to_contain_text("Paused")
    page.unroute("**/uploads/*")

    page.once("dialog", lambda dialog: dialog.accept())
    page.reload()
    expect(box).to_contain_text("The upload of large.zip was interrupted at 41%")
    resumed: list[str] = []
    page.on("request", lambda request: resumed.append(request.headers.get("upload-offset", "")))
    files.set_input_files(archive)
    expect(page.locator('[name="folder_train"]')).to_have_value(re.compile("/large/a$"))
    assert [offset for offset in resumed if offset] == ["8388608", "16777216"]


def test_a_dropped_folder_is_uploaded_and_a_refused_archive_is_explained(page: Page, tmp_path: Path) -> None:
    (tmp_path / "levels" / "images").mkdir(parents=True)
    (tmp_path / "levels" / "levels.csv").write_text("image,level\n")
    (tmp_path / "levels" / "images" / "a.png").write_bytes(b"x")
    (tmp_path / "broken.zip").write_bytes(b"PK\3\4 and nothing else")
    page.goto("/datasets/images/regression/new")
    box = page.get_by_role("group", name="Upload: Table file")
    drop(page, box, tmp_path / "levels")
    expect(page.get_by_label("Table file", exact=True)).to_have_value(
        re.compile("/levels/levels/levels.csv$")
    )
    drop(page, box, tmp_path / "broken.zip")
    expect(box.get_by_role("alert")).to_contain_text("The zip archive is truncated")
    expect(box.get_by_role("button", name="Files…")).to_be_visible()


def test_dropped_photos_become_a_version_of_a_dataset(
    page: Page, dataset: dict[str, Any], tmp_path: Path
) -> None:
    photos(tmp_path, "first.png", "second.png")
    page.goto(f"/datasets/{dataset['id']}")
    page.get_by_role("link", name="Add images").click()
    status = page.locator("#version-result")
    create = page.get_by_role("button", name="Create version")
    expect(create).to_have_attribute("aria-disabled", "true")
    check_accessibility(page)
    box = page.get_by_role("group", name="Upload: Images")
    files = tmp_path / "first.png", tmp_path / "second.png"
    drop(page, box, *files)
    expect(page.get_by_text("Choose the class of the images.")).to_be_visible()
    page.get_by_label("Class", exact=True).select_option("middle")
    expect(status).to_contain_text("2 images added to middle.")
    page.evaluate(PASTE, "body")
    expect(page.get_by_text("Uploaded pasted.png: 1 file")).to_be_visible()
    expect(status).to_contain_text("1 image added to middle.")
    drop(page, box, *files)
    expect(status).to_contain_text("2 images added to middle.")
    page.evaluate(PASTE, "#dataset_name")  # a picture of copied text
    expect(box.get_by_role("progressbar")).to_be_hidden()
    check_accessibility(page)
    create.click()
    expect(page).to_have_url(re.compile(JOB_PAGE))
    expect(page.get_by_text("Done", exact=True).first).to_be_visible(timeout=30_000)
    expect(page.get_by_text("images added to middle")).to_be_visible()
    page.reload()
    page.get_by_text("Changed images").first.click()
    expect(page.get_by_role("row", name=re.compile("first.png"))).to_contain_text("middle")
    check_accessibility(page)


def drop(page: Page, box: Locator, *paths: Path) -> None:
    """Drag files or folders of this computer onto ``box``."""
    box.get_by_role("button").first.focus()  # closes the suggestions of the path field, which may cover it
    place = box.bounding_box()
    assert place
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [*map(str, paths)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        where = {"x": place["x"] + 20, "y": place["y"] + 15}
        session.send("Input.dispatchDragEvent", {"type": kind, "data": data, **where})
    session.detach()
