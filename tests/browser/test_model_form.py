"""The new-model form: its sections, network settings, and the pre-training check."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import (
    BROKEN,
    ServerProcess,
    check_accessibility,
    customize,
    finished,
    recommended_settings,
    start_training,
    write_network,
)
from tests.worker.networks import LINEAR

NEW_MODEL = "/models/images/classification/new"
STEP_MILLISECONDS = 120_000


@pytest.fixture(autouse=True)
def abort_models(server: ServerProcess) -> Iterator[None]:
    """Abort the models of a test, whose trainings nobody needs."""
    yield
    with urlopen(server / "index.json") as answer:
        models = json.load(answer)["models"]
    for model in models:
        if model["status"] in ("Initialized", "Waiting", "Running"):
            urlopen(server / f"models/{model['id']}/abort", b"").close()


def test_all_sections_are_accessible(page: Page, page_faults, dataset):
    # On a busy machine, previews may be refused or take too long.
    page_faults.allow(r"/models/augmentation-preview$")
    page.goto(NEW_MODEL)
    customize(page)
    sections = page.locator("#customize details:visible")
    expect(page.locator("#customize details[open]")).to_have_count(0)
    page.get_by_role("radio", name="Custom", exact=True).check()
    expect(page.locator("#network-custom")).to_be_visible()
    for section in sections.all():
        section.locator("> summary").click()
    page.get_by_label("Color jitter (HSV)").check()
    page.get_by_label("Optimizer").select_option("ADAMW")
    page.get_by_label("Early stopping", exact=True).select_option("loss")
    for name in ("custom_network_snapshot", "aug_hsv_h", "weight_decay", "early_stopping_patience"):
        expect(page.locator(f'[name="{name}"]')).to_be_visible()
    check_accessibility(page)


@pytest.mark.tensorflow
def test_augmented_images_of_the_dataset_follow_the_settings(page: Page, page_faults, dataset):
    page_faults.allow(r"/models/augmentation-preview$")
    page.goto(NEW_MODEL)
    customize(page)
    page.locator("#augmentation summary").click()
    preview = page.locator("#augmentation-preview")
    variants = preview.locator("figure:not(.original) img")
    expect(variants).to_have_count(20, timeout=STEP_MILLISECONDS)
    expect(variants.first).to_have_attribute("alt", re.compile("Image 1, variant 1: "))
    plain = variants.first.get_attribute("src")
    page.get_by_label("Noise").fill("0.3")
    expect(variants.first).not_to_have_attribute("src", str(plain), timeout=STEP_MILLISECONDS)
    noisy = variants.first.get_attribute("src")
    preview.get_by_role("button", name="New random variants").press("Enter")
    expect(variants.first).not_to_have_attribute("src", str(noisy), timeout=STEP_MILLISECONDS)
    check_accessibility(page)
    page.get_by_label("Noise").fill("7")
    expect(preview.get_by_role("status")).to_contain_text("between 0 and 1", timeout=STEP_MILLISECONDS)
    expect(variants).to_have_count(0)


def test_sections_in_use_are_open_when_the_form_returns(page: Page, page_faults, dataset):
    page_faults.allow(r"/models/images/classification$")
    page.goto(NEW_MODEL)
    customize(page)
    page.locator("#augmentation summary").click()
    page.get_by_label("Flip").select_option("fliplr")
    page.get_by_label("Epochs", exact=True).fill("0")
    page.evaluate("document.getElementById('model-form').submit()")  # without a check
    expect(page.locator("#form-errors")).to_be_focused()
    expect(page.get_by_label("Flip")).to_have_value("fliplr")
    expect(page.locator("#augmentation summary")).to_contain_text("Flip")
    expect(page.locator("#watching")).not_to_have_attribute("open", "")


def test_a_chosen_schedule_opens_its_settings(page: Page, dataset):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    more = page.locator("#training-more")
    expect(more).not_to_have_attribute("open", "")
    schedule = page.locator('[name="lr_policy"]')
    schedule.select_option("fixed")
    expect(more).not_to_have_attribute("open", "")  # it has no settings
    schedule.select_option("exp")
    expect(page.locator('[name="lr_exp_gamma"]')).to_be_visible()
    schedule.select_option("multistep")
    expect(page.locator('[name="lr_multistep_values"]')).to_be_visible()
    expect(page.locator('[name="lr_exp_gamma"]')).to_be_hidden()


def test_an_optimizer_shows_its_own_settings_and_sets_its_default_rate_unless_that_was_edited(
    page: Page, dataset
):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    shown = {
        "SGD": set(),
        "NESTEROV": {"momentum"},
        "RMSPROP": {"momentum", "rms_decay"},
        "ADAM": {"beta_1", "beta_2"},
        "LION": {"beta_1", "beta_2", "weight_decay"},
    }
    names = ("momentum", "rms_decay", "beta_1", "beta_2", "weight_decay")
    page.locator("#training-more > summary").click()
    for solver, expected in shown.items():
        page.get_by_label("Optimizer").select_option(solver)
        for name in names:
            expect(page.locator(f'[name="{name}"]')).to_be_visible(visible=name in expected)

    rate, solver = page.locator('[name="learning_rate"]'), page.get_by_label("Optimizer")
    expect(rate).to_have_value("0.0001")
    expect(page.locator('[name="beta_2"]')).to_have_value("0.99")
    solver.select_option("SGD")
    expect(rate).to_have_value("0.01")
    rate.fill("0.05")
    solver.select_option("ADAM")
    expect(page.locator('[name="beta_2"]')).to_have_value("0.999")
    expect(rate).to_have_value("0.05")


def test_the_card_describes_the_recommendation_and_what_was_changed(page: Page, dataset):
    small, lenet = (recommended_settings(page, dataset, name) for name in ("resnet32", "lenet"))
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    headline, state, reason = (
        page.locator("#headline"),
        page.locator("[data-state]"),
        page.locator("[data-reason]"),
    )
    restore = page.get_by_role("button", name="Use the recommended settings")
    expect(headline).to_have_text("Train ResNet-32 from scratch")  # designed for small color images
    expect(state).to_have_text("Recommended")
    expect(reason).to_contain_text("color images of 16×16 pixels")
    expect(restore).to_be_hidden()
    expect(page.get_by_label("Epochs", exact=True)).to_be_hidden()
    check_accessibility(page)

    customize(page)
    before = fields(page)
    expect(page.locator('[name="aug_pad_crop"]')).to_have_value("0")  # these images are smaller
    page.get_by_text("Older and other networks").click()
    expect(page.get_by_role("radio", name="AlexNet", exact=True)).to_be_disabled()
    expect(page.locator("#network-alexnet-summary")).to_contain_text(
        "Requires images of at least 67×67 pixels"
    )
    page.get_by_label("Batch size").fill("6")
    expect(page.get_by_label("Batch size")).to_have_accessible_description(
        f"Recommended: {small['batch_size']}"
    )
    expect(state).to_have_text("Customized")
    expect(reason).to_have_text("Changed: batch size.")
    page.get_by_role("radio", name="LeNet", exact=True).check()
    expect(headline).to_have_text("Train LeNet from scratch")
    expect(reason).to_have_text("Recommended: train ResNet-32 from scratch.")
    expect(page.get_by_label("Base learning rate")).to_have_value(lenet["learning_rate"])
    expect(page.locator("#lr-preview figcaption")).to_contain_text(lenet["learning_rate"])
    # Values entered by hand are kept.
    expect(page.get_by_label("Batch size")).to_have_value("6")
    expect(page.locator(".edited-note")).to_have_text(f"Recommended: {lenet['batch_size']}")
    check_accessibility(page)

    restore.press("Enter")
    expect(state).to_have_text("Recommended")
    expect(page.get_by_role("button", name="Train", exact=True)).to_be_focused()
    expect(page.locator(".edited-note")).to_have_count(0)
    assert fields(page) == before


def test_changes_are_answered_once_they_pause_and_what_is_being_typed_stays(
    page: Page, page_faults, dataset: dict[str, Any]
):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    size, rate = page.get_by_label("Batch size"), page.get_by_label("Base learning rate")
    note = page.locator("#batch_size-edited")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/form") else None)
    size.press("Control+a")
    size.press_sequentially("1234", delay=20)
    for _ in range(2):
        size.press("ArrowLeft")
    expect(note).to_be_visible()
    assert len(asked) == 1
    expect(size).to_be_focused()
    size.press_sequentially("0")
    expect(size).to_have_value("12034")

    # The server does not respond, and then it does again.
    page_faults.allow(r"/classification/form$")
    page.route("**/classification/form", lambda route: route.abort())
    rate.fill("0.03")
    expect(page.locator("#form-problem")).to_contain_text("does not respond")
    expect(rate).to_have_value("0.03")
    page.unroute_all()
    rate.fill("0.04")
    expect(page.locator("#learning_rate-edited")).to_be_visible()
    expect(page.locator("#form-problem")).to_be_empty()


def test_a_reloaded_form_knows_what_was_changed_by_hand(page: Page, dataset: dict[str, Any]):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_label("Batch size").fill("6")
    page.locator("#augmentation summary").click()
    page.get_by_label("Color jitter (HSV)").check()
    expect(page.locator('[name="aug_hsv_h"]')).to_be_visible()
    expect(page.locator("[data-reason]")).to_have_text("Changed: batch size.")
    page.reload()
    expect(page.locator("[data-reason]")).to_have_text("Changed: batch size.")
    expect(page.get_by_label("Batch size")).to_have_value("6")
    expect(page.locator("#aug-hsv")).to_have_js_property("hidden", False)


def fields(page: Page) -> dict[str, str]:
    """Return the fields of the form as they would be submitted, except the suggested name and the token."""
    sent: dict[str, str] = page.evaluate(
        "Object.fromEntries(new FormData(document.getElementById('model-form')))"
    )
    return {name: value for name, value in sent.items() if name not in ("model_name", "csrf_token")}


@pytest.fixture(scope="session")
def gray_dataset(create: Callable[..., dict[str, Any]], server: Any, image_folder: Any) -> dict[str, Any]:
    """A dataset of the same images with the size and color mode of MNIST."""
    size = {"resize_width": 28, "resize_height": 28, "resize_channels": 1}
    job = create("datasets", dataset_name="Gray", method="folder", folder_train=image_folder, **size)
    return finished(server, job)


def test_selecting_a_dataset_recommends_its_network_unless_one_was_chosen(page: Page, dataset, gray_dataset):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    page.locator('[name="dataset"]').select_option(gray_dataset["id"])
    expect(page.locator("#headline")).to_have_text("Train LeNet from scratch")
    expect(page.locator("[data-reason]")).to_contain_text("grayscale images of 28×28 pixels")
    expect(page.get_by_label("Name", exact=True)).to_have_value("LeNet on Gray")
    customize(page)
    epochs = recommended_settings(page, gray_dataset, "lenet")["train_epochs"]
    expect(page.get_by_label("Epochs", exact=True)).to_have_value(epochs)
    page.get_by_text("Older and other networks").click()
    page.get_by_role("radio", name="Auto-encoder", exact=True).check()
    page.locator('[name="dataset"]').select_option(dataset["id"])
    expect(page.locator("[data-reason]")).to_have_text("Recommended: train ResNet-32 from scratch.")
    expect(page.get_by_role("radio", name="Auto-encoder", exact=True)).to_be_checked()
    expect(page.get_by_label("Optimizer")).to_have_value("ADAM")


def test_a_custom_network_starts_with_the_defaults(page: Page, dataset):
    solver = recommended_settings(page, dataset, "resnet32")["solver_type"]
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="Custom", exact=True).check()
    expect(page.locator("#headline")).to_have_text("Train your own network")
    expect(page.get_by_label("Optimizer")).to_have_value("SGD")
    page.get_by_role("radio", name="Standard", exact=True).check()
    expect(page.get_by_label("Optimizer")).to_have_value(solver)
    page.get_by_text("About ResNet-32").click()
    page.get_by_role("button", name="Edit the code of ResNet-32").click()
    expect(page.locator('[name="custom_network"]')).to_have_value(re.compile("residual"))
    expect(page.get_by_label("Optimizer")).to_have_value(solver)


# Links, buttons and fields that are on the page and not folded away.
CONTROLS = """form => [...form.querySelectorAll('a, button, input, select, textarea, summary')]
    .filter((control) => control.type !== 'hidden' && control.checkVisibility()).length"""


def test_customize_opens_with_few_controls(page: Page, dataset):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    expect(page.get_by_role("radio", name="ResNet-32", exact=True)).to_be_checked()
    expect(page.get_by_role("radio", name="LeNet", exact=True)).to_be_visible()
    expect(page.get_by_role("radio", name="GAN", exact=True)).to_be_hidden()
    for select, first in (("Optimizer", "Adam"), ("Learning-rate schedule", "Cosine decay")):
        groups = page.get_by_label(select).locator("optgroup")
        expect(groups.first.locator("option")).to_have_count(4)
        expect(groups.first.locator("option").first).to_have_text(first)
    assert page.locator("#customize").evaluate(CONTROLS) <= 25
    page.get_by_role("radio", name="Custom", exact=True).check()
    expect(page.get_by_label("Run eagerly")).to_be_visible()
    assert page.locator("#customize").evaluate(CONTROLS) <= 25


def test_a_clone_opens_the_sections_that_it_uses(page: Page, create, dataset):
    settings = {"standard_networks": "autoencoder", "batch_accumulation": 2, "shuffle": "y"}
    job = create("models", model_name="Unusual", dataset=dataset["id"], **settings)
    page.goto(f"/clone/{job['id']}")
    customize(page)
    expect(page.get_by_role("radio", name="Auto-encoder", exact=True)).to_be_visible()
    expect(page.get_by_label("Gradient accumulation")).to_have_value("2")
    for name in ("augmentation", "watching", "stopping", "more", "device"):
        expect(page.locator(f"#{name}")).not_to_have_attribute("open", "")


def test_a_clone_keeps_its_configuration(page: Page, create, dataset, gray_dataset):
    job = create(
        "models",
        model_name="Cloned",
        dataset=dataset["id"],
        standard_networks="lenet",
        train_epochs=7,
        learning_rate=0.5,
    )
    page.goto(f"/clone/{job['id']}")
    customize(page)
    page.locator('[name="dataset"]').select_option(gray_dataset["id"])
    expect(page.get_by_role("radio", name="LeNet", exact=True)).to_be_checked()
    expect(page.get_by_label("Epochs", exact=True)).to_have_value("7")
    expect(page.get_by_label("Base learning rate")).to_have_value("0.5")
    expect(page.locator(".edited-note")).to_have_count(0)
    expect(page.locator("[data-reason]")).to_have_text("With the settings of “Cloned”.")


def test_hidden_settings_are_not_submitted(page: Page, dataset):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="Custom", exact=True).check()
    page.locator("#tuning-section summary").click()
    page.get_by_label("Freeze layers").fill("conv1/*")
    sent = "[...new FormData(document.getElementById('model-form')).keys()]"
    assert {"freeze", "custom_network_snapshot"} <= set(page.evaluate(sent))
    page.get_by_role("radio", name="Standard", exact=True).check()
    expect(page.locator("#tuning")).to_be_hidden()
    assert not {"freeze", "custom_network_snapshot"} & set(page.evaluate(sent))


@pytest.mark.tensorflow
def test_a_check_shows_errors_at_their_fields(page: Page, page_faults, dataset):
    page_faults.allow(r"/models/(preflight|augmentation-preview)$")
    page.goto(NEW_MODEL)
    customize(page)
    page.locator("#augmentation summary").click()
    page.get_by_label("Zoom").fill("7")
    page.locator("#augmentation summary").click()
    page.get_by_label("Epochs", exact=True).fill("0")
    page.get_by_role("button", name="Check").click()
    zoom = page.get_by_label("Zoom")
    expect(zoom).to_be_focused(timeout=STEP_MILLISECONDS)
    expect(page.locator("#aug_scale-error")).to_contain_text("between 0 and 1")
    expect(page.locator("#stopping")).not_to_have_attribute("open", "")
    expect(zoom).to_have_attribute("aria-describedby", re.compile("aug_scale-error"))
    expect(page.get_by_role("region", name="Network visualization")).to_contain_text("Epochs: Must be")
    check_accessibility(page)
    zoom.fill("0.1")
    expect(page.locator("#aug_scale-error")).to_have_count(0)
    expect(zoom).not_to_have_attribute("aria-invalid", "true")


@pytest.mark.tensorflow
def test_a_check_estimates_the_training_and_the_training_shows_its_first_batch(page: Page, dataset):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="LeNet", exact=True).check()
    page.get_by_label("Epochs", exact=True).fill("2")
    page.get_by_label("Batch size").fill("24")  # large enough to include every class
    page.get_by_role("button", name="Check").click()
    found = page.locator("#visualize-result .preflight")
    expect(found).to_be_visible(timeout=STEP_MILLISECONDS)
    expect(found.locator(".tile-label")).to_have_text(
        ["Initial cross-entropy", "Time per epoch", "Estimated total time", "Memory", "Parameters", "Input"]
    )
    expect(found.locator(".tile").first).to_contain_text("chance level 1.10")
    expect(found.locator(".tile").last).to_contain_text("16 × 16 × 3")
    picture = found.get_by_alt_text("Images of the first batch")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 16
    expect(found.locator("figcaption")).to_contain_text(re.compile(r"middle\W* \(\d+\)"))
    expect(page.get_by_label("Epochs", exact=True)).to_have_value("2")
    check_accessibility(page)

    start_training(page)
    page.get_by_role("tab", name="Details").click()
    panel = page.locator("#first-batch-panel")
    panel.locator("summary").click(timeout=STEP_MILLISECONDS)
    picture = panel.get_by_alt_text("Images of the first batch")
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 16
    check_accessibility(page)


@pytest.mark.tensorflow
def test_the_source_of_initial_weights_is_shown_before_and_after_training(page: Page, dataset, trained):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="Previous", exact=True).check()
    page.locator("label.choice-title", has_text="Trained").click()
    page.locator(f'[name="{trained["id"]}-snapshot"]').select_option("1")
    page.locator("#tuning-section summary").click()
    page.get_by_label("Freeze layers").fill("classes/biases")
    page.get_by_role("button", name="Check", exact=True).click()
    details = page.locator("#visualize-result details")
    note = "4 of 4 variables from snapshot_1.ckpt · 1 frozen"
    expect(details.locator("summary")).to_have_text(f"Initial weights: {note}", timeout=STEP_MILLISECONDS)
    details.locator("summary").click()
    check_accessibility(page)
    page.get_by_label("Name", exact=True).fill("Tuned")
    start_training(page)
    panel = page.locator("#weights-panel")
    page.get_by_role("tab", name="Details").click()
    expect(panel.locator("summary")).to_contain_text(note, timeout=STEP_MILLISECONDS)
    panel.locator("summary").click()
    row = panel.get_by_role("row", name="model/classes/biases")
    expect(row).to_contain_text("from snapshot_1.ckpt")
    expect(row).to_contain_text("no")
    check_accessibility(page)


@pytest.mark.tensorflow
def test_a_customized_network_keeps_the_model_with_its_files(page: Page, dataset, trained):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="Previous", exact=True).check()
    page.get_by_role("button", name="Edit the code of Trained").click()
    expect(page.locator('[name="custom_network"]')).to_have_value(re.compile("scope='classes'"))
    model = page.locator(f'[name="previous_networks"][value="{trained["id"]}"]')
    expect(model).to_be_checked()
    page.get_by_role("radio", name="Standard").check()
    page.get_by_role("radio", name="LeNet", exact=True).check()
    page.get_by_text("About LeNet").click()
    page.get_by_role("button", name="Edit the code of LeNet").click()
    expect(page.locator('[name="custom_network"]')).to_have_value(re.compile("conv1"))
    expect(model).not_to_be_checked()


@pytest.mark.tensorflow
def test_an_eager_check_shows_values(page: Page, page_faults, dataset):
    page_faults.allow(r"/models/preflight$")
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="Custom", exact=True).check()
    network = LINEAR.replace(
        "def inference(self):", "def inference(self):\n        print(self.x.numpy().shape)"
    )
    write_network(page, network)
    page.get_by_label("Batch size").fill("6")
    page.get_by_label("Run eagerly").check()
    page.get_by_role("button", name="Check", exact=True).click()
    found = page.locator("#visualize-result .preflight")
    expect(found.locator(".printed")).to_contain_text("Step 1\n(6, 16, 16, 3)", timeout=STEP_MILLISECONDS)
    expect(found).to_contain_text("The loss of each step is ")
    check_accessibility(page)


@pytest.mark.tensorflow
def test_a_failed_training_leads_back_to_the_form(page: Page, page_faults, dataset):
    page_faults.allow(r"/models/preflight$")
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="Custom", exact=True).check()
    page.get_by_label("Name", exact=True).fill("Divides by zero")
    page.get_by_label("Epochs", exact=True).fill("7")
    write_network(page, f"\n{BROKEN}")
    problem, line = page.locator("#visualize-result [role=alert]"), page.locator("#editor-problems")
    page.get_by_role("button", name="Check", exact=True).click()
    expect(problem).to_contain_text("division by zero", timeout=STEP_MILLISECONDS)
    expect(line).to_contain_text("Line 3:")
    assert "Divides by zero" not in page.request.get("/index.json").text(), "a check creates no model"

    start_training(page)
    error = page.locator("#job-error")
    expect(error).to_contain_text("division by zero", timeout=STEP_MILLISECONDS)
    check_accessibility(page)
    error.get_by_role("link", name="Edit and try again").click()
    expect(line).to_contain_text("Line 3: ZeroDivisionError")
    expect(page.locator('[name="custom_network"]')).to_have_value(f"\n{BROKEN}")
    expect(page.get_by_label("Epochs", exact=True)).to_have_value("7")
    check_accessibility(page)
    write_network(page, LINEAR)
    expect(line).to_be_empty()


@pytest.mark.tensorflow
def test_the_warnings_of_a_training_lead_back_to_the_form(page: Page, dataset):
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="Custom", exact=True).check()
    page.get_by_label("Epochs", exact=True).fill("100000")
    write_network(page, LINEAR.replace("/ 100.0", "* 10.0"))
    start_training(page)
    warnings = page.locator("#job-warnings")
    expect(warnings).to_contain_text("far above the chance level", timeout=STEP_MILLISECONDS)
    check_accessibility(page)
    warnings.get_by_role("button", name="Abort and change the settings").click()
    page.get_by_role("dialog").get_by_role("button", name="Abort", exact=True).click()
    expect(page).to_have_url(re.compile(f"{NEW_MODEL}.*clone="))
    expect(page.get_by_label("Epochs", exact=True)).to_have_value("100000")


def test_a_training_does_not_wait_for_a_check(page: Page, dataset):
    held: list[Route] = []
    page.route("**/models/preflight", lambda route: held.append(route))
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#visualize-result")).to_contain_text("Running one step…")
    start_training(page)
    assert len(held) == 1
