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
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from product import chromium, product

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
        with product(Path(folder), "--data-root", images) as server:
            dataset = server.dataset_of(images, options.side, 3)
            model = server.model_of(dataset, options.network, batch_size=8, select_gpu="cpu")
            image = next(images.rglob("*.png"))
            result: dict[str, Any] = {"network": options.network, "side": options.side}
            for name, path, fields in (
                ("all_layers", "/inside", {}),
                ("grad_cam", "/heat-map", {"method": "grad_cam"}),
                ("integrated_gradients", "/heat-map", {"method": "integrated_gradients"}),
            ):
                asked = {"image_path": image, **fields}
                first, *later = (
                    server.seconds(f"/models/{model}{path}", asked) for _ in range(options.turns + 1)
                )
                result[name] = {"first": _round(first), "warm": _round(statistics.median(later))}
            if shutil.which("chromium"):
                seconds = _in_chromium(server.address, model, image, options.turns)
                result["in_chromium"] = _round(statistics.median(seconds))
    print(json.dumps(result))


def _write_images(folder: Path, side: int) -> None:
    chance = np.random.default_rng(0)
    for name in ("dark", "bright"):
        (folder / name).mkdir(parents=True)
        for number in range(IMAGES_PER_CLASS):
            low = 0 if name == "dark" else 128
            pixels = chance.integers(low, low + 128, (side, side, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def _in_chromium(address: str, model: str, image: Path, turns: int) -> list[float]:
    seconds = []
    with chromium(address) as page:
        page.goto(f"/models/{model}/inside")
        page.get_by_role("button", name="All", exact=True).click(timeout=60_000)
        page.get_by_label("Or enter a path on the server").fill(str(image))
        page.get_by_label("Or a record of the dataset").fill("")
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
    return seconds[1:]


def _round(value: float) -> float:
    return round(value, 2)


if __name__ == "__main__":
    main()
