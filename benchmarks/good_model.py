"""Train as recommended on a few photos of CIFAR-10: the time, and the accuracy on 1,000 other ones.

    python benchmarks/good_model.py [--images N] [--classes N] [--side SIDE] [--weights FOLDER] [--seeds N]
        [--set FIELD=VALUE …] [--keras]

A fifth of the images validates. A seed determines the images and the random numbers of the training. FOLDER contains
ImageNet weights, unless they can be downloaded; without them on this machine, the first network is recommended as on a
new server. ``--set`` changes fields of the form of models after the recommendation.

With ``--keras``, Keras' fit trains the same network for as many epochs in both phases, with the layers that are not
trained frozen, flips, validations and snapshots, from random weights: its time is compared, not its accuracy.

Prints the accuracy on the test images of the snapshot that is best in the validation, and of the last one, and the CPU
time divided by two: what two cores would take that do nothing else.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from flask import Flask
from PIL import Image
from product import cifar10, in_child

from digits.core import events, recipe
from digits.data.images import images
from digits.data.manifest import load
from digits.data.models.pretrained import WeightsPlaces, obtain
from digits.data.models.pretrained_catalog import CATALOG
from digits.kinds.advice.recommendation import Resources, facts_in, recommend
from digits.kinds.advice.training_time import core_speed
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.standard_networks import network
from digits.runtime.executors.local import devices_environment
from digits.web.models.network_settings import recommended_recipe

TEST, CORES = 1000, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--keras", action="store_true")
    asked = parser.parse_args()
    os.environ.update(devices_environment(["cpu"]))
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            print(f"seed {seed}: {_measure(Path(scratch), asked, seed)}", flush=True)


def _measure(folder: Path, asked: Any, seed: int) -> str:
    dataset, job = folder / f"dataset-{seed}", folder / f"model-{seed}"
    _create_dataset(folder, dataset, asked, seed)
    available = {name: "unknown" for name, item in CATALOG.items() if item.packages}
    resources = Resources(cores=CORES, speed=core_speed(), weights=available)  # type: ignore[arg-type]
    best = recommend(facts_in(load(dataset)), resources)
    assert best
    best = replace(best, settings=best.settings | dict(item.split("=", 1) for item in asked.set))
    entry = CATALOG[network(best.network).pretrained]
    places = WeightsPlaces(folder / "weights", [str(asked.weights)] if asked.weights else [])
    with Flask("benchmark").app_context():  # for the form
        training = recommended_recipe(best, str(dataset), WeightsPlaces(job))
    training.weights, training.seed = str(obtain(entry, places, lambda fraction, action: None).path), seed
    task = job / training.task
    task.mkdir(parents=True)
    (job / training.network).write_text(network(best.network).text)
    training.save(task)
    began = time.monotonic()
    spent = in_child(_run, task)
    assert spent.value == 0
    elapsed = time.monotonic() - began
    log, _ = events.read(task / "events.jsonl")
    curve = [
        (item.values["accuracy"], item.epoch)
        for item in log
        if isinstance(item, events.Measured) and item.stage == "val"
    ]
    saved = [item for item in log if isinstance(item, events.Saved) and (job / f"{item.path}.index").exists()]
    tested = {item.epoch: _accuracy(folder, job, dataset, item) for item in saved}
    first = max(tested, key=lambda epoch: {b: a for a, b in curve}.get(epoch, 0.0))
    compared = ""
    if asked.keras:
        began, epochs = time.monotonic(), (int(best.settings["head_epochs"]), round(curve[-1][1]))
        theirs = in_child(_keras_fit, folder / f"images-{seed}", asked.classes, epochs)
        ratios = f"{elapsed / (time.monotonic() - began):.2f}"
        ratios += f", {spent.processor_seconds / theirs.processor_seconds:.2f} by CPU time"
        compared = f"; time relative to Keras {ratios}"
    return (
        f"{best.network}, head {best.settings['head_epochs']} of {best.settings['train_epochs']} epochs, ended after "
        f"{curve[-1][1]:g}: test accuracy {tested[first]:.3f} (epoch {first:g}), {tested[max(tested)]:.3f} (last); "
        f"{spent.processor_seconds / CORES:.0f} s of CPU time per core, {elapsed:.0f} s elapsed, expected "
        f"{best.seconds:.0f} s; load {os.getloadavg()[0]:.0f}{compared}"
    )


def _keras_fit(folder: Path, classes: int, epochs: tuple[int, int]) -> float:
    """Train on the images in ``folder``: the head for the first ``epochs``, then all layers up to the second number."""
    import keras
    import tensorflow as tf

    from digits.worker.network.efficientnet_lite import EfficientNetLite0

    def flip(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.image.random_flip_left_right(image), label

    def batches(split: str) -> tf.data.Dataset:
        found = sorted((folder / split).glob("*/*.png"))
        pixels = np.stack([np.asarray(Image.open(path)) for path in found])
        data = tf.data.Dataset.from_tensor_slices((pixels, [int(path.parent.name) for path in found]))
        if split == "train":
            data = data.cache().shuffle(len(found)).map(flip, tf.data.AUTOTUNE)
        return data.batch(16).prefetch(tf.data.AUTOTUNE)

    train, val = batches("train"), batches("val")
    shape = train.element_spec[0].shape[1:]
    inputs = keras.Input(shape)
    side = max(128, shape[0])
    enlarged = keras.layers.Resizing(side, side)(inputs)
    net = EfficientNetLite0(input_shape=(side, side, 3), classes=classes, classifier_activation=None)
    # In inference mode, as the guide to fine-tuning recommends: with the moving averages of batch normalization.
    model = keras.Model(inputs, net(enlarged, training=False))
    saves = keras.callbacks.ModelCheckpoint(str(folder / "best.weights.h5"), save_weights_only=True)
    for first, last, rate in ((0, epochs[0], 0.003), (*epochs, 0.0005)):
        for layer in net.layers[:-1]:
            layer.trainable = first > 0
        decay = keras.optimizers.schedules.CosineDecay(rate, (last - first) * len(train))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(decay), loss, metrics=["accuracy"])
        model.fit(
            train, validation_data=val, epochs=last - first, shuffle=False, verbose=0, callbacks=[saves]
        )
    return 0.0


def _create_dataset(folder: Path, dataset: Path, asked: Any, seed: int) -> None:
    chance, cifar = np.random.default_rng(seed), cifar10(folder)
    counts = {"train": asked.images * 4 // 5, "val": asked.images // 5, "test": TEST}
    places = {split: iter(chance.permutation(len(cifar[split].labels))) for split in ("train", "test")}
    for split, count in counts.items():
        labeled, left = cifar["test" if split == "test" else "train"], count
        for number in places["test" if split == "test" else "train"]:
            if labeled.labels[number] < asked.classes:
                path = folder / f"images-{seed}" / split / str(labeled.labels[number]) / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(images.encode(labeled.pixels[number], "png"))
                left -= 1
            if not left:
                break
    task = dataset / "create"
    task.mkdir(parents=True)
    splits = {split: FolderSplit(folder=str(folder / f"images-{seed}" / split)) for split in counts}
    CreateClassification(**splits, width=asked.side, height=asked.side).save(task)
    assert in_child(_run, task).value == 0


def _accuracy(folder: Path, job: Path, dataset: Path, saved: events.Saved) -> float:
    task = folder / f"{job.name}-{saved.path}" / "evaluate"
    task.mkdir(parents=True)
    places = {"model": str(job), "dataset": str(dataset), "trained_on": str(dataset)}
    recipe.Evaluate(**places, snapshot=saved.path, epoch=saved.epoch, split="test", name="test").save(task)
    assert in_child(_run, task).value == 0
    log, _ = events.read(task / "events.jsonl")
    (result,) = [item.result for item in log if isinstance(item, events.Finished)]
    return float(result["metrics"]["accuracy"])


def _run(task: Path) -> int:
    from digits.worker import run

    return run.run_task(task)


if __name__ == "__main__":
    main()
