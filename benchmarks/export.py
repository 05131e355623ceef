"""Train five standard networks briefly, and export each in all formats.

    .venv/bin/python benchmarks/export.py [--networks lenet unet] [--formats litert onnx] [--folder FOLDER]

Prints a row for each export: the greatest difference to the network in TensorFlow, relative to the largest output, on
50 validation images; the fraction of equal predictions; the time per image; and the size. The networks have their
default input size, except MobileNetV3, which learns too slowly at 224×224 on a CPU: until its predictions
vary between images, the fraction of equal predictions means nothing. The images are real: handwritten digits of
scikit-learn (LeNet), CIFAR-10 (ResNet-32, MobileNetV3), and the photos of scikit-learn, cut at random (U-Net: bright
pixels are the second class; detector: digits on photos).
Exports in ``--folder`` are not made again.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from product import cifar10

from digits.core import events
from digits.core.files import read_json
from digits.core.recipe import CreateDataset, Export, Solver, Train
from digits.data.models.export import FORMATS, ModelExport
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.detection.recipe import CreateDetection
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageFolders
from digits.kinds.standard_networks import network

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Case:
    """A network, the number of its training images, and the settings of the dataset and the training."""

    network: str
    title: str
    images: int
    side: int
    batch: int
    epochs: float
    channels: int = 3
    mean: str = "pixel"


CASES = (
    Case("lenet", "LeNet", 1200, 28, 32, 3, channels=1, mean="image"),
    Case("resnet32", "ResNet-32", 1500, 32, 32, 2),
    Case("unet", "U-Net", 160, 256, 8, 3),
    Case("mobilenetv3", "MobileNetV3", 1500, 96, 16, 4, mean="none"),
    Case("detector", "Detector", 240, 128, 16, 6),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.network for case in CASES]
    parser.add_argument("--networks", nargs="+", choices=names, default=names)
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.folder or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        print("| Network | Format | Difference | Equal predictions | ms per image | Size (kB) |")
        print("|---|---|---|---|---|---|", flush=True)
        for case in CASES:
            if case.network in options.networks:
                for format_ in options.formats:
                    print(_row(case, format_, folder), flush=True)


def _row(case: Case, format_: Any, folder: Path) -> str:
    dataset, job = folder / f"{case.network}-data", folder / case.network
    _create_dataset(case, dataset, folder)
    _train(case, dataset, job)
    target = job / "exports" / format_
    title = f"| {case.title} | {FORMATS[format_].title} "
    if not target.exists():
        task = folder / f"{case.network}-{format_}" / "export"
        recipe = Export(
            model=str(job),
            snapshot=sorted(job.glob("snapshot_*.index"))[-1].stem,
            dataset=str(dataset),
            target=str(target),
            format=format_,
        )
        failure = _run(recipe, task)
        if failure:
            return f"{title}| {failure} | | | |"
    made = read_json(target / "export.json", ModelExport)
    agreement = "–" if made.agreement is None else f"{100 * made.agreement:.1f}%"
    return (
        f"{title}| {made.difference:.1e} | {agreement} | {made.milliseconds:.2f} | {made.bytes / 1000:,.0f} |"
    )


def _train(case: Case, dataset: Path, job: Path) -> None:
    if (job / "train").exists():
        return
    chosen = network(case.network)
    job.mkdir()
    (job / "network.py").write_text(chosen.text)
    recipe = Train(
        dataset=str(dataset),
        epochs=case.epochs,
        batch_size=case.batch,
        solver=Solver(type="ADAM", learning_rate=0.002),
        mean=case.mean,  # type: ignore[arg-type]
        seed=1,
    )
    failure = _run(recipe, job / "train")
    assert not failure, failure


def _create_dataset(case: Case, dataset: Path, folder: Path) -> None:
    if dataset.exists():
        return
    sources = folder / f"{case.network}-images"
    settings = {"width": case.side, "height": case.side, "channels": case.channels, "seed": 1}
    recipe: CreateDataset
    if case.network == "unet":
        _write_masks(sources, case)
        pairs = TargetImageFolders(images=str(sources / "images"), targets=str(sources / "masks"))
        labels = str(sources / "labels.txt")
        recipe = CreateSegmentation(train=pairs, class_labels_file=labels, pct_val=25, **settings)
    elif case.network == "detector":
        _write_boxes(sources, case)
        table = str(sources / "boxes.csv")
        recipe = CreateDetection(images=str(sources / "images"), labels=table, pct_val=25, **settings)
    else:
        _write_classes(sources, case, folder)
        recipe = CreateClassification(train=FolderSplit(folder=str(sources)), pct_val=25, **settings)
    failure = _run(recipe, dataset / "create")
    assert not failure, failure


def _write_classes(sources: Path, case: Case, folder: Path) -> None:
    if case.network == "lenet":
        pixels, labels = _digits()
    else:
        labeled = cifar10(folder)["test"]
        pixels, labels = labeled.pixels, np.asarray(labeled.labels)
    for place in np.random.default_rng(1).permutation(len(labels))[: case.images]:
        _save(pixels[place], sources / str(labels[place]) / f"{place}.png")


def _write_masks(sources: Path, case: Case) -> None:
    chance = np.random.default_rng(2)
    for number in range(case.images):
        crop = _photo(chance, case.side)
        _save(crop, sources / "images" / f"{number}.png")
        _save((crop.mean(axis=2) > 128).astype(np.uint8), sources / "masks" / f"{number}.png")
    (sources / "labels.txt").write_text("dark\nbright\n")


def _write_boxes(sources: Path, case: Case) -> None:
    chance = np.random.default_rng(3)
    pixels, labels = _digits()
    rows = []
    for number in range(case.images):
        crop = _photo(chance, case.side)
        for _ in range(chance.integers(1, 4)):
            place, side = chance.integers(len(labels)), int(chance.integers(24, 49))
            left, top = chance.integers(0, case.side - side, 2)
            digit = np.asarray(Image.fromarray(pixels[place]).resize((side, side)))
            crop[top : top + side, left : left + side] = digit[:, :, None]
            rows.append([f"{number}.png", left, top, left + side, top + side, labels[place]])
        _save(crop, sources / "images" / f"{number}.png")
    with open(sources / "boxes.csv", "w", newline="") as file:
        csv.writer(file).writerows([["image", "xmin", "ymin", "xmax", "ymax", "class"], *rows])


def _digits() -> tuple[Pixels, NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return (found.images * 15.9).astype(np.uint8), found.target


def _photo(chance: np.random.Generator, side: int) -> Pixels:
    from sklearn.datasets import load_sample_images

    photo = load_sample_images().images[chance.integers(2)]
    top, left = (int(chance.integers(0, size - side)) for size in photo.shape[:2])
    crop: Pixels = photo[top : top + side, left : left + side].copy()
    return crop


def _save(pixels: Pixels, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.squeeze(pixels)).save(path)


def _run(recipe: Any, task: Path) -> str:
    """Run a task in a process of its own; return its error, or an empty text."""
    task.mkdir(parents=True)
    recipe.save(task)
    with open(task / "output.log", "wb") as output:
        command = [sys.executable, "-P", "-m", "digits.worker", str(task)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)
    log, _ = events.read(task / "events.jsonl")
    failed = [event for event in log if isinstance(event, events.Failed)]
    if failed:
        return f"{f'line {failed[-1].line}: ' if failed[-1].line else ''}{failed[-1].message}"
    return "" if done.returncode == 0 else f"exit status {done.returncode}"


if __name__ == "__main__":
    main()
