"""Measure predictions of a dataset, the evaluation of a model and the page that compares two models.

    .venv/bin/python benchmarks/evaluation.py [FOLDER] [--images 10000] [--turns 5]

FOLDER is a sample laid out by ``digits download-data mnist FOLDER``; without it, MNIST is downloaded to a temporary
folder first. Starts a server, creates a dataset of its first test images, and trains LeNet with two learning rates for
an epoch each. Measures in turns, and prints one line of JSON:

- ``predictions``: a process predicts the records from their files, as an evaluation does, and uint8 arrays with
  ``keras.Model.predict`` and a Keras model of the same layers and weights, both in batches of 256. The first turn is
  not counted. The ratio of the rates is the result; the predictions must be equal.
- ``evaluation``: the server evaluates a model, up to the last byte of the page with the confusion matrix and the worst
  predictions, and a process that only loads the model predicts the same records, without the time to import
  TensorFlow: the server's tasks are forks of a process that has loaded it. The ratio of the times is the result.
- ``comparison``: the page that compares both models over HTTP to its last byte, and in a browser from the address to
  the end of all loading, with the curves drawn and the images in view shown.
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
from typing import Any

from product import ROOT, Product, chromium, mnist, product

BATCH = 256
TARGETS = {"predictions_ratio": 0.9, "evaluation_ratio": 1.3, "comparison_seconds": 2.0}
COMPARE = """
import json, statistics, sys, time
from pathlib import Path
import keras
import numpy as np
import tensorflow as tf
from digits.worker.training.models import trained
from digits.worker.training.models.batch_prediction import BatchPredictor
from digits.worker.input import feeds

model, dataset, turns, size = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
found = trained.load(model, "snapshot_1.ckpt", dataset)
values = tf.train.load_checkpoint(str(model / "snapshot_1.ckpt"))
predictor = BatchPredictor(found, found.manifest)

def by_records():
    records = feeds.Records(dataset, found.manifest, "train", budget_bytes=0)
    return np.concatenate([batch.predicted for batch in predictor.predict(records)])

layers = keras.layers
mean = np.load(dataset / "mean.npy").astype(np.float32)
net = keras.Sequential([
    keras.Input(found.manifest.shape),
    layers.Lambda(lambda x: tf.cast(x, tf.float32) - mean),
    layers.Rescaling(0.0125),
    layers.Conv2D(20, 5, activation="relu", name="conv1"), layers.MaxPooling2D(2),
    layers.Conv2D(50, 5, activation="relu", name="conv2"), layers.MaxPooling2D(2),
    layers.Flatten(), layers.Dense(500, activation="relu", name="fc1"),
    layers.Dense(found.manifest.target.outputs, activation="softmax", name="fc2"),
])
for name in ("conv1", "conv2", "fc1", "fc2"):
    net.get_layer(name).set_weights([values.get_tensor(f"model/{name}/{part}") for part in ("weights", "biases")])
records = feeds.Records(dataset, found.manifest, "train", budget_bytes=0)
feed = records.stream(iter([np.arange(len(records))]))
pixels = np.asarray(feed.take(1)[0])
feed.close()

seconds = {"records": [], "arrays": []}
for turn in range(turns + 1):
    for name, predict in (("records", by_records), ("arrays", lambda: net.predict(pixels, size, verbose=0))):
        began = time.perf_counter()
        answer = predict()
        if turn:
            seconds[name].append(time.perf_counter() - began)
        seconds[f"{name} answer"] = answer
difference = float(np.abs(seconds.pop("records answer") - seconds.pop("arrays answer")).max())
rates = {name: len(pixels) / statistics.median(spent) for name, spent in seconds.items()}
print(json.dumps({
    "images": len(pixels),
    "records_per_second": round(rates["records"]),
    "keras_predict_per_second": round(rates["arrays"]),
    "ratio": round(rates["records"] / rates["arrays"], 2),
    "greatest_difference": difference,
}))
"""
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
for batch in BatchPredictor(found, found.manifest).predict(records):
    pass
print(time.monotonic() - began)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        images = mnist(options.folder, Path(name))
        with product(Path(name), "--data-root", images) as server:
            settings = {"solver_type": "ADAM", "use_mean": "image"}
            dataset, first = server.digits_and_lenet(images, options.images, **settings, learning_rate=0.001)
            second = server.model_of(dataset, **settings, learning_rate=0.0005)
            places = server.jobs / first, server.jobs / dataset
            result = {
                "predictions": json.loads(run(COMPARE, *places, options.turns, BATCH)),
                "evaluation": evaluations(server, first, *places, options.turns),
            }
            server.evaluate(second, "train")
            result["comparison"] = comparison(server, [first, second], options.turns)
    print(json.dumps(result | {"targets": TARGETS}))


def run(program: str, *arguments: object) -> str:
    """Return the last line that ``program`` prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return output.splitlines()[-1]


def evaluations(server: Product, model: str, folder: Path, dataset: Path, turns: int) -> dict[str, Any]:
    alone, whole = [], []
    for _ in range(turns):
        alone.append(float(run(ALONE, folder, dataset)))
        began = time.monotonic()
        server.evaluate(model, "train")
        server.seconds(f"/models/{model}/evaluation")
        whole.append(time.monotonic() - began)
    return {
        "alone_seconds": [round(value, 2) for value in alone],
        "evaluation_seconds": [round(value, 2) for value in whole],
        "ratio": round(statistics.median(whole) / statistics.median(alone), 2),
    }


def comparison(server: Product, models: list[str], turns: int) -> dict[str, Any]:
    """Return the seconds of each visit; in the browser, the first one has an empty cache."""
    path = f"/models/compare?ids={','.join(models)}"
    over_http = [server.seconds(path) for _ in range(turns)]
    in_browser = []
    with chromium(server.address) as page:
        for _ in range(turns):
            began = time.monotonic()
            page.goto(path, wait_until="load")
            page.locator("#chart-loss canvas").wait_for()
            in_browser.append(time.monotonic() - began)
            page.goto("about:blank")
    return {
        "http_seconds": [round(value, 3) for value in over_http],
        "browser_seconds": [round(value, 2) for value in in_browser],
    }


if __name__ == "__main__":
    main()
