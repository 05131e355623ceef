"""Measure the time until the page with all layers of AlexNet for one 227×227 image is complete.

    .venv/bin/python benchmarks/inside.py [--network alexnet] [--side 227] [--turns 7]

Starts a separate server, trains the network for one epoch on a few generated images, and requests the page with the
activations and weights of all layers, a Grad-CAM heat map and one by integrated gradients. The first request of each
loads or builds what the following ones use. Chromium, if it is installed, also measures the time from the click until
all pictures are drawn. Prints one line of JSON; times are the median in seconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from PIL import Image
from serving import get, server, wait_for

IMAGES_PER_CLASS = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--network", default="alexnet")
    parser.add_argument("--side", type=int, default=227)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        _write_images(images, options.side)
        with server(Path(folder), images) as address:
            model = _model(address, images, options)
            image = next(images.rglob("*.png"))
            page = f"{address}/models/{model}"
            result: dict[str, Any] = {"network": options.network, "side": options.side}
            for name, path, fields in (
                ("all_layers", "/inside", {}),
                ("grad_cam", "/heat-map", {"method": "grad_cam"}),
                ("integrated_gradients", "/heat-map", {"method": "integrated_gradients"}),
            ):
                first, *later = (
                    _seconds(page + path, {"image_path": image, **fields}) for _ in range(options.turns + 1)
                )
                result[name] = {"first": _round(first), "warm": _round(statistics.median(later))}
            if shutil.which("chromium"):
                result["in_chromium"] = _round(statistics.median(_in_chromium(page, image, options.turns)))
    print(json.dumps(result))


def _write_images(folder: Path, side: int) -> None:
    chance = np.random.default_rng(0)
    for name in ("dark", "bright"):
        (folder / name).mkdir(parents=True)
        for number in range(IMAGES_PER_CLASS):
            low = 0 if name == "dark" else 128
            pixels = chance.integers(low, low + 128, (side, side, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def _model(address: str, images: Path, options: argparse.Namespace) -> str:
    sides = {"resize_width": options.side, "resize_height": options.side, "resize_channels": 3}
    fields = {"method": "folder", "folder_train": images, "dataset_name": "Inside"} | sides
    dataset = get(address, "/datasets/images/classification.json", fields)["id"]
    wait_for(address, dataset)
    settings = {
        "method": "standard",
        "standard_networks": options.network,
        "train_epochs": 1,
        "batch_size": 8,
    }
    fields = {"model_name": "Inside", "dataset": dataset, "select_gpu": "cpu"} | settings
    model = str(get(address, "/models/images/classification.json", fields)["id"])
    wait_for(address, model)
    return model


def _seconds(url: str, fields: dict[str, Any]) -> float:
    begun = time.perf_counter()
    with urllib.request.urlopen(
        urllib.request.Request(url, urlencode(fields).encode()), timeout=120
    ) as answer:
        answer.read()
    return time.perf_counter() - begun


def _in_chromium(page_url: str, image: Path, turns: int) -> list[float]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{page_url}/inside")
        page.get_by_role("button", name="All", exact=True).click(timeout=60_000)
        page.get_by_label("Or enter a path on the server").fill(str(image))
        page.get_by_label("Or a record of the dataset").fill("")
        seconds = []
        for _ in range(turns + 1):
            page.wait_for_load_state("networkidle")
            page.evaluate("document.getElementById('layer-results').replaceChildren()")
            begun = time.perf_counter()
            page.get_by_role("button", name="Show layers").click()
            page.wait_for_function(
                "() => { const found = [...document.querySelectorAll('#layer-results img')];"
                " return found.length && found.every(image => image.complete && image.naturalWidth); }"
            )
            seconds.append(time.perf_counter() - begun)
        browser.close()
    return seconds[1:]


def _round(value: float) -> float:
    return round(value, 2)


if __name__ == "__main__":
    main()
