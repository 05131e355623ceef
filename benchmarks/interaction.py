"""Measure the latency that users experience, with a real browser and the whole product.

    .venv/bin/python benchmarks/interaction.py [--sample mnist] [--requests 200] [--epochs 2]

Starts a separate server, creates a dataset from the sample (downloading it if necessary), and measures

- from clicking Train model to the first loss point in the chart, with a warm standby process
- from clicking Visualize for LeNet to the table of layers
- classification of one image over HTTP, warm: the median and the 99th percentile
- from writing a metric in the trainer to drawing it: the median and the 99th percentile
- one epoch of LeNet from the HTTP request to its end, including validation before and after and the snapshot

Prints one line of JSON; times are in seconds. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
CREATE = "/models/images/classification.json"
CLASSIFY = "/models/images/classification/classify_one.json"
VISUALIZE_RUNS = 5
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as address, _page(address) as page:
        dataset = _finished_dataset(address, options.sample)
        time.sleep(5)  # the standby process is ready by then
        result: dict[str, Any] = {"visualize": _visualize(page, dataset)}
        model, result["create_to_first_point"] = _create(page, dataset, options.epochs)
        _wait_for(lambda: _get(address, f"/models/{model}/status")["status"] == "Done")
        result["metric_to_drawn"] = _drawing(page, Path(folder) / "jobs" / model)
        result["one_epoch"] = _epoch(address, dataset)
        result["classify"] = _classify(address, model, options.sample, options.requests)
        result["target"] = {
            "visualize": 1.5,
            "create_to_first_point": 3,
            "metric_to_drawn_p99": 0.3,
            "classify_p50": 0.06,
            "one_epoch": 12,
        }
    print(json.dumps(result))


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    places = ["--jobs-dir", folder / "jobs", "--state-dir", folder / "state", "--log-file", folder / "log"]
    command = [sys.executable, "-m", "digits", "--port", "0", *map(str, places)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        found = next(match for line in process.stdout if (match := re.search(r"address\s+(\S+)/", line)))
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextmanager
def _page(address: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), headless=True, args=CHROMIUM_OPTIONS
        )
        yield browser.new_page(base_url=address)
        browser.close()


def _finished_dataset(address: str, sample: str) -> str:
    made = _get(address, f"/try/{sample}", b"")
    _get(address, f"/models/{made['model']['id']}/abort", b"")
    dataset = str(made["dataset"]["id"])
    _wait_for(lambda: _get(address, f"/datasets/{dataset}/status")["status"] == "Done")
    return dataset


def _visualize(page: Page, dataset: str) -> dict[str, float]:
    page.goto(f"/models/images/classification/new?dataset={dataset}")
    seconds = []
    for _ in range(VISUALIZE_RUNS):
        page.evaluate("document.getElementById('visualize-result').replaceChildren()")
        begun = time.perf_counter()
        page.locator("#visualize").click()
        page.locator("#visualize-result tbody tr").first.wait_for()
        seconds.append(time.perf_counter() - begun)
    return {"median": round(statistics.median(seconds), 3), "worst": round(max(seconds), 3)}


def _create(page: Page, dataset: str, epochs: int) -> tuple[str, float]:
    page.goto(f"/models/images/classification/new?dataset={dataset}")
    page.locator('[name="train_epochs"]').fill(str(epochs))
    page.locator('[name="batch_size"]').fill("64")
    begun = time.perf_counter()
    page.get_by_role("button", name=re.compile("Train model")).click()
    page.wait_for_url(re.compile(r"/models/\d{8}-"))
    page.evaluate(WATCH_DRAWING)
    page.locator('[data-chart="loss"]:not([data-points="0"])').wait_for()
    return page.url.rsplit("/", 1)[1], round(time.perf_counter() - begun, 3)


def _epoch(address: str, dataset: str) -> dict[str, float]:
    fields = {
        "model_name": "One epoch",
        "dataset": dataset,
        "method": "standard",
        "standard_networks": "lenet",
        "train_epochs": 1,
        "batch_size": 64,
        "solver_type": "MOMENTUM",
        "learning_rate": 0.01,
    }
    seconds = []
    for _ in range(EPOCH_RUNS):
        begun = time.perf_counter()
        model = _get(address, CREATE, urlencode(fields).encode())["id"]
        _wait_for(lambda model=model: _get(address, f"/models/{model}/status")["status"] == "Done")
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


def _classify(address: str, model: str, sample: str, requests: int) -> dict[str, float]:
    pictures = sorted((ROOT / "samples" / sample / "test").rglob("*.png"))[:: max(1, 10_000 // requests)]
    _upload(address, model, pictures[0])  # starts the inference worker
    seconds = []
    for number in range(requests):
        begun = time.perf_counter()
        _upload(address, model, pictures[number % len(pictures)])
        seconds.append(time.perf_counter() - begun)
    return _percentiles(seconds)


def _upload(address: str, model: str, picture: Path) -> Any:
    boundary = "digits-benchmark"
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="job_id"\r\n\r\n{model}\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="image_file"; filename="a.png"\r\n\r\n'
    )
    body = head.encode() + picture.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
    return _get(address, CLASSIFY, body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 4),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 4),
    }


def _wait_for(question: Any) -> None:
    while not question():
        time.sleep(0.2)


def _get(address: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(address + path, body, {"Accept": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
