"""Measure the latency that users experience, with a real browser and the whole product.

    .venv/bin/python benchmarks/interaction.py [--sample mnist] [--requests 200] [--epochs 2]
        [--photos FOLDER --weights FOLDER] [--first-loss]

Starts a separate server, creates a dataset from the sample (downloading it if necessary), and measures

- from clicking Train to the first loss point in the chart, and to the first loss of the training, with a warm standby
  process: of LeNet, and of the recommended network for the photos in a folder of class folders, from ImageNet weights
- from clicking Visualize for LeNet to the table of layers
- classification of one image over HTTP, warm: the median and the 99th percentile
- from writing a metric in the trainer to drawing it: the median and the 99th percentile
- one epoch of LeNet from the HTTP request to its end, including validation before and after and the snapshot

With ``--first-loss``, only the first of these is measured. Prints one line of JSON; times are in seconds. Run it on an
idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from product import ROOT, WITH_BACKGROUND_TASKS, Product, chromium, product

from digits.runtime.executors.processes import processes_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAMPLES = ROOT / "samples"
CLASSIFY = "/models/images/classification/classify_one.json"
VISUALIZE_RUNS = 5
RUNS = 3
EPOCH_RUNS = 3
# Charts draw in the first frame after a message; the second one shows that the first is done.
WATCH_DRAWING = """() => {
  window.drawn = {};
  document.addEventListener('task-update', ({ detail }) => {
    if (detail.update !== 'metrics') return;
    const note = () => {
      for (const row of detail.rows) window.drawn[`${row.stage} ${row.step}`] ??= Date.now() / 1000;
    };
    requestAnimationFrame(() => requestAnimationFrame(note));
  });
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", default="mnist")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--first-loss", action="store_true")
    options = parser.parse_args()
    places: tuple[str | Path, ...] = ("--samples-dir", SAMPLES, *WITH_BACKGROUND_TASKS)
    if options.photos:
        places = (*places, f"--data-root={options.photos.resolve()}", f"--weights-source={options.weights}")
    with (
        tempfile.TemporaryDirectory() as folder,
        product(Path(folder), *places) as server,
        chromium(server.address) as page,
    ):
        dataset = _dataset(server, options.sample)
        page.set_default_timeout(120_000)
        while "the fork server is ready" not in server.log.read_text():  # the standby process
            time.sleep(0.1)
        result: dict[str, Any] = {} if options.first_loss else {"visualize": _visualize(page, dataset)}
        if options.photos:
            result["recommended"] = [_train_recommended(page, server, options.photos) for _ in range(RUNS)]
        _open_form(page, dataset)
        page.locator('[name="train_epochs"]').fill(str(options.epochs))
        page.locator('[name="batch_size"]').fill("64")
        model, result["lenet"] = _train(page, server)
        server.wait(model)
        if options.first_loss:
            print(json.dumps(result))
            return
        result["metric_to_drawn"] = _drawing(page, server.jobs / model)
        result["one_epoch"] = _epoch(server, dataset)
        result["classify"] = _classify(server, model, options.sample, options.requests)
        result["target"] = {
            "visualize": 1.5,
            "first_loss": 5,
            "metric_to_drawn_p99": 0.3,
            "classify_p50": 0.06,
            "one_epoch": 12,
        }
    print(json.dumps(result))


def _dataset(server: Product, sample: str) -> str:
    made = server.json("POST", f"/try/{sample}")
    server.abort(made["model"]["id"])
    dataset = str(made["dataset"]["id"])
    server.wait(dataset)
    return dataset


def _open_form(page: Page, dataset: str) -> None:
    """Open the form of a model with all settings, and choose LeNet."""
    page.goto(f"/models/images/classification/new?dataset={dataset}")
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.locator('[name="standard_networks"][value="lenet"]').check(force=True)


def _visualize(page: Page, dataset: str) -> dict[str, float]:
    _open_form(page, dataset)
    seconds = []
    for _ in range(VISUALIZE_RUNS):
        page.evaluate("document.getElementById('visualize-result').replaceChildren()")
        begun = time.perf_counter()
        page.locator("#visualize").click()
        page.locator("#visualize-result tbody tr").first.wait_for()
        seconds.append(time.perf_counter() - begun)
    return {"median": round(statistics.median(seconds), 3), "worst": round(max(seconds), 3)}


def _train_recommended(page: Page, server: Product, photos: Path) -> dict[str, float]:
    """Train as recommended on a new dataset of ``photos``, until the first loss."""
    dataset = server.dataset_of(photos, 32, 3)
    page.goto(f"/models/images/classification/new?dataset={dataset}")
    page.locator("[data-state]", has_text="Recommended").wait_for()
    model, seconds = _train(page, server)
    server.abort(model)
    return seconds


def _train(page: Page, server: Product) -> tuple[str, dict[str, float]]:
    """Press Train; return the id of the model, and when there was a point in the chart, and a loss of the training.

    Also the CPU time of the task until then, and the load of the machine.
    """
    page.wait_for_load_state("networkidle")
    begun, seconds = time.perf_counter(), {}
    page.get_by_role("button", name="Train", exact=True).click()
    page.wait_for_url(re.compile(r"/models/\d{8}-"))
    seconds["page"] = time.perf_counter() - begun
    page.evaluate(WATCH_DRAWING)
    page.locator('[data-chart="loss"]:not([data-points="0"])').wait_for()
    seconds["first_point"] = time.perf_counter() - begun
    page.locator('[data-tile="loss-train"]', has_text=re.compile(r"\d")).wait_for()
    seconds["first_loss"] = time.perf_counter() - begun
    model = page.url.rsplit("/", 1)[1]
    processes = [psutil.Process(pid) for pid in processes_in(server.jobs / model / "train", [])]
    seconds["task_cpu"] = sum(sum(process.cpu_times()[:2]) for process in processes)
    seconds["load"] = os.getloadavg()[0]
    return model, {name: round(value, 3) for name, value in seconds.items()}


def _epoch(server: Product, dataset: str) -> dict[str, float]:
    seconds = []
    for _ in range(EPOCH_RUNS):
        begun = time.perf_counter()
        server.model_of(dataset, solver_type="MOMENTUM", learning_rate=0.01)
        seconds.append(time.perf_counter() - begun)
    return {"median": round(statistics.median(seconds), 2), "worst": round(max(seconds), 2)}


def _drawing(page: Page, job: Path) -> dict[str, float]:
    page.wait_for_timeout(1000)
    drawn = page.evaluate("window.drawn")
    delays = []
    for line in (job / "train" / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        at = drawn.get(f"{event.get('stage')} {event.get('step')}")
        if event["event"] == "measured" and at:
            delays.append(at - event["at"])
    return {**_percentiles(delays), "rows": len(delays)}


def _classify(server: Product, model: str, sample: str, requests: int) -> dict[str, float]:
    pictures = sorted((SAMPLES / sample / "test").rglob("*.png"))[:: max(1, 10_000 // requests)]
    contents = [picture.read_bytes() for picture in pictures]
    ask = partial(server.json, "POST", CLASSIFY, job_id=model)
    ask(image_file=contents[0])  # starts the inference worker
    seconds = []
    for number in range(requests):
        begun = time.perf_counter()
        ask(image_file=contents[number % len(contents)])
        seconds.append(time.perf_counter() - begun)
    return _percentiles(seconds)


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 4),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 4),
    }


if __name__ == "__main__":
    main()
