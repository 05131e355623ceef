"""Measure what training costs on the CPU: the table `COSTS` in digits/kinds/advice/training_time.py.

    python benchmarks/training_time.py [NETWORK ...] [--side SIDE] [--check KIND NETWORK SIDE IMAGES]

Each network is trained on random images for some epochs of two steps; those with ImageNet weights in both phases of
Fine-tune. Prints the lines of the table: seconds of one core for the start, and nanoseconds of one core per pixel of an
image to train all layers, to validate, and to train the head on features. Steps that also build a function belong to
the start. The CPU time, unlike the elapsed time, depends little on what else the machine does.

``--side`` is that of the images, by default that of `CASES`. The cost of the ``original`` pixels of a network that
halves images, and that of a ``step``, are right if the costs are the same for images of different sizes.

With ``--check``, train with the recommended settings and compare the expected time with the CPU time per core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from flask import Flask
from msgspec import structs
from numpy.typing import NDArray
from PIL import Image
from product import ROOT, in_child

from digits.core.recipe import FineTune, Train
from digits.data.models.pretrained import WeightsPlaces
from digits.data.models.pretrained_catalog import CATALOG
from digits.data.parallel import available_cores
from digits.kinds.advice.recommendation import Resources, WeightsState, facts_in, recommend
from digits.kinds.advice.training_time import COSTS, Cost, core_speed
from digits.kinds.standard_networks import network
from digits.runtime.executors.local import devices_environment
from digits.web.models.network_settings import recommended_recipe

sys.path.insert(0, str(ROOT))
from tests.kinds.dataset_forms import Forms

# The kind, the side of the images and the batch size with which each network is measured.
CASES = {
    "lenet": ("image-classification", 28, 64),
    "alexnet": ("image-classification", 128, 32),
    "googlenet": ("image-classification", 128, 16),
    "vgg16": ("image-classification", 96, 8),
    "resnet32": ("image-classification", 32, 64),
    "resnet50": ("image-classification", 128, 16),
    "efficientnetlite": ("image-classification", 128, 16),
    "mobilenetv3": ("image-classification", 128, 16),
    "efficientnetv2": ("image-classification", 128, 16),
    "convnext": ("image-classification", 128, 8),
    "autoencoder": ("image-classification", 28, 64),
    "gan": ("image-classification", 28, 64),
    "regression": ("image-regression", 64, 16),
    "multilabel": ("image-multilabel", 64, 16),
    "unet": ("image-segmentation", 128, 8),
    "segmenter": ("image-segmentation", 128, 8),
    "segmenter_resnet50": ("image-segmentation", 128, 8),
    "dncnn": ("image-processing", 64, 16),
    "fpn": ("image-object-detection", 128, 4),
    "detector": ("image-object-detection", 128, 16),
    "siamese": ("image-pairs", 28, 64),
}
EPOCHS = 4  # of each phase
BUILT = 2  # calls of each function that are not representative
KITTI = "Car 0 0 0 5 5 40 40 0 0 0 0 0 0 0\nCar 0 0 0 50 50 90 90 0 0 0 0 0 0 0\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(CASES))
    parser.add_argument("--side", type=int)
    parser.add_argument("--check", nargs=4, metavar=("KIND", "NETWORK", "SIDE", "IMAGES"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if asked.check:
            kind, name, side, images = asked.check
            _check(Path(scratch), kind, name, int(side), int(images))
            return
        speed = core_speed()
        print(f"speed of a core: {speed:.0f}", flush=True)
        for name in asked.networks:
            print(_measure(Path(scratch) / name, name, asked.side), flush=True)


def _measure(folder: Path, name: str, other_side: int | None) -> str:
    kind, side, size = CASES[name]
    side = other_side or side
    dataset = _dataset(folder, kind, side, 2 * size)
    is_tuned = bool(network(name).pretrained)
    recipe, _ = _recipe(folder, dataset, name, is_tuned)
    recipe.batch_size, recipe.epochs = size, (1 + is_tuned) * EPOCHS
    recipe.fine_tune = FineTune(head_epochs=EPOCHS) if is_tuned else None
    recipe.val_interval, recipe.snapshot_interval, recipe.early_stopping = 1, 0, None
    recipe.solver = structs.replace(recipe.solver, learning_rate=1e-6)  # the loss remains finite
    total = _run(folder / "model", recipe, name)
    spent = json.loads((folder / "model" / "spent.json").read_text())
    # Per image; the validation split has as many images as a step.
    each = {what: statistics.median(seconds[BUILT:]) for what, seconds in spent.items()}
    start = total - sum(len(seconds) * each[what] for what, seconds in spent.items())
    cost = COSTS.get(name, Cost(0, 0, 0))
    of_step = {"train": cost.step, "evaluate": cost.step / 2, "head": 0.0}
    train, evaluate, head = (
        max(0.0, each.get(what, 0) - seconds) / size / cost.pixels(side, side) * 1e9
        for what, seconds in of_step.items()
    )
    return f'    "{name}": Cost({start:.0f}, {train:.0f}, {evaluate:.0f}, {head:.0f}),'


def _dataset(folder: Path, kind: str, side: int, train: int) -> Path:
    """Create a dataset with ``train`` training images, and half as many validation images; return its folder."""
    folder.mkdir(parents=True)
    forms, chance = Forms(kind, folder / "data"), np.random.default_rng(0)
    images, targets, table = (forms.data / name for name in ("images", "targets", "table.csv"))
    targets.mkdir()
    has_classes = kind in ("image-classification", "image-pairs")
    rows = ["file,value"]
    for number in range(train * 3 // 2):
        name = f"{number % 2}/{number}.png" if has_classes else f"{number}.png"
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        _picture(chance.integers(0, 256, (8, 8, 3), np.uint8), side).save(images / name)
        value = "a b" if number % 2 else "a"
        rows.append(f"images/{name},{value if kind == 'image-multilabel' else number}")
        if kind == "image-segmentation":
            _picture(chance.integers(0, 2, (8, 8), np.uint8), side).save(targets / name)
        if kind == "image-object-detection":
            (targets / f"{number}.txt").write_text(KITTI)
    table.write_text("\n".join(rows))
    sources: dict[str, dict[str, Any]] = {
        "image-classification": {"method": "folder", "folder_train": images},
        "image-pairs": {"pair_source": images},
        "image-regression": {"table_train": table},
        "image-multilabel": {"table_train": table},
        "image-segmentation": {"feature_folder": images, "label_folder": targets},
        "image-processing": {"feature_folder": images, "label_folder": images},
        "image-object-detection": {"train_image_folder": images, "train_label_folder": targets},
    }
    size = {"resize_width": side, "resize_height": side}
    return forms.create(**sources[kind], **size, pct_val=33, folder_pct_val=33).folder


def _picture(pixels: NDArray[np.uint8], side: int) -> Image.Image:
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST)


def _recipe(folder: Path, dataset: Path, name: str, is_tuned: bool | None) -> tuple[Train, Any]:
    """Return the recommended recipe, if possible with random weights in place of ImageNet's, and the recommendation."""
    from digits.data.manifest import load

    entry = network(name).pretrained
    states: dict[str, WeightsState] = {entry: "at hand"} if entry else {}
    resources = Resources(cores=available_cores(), weights=states, speed=core_speed())
    best = recommend(facts_in(load(dataset)), resources, name, is_tuned)
    assert best
    with Flask("benchmark").app_context():  # for the form
        recipe = recommended_recipe(best, str(dataset), WeightsPlaces(folder))
    if recipe.weights and CATALOG[entry].package == "keras":
        recipe.weights = str(folder / f"{entry}.weights.h5")
        made = f"keras.applications.{CATALOG[entry].application}(weights=None)"
        code = f"import keras; {made}.save_weights({recipe.weights!r})"
        environment = os.environ | devices_environment(["cpu"])
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return recipe, best


def _run(folder: Path, recipe: Train, name: str) -> float:
    """Train in a fork; return its CPU time in seconds. ``spent.json`` lists that of the steps and validations."""
    task = folder / recipe.task
    task.mkdir(parents=True)
    (folder / recipe.network).write_text(network(name).text)
    recipe.save(task)
    return in_child(_train, task).processor_seconds


def _train(task: Path) -> float:
    from digits.worker import run
    from digits.worker.training.loop.trainer import Trainer

    os.environ.update(devices_environment(["cpu"]))
    spent: dict[str, list[float]] = {}
    take_steps, validate = Trainer._take_steps, Trainer.validate

    def timed_steps(trainer: Any, count: int) -> Any:
        what = "head" if trainer.step < trainer._steps.head_steps else "train"
        began = time.process_time()
        metrics = take_steps(trainer, count)
        seconds = time.process_time() - began
        spent.setdefault(what, []).extend([seconds / count] * count)
        return metrics

    def timed_validation(trainer: Any, epoch: float) -> None:
        began = time.process_time()
        validate(trainer, epoch)
        spent.setdefault("evaluate", []).append(time.process_time() - began)

    Trainer._take_steps, Trainer.validate = timed_steps, timed_validation  # type: ignore[assignment,method-assign]
    code = run.run_task(task)
    (task.parent / "spent.json").write_text(json.dumps(spent))
    return code


def _check(folder: Path, kind: str, name: str, side: int, images: int) -> None:
    dataset = _dataset(folder / "check", kind, side, images)
    recipe, best = _recipe(folder, dataset, name, None)
    recipe.early_stopping = None  # random images do not improve
    spent = _run(folder / "model", recipe, name) / available_cores()
    expected = best.seconds
    print(
        f"{kind}, {name}, {images} images of {side}×{side}: expected {expected:.0f} s, took {spent:.0f} s of CPU time "
        f"per core, ratio {expected / spent:.2f}"
    )


if __name__ == "__main__":
    main()
