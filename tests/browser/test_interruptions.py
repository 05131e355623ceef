"""Form contents survive the back button, reloads, other tabs, and slow or lost connections."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import (
    PageFaults,
    ServerProcess,
    check_accessibility,
    customize,
    open_panel,
    open_part,
    write_network,
)

NEW_DATASET = "/datasets/images/classification/new"
NEW_MODEL = "/models/images/classification/new"
CODE = "class UserModel(Tower):\n    inference = loss = property(lambda self: 1 / 0)\n"
LOADED_MILLISECONDS = 60_000
PLACE = "([element, other]) => [element, other].map(found => found.getBoundingClientRect().toJSON())"


def cut(page: Page, faults: PageFaults, address: str) -> Callable[[], None]:
    """Make requests to ``address`` fail as if offline; return a function that restores the connection."""
    faults.allow(address)
    pattern = re.compile(address)
    context = page.context
    context.route(pattern, lambda route: route.fallback() if route.request.method == "GET" else route.abort())
    return lambda: context.unroute(pattern)


def test_the_model_form_survives_reload_back_and_another_tab(
    page: Page, page_faults: PageFaults, dataset
) -> None:
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    text, notice = page.locator('[name="custom_network"]'), page.locator("[data-draft]")

    def expect_all() -> None:
        expect(page.locator("#network-custom")).to_be_visible()
        expect(page.locator("#network-standard")).to_be_hidden()
        expect(page.locator(".cm-content")).to_contain_text("1 / 0")
        expect(text).to_have_value(CODE)
        expect(page.get_by_label("Epochs", exact=True)).to_have_value("7")
        expect(page.get_by_label("Flip")).to_have_value("fliplr")
        expect(page.get_by_label("Flip")).to_be_visible()
        expect(page.locator('[name="lr_exp_gamma"]')).to_be_visible()
        expect(page.locator("#dataset-summary")).to_contain_text("3 classes")
        expect(page.get_by_label("Name", exact=True)).to_have_value("My network on Bars")

    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    page.get_by_role("radio", name="Custom", exact=True).check()
    expect(page.locator(".cm-content")).to_contain_text("class UserModel(Tower):")  # the template
    expect(notice).to_be_hidden()
    page.goto("/")
    page.go_back()
    expect(page.get_by_role("radio", name="Custom", exact=True)).to_be_checked()
    assert asked == [], "an untouched form asked whether to leave the page"
    write_network(page, CODE)
    page.get_by_label("Epochs", exact=True).fill("7")
    page.get_by_label("Learning-rate schedule").select_option("exp")
    page.locator("#augmentation summary").click()
    page.get_by_label("Flip").select_option("fliplr")
    expect_all()
    page.reload()
    expect_all()
    page.goto("/")
    assert asked == ["beforeunload", "beforeunload"]
    page.go_back()
    expect_all()

    # Another tab starts with an empty form and offers the draft.
    other = page.context.new_page()
    other.goto(NEW_MODEL)
    expect(other.locator("[data-draft]")).to_contain_text("Last changed just now")
    expect(other.get_by_label("Epochs", exact=True)).not_to_have_value("7")
    check_accessibility(other)
    other.get_by_role("button", name="Restore draft").click()
    expect(other.locator('[name="custom_network"]')).to_have_value(CODE)
    expect(other.get_by_label("Epochs", exact=True)).to_have_value("7")
    expect(other.locator("[data-draft]")).to_be_hidden()
    # The dataset may not be among the newest ones, so the address names it.
    expect(other).to_have_url(re.compile(f"dataset={dataset['id']}"))
    other.close()

    # The response to Create is lost: the form keeps its contents, and a retry succeeds.
    mend = cut(page, page_faults, "/models/images/classification.json$")
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#create-status")).to_contain_text("The server does not respond")
    check_accessibility(page)
    expect_all()
    mend()
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#job-name")).to_have_text("My network on Bars", timeout=LOADED_MILLISECONDS)
    assert len(asked) == 2, "a submitted form asked whether to leave the page"
    page.go_back()
    expect_all()
    page.goto("/models/images/classification")  # the target of the form
    expect(page).to_have_url(re.compile(f"{NEW_MODEL}$"))
    expect(notice).to_be_hidden()


def test_the_dataset_form_survives_back_and_explains_an_invalid_split(page: Page, image_folder: Path) -> None:
    page.goto(NEW_DATASET)
    folder = page.locator("#folder_train")
    folder.click()
    page.keyboard.insert_text(f"{image_folder}/left/")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(f"{image_folder}/")
    expect(page.locator(".suggestions li")).to_have_text(
        [f"{image_folder}/{name}/" for name in ("left", "middle", "right")]
    )
    page.keyboard.press("Escape")
    for panel in ("Split", "Image size"):
        open_panel(page, panel)
    page.get_by_label("Use a separate test folder").check()
    page.get_by_role("button", name="28", exact=True).click()
    page.get_by_label("Validation split").fill("80")
    page.goto("/")
    page.go_back()
    expect(folder).to_have_value(f"{image_folder}/")
    expect(page.locator("#test-folder")).to_be_visible()
    expect(page.get_by_role("button", name="28", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_text(re.compile("Restored what you entered"))).to_be_visible()
    page.get_by_label("Use a separate test folder").uncheck()
    page.get_by_label("Test split").fill("40")
    expect(page.locator("#split-problem")).to_contain_text("120%")
    page.get_by_label("Test split").fill("10")
    expect(page.locator("#split-problem")).to_have_text("")
    page.get_by_role("button", name="Start over").click()
    expect(folder).to_have_value("")
    expect(page.get_by_role("button", name="Start over")).to_be_hidden()


def test_a_sweep_lists_its_models_in_advance(page: Page, page_faults: PageFaults, dataset) -> None:
    page_faults.allow("/models/(images/classification.json|visualize-lr)$")
    page.goto(f"{NEW_MODEL}?dataset={dataset['id']}")
    customize(page)
    rate = page.get_by_label("Base learning rate")
    rate.fill("0.1, 0.01")
    expect(page.locator("#sweep")).to_contain_text("2 models: ResNet-32 on Bars learning_rate:0.1, ResNet-32")
    expect(page.get_by_role("button", name="Train 2 models")).to_be_visible()
    rate.fill("0,01")
    expect(page.locator("#sweep")).to_have_text("")
    expect(page.locator("#lr-preview figcaption")).to_contain_text(
        "write 0.01 for one number, or [0, 01] for two"
    )
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#learning_rate-error")).to_contain_text("write 0.01 for one number")
    expect(rate).to_be_focused()


def test_a_long_check_shows_its_progress(page: Page, dataset) -> None:
    held: list[Route] = []
    page.route("**/models/preflight", lambda route: held.append(route))
    page.route(
        "**/models/preflight/progress?*", lambda route: route.fulfill(json={"doing": "Building the network"})
    )
    page.goto(NEW_MODEL)
    page.evaluate(
        "import(document.querySelector('script[src$=\"/page.js\"]').src.replace('page.js', 'dialog.js'))"
        ".then(({ toast }) => toast('Saved'))"
    )
    covering, button = page.locator(".toast"), page.get_by_role("button", name="Train", exact=True)
    toast, create = page.evaluate(PLACE, [covering.element_handle(), button.element_handle()])
    assert toast["bottom"] < create["top"] or toast["top"] > create["bottom"], "the toast covers Create"
    customize(page)
    page.get_by_role("button", name="Check", exact=True).click()
    region = page.locator("#visualize-result")
    expect(region.get_by_role("status")).to_have_text("Building the network…")
    expect(region).to_contain_text(re.compile(r"[1-9] s"))
    expect(region.locator(".progress")).to_be_visible()
    held[0].fulfill(json={"id": "", "result": {"verdict": "Good", "verdict_level": "good"}})
    expect(region).to_contain_text("Good")
    expect(region.locator(".progress")).to_have_count(0)


def test_a_job_page_with_a_slow_and_a_broken_connection(
    page: Page, page_faults: PageFaults, failed, trained, image_folder: Path
) -> None:
    held: list[Route] = []
    metrics = re.compile("/metrics.json")
    page.route(metrics, lambda route: held.append(route))
    page.goto(f"/models/{failed['id']}")
    chart = page.locator('[data-chart="loss"]')
    expect(chart.get_by_text("Loading values…")).to_be_visible()
    expect(chart.get_by_text("No values")).to_be_hidden()
    page_faults.allow("/metrics.json")
    expect(page.locator("#job-status")).to_contain_text("Error", timeout=LOADED_MILLISECONDS)
    held[0].abort()
    expect(chart.get_by_text("could not be loaded")).to_be_visible()
    check_accessibility(page)
    page.unroute(metrics)
    expect(chart.get_by_text("No values recorded.")).to_be_visible()

    # Notes typed offline survive leaving the page and are saved later.
    open_part(page, "Details")
    notes, state = page.locator("#job-notes"), page.locator("#notes-state")
    notes.fill("first")
    expect(state).to_have_text("Saved")
    mend = cut(page, page_faults, f"/models/{failed['id']}$")
    notes.fill("first, and more")
    expect(state).to_contain_text("Not saved yet")
    other = page.context.new_page()
    other.goto(f"/models/{failed['id']}#job-notes")
    expect(other.locator("#job-notes")).to_have_value("first, and more")
    expect(other.locator("#notes-state")).to_contain_text("Not saved yet")
    mend()
    other.evaluate("window.dispatchEvent(new Event('online'))")
    expect(other.locator("#notes-state")).to_have_text("Saved")

    # A second tab shows notes saved by the first one.
    second = other.context.new_page()
    second.goto(f"/models/{failed['id']}#job-notes")
    expect(second.locator("#job-notes")).to_have_value("first, and more")
    expect(second.locator("#connection")).to_be_hidden()
    other.locator("#job-notes").fill("last")
    expect(second.locator("#job-notes")).to_have_value("last")

    # An image on the server is shown while it is classified.
    second.goto(f"/models/{trained['id']}#try")
    drawn = '<ol><li class="prediction">left</li></ol><p data-note>Epoch 1</p>'
    second.route("**/infer_one", lambda route: route.fulfill(body=drawn, content_type="text/html"))
    second.get_by_label("Or enter a path on the server").fill(str(image_folder / "left" / "00.png"))
    second.get_by_role("button", name="Classify", exact=True).click()
    shown = second.get_by_alt_text("Chosen image")
    expect(shown).to_be_visible()
    assert shown.evaluate("image => image.naturalWidth") == 16


def test_changes_before_a_page_joins_are_fetched(page: Page, failed) -> None:
    def change_first(route: Route) -> None:
        changes = {"job_notes": "from elsewhere", "group_name": "moved"}
        assert page.request.put(f"/jobs/{failed['id']}", form=changes).ok
        route.continue_()

    page.route("**/js/live.js", change_first)
    page.goto(f"/models/{failed['id']}")
    expect(page.locator("#job-notes")).to_have_value("from elsewhere")
    expect(page.locator("#job-group")).to_have_text("moved")
    assert page.request.put(f"/jobs/{failed['id']}", form={"job_notes": "", "group_name": ""}).ok


def test_notes_changed_elsewhere_are_not_overwritten(page: Page, page_faults: PageFaults, failed) -> None:
    page_faults.allow(f"/models/{failed['id']}$")
    notes, conflict = page.locator("#job-notes"), page.locator("#notes-conflict")

    def save_elsewhere(text: str) -> None:
        assert page.request.put(f"/jobs/{failed['id']}", form={"job_notes": text}).ok

    def saved() -> str:
        page.reload()
        return notes.input_value()

    save_elsewhere("")
    page.route(
        "**/socket.io/**", lambda route: route.abort()
    )  # so that it learns of changes only when it saves
    page_faults.allow("/socket.io/")
    page.goto(f"/models/{failed['id']}#job-notes")
    save_elsewhere("theirs")
    notes.fill("mine")
    expect(conflict).to_be_visible()
    expect(conflict.locator("pre")).to_have_text("theirs")
    check_accessibility(page)
    conflict.get_by_role("button", name="Keep mine").click()
    expect(page.locator("#notes-state")).to_have_text("Saved")
    expect(conflict).to_be_hidden()
    expect(notes).to_be_focused()
    assert saved() == "mine"

    save_elsewhere("theirs again")
    notes.fill("mine again")
    conflict.get_by_role("button", name="Use the saved notes").click()
    expect(notes).to_have_value("theirs again")
    expect(conflict).to_be_hidden()
    assert saved() == "theirs again"
    save_elsewhere("")


def test_an_open_page_shows_at_once_that_jobs_cannot_be_saved(
    page: Page, page_faults: PageFaults, server: ServerProcess
) -> None:
    page_faults.allow("/thumbnail$")  # of datasets that are away
    notice = page.locator("#storage-problem")
    page.goto("/")
    expect(page.locator("#connection")).to_be_hidden()
    expect(notice).to_be_hidden()
    away = server.jobs.rename(server.jobs.with_name("away"))
    try:
        expect(notice).to_contain_text("The jobs folder was removed or replaced")
        # A page that joins later, for example after a lost connection, shows it too.
        page.reload()
        expect(notice).to_contain_text("Restore it")
    finally:
        away.rename(server.jobs)
    expect(notice).to_be_hidden()
