"""The form of a new model: its sections, the settings of networks, and the check before a training."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

BOTH_THEMES = pytest.mark.parametrize("color_scheme", ["light", "dark"], indirect=True)
NEW_MODEL = "/models/images/classification/new"
STEP_MILLISECONDS = 120_000


@BOTH_THEMES
def test_all_sections_are_accessible(page: Page, dataset, check_accessibility: Callable[[Page], None]):
    page.goto(NEW_MODEL)
    sections = page.locator("main details")
    expect(page.locator("main details[open]")).to_have_count(0)
    page.get_by_role("radio", name="Custom", exact=True).check()
    for section in sections.all():
        section.locator("summary").click()
    page.get_by_label("Shift the colours").check()
    page.get_by_label("Solver").select_option("ADAMW")
    page.get_by_label("Stop early").select_option("loss")
    for name in ("custom_network_snapshot", "aug_hsv_h", "weight_decay", "early_stopping_patience"):
        expect(page.locator(f'[name="{name}"]')).to_be_visible()
    check_accessibility(page)


def test_a_mistake_opens_its_section_only(page: Page, page_faults, dataset):
    page_faults.allow(r"/models/(images/classification|preflight)$")
    page.goto(NEW_MODEL)
    page.locator("#stopping summary").click()
    page.get_by_label("Keep the latest").fill("0")
    page.locator("#stopping summary").click()
    page.get_by_role("button", name="Create model").click()
    field = page.locator('[name="snapshots_kept"]')
    expect(field).to_be_visible()
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#augmentation")).not_to_have_attribute("open", "")


def test_what_was_asked_for_is_open_when_the_form_comes_back(page: Page, page_faults, dataset):
    page_faults.allow(r"/models/(images/classification|preflight)$")
    page.goto(NEW_MODEL)
    page.locator("#augmentation summary").click()
    page.get_by_label("Mirror").select_option("fliplr")
    page.get_by_label("Epochs", exact=True).fill("0")
    page.evaluate("document.getElementById('model-form').submit()")  # as without a check
    expect(page.locator("#form-errors")).to_be_focused()
    expect(page.get_by_label("Mirror")).to_have_value("fliplr")
    expect(page.locator("#augmentation summary")).to_contain_text("Mirror")
    expect(page.locator("#watching")).not_to_have_attribute("open", "")


def test_a_solver_shows_its_own_settings(page: Page, dataset):
    page.goto(NEW_MODEL)
    shown = {
        "SGD": set(),
        "NESTEROV": {"momentum"},
        "RMSPROP": {"momentum", "rms_decay"},
        "ADAM": {"beta_1", "beta_2"},
        "LION": {"beta_1", "beta_2", "weight_decay"},
    }
    names = ("momentum", "rms_decay", "beta_1", "beta_2", "weight_decay")
    for solver, expected in shown.items():
        page.get_by_label("Solver").select_option(solver)
        assert {name for name in names if page.locator(f'[name="{name}"]').is_visible()} == expected


def test_a_solver_brings_its_usual_rate_unless_another_was_chosen(page: Page, dataset):
    page.goto(NEW_MODEL)
    rate, solver = page.locator('[name="learning_rate"]'), page.get_by_label("Solver")
    solver.select_option("LION")
    expect(rate).to_have_value("0.0001")
    expect(page.locator('[name="beta_2"]')).to_have_value("0.99")
    expect(page.locator("#lr-preview figcaption")).to_contain_text("From 0.0001")
    solver.select_option("SGD")
    expect(rate).to_have_value("0.01")
    rate.fill("0.05")
    solver.select_option("ADAM")
    expect(rate).to_have_value("0.05")
    expect(page.locator('[name="beta_2"]')).to_have_value("0.999")


def test_a_network_brings_its_settings(page: Page, dataset):
    page.goto(NEW_MODEL)
    page.get_by_role("radio", name="ResNet-32", exact=True).check()
    page.get_by_role("button", name="Use its settings (ResNet-32)").click()
    expect(page.get_by_label("Solver")).to_have_value("MOMENTUM")
    expect(page.get_by_label("Momentum", exact=True)).to_be_visible()
    expect(page.get_by_label("Learning rate over time")).to_have_value("multistep")
    expect(page.locator('[name="lr_multistep_values"]')).to_be_visible()
    expect(page.locator("#lr-preview figcaption")).to_contain_text("From 0.1 ")
    expect(page.locator(".toast")).to_contain_text("Solver")


def test_a_network_is_found_by_what_it_is_for(page: Page, dataset):
    page.goto(NEW_MODEL)
    cards = page.locator("#networks .choice:visible")
    all_of_them = cards.count()
    page.get_by_label("Find a network").fill("residual 32")
    expect(cards).to_have_count(1)
    expect(cards).to_contain_text("ResNet-32")
    page.get_by_label("Find a network").press("Enter")
    expect(page).to_have_url(re.compile(f"{NEW_MODEL}$"))
    page.get_by_label("Find a network").fill("")
    expect(cards).to_have_count(all_of_them)


def test_fine_tuning_is_sent_only_where_it_is_shown(page: Page, dataset):
    page.goto(NEW_MODEL)
    page.get_by_role("radio", name="Custom", exact=True).check()
    page.locator("#tuning-section summary").click()
    page.get_by_label("Do not train").fill("conv1/*")
    sent = "[...new FormData(document.getElementById('model-form')).keys()]"
    assert {"freeze", "custom_network_snapshot"} <= set(page.evaluate(sent))
    page.get_by_role("radio", name="Standard", exact=True).check()
    assert not {"freeze", "custom_network_snapshot"} & set(page.evaluate(sent))


@BOTH_THEMES
@pytest.mark.tensorflow
def test_a_check_shows_mistakes_at_their_fields(
    page: Page, page_faults, dataset, check_accessibility: Callable[[Page], None]
):
    page_faults.allow(r"/models/preflight$")
    page.goto(NEW_MODEL)
    page.locator("#augmentation summary").click()
    page.get_by_label("Zoom").fill("7")
    page.locator("#augmentation summary").click()
    page.get_by_label("Epochs", exact=True).fill("0")
    page.get_by_role("button", name="Check").click()
    zoom = page.get_by_label("Zoom")
    expect(zoom).to_be_focused(timeout=STEP_MILLISECONDS)
    expect(page.locator("#aug_scale-error")).to_contain_text("between 0 and 1")
    expect(zoom).to_have_attribute("aria-describedby", re.compile("aug_scale-error"))
    expect(page.get_by_role("region", name=re.compile("building"))).to_contain_text("Epochs: Must be")
    check_accessibility(page)
    zoom.fill("0.1")
    expect(page.locator("#aug_scale-error")).to_have_count(0)
    expect(zoom).not_to_have_attribute("aria-invalid", "true")


@BOTH_THEMES
@pytest.mark.tensorflow
def test_a_check_tells_what_the_training_will_be_like(
    page: Page, dataset, check_accessibility: Callable[[Page], None]
):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    page.get_by_label("Epochs", exact=True).fill("2")
    page.get_by_label("Batch size").fill("8")
    page.get_by_role("button", name="Check").click()
    found = page.locator("#visualize-result .preflight")
    expect(found).to_be_visible(timeout=STEP_MILLISECONDS)
    expect(found.locator(".tile-label")).to_have_text(
        ["Loss at the start", "An epoch takes", "All of it takes", "Memory", "Parameters", "Input"]
    )
    expect(found.locator(".tile").first).to_contain_text("guessing gives 1.10")
    expect(found.locator(".tile").last).to_contain_text("16 × 16 × 3")
    picture = found.get_by_alt_text("The images of the first batch")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 16
    expect(found.locator("figcaption")).to_contain_text("middle (")
    expect(page.get_by_label("Epochs", exact=True)).to_have_value("2")
    check_accessibility(page)


@pytest.mark.tensorflow
def test_a_check_marks_the_faulty_line(page: Page, page_faults, dataset):
    page_faults.allow(r"/models/preflight$")
    page.goto(NEW_MODEL)
    page.get_by_role("radio", name="Custom", exact=True).check()
    page.locator(".cm-content").click()
    page.keyboard.insert_text(
        "class UserModel(Tower):\n    inference = loss = property(lambda self: 1 / 0)\n"
    )
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#visualize-result [role=alert]")).to_contain_text(
        "division by zero", timeout=STEP_MILLISECONDS
    )
    expect(page.locator("#editor-problems")).to_contain_text("Line 2:")


BROKEN = "class UserModel(Tower):\n    inference = loss = property(lambda self: 1 / 0)\n"


@BOTH_THEMES
@pytest.mark.tensorflow
def test_a_mistake_comes_back_into_the_form_before_anything_is_queued(
    page: Page, page_faults, dataset, color_scheme, check_accessibility: Callable[[Page], None]
):
    page_faults.allow(r"/models/preflight$")
    name = f"Never queued while it is {color_scheme}"
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    page.get_by_role("radio", name="Custom", exact=True).check()
    page.locator(".cm-content").click()
    page.keyboard.insert_text(BROKEN)
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Create model").click()
    expect(page.locator("#visualize-result [role=alert]")).to_contain_text(
        "division by zero", timeout=STEP_MILLISECONDS
    )
    expect(page.locator("#editor-problems")).to_contain_text("Line 2:")
    expect(page.get_by_role("button", name="Create model")).to_be_enabled()
    expect(page.locator('[name="custom_network"]')).to_have_value(BROKEN)
    check_accessibility(page)
    assert name not in page.request.get("/index.json").text()
    page.get_by_role("button", name="Create unchecked").click()
    expect(page.locator("#job-name")).to_have_text(name)
    expect(page.locator("#preflight-panel")).to_have_count(0)


@BOTH_THEMES
@pytest.mark.tensorflow
def test_what_the_first_step_has_shown_stays_with_the_model(
    page: Page, dataset, check_accessibility: Callable[[Page], None]
):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    page.get_by_label("Epochs", exact=True).fill("1")
    page.get_by_role("button", name="Create model").click()
    panel = page.locator("#preflight-panel")
    expect(panel).to_be_visible(timeout=STEP_MILLISECONDS)
    panel.locator("summary").click()
    expect(panel.locator(".tile").first).to_contain_text("guessing gives 1.10")
    picture = panel.get_by_alt_text("The images of the first batch")
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 16
    check_accessibility(page)
