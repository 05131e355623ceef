"""Measure the evaluation of a model, compared with predicting the same images alone.

    .venv/bin/python benchmarks/evaluation.py [FOLDER] [--images 10000] [--turns 3]

FOLDER is a sample laid out by ``digits download-data mnist FOLDER``; without it, MNIST is downloaded to a temporary
folder first. Starts a server, creates a dataset of its first test images, trains LeNet for an epoch, and then in turn
evaluates the model over HTTP, up to the last byte of the page with the confusion matrix and the worst predictions, and
predicts the same records in a process that only loads the model and runs it, without the time to import TensorFlow: the
server's tasks are forks of a process that has loaded it. Prints one line of JSON; the ratio is the result.
"""

from __future__ import annotations

import argparse
import json
import re
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

ROOT = Path(__file__).resolve().parent.parent
TARGET = 1.3
# Prints the time to load the model and to predict all records, without that of importing TensorFlow.
ALONE = """
import sys, time
from pathlib import Path
from digits.worker.training.models import trained
from digits.worker.training.models.batch_prediction import BatchPredictor
from digits.worker.input import feeds
model, dataset = map(Path, sys.argv[1:])
began = time.monotonic()
found = trained.load(model, "snapshot_1.ckpt", dataset)
records = feeds.Records(dataset, found.manifest, "train", budget_bytes=0)
count = sum(len(batch.places) for batch in BatchPredictor(found, found.manifest).predict(records))
print(count, time.monotonic() - began)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        mnist = options.folder or scratch / "mnist"
        if options.folder is None:
            subprocess.run([sys.executable, "-m", "digits", "download-data", "mnist", mnist], check=True)
        with serve(scratch, mnist.resolve()) as address:
            size = {"resize_width": 28, "resize_height": 28, "resize_channels": 1}
            per_class = {"folder_train_max_per_class": options.images // 10 + 1000, "folder_pct_val": 0}
            source = {"method": "folder", "folder_train": mnist.resolve() / "test"}
            dataset = create(
                address, "datasets/images/classification", dataset_name="Test", **source, **size, **per_class
            )
            model = create(
                address,
                "models/images/classification",
                model_name="LeNet",
                dataset=dataset,
                method="standard",
                standard_networks="lenet",
                train_epochs=1,
                batch_size=64,
            )
            jobs = scratch / "jobs"
            alone, whole = [], []
            for _ in range(options.turns):
                count, seconds = predict_alone(jobs / model, jobs / dataset)
                alone.append(seconds)
                whole.append(evaluate(address, model))
    result = {
        "images": count,
        "alone_seconds": [round(value, 2) for value in alone],
        "evaluation_seconds": [round(value, 2) for value in whole],
        "ratio": round(statistics.median(whole) / statistics.median(alone), 2),
        "target_ratio": TARGET,
    }
    print(json.dumps(result))


def predict_alone(model: Path, dataset: Path) -> tuple[int, float]:
    """Return the number of records, and the seconds to load the model and predict them."""
    command = [sys.executable, "-c", ALONE, model, dataset]
    found = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    count, seconds = found.stdout.split()[-2:]
    return int(count), float(seconds)


def evaluate(address: str, model: str) -> float:
    """Return the seconds from the request for an evaluation to the end of its page."""
    began = time.monotonic()
    request(f"{address}/models/{model}/evaluation", {"split": "train"})
    while (body := request(f"{address}/models/{model}/evaluation.json"))["state"] == "running":
        time.sleep(0.02)
    if body["state"] != "done":
        sys.exit(f"The evaluation failed: {body['error']}")
    with urllib.request.urlopen(f"{address}/models/{model}/evaluation", timeout=60) as answer:
        answer.read()
    return time.monotonic() - began


def create(address: str, path: str, **fields: Any) -> str:
    job = str(request(f"{address}/{path}.json", fields)["id"])
    kind = path.partition("/")[0]
    while (status := request(f"{address}/{kind}/{job}/status")["status"]) not in ("Done", "Error"):
        time.sleep(0.2)
    if status != "Done":
        sys.exit(f"{kind} {job} failed")
    return job


def request(url: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    body = None if fields is None else urlencode(fields).encode()
    asked = urllib.request.Request(url, body, {"Accept": "application/json"})
    with urllib.request.urlopen(asked, timeout=300) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@contextmanager
def serve(folder: Path, data: Path) -> Iterator[str]:
    """Run a server with its files in ``folder``, and yield its address."""
    places = {"--jobs-dir": "jobs", "--state-dir": "state", "--log-file": "log"}
    options = [part for name, file in places.items() for part in (name, str(folder / file))]
    command = [sys.executable, "-m", "digits", "--port", "0", "--data-root", str(data), "--no-evaluations"]
    process = subprocess.Popen([*command, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        found = next(match for line in process.stdout if (match := re.search(r"address\s+(\S+)/", line)))
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


if __name__ == "__main__":
    main()
