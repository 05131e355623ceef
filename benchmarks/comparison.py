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
import statistics
import tempfile
import time
from pathlib import Path

from product import Product, chromium, mnist, product

TARGET_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        images = mnist(options.folder, Path(name))
        with product(Path(name), "--data-root", images) as server:
            models, count = evaluated_models(server, images, options.images)
            path = f"/models/compare?ids={','.join(models)}"
            over_http = [server.seconds(path) for _ in range(options.requests)]
            in_browser = browser_seconds(server.address, path, options.requests)
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


def evaluated_models(server: Product, images: Path, count: int) -> tuple[list[str], int]:
    """Return the ids of two models that were evaluated on the same images, and the number of images."""
    dataset, first = server.digits_and_lenet(images, count, solver_type="ADAM", learning_rate=0.001)
    models = [first, server.model_of(dataset, solver_type="ADAM", learning_rate=0.0005)]
    results = [server.evaluate(model, "train") for model in models]
    return models, results[0].records


def browser_seconds(address: str, path: str, requests: int) -> list[float]:
    """Return the seconds of each visit, the first one with an empty cache."""
    found = []
    with chromium(address) as page:
        for _ in range(requests):
            began = time.monotonic()
            page.goto(path, wait_until="load")
            page.locator("#chart-loss canvas").wait_for()
            found.append(time.monotonic() - began)
            page.goto("about:blank")
    return found


if __name__ == "__main__":
    main()
