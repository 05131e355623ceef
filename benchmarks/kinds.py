"""Train the default network of a kind on images of your own, and compare it with a trivial baseline.

    .venv/bin/python benchmarks/kinds.py segmentation lungs/images lungs/masks --val val/images val/masks --side 128
    .venv/bin/python benchmarks/kinds.py regression table.csv [--network mobilenetv3] [--model train_epochs=10]

The kinds and what they are trained on, as in their forms:

    segmentation, image-to-image   a folder of images, and one of masks or targets
    detection                      a folder of images, and the annotations: a folder or a file
    regression, multilabel         a CSV file
    pairs                          a CSV file, or a folder with a subfolder per class
    autoencoder                    a folder with a subfolder per class; trains the auto-encoder

Starts a server, creates the dataset and the model over HTTP with the settings that the form recommends, and waits until
the training ends. Prints one line of JSON: the metrics of the best epoch, the first epoch that exceeds the baseline,
and the CPU time of the training in minutes. ``--val`` is held out; without it, a random share is. ``--model`` and
``--dataset`` override fields of the forms. Baselines:

    segmentation     predict the most frequent class for every pixel
    detection        none: the mAP without detections is 0
    regression       predict the mean: R² is 0
    multilabel       random scores: the mean frequency of the labels
    pairs            random distances: the AUC is 0.5
    image-to-image   return the image unchanged
    autoencoder      return the mean of the images
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image
from product import WITH_BACKGROUND_TASKS, Product, cpu_seconds, product

from digits.kinds import standard_networks


@dataclass(frozen=True)
class Kind:
    """The URL of a kind, the fields of its sources for training and validation, and the metric to judge by."""

    url: str
    sources: tuple[str, ...]
    held_out: tuple[str, ...]
    metric: str
    network: str


PAIRED = ("validation_feature_folder", "validation_label_folder")
KINDS = {
    "segmentation": Kind("segmentation", ("feature_folder", "label_folder"), PAIRED, "miou", "unet"),
    "image-to-image": Kind("processing", ("feature_folder", "label_folder"), PAIRED, "psnr", "dncnn"),
    "detection": Kind(
        "detection",
        ("train_image_folder", "train_label_folder"),
        ("val_image_folder", "val_label_folder"),
        "map50",
        "detector",
    ),
    "regression": Kind("regression", ("table_train",), ("table_val",), "r2", "regression"),
    "multilabel": Kind("multilabel", ("table_train",), ("table_val",), "map", "multilabel"),
    "pairs": Kind("pairs", ("pair_source",), ("val_source",), "auc", "siamese"),
    "autoencoder": Kind("classification", ("folder_train",), ("folder_val",), "loss", "autoencoder"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("source", nargs="+", type=Path)
    parser.add_argument("--val", nargs="+", type=Path, default=[])
    parser.add_argument("--side", type=int, default=128, help="of the images in pixels")
    parser.add_argument("--channels", type=int, default=3, choices=(1, 3))
    parser.add_argument("--network", help="a standard network instead of the default one")
    parser.add_argument("--dataset", nargs="*", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--model", nargs="*", default=[], metavar="FIELD=VALUE")
    options = parser.parse_args()
    kind = KINDS[options.kind]
    roots = [
        part for path in (*options.source, *options.val) for part in ("--data-root", path.resolve().parent)
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        product(Path(folder), *WITH_BACKGROUND_TASKS, *roots) as server,
    ):
        fields = dict(zip(kind.sources, options.source, strict=True)) | _fields(options.dataset)
        if options.val:
            fields |= dict(zip(kind.held_out, options.val, strict=True))
            fields |= {"has_val_folder": "y"} if "folder" in kind.held_out[0] else {}
        sides = {"resize_width": options.side, "resize_height": options.side}
        fields = sides | {"resize_channels": options.channels, "seed": 1} | fields
        dataset = server.finished(server.create_dataset(f"images/{kind.url}", "Benchmark", **fields))
        described = server.json("GET", f"/datasets/{dataset}.json")
        settings: dict[str, Any] = {"random_seed": 1}
        network = standard_networks.network(options.network or kind.network)
        if (
            options.network or options.kind == "autoencoder"
        ):  # not the default network: the form would choose it
            settings |= {"standard_networks": network.id, **network.values, "crop_size": ""}
        model = server.create_model("Benchmark", dataset, **settings | _fields(options.model)).id
        minutes = _minutes(server, model)
        curve = _validations(server.jobs / model)
    better = min if kind.metric == "loss" else max
    best = better((row for row in curve if kind.metric in row), key=lambda row: row[kind.metric])
    baseline = _baseline(options, described, curve)
    beyond = [row["epoch"] for row in curve if better(row[kind.metric], baseline) != baseline]
    result = {
        "kind": options.kind,
        "network": network.id,
        "metric": kind.metric,
        "baseline": round(baseline, 4),
        "best": {name: round(value, 4) for name, value in best.items()},
        "last": round(curve[-1][kind.metric], 4),
        "first_epoch_beyond_baseline": min(beyond, default=None),
        "cpu_minutes": round(minutes, 1),
        "settings": settings | _fields(options.model),
    }
    print(json.dumps(result))


def _minutes(server: Product, model: str) -> float:
    """Return the CPU time of a training in minutes when it is done."""
    seconds, pid = 0.0, None

    def note(status: Any) -> None:
        nonlocal seconds, pid
        try:
            pid = pid or _process_of(server.jobs / model)
            seconds = cpu_seconds(pid) if pid else seconds
        except psutil.Error:
            pid = None
        time.sleep(1)

    server.wait(model, note)
    return seconds / 60


def _process_of(job: Path) -> int | None:
    """Return the id of the process that works on a task of ``job``: the one that has its event log open."""
    for process in psutil.process_iter():
        try:
            if any(
                file.path.startswith(f"{job}/") and file.path.endswith("events.jsonl")
                for file in process.open_files()
            ):
                return int(process.pid)
        except psutil.Error:
            continue
    return None


def _validations(job: Path) -> list[dict[str, float]]:
    """Return the metrics of every validation, in order."""
    events = [json.loads(line) for log in job.glob("*/events.jsonl") for line in log.read_text().splitlines()]
    rows: dict[float, dict[str, float]] = {}
    for event in events:
        if event.get("stage") == "val" and "values" in event:
            rows.setdefault(event["epoch"], {"epoch": event["epoch"]}).update(event["values"])
    return list(rows.values())


def _baseline(options: argparse.Namespace, dataset: dict[str, Any], curve: list[dict[str, float]]) -> float:
    match options.kind:
        case "segmentation":
            return float(max(dataset["pixel_shares"])) / len(dataset["labels"])
        case "multilabel":
            return float(np.mean(dataset["label_frequencies"]))
        case "pairs":
            return 0.5
        case "image-to-image":
            return curve[0]["psnr"]  # DnCNN returns the image unchanged before the training
        case "autoencoder":
            train, val = (_images(folder, options) for folder in (options.source[0], options.val[0]))
            return float(np.mean((val - train.mean(axis=0)) ** 2))
        case _:
            return 0.0


def _images(folder: Path, options: argparse.Namespace) -> np.ndarray[Any, Any]:
    mode = "L" if options.channels == 1 else "RGB"
    files = [file for file in folder.rglob("*") if file.is_file()]
    side = (options.side, options.side)
    return np.stack(
        [np.asarray(Image.open(file).convert(mode).resize(side), np.float32) / 255 for file in files]
    )


def _fields(pairs: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


if __name__ == "__main__":
    main()
