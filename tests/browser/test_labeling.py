"""Labeling in the browser: the form, drawing, keys, saving, and a dataset from the labels."""

from __future__ import annotations

import io
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Locator, Page, Response, Route, expect

from tests.browser.conftest import SCHEMES, PageFaults, ServerProcess, check_accessibility, finished
from tests.site import bars


@pytest.fixture(scope="module")
def photos(server: ServerProcess) -> Path:
    return bars(server.data / "unlabeled", each=6)


def start(page: Page, photos: Path, kind: str, classes: str) -> str:
    """Create labels in the form; return their address when the images are listed."""
    page.goto("/labels/new")
    page.get_by_label("What to label").select_option(label=kind)
    page.get_by_role("combobox", name="Folder with images").fill(str(photos))
    page.get_by_label("Classes", exact=True).fill(classes)
    expect(page.get_by_label("Name", exact=True)).to_have_value("unlabeled")
    page.get_by_role("button", name="Start labeling").click()
    page.wait_for_url(re.compile(r"/labels/\d"))
    expect(page.get_by_role("link", name="Label", exact=True)).to_be_visible()
    return page.url.partition("#")[0]


def open_first(page: Page, photos: Path, kind: str, classes: str) -> str:
    """Create labels in the form, and open the first image; return their address."""
    url = start(page, photos, kind, classes)
    page.goto(f"{url}/images/0")
    expect(page.locator("#label-state")).to_have_text("Not labeled")
    return url


def post(page: Page, address: str, **change: Any) -> None:
    """Send what another program or person changes."""
    assert page.request.post(address, data=change).ok


def entry(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}.json") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def saved(page: Page) -> dict[str, Any]:
    """Return the entry of the image on the page, once it is saved."""
    expect(page.locator("#label-saved")).to_have_text("All changes are saved.")
    return entry(page.url)


def draw(page: Page, left: float, top: float, right: float, bottom: float) -> None:
    """Drag between two places, fractions of the sides of the image."""
    image = page.locator("#label-image").bounding_box()
    assert image is not None
    x, y, width, height = image["x"], image["y"], image["width"], image["height"]
    page.mouse.move(x + left * width, y + top * height)
    page.mouse.down()
    page.mouse.move(x + right * width, y + bottom * height, steps=4)
    page.mouse.up()


def test_boxes_are_drawn_changed_and_become_a_dataset(
    page: Page, page_faults: PageFaults, server: ServerProcess, photos: Path
) -> None:
    url = start(page, photos, "Object detection", "bar\nspot")
    check_accessibility(page)
    page.get_by_role("link", name="Label", exact=True).click()
    expect(page.locator("#label-state")).to_have_text("Not labeled")
    check_accessibility(page)
    draw(page, 0.25, 0.25, 0.75, 0.5)
    page.keyboard.press("2")
    (box,) = saved(page)["objects"]
    assert box["class"] == 1 and box["box"] == pytest.approx([4, 4, 12, 8], abs=0.2)

    # Undo takes back the class, then the box; redo restores both.
    for _ in range(2):
        page.keyboard.press("Control+z")
    expect(page.locator("#label-count")).to_have_text("0")
    for _ in range(2):
        page.keyboard.press("Control+y")
    page.keyboard.press("Shift+ArrowRight")
    page.get_by_label("Bottom").fill("10")
    page.get_by_label("Bottom").press("Tab")
    (box,) = saved(page)["objects"]
    assert box["class"] == 1 and box["box"] == pytest.approx([5, 4, 13, 10], abs=0.2)

    # A polygon by its corners, closed with the Enter key, which opens the next image the second time.
    page.locator("#label-frame").focus()
    page.keyboard.press("p")
    for x, y in ((0.1, 0.6), (0.4, 0.6), (0.3, 0.9)):
        draw(page, x, y, x, y)
    page.keyboard.press("Enter")
    page.keyboard.press("1")
    _, polygon = saved(page)["objects"]
    assert polygon["class"] == 0 and len(polygon["rings"][0]) == 6
    first = page.url
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(first)
    expect(page.locator("#label-count")).to_have_text("0")

    # Without objects, Enter says that there are none.
    second = page.url
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(second)
    expect(page.locator("#label-saved")).to_have_text("All changes are saved.")
    assert entry(second)["state"] == "labeled" and entry(second)["objects"] == []
    page.keyboard.press("x")
    expect(page).not_to_have_url(re.compile(re.escape(second) + "$"))

    # Label all, so that every split has some.
    for _ in range(20):
        if page.get_by_text("All images are labeled.").is_visible():
            break
        before = page.url
        draw(page, 0.2, 0.2, 0.6, 0.6)
        page.keyboard.press("Enter")
        expect(
            page.get_by_text("All images are labeled.").or_(
                page.locator("#label-count", has_text=re.compile("^0$"))
            )
        ).to_be_visible()
        saved(page)
        if page.url == before:
            break
    page.goto(url)
    expect(page.locator("#labels-counts")).to_contain_text("Skipped1")
    page.get_by_role("link", name=re.compile("^Labeled ")).click()
    expect(page.locator(".gallery .box").first).to_be_visible()
    check_accessibility(page)
    page.get_by_role("button", name="Create dataset").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Create dataset").click()
    page.wait_for_url(re.compile(r"/datasets/\d"))
    finished(server, {"id": page.url.rsplit("/", 1)[1].partition("#")[0]})


def test_classes_are_chosen_by_keys(page: Page, page_faults: PageFaults, photos: Path) -> None:
    open_first(page, photos, "Image classification", "low\nhigh")
    first = page.url
    page.keyboard.press("2")
    expect(page).not_to_have_url(first)
    page.wait_for_timeout(0)
    expect(page.locator("#label-saved")).to_have_text("All changes are saved.")
    assert entry(first)["label"] == 1
    page.goto(first)
    high = page.get_by_role("button", name="high")
    expect(high).to_have_attribute("aria-pressed", "true")
    # Undo takes back a choice, and without one the image is open.
    second = f"{first.rpartition('/')[0]}/{(int(first.rpartition('/')[2]) + 1) % 18}"
    page_faults.allow("next.json")
    page.route("**/next.json*", lambda route: route.abort())
    page.goto(second)
    expect(page.locator("#label-state")).to_have_text("Not labeled")
    page.keyboard.press("2")
    expect(high).to_have_attribute("aria-pressed", "true")
    assert saved(page)["label"] == 1
    page.keyboard.press("Control+z")
    expect(high).to_have_attribute("aria-pressed", "false")
    undone = saved(page)
    assert undone["state"] == "unlabeled" and "label" not in undone
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_the_history_of_an_image_is_shown_and_restored_with_keys(
    page: Page, page_faults: PageFaults, photos: Path
) -> None:
    open_first(page, photos, "Object detection", "bar\nspot")
    draw(page, 0.25, 0.25, 0.75, 0.5)
    first = saved(page)["objects"]
    page.keyboard.press("2")
    assert saved(page)["objects"] != first
    page.keyboard.press("Shift+ArrowDown")
    saved(page)
    press(page, page.get_by_role("button", name="History"))
    dialog = page.get_by_role("dialog", name="History")
    expect(dialog.get_by_role("listitem")).to_have_text(
        [
            re.compile(r"Labeled, 1 object: spot\. 1 spot movedjust now$"),
            re.compile(r"Labeled, 1 object: spot\. \+1 spot, −1 barjust now"),
            re.compile(r"Labeled, 1 object: bar\.just now"),
        ]
    )
    check_all(page)
    press(page, dialog.get_by_role("button", name="Restore").last)
    expect(dialog).to_be_hidden()
    restored = saved(page)
    assert (restored["objects"], restored["rev"]) == (first, 4)
    page.keyboard.press("Control+z")
    (undone,) = saved(page)["objects"]
    assert undone["class"] == 1

    # Masks, too, whose strokes are many entries.
    open_first(page, photos, "Semantic segmentation", "bar\nspot")
    draw(page, 0.2, 0.5, 0.8, 0.5)
    bar = picture_of_mask(page, saved(page)["rev"])
    page.keyboard.press("3")
    draw(page, 0.2, 0.8, 0.8, 0.8)
    spot = picture_of_mask(page, saved(page)["rev"])
    press(page, page.get_by_role("button", name="History"))
    with page.expect_response(is_save):
        press(page, dialog.get_by_role("button", name="Restore: Labeled, background, bar."))
    assert np.array_equal(picture_of_mask(page, 3), bar)
    with page.expect_response(is_save):
        page.keyboard.press("Control+z")
    assert np.array_equal(picture_of_mask(page, 4), spot)


def is_save(response: Response) -> bool:
    return response.request.method == "POST"


def picture_of_mask(page: Page, rev: int) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(page.request.get(f"{page.url}/mask?rev={rev}").body())))


def test_what_changes_nothing_is_not_undone(page: Page, page_faults: PageFaults, photos: Path) -> None:
    open_first(page, photos, "Object detection", "bar\nspot")
    draw(page, 0.25, 0.25, 1, 0.5)
    (box,) = saved(page)["objects"]
    page.keyboard.press("Shift+ArrowRight")
    page.get_by_label("Right").fill("16.001")
    page.get_by_label("Right").press("Enter")
    page.locator("#label-frame").focus()
    page.keyboard.press("Control+z")
    expect(page.locator("#label-count")).to_have_text("0")
    page.keyboard.press("Control+y")
    assert saved(page)["objects"] == [box]

    open_first(page, photos, "Image regression", "width\nheight")
    width = page.get_by_label("width")
    width.fill("1.5")
    width.press("Tab")
    width.press("Enter")
    expect(page.get_by_text("Choose all numbers first, or skip the image.")).to_be_visible()
    page.locator("#label-frame").focus()
    page.keyboard.press("Control+z")
    expect(width).to_have_value("")


def test_numbers_are_saved_one_by_one(page: Page, page_faults: PageFaults, photos: Path) -> None:
    url = open_first(page, photos, "Image regression", "width\nheight")
    page.get_by_label("width").fill("1.5")
    page.keyboard.press("Tab")
    # Without all of them, the image remains open.
    first = saved(page)
    assert (first["numbers"], first["state"]) == ({"0": 1.5}, "unlabeled")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Choose all numbers first, or skip the image.")).to_be_visible()
    page.reload()
    expect(page.get_by_label("width")).to_have_value("1.5")
    page.get_by_label("height").fill("2")
    page.get_by_label("height").press("Enter")
    expect(page).not_to_have_url(f"{url}/images/0")
    expect(page.locator("#label-saved")).to_have_text("All changes are saved.")
    labeled = entry(f"{url}/images/0")
    assert (labeled["numbers"], labeled["state"]) == ({"0": 1.5, "1": 2.0}, "labeled")


def test_masks_are_painted(page: Page, page_faults: PageFaults, photos: Path) -> None:
    open_first(page, photos, "Semantic segmentation", "bar")
    draw(page, 0.2, 0.5, 0.8, 0.5)
    assert saved(page)["mask"].endswith("-1.png")
    page.keyboard.press("g")
    page.get_by_role("button", name="Not trained").click()
    draw(page, 0.05, 0.05, 0.05, 0.05)
    assert saved(page)["labels"] == [1]
    page.reload()
    expect(page.locator("#label-state")).to_have_text("Labeled")


def test_a_change_survives_a_closed_tab_and_an_unreachable_server(
    page: Page, page_faults: PageFaults, photos: Path
) -> None:
    open_first(page, photos, "Image classification", "low\nhigh")
    first = page.url
    page_faults.allow(r"/images/\d+\.json$")
    page.route(
        "**/images/*.json",
        lambda route: route.abort() if route.request.method == "POST" else route.continue_(),
    )
    page.keyboard.press("1")
    expect(page.locator("#label-saved")).to_contain_text("Not saved yet")
    assert entry(first)["state"] == "none"
    page.unroute("**/images/*.json")
    page.goto(first)
    expect(page.locator("#label-saved")).to_have_text("All changes are saved.")
    assert entry(first)["label"] == 0


def test_two_people_see_both_versions(page: Page, page_faults: PageFaults, photos: Path) -> None:
    open_first(page, photos, "Image classification", "low\nhigh")
    first = page.url
    post(page, f"{first}.json", rev=0, edit="other", label=0)
    page_faults.allow(r"/images/\d+\.json$")
    page.keyboard.press("2")
    dialog = page.get_by_role("dialog", name="Two people labeled this image")
    expect(dialog).to_contain_text("Labeled, low. Your labels: Labeled, high. The difference: + high, − low.")
    dialog.get_by_role("button", name="Keep mine").click()
    expect(page.locator("#label-saved")).to_have_text("All changes are saved.")
    assert entry(first)["label"] == 1 and entry(first)["rev"] == 2

    # The page says by whom an image is labeled, and when.
    post(page, f"{first}.json?username=ada", rev=2, edit="ada", label=0)
    page.goto(first)
    side = page.get_by_role("complementary", name="Labels")
    expect(side).to_contain_text("Labeled by ada, just now")


def test_labels_begin_with_the_folders_of_the_form(page: Page, page_faults: PageFaults, photos: Path) -> None:
    page.goto("/labels/new")
    kind, folders = page.get_by_label("What to label"), page.get_by_label("The folders are classes")
    kind.select_option(label="Object detection")
    expect(folders).to_be_hidden()
    kind.select_option(label="Image classification")
    page.get_by_role("combobox", name="Folder with images").fill(str(photos))
    folders.check()
    check_accessibility(page)
    page.get_by_role("button", name="Start labeling").click()
    page.wait_for_url(re.compile(r"/labels/\d"))
    expect(page.get_by_role("link", name="Label", exact=True)).to_be_visible()
    labels = entry(page.url.partition("#")[0])
    assert labels["states"]["labeled"] == 18
    assert [item["name"] for item in labels["classes"]] == ["left", "middle", "right"]


def test_two_fingers_zoom_without_dropping_a_polygon(
    page: Page, page_faults: PageFaults, server: ServerProcess, photos: Path
) -> None:
    start(page, photos, "Object detection", "bar")
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("link", name="Label", exact=True).click()
    expect(page.locator("#label-state")).to_have_text("Not labeled")
    expect(page.get_by_role("button", name="bar", exact=True)).to_be_in_viewport()
    page.get_by_role("button", name="Polygon").click()
    frame = page.locator("#label-frame").bounding_box()
    assert frame is not None
    x, y = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    fingers = page.context.new_cdp_session(page)

    def touch(kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": x + dx, "y": y + dy, "id": number} for number, (dx, dy) in enumerate(places)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def tap(dx: float, dy: float) -> None:
        touch("touchStart", (dx, dy))
        touch("touchEnd")

    tap(-60, -40)
    tap(60, -40)
    touch("touchStart", (-30, 0))
    touch("touchStart", (-30, 0), (30, 0))
    touch("touchMove", (-40, 0), (40, 0))
    touch("touchEnd")
    tap(0, 60)
    page.locator("#label-frame").focus()
    page.keyboard.press("Enter")
    (polygon,) = saved(page)["objects"]
    assert len(polygon["rings"][0]) == 6


def test_a_conflict_needs_a_choice_and_keys_never_change_the_image_before(
    page: Page, page_faults: PageFaults, photos: Path
) -> None:
    open_first(page, photos, "Image classification", "low\nhigh")
    first = page.url
    page.keyboard.press("2")
    page.keyboard.press("1")  # before the next image is there
    expect(page).not_to_have_url(first)
    expect(page.locator("#label-saved")).to_have_text("All changes are saved.")
    assert entry(first)["label"] == 1
    second = page.url
    post(page, f"{second}.json", rev=entry(second)["rev"], edit="other", label=0)
    page_faults.allow(r"/images/\d+\.json$")
    page.keyboard.press("2")
    dialog = page.get_by_role("dialog", name="Two people labeled this image")
    expect(dialog).to_be_visible()
    for _ in range(2):
        page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Use theirs").click()
    expect(dialog).to_be_hidden()
    assert entry(second)["label"] == 0


def test_classes_are_changed_while_somebody_labels(page: Page, page_faults: PageFaults, photos: Path) -> None:
    url = start(page, photos, "Object detection", "low\nhigh")
    labeling = page.context.new_page()
    labeling.goto(f"{url}/images/3")
    expect(labeling.locator("#label-classes").get_by_role("button", name="high")).to_be_visible()
    page.get_by_role("button", name="Change high").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Change the class")
    expect(dialog.get_by_label("Name")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("tall")
    dialog.get_by_label("Color").fill("#12ab34")
    dialog.get_by_label("Name").press("Enter")
    expect(dialog).to_be_hidden()
    tall = labeling.locator("#label-classes").get_by_role("button", name="tall")
    expect(tall.locator(".class-swatch")).to_have_css("background-color", "rgb(18, 171, 52)")
    page.get_by_label("Name of the class to add").fill("other")
    page.keyboard.press("Enter")
    expect(labeling.locator("#label-classes").get_by_role("button", name="other")).to_be_visible()
    tall.click()
    draw(labeling, 0.2, 0.2, 0.8, 0.8)
    saved(labeling)
    page.reload()
    page.get_by_role("button", name="Change tall").click()
    expect(dialog).to_contain_text("1 image with this class. If you delete it, its labels are kept")
    check_accessibility(page)
    dialog.get_by_role("button", name="Delete the class").click()
    expect(tall).to_be_hidden()
    # What had the class keeps it.
    expect(labeling.locator("#label-objects")).to_contain_text("tall, deleted class")
    labeling.locator("#label-frame").focus()
    labeling.keyboard.press(".")
    labeling.keyboard.press("Shift+ArrowRight")
    assert saved(labeling)["objects"][0]["class"] == 1
    labeling.close()
    page.get_by_text("Deleted", exact=True).click()
    page.get_by_role("button", name="Restore tall").click()
    expect(page.get_by_role("link", name="tall")).to_be_visible()


def test_changes_that_are_refused_do_not_stop_others(
    page: Page, page_faults: PageFaults, photos: Path
) -> None:
    url = start(page, photos, "Object detection", "low\nhigh")
    page_faults.allow(r"/images/\d+\.json$|/socket\.io/")
    page.route("**/socket.io/**", lambda route: route.abort())  # so that the page does not follow
    page.goto(f"{url}/images/0")
    expect(page.locator("#label-place")).to_have_text("1 of 18")
    post(page, f"{url}/classes.json", id=1, is_deleted=True)
    page.keyboard.press("2")
    draw(page, 0.2, 0.2, 0.8, 0.8)
    expect(page.get_by_role("button", name="1 not saved")).to_be_visible()
    expect(page.locator("#label-classes").get_by_role("button", name="high")).to_be_hidden()
    page.locator("#label-frame").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#label-place")).to_have_text("2 of 18")
    page.route(
        "**/images/1.json",
        lambda route: route.fulfill(status=500) if route.request.method == "POST" else route.continue_(),
    )
    draw(page, 0.3, 0.3, 0.8, 0.8)
    expect(page.get_by_role("button", name="2 not saved")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#label-place")).to_have_text("3 of 18")
    draw(page, 0.4, 0.4, 0.8, 0.8)
    expect(page.locator("#label-saved")).to_have_text("")
    assert entry(f"{url}/images/2")["objects"] and not entry(f"{url}/images/1").get("objects")

    page.unroute("**/images/1.json")
    page.get_by_role("button", name="2 not saved").click()
    dialog = page.get_by_role("dialog", name="Changes that are not saved")
    expect(dialog).to_contain_text("The class “high” was deleted. Choose another one.")
    check_accessibility(page)
    with page.expect_response("**/images/1.json"):
        dialog.get_by_role("button", name="Try again").click()
    expect(dialog.get_by_role("listitem")).to_have_text([re.compile("high")])
    assert entry(f"{url}/images/1")["objects"]
    # The change is still there: correct it.
    dialog.get_by_role("button", name="Open").click()
    expect(page.locator("#label-objects")).to_contain_text("high, deleted class")
    page.locator("#label-frame").focus()
    page.keyboard.press(".")
    page.keyboard.press("1")
    assert saved(page)["objects"][0]["class"] == 0
    expect(page.locator("#label-unsaved")).to_be_hidden()


WIDTHS = (1440, 390)


def check_all(page: Page) -> None:
    """Check the page in all colors, on a large screen and on a phone, where everything is within reach."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        check_accessibility(page, SCHEMES)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    for control in page.locator("#label-tools button, #label-classes button").all():
        control.scroll_into_view_if_needed()
        box = control.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= WIDTHS[-1]
    page.set_viewport_size({"width": WIDTHS[0], "height": 844})


@pytest.mark.parametrize(
    ("kind", "classes", "label"),
    [
        ("Object detection", "bar\nspot\nan unusually long name of a class", "draw"),
        ("Semantic segmentation", "bar\nspot\nan unusually long name of a class", "draw"),
        ("Image classification", "\n".join(f"class {number}" for number in range(12)), "choose"),
        ("Multi-label classification", "bar\nspot\nan unusually long name of a class", "choose"),
        ("Image regression", "width\nan unusually long name of a number", "type"),
    ],
)
def test_label_pages_are_accessible_on_phones_too(
    page: Page, page_faults: PageFaults, photos: Path, kind: str, classes: str, label: str
) -> None:
    url = start(page, photos, kind, classes)
    check_all(page)
    page.goto(f"{url}/images/0")
    expect(page.locator("#label-state")).to_have_text("Not labeled")
    check_all(page)
    if label == "draw":
        draw(page, 0.2, 0.5, 0.8, 0.9)
    elif label == "choose":
        page.locator("#label-classes button").nth(1).click()
    else:
        for number in page.locator("#label-numbers input").all():
            number.fill("1.5")
            number.press("Tab")
    saved(page)
    page.goto(f"{url}/images/0")
    expect(page.locator("#label-state")).to_have_text("Labeled")
    if kind == "Object detection":
        page.keyboard.press(".")
        expect(page.get_by_label("Bottom")).to_be_visible()
    check_all(page)
    page.get_by_role("button", name="Keys").click()
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    # Only keys that mean something here are listed.
    expect(dialog.get_by_role("heading", name="Classes")).to_have_count(int(label != "type"))
    expect(dialog.get_by_role("heading", name="Masks")).to_have_count(int(kind == "Semantic segmentation"))
    check_all(page)
    page.goto(url)
    expect(page.locator(".gallery")).to_be_visible()
    check_all(page)


def test_dialogs_are_accessible_on_phones_too(page: Page, page_faults: PageFaults, photos: Path) -> None:
    page.goto("/labels/new")
    check_all(page)
    url = open_first(page, photos, "Semantic segmentation", "bar")
    draw(page, 0.2, 0.5, 0.8, 0.5)
    saved(page)
    page.goto(url)
    for name, opener in (
        ("Change the class", page.get_by_role("button", name="Change bar")),
        ("Create a dataset", page.get_by_role("button", name="Create dataset").first),
    ):
        opener.click()
        expect(page.get_by_role("dialog", name=name)).to_be_visible()
        check_all(page)
        page.keyboard.press("Escape")
    page.goto(f"{url}/images/0")
    expect(page.locator("#label-state")).to_have_text("Labeled")
    # Erase with a finger's tools: the mask is empty again.
    page.get_by_role("button", name="Erase").click()
    for _ in range(8):
        page.get_by_role("button", name="Larger brush").click()
    draw(page, 0.1, 0.5, 0.9, 0.5)
    assert saved(page)["labels"] == [0]
    post(page, f"{page.url}.json", rev=entry(page.url)["rev"], edit="other", state="skipped")
    page_faults.allow(r"/images/\d+\.json$")
    page.keyboard.press("x")
    expect(page.get_by_role("dialog", name="Two people labeled this image")).to_be_visible()
    check_all(page)


def test_keys_for_the_next_image_are_not_lost_while_it_is_loaded(
    page: Page, page_faults: PageFaults, photos: Path
) -> None:
    """They choose how to draw there, and change nothing of the image before."""
    url = start(page, photos, "Object detection", "low\nhigh")
    page.goto(f"{url}/images/0")
    expect(page.locator("#label-place")).to_have_text("1 of 18")
    draw(page, 0.2, 0.2, 0.8, 0.8)
    saved(page)
    waiting: list[Route] = []
    page.route("**/images/1/picture", lambda route: waiting.append(route))
    page.reload()
    expect(page.locator("#label-count")).to_have_text("1")
    page.keyboard.press(".")
    before = entry(page.url)
    page.keyboard.press("ArrowRight")
    for key in ("2", "p", "b", "Delete", "Shift+ArrowDown", "n", "x"):
        page.keyboard.press(key)
    expect(page.locator("#label-place")).to_have_text("1 of 18")
    high = page.locator("#label-classes").get_by_role("button", name="high")
    for route in waiting:
        route.continue_()
    page.unroute("**/images/1/picture")
    expect(page.locator("#label-place")).to_have_text("2 of 18")
    expect(high).to_have_attribute("aria-pressed", "true")
    draw(page, 0.2, 0.2, 0.8, 0.8)
    (box,) = saved(page)["objects"]
    assert box["class"] == 1 and "box" in box
    assert entry(f"{url}/images/0") == before


def tab_to(page: Page, target: Locator, most: int = 80) -> None:
    """Press the Tab key until ``target`` has the focus."""
    for _ in range(most):
        if target.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{most} times Tab do not lead to {target}")


@pytest.fixture(scope="module")
def squares(server: ServerProcess) -> Path:
    """Images of a bright square, which are named after its left and its top edge."""
    folder = server.data / "squares to label"
    folder.mkdir()
    chance = np.random.default_rng(0)
    for number in range(28):
        pixels = chance.integers(0, 60, (32, 32, 3), np.uint8)
        top, left = chance.integers(0, 20, 2)
        pixels[top : top + 12, left : left + 12] = 220
        Image.fromarray(pixels).save(folder / f"{number:02}-{left}-{top}.png")
    return folder


def press(page: Page, target: Locator, most: int = 80) -> None:
    """Wait for ``target``, reach it with the Tab key, and press Enter."""
    expect(target).to_be_visible(timeout=120_000)
    tab_to(page, target, most)
    page.keyboard.press("Enter")


@pytest.mark.tensorflow
def test_the_whole_loop_works_without_a_mouse(page: Page, page_faults: PageFaults, squares: Path) -> None:
    page.goto("/")
    press(page, page.get_by_role("link", name="Label images"))
    page.wait_for_url("**/labels/new")
    tab_to(page, page.get_by_label("What to label"))
    page.keyboard.type("Object")
    tab_to(page, page.get_by_role("combobox", name="Folder with images"))
    page.keyboard.type(str(squares))
    tab_to(page, page.get_by_label("Classes", exact=True))
    page.keyboard.type("square")
    press(page, page.get_by_role("button", name="Start labeling"))
    page.wait_for_url(re.compile(r"/labels/\d"))
    press(page, page.get_by_role("link", name="Label", exact=True))
    for _ in range(22):
        expect(page.locator("#label-state")).to_have_text("Not labeled")
        before = page.url
        _, left, top = map(int, (page.locator("#label-file").text_content() or "").split(".")[0].split("-"))
        page.keyboard.press("n")
        edges = left, top, left + 12, top + 12
        # The box stays inside of the image after each change.
        for at in (2, 3, 0, 1):
            tab_to(page, page.locator("#label-edges input").nth(at))
            page.keyboard.press("Control+a")
            page.keyboard.type(str(edges[at]))
            page.keyboard.press("Escape")  # back to the image
        page.keyboard.press("Enter")
        expect(page).not_to_have_url(before)
        expect(page.locator("#label-saved")).to_have_text("All changes are saved.")
        assert entry(before)["objects"] == [{"class": 0, "box": [*map(float, edges)]}]
    press(page, page.locator(".label-bar a"))

    press(page, page.get_by_role("button", name="Train a model"))
    page.wait_for_url(re.compile(r"/models/.*/new"))
    press(page, page.locator("summary", has_text="Customize"))
    tab_to(page, page.get_by_label("Epochs", exact=True), 300)
    page.keyboard.press("Control+a")
    page.keyboard.type("60")
    press(page, page.get_by_role("button", name="Train", exact=True), 300)
    page.wait_for_url(re.compile(r"/models/\d"), timeout=120_000)

    # To the dataset of the model, and to its labels.
    crumbs = page.get_by_role("navigation", name="Breadcrumb")
    press(page, crumbs.get_by_role("link", name="squares to label, 22 labels"))
    press(page, page.get_by_role("link", name="squares to label", exact=True))
    press(page, page.get_by_role("button", name="Predict the rest"))
    correct = page.get_by_role("link", name="Correct proposals")
    expect(correct).to_be_visible(timeout=60_000)
    check_all(page)
    press(page, correct)
    # Images of other splits come without proposals.
    for _ in range(6):
        expect(page.locator("#label-state")).to_have_text(re.compile("Proposed|Not labeled"))
        before = page.url
        if page.locator("#label-state").text_content() == "Proposed":
            break
        page.keyboard.press("x")
        expect(page).not_to_have_url(before)
    expect(page.locator("#label-objects")).to_contain_text("square, proposed")
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(before)
    expect(page.locator("#label-saved")).to_have_text("All changes are saved.")
    (accepted, *_) = entry(before)["objects"]
    assert entry(before)["state"] == "labeled" and accepted["from"] and accepted["score"] > 0
    press(page, page.locator(".label-bar a"))
    press(page, page.get_by_role("button", name="Train again"))
    expect(page.locator("#labels-next")).to_contain_text("is being trained", timeout=60_000)
