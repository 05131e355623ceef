"""The form of image classification recognizes the folder of a dataset of DIGITS 6."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerProcess, open_panel
from tests.old_databases import write_job


def test_the_folder_of_an_old_dataset_is_recognized(
    page: Page, server: ServerProcess, check_accessibility: Callable[[Page], None]
) -> None:
    job = write_job(server.data / "20170401-120000-abcd")
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto("/datasets/images/classification/new")
    open_panel(page, "Other sources")
    page.get_by_label("LMDB, HDF5").check()
    page.locator('[name="database_train"]').fill(str(job))
    contents = page.get_by_role("region", name="Contents of the source")
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("A DIGITS dataset with 18 images in 3 classes.")
    expect(contents.get_by_role("row", name="Validation LMDB 6 8×6×3 Preview PNG")).to_be_visible()
    expect(contents.get_by_role("img", name="Preview")).to_have_count(2)
    page.get_by_role("button", name="Use it").click()
    for name, value in (("resize_width", "8"), ("resize_height", "6"), ("encoding", "png")):
        expect(page.locator(f'[name="{name}"]')).to_have_value(value)
    expect(page.get_by_role("button", name="Use it")).to_have_count(0)
    expect(contents).to_contain_text("as they will be stored: 8×6 pixels")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    check_accessibility(page)
    (job / "labels.txt").write_text("cold\nwarm\n")
    page.locator('[name="database_train"]').fill(f"{job}/")
    expect(findings).to_contain_text(
        "6 records cannot be used: the label 2 is not between 0 and 1: 00000002_2, "
    )
