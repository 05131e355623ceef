"""Measure the page that compares two evaluated models on the same images.

    .venv/bin/python benchmarks/comparison.py [FOLDER] [--images 10000] [--requests 15]

FOLDER is a sample laid out by ``digits download-data mnist FOLDER``; without it, MNIST is downloaded to a temporary
folder first. Starts a server, creates a dataset of its first test images, trains LeNet with two learning rates for an
epoch each, and evaluates both. Then measures the page over HTTP to its last byte, and in a browser from the address to
the end of all loading, with the curves drawn and the images in view shown. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from evaluation import create, request, serve
from playwright.sync_api import sync_playwright

TARGET_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        mnist = options.folder or scratch / "mnist"
        if options.folder is None:
            subprocess.run([sys.executable, "-m", "digits", "download-data", "mnist", mnist], check=True)
        with serve(scratch, mnist.resolve()) as address:
            models, count = evaluated_models(address, mnist.resolve(), options.images)
            url = f"{address}/models/compare?ids={','.join(models)}"
            over_http = [page_seconds(url) for _ in range(options.requests)]
            in_browser = browser_seconds(url, options.requests)
    result = {
        "images": count,
        "http_first_seconds": round(over_http[0], 3),
        "http_median_seconds": round(statistics.median(over_http[1:]), 3),
        "browser_first_seconds": round(in_browser[0], 2),
        "browser_median_seconds": round(statistics.median(in_browser), 2),
        "browser_longest_seconds": round(max(in_browser), 2),
        "target_seconds": TARGET_SECONDS,
    }
    print(json.dumps(result))


def evaluated_models(address: str, mnist: Path, images: int) -> tuple[list[str], int]:
    """Return the ids of two models that were evaluated on the same images, and the number of images."""
    size = {"resize_width": 28, "resize_height": 28, "resize_channels": 1}
    source = {"method": "folder", "folder_train": mnist / "test", "folder_pct_val": 0}
    per_class = {"folder_train_max_per_class": images // 10 + 1000}
    dataset = create(
        address, "datasets/images/classification", dataset_name="Test", **source, **size, **per_class
    )
    models = []
    for rate in (0.001, 0.0005):
        model = create(
            address,
            "models/images/classification",
            model_name=f"LeNet {rate}",
            dataset=dataset,
            method="standard",
            standard_networks="lenet",
            train_epochs=1,
            batch_size=64,
            solver_type="ADAM",
            learning_rate=rate,
        )
        request(f"{address}/models/{model}/evaluation", {"split": "train"})
        while (body := request(f"{address}/models/{model}/evaluation.json"))["state"] == "running":
            time.sleep(0.1)
        if body["state"] != "done":
            sys.exit(f"The evaluation failed: {body['error']}")
        models.append(model)
    return models, body["evaluations"][0]["records"]


def page_seconds(url: str) -> float:
    began = time.monotonic()
    with urllib.request.urlopen(url, timeout=60) as answer:
        answer.read()
    return time.monotonic() - began


def browser_seconds(url: str, requests: int) -> list[float]:
    """Return the seconds of each visit, the first one with an empty cache."""
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        for _ in range(requests):
            began = time.monotonic()
            page.goto(url, wait_until="load")
            page.locator("#chart-loss canvas").wait_for()
            found.append(time.monotonic() - began)
            page.goto("about:blank")
        browser.close()
    return found


if __name__ == "__main__":
    main()
