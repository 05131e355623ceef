"""Measure the prediction of the records of a dataset, compared with Keras' ``predict`` on arrays in memory.

    .venv/bin/python benchmarks/predict_records.py [FOLDER] [--images 10000] [--turns 5]

FOLDER is a sample laid out by ``digits download-data mnist FOLDER``; without it, MNIST is downloaded to a temporary
folder first. Starts a server, creates a dataset of its first test images and trains LeNet for an epoch. Then one
process loads that model, and a Keras model of the same layers with the same weights, and predicts all images with each
of them in turn, in batches of 256: the records from their files, as an evaluation does, and uint8 arrays with
``keras.Model.predict``. The first turn of each is not counted. Prints one line of JSON; the ratio of the rates is the
result. The predictions must be equal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from product import ROOT, mnist, product

BATCH = 256
TARGET = 0.9
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        images = mnist(options.folder, Path(name))
        with product(Path(name), "--data-root", images) as server:
            dataset, model = server.digits_and_lenet(images, options.images, use_mean="image")
        places = [server.jobs / model, server.jobs / dataset]
        command = [sys.executable, "-c", COMPARE, *map(str, places), str(options.turns), str(BATCH)]
        answer = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(json.dumps(json.loads(answer.splitlines()[-1]) | {"target_ratio": TARGET}))


if __name__ == "__main__":
    main()
