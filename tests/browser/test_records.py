"""TFRecord files in the browser: from the features of the first record to the records of a dataset."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import ServerProcess, check_accessibility, create_dataset, fill_size, open_panel
from tests.tfrecord_files import colored, write_records


def test_from_the_features_of_a_record_to_a_dataset(
    page: Page, page_faults: object, server: ServerProcess
) -> None:
    folder = server.data / "mapped records"
    for number in range(2):
        write_records(folder / f"train-0000{number}-of-00002", colored(10))
    page.goto("/datasets/images/classification/new")
    open_panel(page, "Other sources")
    page.get_by_label("TFRecord", exact=True).check()
    page.get_by_label("TFRecord files", exact=True).fill(str(folder / "train-*"))
    contents = page.get_by_role("region", name="Contents of the source")
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text("20 training records.")
    expect(contents.get_by_role("row", name="image/encoded (image) bytes 1")).to_be_visible()
    expect(contents.get_by_role("img", name="Preview")).to_have_js_property("naturalWidth", 8)
    expect(contents.get_by_role("row", name="blue")).to_contain_text("10")
    image, label = page.get_by_label("Image feature"), page.get_by_label("Label feature")
    expect(image.locator("option").first).to_have_text("Automatic: image/encoded")
    label.select_option("image/class/label: int64")
    expect(contents.get_by_role("row", name="image/class/label (label)")).to_be_visible()
    expect(label).to_have_value("image/class/label")
    check_accessibility(page)
    label.select_option("Automatic: image/class/text")
    fill_size(page, 8)
    create_dataset(page)
    page.get_by_role("link", name="Explore").first.click()
    # Which records are held out depends on the seed of the job.
    expect(page.get_by_text(re.compile(r"^train-0000[01]-of-00002:\d+$")).first).to_be_visible()
