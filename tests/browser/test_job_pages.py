"""Job pages and forms, with real jobs on a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import (
    REFRESH,
    TWO_LAYERS,
    check_accessibility,
    customize,
    open_panel,
    open_part,
    write_network,
)

DONE_MILLISECONDS = 60_000


STALE = """async () => {
  const button = document.querySelector('#job-actions [data-action="delete"]');
  button.textContent = 'Stale';
  button.closest('[popover]').showPopover();
  button.focus();
  const panel = document.querySelector('details');
  panel.open = true;
  await (%s)();
  return { same: document.activeElement === button, words: button.textContent, open: panel.open };
}"""


PARTS = ("Results", "Try", "Details")
CONTROLS = """() => [...document.querySelectorAll('a, button, input, select, textarea, summary')].filter(
  (control) => control.checkVisibility({ visibilityProperty: true })
).length"""


def test_a_dataset_page_shows_its_contents_and_its_health(page: Page, dataset):
    page.goto(f"/datasets/{dataset['id']}")
    rows = page.locator(".counts-table tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("left")
    expect(rows.first).to_contain_text("12")
    expect(page.locator(".sample-class")).to_have_count(3)
    page.locator("#skipped-panel summary").click()
    expect(page.locator("#skipped-panel")).to_contain_text("broken.png")
    # A refreshed part keeps its elements and the focus.
    assert page.evaluate(STALE % REFRESH) == {"same": True, "words": "Delete", "open": True}
    check_accessibility(page)

    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.locator("#health-status")).to_be_focused()
    expect(page.locator("#finding-skipped")).to_have_count(0)  # the page lists them at its top
    check_accessibility(page)
    page.locator("a.bin").first.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("brightness="))
    expect(page.locator("#filter-brightness")).to_contain_text("Brightness")
    check_accessibility(page)


def test_paths_are_completed_with_the_keyboard_and_an_error_links_to_its_field(
    page: Page, image_folder: Path
):
    page.goto("/datasets/images/classification/new")
    field = page.locator('[name="folder_train"]')
    field.click()
    page.keyboard.insert_text(f"{image_folder}/le")
    options = page.locator(".suggestions li")
    expect(options).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(field).to_have_value(re.compile(re.escape(f"{image_folder}/left")))

    open_panel(page, "Split")
    page.locator('[name="folder_pct_val"]').fill("100")
    findings = page.get_by_role("region", name="Findings in the source")
    expect(findings).to_contain_text(
        "Test split: Validation and test take 100%: nothing is left to train on."
    )
    create = page.get_by_role("button", name="Create dataset")
    expect(create).to_have_attribute("aria-disabled", "true")
    create.click(force=True)
    expect(page.locator("#create-status")).to_have_text("Fix the problem above first.")
    findings.get_by_role("link", name="Test split").click()
    expect(page.locator('[name="folder_pct_test"]')).to_be_focused()
    expect(field).to_have_value(re.compile("left"))
    expect(page.locator('[name="folder_pct_val"]')).to_have_value("100")
    check_accessibility(page)


def test_a_standard_network_is_customized_and_a_syntax_error_marked_while_typing(page: Page, dataset):
    page.goto(f"/models/images/classification/new?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="LeNet", exact=True).check()
    caption = page.locator("#lr-preview figcaption")
    page.get_by_label("Base learning rate").fill("0.01")
    page.locator('[name="lr_policy"]').select_option("step")
    expect(caption).to_contain_text("From 0.01")
    page.locator('[name="lr_policy"]').select_option("fixed")
    expect(caption).to_contain_text("Constant at 0.01")
    # The caption says which field is missing.
    for name, words in (("train_epochs", "Epochs: "), ("learning_rate", "Base learning rate: ")):
        field = page.locator(f'[name="{name}"]')
        before = field.input_value()
        field.fill("")
        expect(caption).to_contain_text(words)
        field.fill(before)
        expect(caption).to_contain_text("Constant at 0.01")
    expect(page.locator('[name="lr_step_size"]')).to_be_hidden()
    expect(page.locator("#lr-preview canvas")).to_be_visible()

    page.get_by_text("About LeNet").click()
    page.get_by_role("button", name="Edit the code of LeNet").click()
    text = page.locator('[name="custom_network"]')
    expect(text).to_have_value(re.compile("conv1"))
    page.locator(".cm-content").click()
    page.keyboard.press("Control+Home")
    page.keyboard.insert_text("# mine\n")
    page.get_by_role("radio", name="Standard").check()
    page.get_by_role("button", name="Edit the code of LeNet").click()
    page.get_by_role("button", name="Keep my network").click()
    expect(text).to_have_value(re.compile("^# mine"))

    page.get_by_role("radio", name="Custom", exact=True).check()
    write_network(page, "class UserModel(Tower):\n    def loss(self:\n        pass\n")
    expect(page.locator("#editor-problems")).to_contain_text("Line 2: Syntax error")
    marker = page.locator(".cm-lint-marker-error")
    expect(marker).to_have_count(1)
    # A marker blocked by the style policy would exist but be invisible.
    assert marker.evaluate("element => getComputedStyle(element).content") != "normal"
    check_accessibility(page)


def test_a_failed_model_shows_why(page: Page, failed):
    page.goto(f"/models/{failed['id']}")
    expect(page.locator("#job-status")).to_contain_text("Error", timeout=DONE_MILLISECONDS)
    expect(page.locator("#job-error [role=alert]")).to_be_visible()
    open_part(page, "Details")
    expect(page.locator("#network-text")).to_contain_text("1 / 0")
    check_accessibility(page)


@pytest.mark.tensorflow
def test_a_stopped_training_resumes(page: Page, create, dataset):
    job = create(
        "models",
        model_name="Long",
        dataset=dataset["id"],
        standard_networks="lenet",
        train_epochs=2000,
        learning_rate=0.0001,
        aug_flip="fliplr",
        balance="class_weights",
        best_metric="accuracy",
        snapshots_kept=3,
    )
    page.goto(f"/models/{job['id']}#snapshots")
    expect(page.locator("#snapshots [data-epoch]").nth(1)).to_be_visible(timeout=DONE_MILLISECONDS)
    page.reload()
    expect(page.locator("#snapshots [data-mark]")).to_have_text("best")
    facts = page.locator("#model-facts")
    expect(facts).to_contain_text("horizontal flip")
    expect(facts).to_contain_text("class weights")
    expect(facts).to_contain_text("Cached in memory")
    page.get_by_role("button", name="Abort").click()
    page.locator("#confirm-yes").click()
    resume = page.get_by_role("button", name="Resume")
    expect(resume).to_be_visible(timeout=DONE_MILLISECONDS)
    check_accessibility(page)
    resume.click()
    expect(page.locator("#job-status")).to_contain_text("Running", timeout=DONE_MILLISECONDS)
    expect(resume).to_have_count(0, timeout=DONE_MILLISECONDS)
    page.get_by_role("button", name="Abort").click()
    page.locator("#confirm-yes").click()
    expect(resume).to_be_visible(timeout=DONE_MILLISECONDS)


def test_home_updates_automatically_and_keeps_the_search(page: Page, create, image_folder: Path, dataset):
    page.goto("/?q=arrives&sort=name&dir=asc")
    expect(page.locator("#connection")).to_be_hidden()
    job = create("datasets", dataset_name="It arrives", method="folder", folder_train=image_folder)
    create("datasets", dataset_name="Another", method="folder", folder_train=image_folder)
    row = page.locator(f'#datasets-table tr[data-job="{job["id"]}"]')
    expect(row).to_contain_text("Done", timeout=DONE_MILLISECONDS)
    expect(page.locator("#datasets-table tbody tr")).to_have_count(1)
    expect(page.locator("#datasets-table th").first).to_have_attribute("aria-sort", "ascending")


def test_name_and_group_can_be_edited_on_a_job_page(page: Page, create, image_folder: Path):
    job = create("datasets", dataset_name="Old name", method="folder", folder_train=image_folder)
    page.goto(f"/datasets/{job['id']}")
    page.get_by_role("button", name="Edit name and group").click()
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.get_by_label("Name", exact=True).fill("<b>New</b> name")
    page.get_by_label("Group optional").fill("New group")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#job-name")).to_have_text("<b>New</b> name")
    expect(page.get_by_role("button", name="Edit name and group")).to_be_focused()
    page.reload()
    expect(page.locator("#job-name")).to_have_text("<b>New</b> name")
    expect(page.locator("#job-group")).to_have_text("New group")
    page.goto("/?q=new+group")
    expect(page.locator("#datasets-table tbody tr")).to_contain_text("<b>New</b> name")


def test_the_chosen_theme_is_remembered(page: Page):
    page.goto("/")
    switch = page.locator("#theme-switch")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    switch.click()
    switch.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto("/login")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def let_the_loss_rise(route: Route) -> None:
    """Answer with a history that ends with a loss of 100, unlike any moving average."""
    history = route.fetch().json()
    history["train"]["values"]["loss"][-1] = 100
    route.fulfill(json=history)


@pytest.mark.tensorflow
def test_choices_for_curves_apply_to_all_charts_and_are_remembered(page: Page, create, dataset, trained):
    page.route("**/metrics.json", let_the_loss_rise)
    page.goto(f"/models/{trained['id']}")
    loss = page.locator("#chart-loss .legend b")
    expect(loss.first).to_have_text("100")
    options = page.get_by_text("Chart options")
    options.click()
    slider = page.get_by_label("Smoothing")
    slider.fill("90")
    expect(loss.first).not_to_have_text("100")
    smoothed, validation = loss.first.text_content(), loss.last.text_content()
    check_accessibility(page)
    page.reload()
    expect(page.get_by_label("Smoothing")).to_have_value("90")
    expect(loss.first).to_have_text(smoothed or "")
    expect(loss.last).to_have_text(validation or "")
    options.click()
    page.get_by_label("Smoothing").fill("0")
    expect(loss.first).to_have_text("100")

    page.get_by_label("X-axis").select_option("Time")
    area = page.locator("#chart-accuracy .chart-area")
    page.get_by_label("Range of Loss").select_option("Log")
    page.get_by_label("Range of Accuracy").select_option("Fixed")
    page.get_by_label("Minimum of Accuracy").fill("110")
    page.get_by_label("Maximum of Accuracy").fill("101")
    page.get_by_label("Maximum of Accuracy").press("Tab")  # refused: it is not greater than the minimum
    page.get_by_label("Minimum of Accuracy").fill("50")
    page.get_by_label("Minimum of Accuracy").press("Tab")
    check_accessibility(page)
    open_part(page, "Details")
    expect(page.get_by_text("Learning rate: 0.01 → 0.001")).to_be_visible()
    expect(page.locator("#curve-events")).to_contain_text("Best snapshot:")
    check_accessibility(page)
    page.get_by_role("tab", name="Results").click()
    page.reload()
    expect(page.get_by_label("X-axis")).to_have_value("time")
    expect(page.get_by_label("Range of Loss")).to_have_value("log")
    expect(page.get_by_label("Minimum of Accuracy")).to_have_value("50")
    expect(page.get_by_label("Maximum of Accuracy")).to_have_value("101")
    expect(area).to_have_attribute("aria-label", re.compile("by time"))
    area.press("End")
    expect(page.locator("#chart-accuracy [role=status]")).to_have_text(re.compile("^Time .*Best snapshot"))
    expect(page.locator("#chart-accuracy .chart-tip")).to_contain_text("Best snapshot")
    options.click()
    page.get_by_label("Markers").uncheck()
    page.reload()
    expect(page.get_by_label("Markers")).not_to_be_checked()

    fields = {"custom_network": TWO_LAYERS, "train_epochs": 1, "batch_size": 6, "select_gpu": "cpu"}
    other = create("models", model_name="Compared", dataset=dataset["id"], method="custom", **fields)
    page.goto("/")
    compare = page.locator("#compare-form button")
    page.get_by_label("Select Trained", exact=True).check()
    expect(compare).to_be_disabled()
    page.get_by_label("Select Compared", exact=True).check()
    expect(page.locator(f"#row-{other['id']}")).to_contain_text("Done", timeout=DONE_MILLISECONDS)
    expect(compare).to_have_text("Compare 2")  # kept while the list changed
    compare.click()
    expect(page.locator("#chart-accuracy .legend li")).to_have_text([re.compile("Trained|Compared")] * 2)
    expect(page.get_by_label("X-axis")).to_have_value("time")
    options.click()
    page.get_by_label("Stage").select_option("Both")
    expect(page.locator("#chart-loss .legend li")).to_have_count(4)
    expect(page.locator("#chart-learning_rate")).to_have_attribute("data-points", re.compile("[1-9]"))
    expect(page.get_by_role("region", name="Settings of the models")).to_contain_text("Epochs")
    check_accessibility(page)


@pytest.mark.tensorflow
def test_the_page_of_a_finished_model_has_three_parts_with_few_controls(page: Page, trained) -> None:
    address = f"/models/{trained['id']}"
    page.goto(address)
    results, attempts, _ = (page.get_by_role("tabpanel", name=name) for name in PARTS)
    expect(page.locator("#chart-loss canvas")).to_be_visible()
    expect(attempts).to_be_hidden()
    page.get_by_role("tab", name="Results").press("ArrowRight")
    expect(page.get_by_role("tab", name="Try")).to_be_focused()
    expect(results).to_be_hidden()
    page.reload()  # the address has the part
    expect(attempts.get_by_role("button", name="Classify")).to_be_visible()
    page.goto(f"{address}#network-panel")
    expect(page.locator("#network-text")).to_be_visible()
    expect(attempts).to_be_hidden()
    page.get_by_role("tab", name="Results").click()
    menu = page.get_by_role("button", name="More actions")
    menu.click()
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    check_accessibility(page)
    page.keyboard.press("Escape")
    expect(menu).to_be_focused()
    for size in ({"width": 1280, "height": 900}, {"width": 390, "height": 844}):
        page.set_viewport_size(size)
        for name in PARTS:
            page.get_by_role("tab", name=name).click()
            assert page.evaluate(CONTROLS) <= 45
            assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
            check_accessibility(page)


@pytest.mark.tensorflow
def test_a_finished_training_is_continued(page: Page, create, dataset):
    job = create(
        "models",
        model_name="Short",
        dataset=dataset["id"],
        method="custom",
        custom_network=TWO_LAYERS,
        select_gpu="cpu",
        train_epochs=1,
        batch_size=8,
        val_interval=1,
        snapshot_interval=1,
    )
    page.goto(f"/models/{job['id']}")
    button = page.get_by_role("button", name="Continue…")
    button.click(timeout=DONE_MILLISECONDS)
    dialog = page.get_by_role("dialog", name="Continue training")
    expect(dialog).to_contain_text("learning rate")
    check_accessibility(page)
    dialog.get_by_label("More epochs").fill("2")
    dialog.get_by_role("button", name="Continue").click()
    expect(page.locator("#snapshots [data-epoch]")).to_have_count(3, timeout=DONE_MILLISECONDS)
    expect(page.locator("[data-tile='epoch']")).to_have_text("3 / 3")
    button.click(timeout=DONE_MILLISECONDS)
    expect(dialog.get_by_label("More epochs")).to_have_value("3")
