"""Measure labeling: the server with many images and changes, and the page with a real mouse and keys in Chromium.

    .venv/bin/python benchmarks/labels.py [--images 100000] [--entries 1000000] [--boxes 100] [--requests 20]

Starts a separate server with a few photos, one of 48 megapixels, that are listed many times, and measures

- the first request for labels with this many entries in the log, and the memory that the entries take
- the page of the labels, also of one class, the list of images and the next image over HTTP
- boxes drawn and classed per minute, five on each image, and the time from Enter to the next image on the page
- the time between frames while one of 1,000 and of 5,000 boxes is dragged
- with 48 megapixels: a stroke of full length, undo and encoding of a mask, and from the end of a stroke to its answer

Prints one line of JSON; times are in milliseconds unless they say seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import psutil
from product import Product, chromium, memory, product, quantiles

from digits.core.splits import SPLITS
from digits.data.images import images
from digits.kinds.labeling.answers import Entry, Object
from digits.kinds.labeling.images import IMAGES_FILE, ListedImage
from digits.kinds.labeling.log import LABELS_FILE
from digits.kinds.labeling.ordering import write_order

if TYPE_CHECKING:
    from playwright.sync_api import Page

PHOTOS, SIZE, LARGE = 24, (640, 480), (8000, 6000)
CLASSES = 5
OF_EACH_IMAGE = 5
CROWDS = 1000, 5000
PAUSE_SECONDS = 0.5
TARGETS = {
    "boxes_per_minute": 240,
    "next_image_p95": 200,
    "pages": 300,
    "start_seconds": 10,
    "start_megabytes": 100,
    "drag_1000_p95": 50,
    "drag_5000_p95": 150,
}
# Notes the time between frames until it is called again.
FRAMES = """() => {
  if (window.frames_) return window.frames_.splice(0).slice(1);
  window.frames_ = [];
  let last = performance.now();
  const step = (now) => {
    window.frames_.push(now - last);
    last = now;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
  return [];
}"""
# Notes the time from each Enter key until the place of the next image is on the page.
OPENED = """() => {
  window.opened_ = [];
  let began = 0;
  const start = ({ key }) => { if (key === 'Enter') began = performance.now(); };
  document.addEventListener('keydown', start, { capture: true });
  const place = document.getElementById('label-place');
  new MutationObserver(() => window.opened_.push(performance.now() - began)).observe(place, { childList: true });
}"""
MASK = """async () => {
  const { name } = performance.getEntriesByType('resource').find(({ name }) => /js\\/mask\\.js/.test(name));
  const { Mask } = await import(name);
  const mask = new Mask(8000, 6000);
  const times = {};
  const timed = async (what, act) => {
    const began = performance.now();
    const result = await act();
    times[what] = Math.round(performance.now() - began);
    return result;
  };
  await timed('stroke', () => mask.stroke({ x: 100, y: 100 }, { x: 7900, y: 5900 }, 60, 3));
  const [before] = await timed('commit', () => mask.commit());
  const file = await timed('encode', () => mask.toPng());
  await timed('undo', () => mask.restore(before));
  await timed('decode', () => Mask.fromPng(file));
  return times;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--boxes", type=int, default=100)
    parser.add_argument("--requests", type=int, default=20)
    options = parser.parse_args()
    load = psutil.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, product(Path(name)) as server:
        folder = Path(name) / "data" / "photos"
        _write_photos(folder)
        logged, listed, masks = (
            _labels(server, folder, kind) for kind in ("detection", "detection", "segmentation")
        )
        for job in (logged, listed):
            _list_many(server.jobs / job, options.images)
        _log_many(server.jobs / logged, options.images, options.entries)
        result: dict[str, Any] = {"load": round(load, 1), "start": _start(server, logged)}
        result |= _requests(server, logged, options.requests)
        with chromium(server.address) as page:
            result |= _boxes(page, listed, options.boxes)
            for count in CROWDS:
                result[f"drag_{count}"] = _drag(server, page, listed, options.images - count, count)
            result["mask"] = _masks(page, masks)
    print(json.dumps({**result, "target": TARGETS}))


def _write_photos(folder: Path) -> None:
    folder.mkdir(parents=True)
    chance = np.random.default_rng(0)
    for number in range(PHOTOS + 1):
        width, height = SIZE if number else LARGE
        coarse = chance.integers(0, 256, (height // 40, width // 40, 3), np.uint8)
        pixels = coarse.repeat(40, axis=0).repeat(40, axis=1)
        (folder / f"{number:02}.jpg").write_bytes(images.encode(pixels, "jpg"))


def _labels(server: Product, folder: Path, kind: str) -> str:
    classes = "\n".join(f"class {number}" for number in range(CLASSES))
    made = server.json(
        "POST", "/labels.json", name=kind, kind=f"images/{kind}", folder=str(folder), classes=classes
    )
    server.wait(made["id"])
    return str(made["id"])


def _list_many(folder: Path, count: int) -> None:
    """List the photos again until there are ``count``, in random order."""
    chance = random.Random(0)
    with (folder / IMAGES_FILE).open("ab") as file:
        for number in range(PHOTOS + 1, count):
            split = chance.choices(SPLITS, [75, 15, 10])[0]
            path = f"{1 + number % PHOTOS:02}.jpg"
            file.write(_line(ListedImage(path, split, number, f"{number:032x}", *SIZE)))
    write_order(folder, np.random.default_rng(0).permutation(count).astype(np.int32))


def _log_many(folder: Path, count: int, entries: int) -> None:
    """Write changes of four fifths of the images."""
    chance, place, places, revs = random.Random(0), 0, [-1] * count, [0] * count
    with (folder / LABELS_FILE).open("wb") as file:
        for number in range(entries):
            image = number % (count * 4 // 5)
            left, top = chance.randrange(500), chance.randrange(400)
            objects = [
                Object(class_=chance.randrange(CLASSES), box=(left, top, left + 50 + at, top + 40))
                for at in range(3)
            ]
            revs[image] += 1
            line = _line(
                Entry(
                    image=image,
                    rev=revs[image],
                    edit=f"{number:032x}",
                    at=1.8e9 + number,
                    by="somebody",
                    prev=places[image],
                    seconds=3.5,
                    objects=objects,
                )
            )
            places[image], place = place, place + len(line)
            file.write(line)


def _line(entry: Any) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


def _start(server: Product, job: str) -> dict[str, float]:
    process = psutil.Process(server.pid)
    before = memory(process)
    seconds = server.seconds(f"/labels/{job}.json")
    return {"seconds": round(seconds, 1), "megabytes": round((memory(process) - before) / 1e6)}


def _requests(server: Product, job: str, count: int) -> dict[str, dict[str, float]]:
    chance = random.Random(1)
    pages: dict[str, Callable[[], str]] = {
        "page": lambda: f"?page={chance.randrange(1, 1000)}",
        "page_of_class": lambda: f"?label={chance.randrange(CLASSES)}&page={chance.randrange(1, 100)}",
        "images": lambda: f"/images.json?after={chance.randrange(50_000)}",
        "next": lambda: f"/next.json?client={chance.randrange(8)}",
        "json": lambda: ".json",
    }
    return {
        name: quantiles(server.seconds(f"/labels/{job}{path()}") for _ in range(count))
        for name, path in pages.items()
    }


def _open(page: Page, path: str) -> None:
    page.goto(path)
    page.locator("#label-place:not(:empty)").wait_for()


def _boxes(page: Page, job: str, count: int) -> dict[str, Any]:
    """Draw boxes, five on each image, and give each a class by its key."""
    page.set_viewport_size({"width": 1280, "height": 800})
    _open(page, f"/labels/{job}/label")
    page.evaluate(OPENED)
    chance, began = random.Random(2), time.perf_counter()
    for number in range(count):
        x, y = 100 + chance.randrange(500), 120 + chance.randrange(400)
        _drag_from(page, x, y, 60, 50)
        page.keyboard.press(str(1 + number % CLASSES))
        if number % OF_EACH_IMAGE == OF_EACH_IMAGE - 1:
            _next(page)
    minutes = (time.perf_counter() - began) / 60
    for _ in range(count // OF_EACH_IMAGE):
        page.wait_for_timeout(1000 * PAUSE_SECONDS)
        _next(page)
    opened = [each / 1000 for each in page.evaluate("window.opened_")]
    return {"boxes_per_minute": round(count / minutes), "next_image": _p95(opened)}


def _next(page: Page) -> None:
    before = page.locator("#label-place").inner_text()
    page.keyboard.press("Enter")
    until = time.monotonic() + 30
    while page.locator("#label-place").inner_text() == before and time.monotonic() < until:
        time.sleep(0.005)


def _drag_from(page: Page, x: float, y: float, width: float, height: float, steps: int = 4) -> None:
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + width, y + height, steps=steps)
    page.mouse.up()


def _drag(server: Product, page: Page, job: str, number: int, count: int) -> dict[str, float]:
    """Drag one of ``count`` boxes across an image."""
    chance = random.Random(3)
    objects = [{"class": 0, "box": [310, 230, 330, 250]}]
    for _ in range(count - 1):
        left, top = chance.randrange(600), chance.randrange(440)
        objects.append({"class": chance.randrange(CLASSES), "box": [left, top, left + 40, top + 40]})
    body = json.dumps({"rev": 0, "edit": f"crowd-{count}", "objects": objects}).encode()
    sent = page.request.post(
        f"{server.address}/labels/{job}/images/{number}.json",
        data=body,
        headers={"Content-Type": "application/json"},
    )
    assert sent.ok, sent.text()
    _open(page, f"/labels/{job}/images/{number}")
    page.keyboard.press("v")
    place = page.locator("#label-image").bounding_box()
    assert place is not None
    page.evaluate(FRAMES)
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate(FRAMES)
    page.mouse.move(x + 150, y + 100, steps=90)
    frames = page.evaluate(FRAMES)
    page.mouse.up()
    return _p95([each / 1000 for each in frames])


def _masks(page: Page, job: str) -> dict[str, Any]:
    _open(page, f"/labels/{job}/images/0")
    found: dict[str, Any] = page.evaluate(MASK)
    page.evaluate(FRAMES)
    page.evaluate(FRAMES)
    _drag_from(page, 100, 150, 800, 500, steps=60)
    began = time.perf_counter()
    found["frames"] = _p95([each / 1000 for each in page.evaluate(FRAMES)])
    page.locator("#label-saved", has_text="All changes are saved.").wait_for(timeout=60_000)
    return {**found, "saved_seconds": round(time.perf_counter() - began, 1)}


def _p95(seconds: Iterable[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    values = {"p50": ordered[len(ordered) // 2], "p95": ordered[int(len(ordered) * 0.95)], "max": ordered[-1]}
    return {name: round(1000 * value) for name, value in values.items()}


if __name__ == "__main__":
    main()
