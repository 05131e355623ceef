"""How fast LeNet trains on MNIST, next to Keras' own fit; and how accurate it becomes.

    python benchmarks/training.py [--dataset JOB_FOLDER] [--epochs N] [--turns N]
    python benchmarks/training.py --accuracy [--dataset JOB_FOLDER]

JOB_FOLDER is the folder of a finished dataset job; without it MNIST is downloaded and
created in a temporary folder. The product's side is the whole way from the shards to
metrics, validation, TensorBoard files and snapshots. Keras' side is the same network
written with Keras layers, on arrays that lie in memory decoded and scaled, with
validation. Both train in turns in the same run, each in a process of its own, from
the first step on to the end; the ratio is what counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # forking wants a process with one thread
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from digits import download, events
from digits.dataset import manifest
from digits.dataset.records import SplitReader
from digits.recipe import CreateDataset, Train
from digits.worker import run

BATCH_SIZE = 64
NETWORK = Path(__file__).resolve().parents[1] / "digits" / "networks" / "lenet.py"
TARGET_RATIO = 1.2
TARGET_ACCURACY = 0.99


def main() -> None:
    arguments = _arguments()
    run.import_programs()
    with tempfile.TemporaryDirectory() as scratch:
        dataset = Path(arguments.dataset) if arguments.dataset else create_dataset(Path(scratch))
        if arguments.accuracy:
            accuracy(dataset, Path(scratch))
        else:
            speed(dataset, Path(scratch), arguments.epochs, arguments.turns)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", help="folder of a finished dataset job")
    parser.add_argument("--accuracy", action="store_true", help="train five epochs and show the accuracy")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    return parser.parse_args()


def create_dataset(scratch: Path) -> Path:
    """MNIST as the product creates it: 60,000 records to train with, 10,000 to validate with."""
    folder = download.download("mnist", scratch / "mnist", lambda fraction, doing: None)
    task = scratch / "dataset" / "create"
    task.mkdir(parents=True)
    CreateDataset(
        train={"folder": str(folder / "train")},
        val={"folder": str(folder / "test")},
        width=28,
        height=28,
        channels=1,
    ).save(task)
    assert run.run_task(task) == 0
    return task.parent


def speed(dataset: Path, scratch: Path, epochs: int, turns: int) -> None:
    ratios = []
    for turn in range(turns):
        ours, our_seconds = in_child(product, dataset, scratch / f"speed-{turn}", epochs)
        theirs, their_seconds = in_child(keras_fit, dataset, epochs)
        ratios.append(ours / theirs)
        print(
            f"product {ours:7,.0f} images/s, {our_seconds:5.1f} s of processor   "
            f"keras fit {theirs:7,.0f} images/s, {their_seconds:5.1f} s   "
            f"ratio {ratios[-1]:.2f}   load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    print(f"median ratio {statistics.median(ratios):.2f} (target {TARGET_RATIO})")


def accuracy(dataset: Path, scratch: Path) -> None:
    began = time.monotonic()
    job = scratch / "accuracy"
    in_child(product, dataset, job, 5)
    rows = [event for event in events.read(job / "train" / "events.jsonl")[0] if event.kind == "measured"]
    for row in rows:
        if row.stage == "val":
            print(f"epoch {row.epoch:g}: validation accuracy {row.values['accuracy']:.2%}")
    print(f"target {TARGET_ACCURACY:.0%}; {time.monotonic() - began:.1f} seconds in all")


def product(dataset: Path, job: Path, epochs: int) -> float:
    """Trains as a job does; images a second from the first step to the last validation and snapshot."""
    task = job / "train"
    task.mkdir(parents=True)
    (job / "network.py").write_text(NETWORK.read_text())
    Train(
        dataset=str(dataset),
        epochs=epochs,
        batch_size=BATCH_SIZE,
        seed=1,
        solver={"type": "MOMENTUM", "learning_rate": 0.01, "momentum": 0.9},
        lr_policy={"policy": "step", "size": 33, "gamma": 0.1},
    ).save(task)
    log = os.open(task / "output.log", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    assert run.run_task(task) == 0
    happened = events.read(task / "events.jsonl")[0]
    steps = [event for event in happened if event.kind == "measured" and event.stage == "train"]
    images = (steps[-1].step - steps[0].step) * BATCH_SIZE
    return images / (happened[-1].at - steps[0].at)


def keras_fit(dataset: Path, epochs: int) -> float:
    """The same network, as one writes it with Keras; images a second from the first batch to the end."""
    import keras

    train, val = (_arrays(dataset, split) for split in ("train", "val"))
    l2 = keras.regularizers.L2(0.00025)  # slim's is half as strong for the same number
    model = keras.Sequential(
        [
            keras.layers.Conv2D(20, 5, activation="relu", kernel_regularizer=l2),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(50, 5, activation="relu", kernel_regularizer=l2),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(500, activation="relu", kernel_regularizer=l2),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(10, kernel_regularizer=l2),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.01, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    first: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if not first:
                first.append(time.time())

    model.fit(*train, BATCH_SIZE, epochs, validation_data=val, verbose=0, callbacks=[Clock()])
    return (epochs * len(train[0]) - BATCH_SIZE) / (time.time() - first[0])


def _arrays(dataset: Path, split: str) -> tuple[Any, Any]:
    import numpy as np

    found = manifest.load(dataset)
    with SplitReader(dataset, found.splits[split]) as reader:
        images = np.stack([reader.read(number).as_array() for number in range(len(reader))])
        return (images.astype(np.float32) - np.load(dataset / "mean.npy")) * 0.0125, reader.labels


def in_child(function: Callable[..., Any], *arguments: Any) -> tuple[float, float]:
    """The number that ``function`` returns, from a process of its own, and that one's processor seconds."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, repr(function(*arguments)).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    _, _, used = os.wait4(pid, 0)
    return float(text), used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
