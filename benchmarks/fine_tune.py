"""Compare Fine-tune with a linear probe: on 675 images of CIFAR-10 at 96×96 pixels, with the same ImageNet weights.

    python benchmarks/fine_tune.py [--network NAME] [--weights FOLDER] [--seeds N] [--epochs N] [--output FOLDER]

NAME is an entry of `digits.data.models.pretrained_catalog`, by default the network recommended for the CPU, and FOLDER
contains its weights, unless they can be downloaded. A seed determines the training images, the 1,000 test images, and
the random numbers of the training. The accuracy is that after the last epoch: the test images do not select the
snapshot.

The linear probe is a logistic regression (scikit-learn, which must be installed) on the means of the last feature
maps of the images enlarged to 128×128, standardized, with the C that is best in a five-fold cross-validation on the
training images.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from flask import Flask
from numpy.typing import NDArray
from product import cifar10, in_child

from digits.core import events
from digits.data.images import images
from digits.data.manifest import load
from digits.data.models.pretrained import WeightsPlaces, obtain
from digits.data.models.pretrained_catalog import CATALOG, Pretrained
from digits.kinds.advice.recommendation import Resources, facts_in, recommend
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.standard_networks import network
from digits.runtime.executors.local import devices_environment
from digits.web.models.network_settings import recommended_recipe

SIDE, TRAIN, TEST = 96, 675, 1000
PROBED_SIDE = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--network", choices=CATALOG, default="efficientnetlite")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="instead of the default of Fine-tune")
    parser.add_argument("--output", type=Path, help="keep the jobs in this folder")
    asked = parser.parse_args()
    os.environ.update(devices_environment(["cpu"]))
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.output or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        entry = CATALOG[asked.network]
        places = WeightsPlaces(folder / "weights", [str(asked.weights)] if asked.weights else [])
        weights = obtain(entry, places, lambda fraction, action: None).path
        cifar = cifar10(folder)
        seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
        found = [_compare(folder, entry, weights, cifar, seed, asked.epochs) for seed in seeds]
        tuned, probes = np.array(found).T
        print(f"mean of {len(found)} seeds: Fine-tune {tuned.mean():.4f}, linear probe {probes.mean():.4f}")


def _compare(
    folder: Path, entry: Pretrained, weights: Path, cifar: Any, seed: int, epochs: int | None
) -> tuple[float, float]:
    dataset = folder / f"dataset-{seed}"
    if not (dataset / "create").exists():
        _create_dataset(folder / f"images-{seed}", dataset, cifar, seed)
    began, spent = time.monotonic(), os.times()
    curve = _fine_tune(dataset, folder / f"model-{seed}", entry, weights, seed, epochs)
    now = os.times()
    cpu = now.children_user + now.children_system - spent.children_user - spent.children_system
    seconds = time.monotonic() - began
    probe = in_child(linear_probe, dataset, entry, weights).value
    print(
        f"seed {seed}: Fine-tune {curve[-1]:.3f} ({', '.join(f'{value:.3f}' for value in curve)}), linear probe "
        f"{probe:.3f}; {seconds:.0f} s elapsed, {cpu:.0f} s of CPU time",
        flush=True,
    )
    return curve[-1], probe


def _create_dataset(pictures: Path, dataset: Path, cifar: Any, seed: int) -> None:
    chance = np.random.default_rng(seed)
    for split, count in (("train", TRAIN), ("test", TEST)):
        labeled = cifar[split]
        for number in chance.permutation(len(labeled.labels))[:count]:
            path = pictures / split / str(labeled.labels[number]) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(images.encode(labeled.pixels[number], "png"))
    task = dataset / "create"
    task.mkdir(parents=True)
    CreateClassification(
        train=FolderSplit(folder=str(pictures / "train")),
        val=FolderSplit(folder=str(pictures / "test")),
        width=SIDE,
        height=SIDE,
    ).save(task)
    assert in_child(_run, task).value == 0


def _fine_tune(
    dataset: Path, job: Path, entry: Pretrained, weights: Path, seed: int, epochs: int | None
) -> list[float]:
    """Fine-tune with the defaults; return the accuracy on the test images after each epoch."""
    task = job / "train"
    if not task.exists():
        task.mkdir(parents=True)
        best = recommend(facts_in(load(dataset)), Resources(), entry.id, fine_tune=True)
        assert best
        (job / "network.py").write_text(network(best.network).text)
        with Flask("benchmark").app_context():  # for the form
            training = recommended_recipe(best, str(dataset), WeightsPlaces(job))
        training.weights = str(weights)
        training.seed = seed
        training.epochs = epochs or training.epochs
        training.save(task)
        assert in_child(_run, task).value == 0
    log, _ = events.read(task / "events.jsonl")
    return [
        item.values["accuracy"] for item in log if isinstance(item, events.Measured) and item.stage == "val"
    ]


def linear_probe(dataset: Path, entry: Pretrained, weights: Path) -> float:
    """Return the accuracy of a logistic regression on features of the test images."""
    import tensorflow as tf
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from digits.worker.input import feeds
    from digits.worker.network import applications

    whole = applications.build(entry, (224, 224, 3), include_top=True)
    whole.load_weights(weights)
    trunk = applications.build(entry, (PROBED_SIDE, PROBED_SIDE, 3), include_top=False, pooling="avg")
    for layer in trunk.layers:
        layer.set_weights(whole.get_layer(layer.name).get_weights() if layer.weights else [])

    @tf.function
    def features(pixels: tf.Tensor) -> tf.Tensor:
        large = tf.image.resize(tf.cast(pixels, tf.float32), [PROBED_SIDE, PROBED_SIDE])
        return trunk(applications.preprocess(entry, large), training=False)

    def split(name: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        records = feeds.Records(dataset, feeds.load_manifest(dataset), name)
        parts = []
        feed = records.feed(feeds.evaluation_order(len(records), 25))
        for _ in feeds.evaluation_sizes(len(records), 25):
            pixels, labels = feed.take(1).batch(0)
            parts.append((features(pixels).numpy(), labels.numpy()))
        feed.close()
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    search = GridSearchCV(probe, {"logisticregression__C": 10.0 ** np.arange(-5, 1)}, cv=5)
    search.fit(*split("train"))
    return float(search.score(*split("val")))


def _run(task: Path) -> int:
    from digits.worker import run

    return run.run_task(task)


if __name__ == "__main__":
    main()
