"""Kill the server while somebody draws boxes: each one is on the server exactly once when all changes are saved.

``DIGITS_DRAWING_KILLS`` sets the number of kills.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.labels import KilledServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KILLS = int(os.environ.get("DIGITS_DRAWING_KILLS", "3"))
# Each box has a place of its own on an image, so that no drag begins on another box.
COLUMNS, ROWS, STEP, BOX = 5, 4, 40, 24
SIZE = COLUMNS * STEP, ROWS * STEP
PATIENCE_MILLISECONDS = 120_000


class Labels(KilledServer):
    def open(self, page: Page, image: int) -> None:
        page.goto(f"{self.server.address}{self.path}/images/{image}")
        expect(page.locator("#label-place")).not_to_be_empty(timeout=PATIENCE_MILLISECONDS)

    def places(self, image: int) -> Counter[int]:
        """Return the places of the boxes of an image."""
        objects = self.server.ask(f"{self.path}/images/{image}.json").get("objects", [])
        return Counter(
            int(left // STEP) + COLUMNS * int(top // STEP)
            for left, top, *_ in (item["box"] for item in objects)
        )


@pytest.fixture
def labels(tmp_path: Path) -> Iterator[Labels]:
    opened = Labels(tmp_path, 1 + KILLS // (COLUMNS * ROWS), SIZE)
    yield opened
    opened.server.stop()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page of its own, whose requests fail while the server is down."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


def draw(page: Page, place: int) -> None:
    """Drag a box at a place of the image."""
    image = page.locator("#label-image").bounding_box()
    assert image is not None
    scale = image["width"] / SIZE[0]
    x = image["x"] + scale * (STEP * (place % COLUMNS) + 8)
    y = image["y"] + scale * (STEP * (place // COLUMNS) + 8)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + scale * BOX, y + scale * BOX, steps=4)
    page.mouse.up()


def test_kills_lose_no_box_and_double_none(page: Page, labels: Labels) -> None:
    chance, drawn, began = random.Random(4), Counter[int](), time.monotonic()
    for number in range(KILLS):
        image, place = divmod(number, COLUMNS * ROWS)
        if place == 0:
            labels.open(page, image)
        # Before, while and after a box is drawn and sent.
        moment = chance.uniform(0, 1.2)
        killing = threading.Thread(target=lambda: (time.sleep(moment), labels.kill()))  # noqa: B023
        killing.start()
        draw(page, place)
        drawn[image] += 1
        killing.join()
        assert not page.locator("#label-conflict[open]").count()
        if place == COLUMNS * ROWS - 1 or number == KILLS - 1:
            expect(page.locator("#label-saved")).to_have_text(
                "All changes are saved.", timeout=PATIENCE_MILLISECONDS
            )
            assert labels.places(image) == Counter(range(drawn[image]))
    print(f"{KILLS} kills, {drawn.total()} boxes, 0 lost, 0 doubled, {time.monotonic() - began:.0f} s")


def test_a_box_after_one_whose_response_was_lost_is_no_conflict(page: Page, labels: Labels) -> None:
    saved: list[str] = []
    is_down = True

    def answer(route: Route) -> None:
        if route.request.method != "POST" or not is_down:
            route.continue_()
            return
        if not saved:
            saved.append(route.fetch().text())
        route.abort()

    labels.open(page, 0)
    page.route(re.compile(r"/images/0\.json"), answer)
    draw(page, 0)
    expect(page.locator("#label-saved")).to_contain_text("Not saved yet")
    assert json.loads(saved[0]) == {"rev": 1}
    draw(page, 1)
    is_down = False
    expect(page.locator("#label-saved")).to_have_text("All changes are saved.", timeout=PATIENCE_MILLISECONDS)
    assert labels.places(0) == Counter([0, 1])
