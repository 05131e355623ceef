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
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from product import ROOT, Product, mnist, product

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
        images = mnist(options.folder, Path(name))
        with product(Path(name), "--data-root", images) as server:
            dataset, model = server.digits_and_lenet(images, options.images)
            alone, whole = [], []
            for _ in range(options.turns):
                count, seconds = predict_alone(server.jobs / model, server.jobs / dataset)
                alone.append(seconds)
                whole.append(evaluate(server, model))
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


def evaluate(server: Product, model: str) -> float:
    """Return the seconds from the request for an evaluation to the end of its page."""
    began = time.monotonic()
    server.evaluate(model, "train")
    server.seconds(f"/models/{model}/evaluation")
    return time.monotonic() - began


if __name__ == "__main__":
    main()
