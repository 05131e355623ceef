"""Create a dataset and train a model as the forms recommend, and compare it with a trivial baseline.

    .venv/bin/python benchmarks/kinds.py KIND NAME=VALUE … [--model NAME=VALUE …] [--weights FOLDER] [--output FOLDER]

KIND is the route of the kind, such as ``images/classification``, and the fields are those that name the source, such
as ``folder_train=photos``, or ``table=scores.csv image_folder=photos``, and others of the form. Without ``--model``,
all settings of the training are recommended ones. FOLDER contains ImageNet weights, unless they can be downloaded.

Prints the recommendation, the metrics of each validation, the baseline, and the time of the processor divided by two:
what two cores would take that do nothing else. Baselines of the best validation:

    images/segmentation   predict the most frequent class for every pixel: mean IoU
    images/multilabel     random scores: mAP, the mean frequency of the labels
    images/pairs          random distances: AUC 0.5
    images/processing     return the image unchanged, as DnCNN does before the training: PSNR
    others                predict the mean, or nothing: R² and mAP 0
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import Any

from product import Product, product

from digits.core import events
from digits.core.events import Measured, UsageSampled

CORES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind")
    parser.add_argument("fields", nargs="+", metavar="NAME=VALUE")
    parser.add_argument("--model", nargs="+", default=["recommended=1"], metavar="NAME=VALUE")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--output", type=Path, help="keep the jobs in this folder")
    options = parser.parse_args()
    weights = [f"--weights-source={options.weights.resolve()}"] if options.weights else []
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.output or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        with product(folder, "--data-root=/", *weights) as server:
            _train(server, options.kind, _fields(options.fields), _fields(options.model))


def _fields(pairs: list[str]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in pairs)


def _train(server: Product, kind: str, source: dict[str, str], settings: dict[str, str]) -> None:
    dataset = server.finished(server.create_dataset(kind, "Benchmark", **{"recommended": 1} | source))
    about = server.json("GET", f"/models/recommendation.json?dataset={dataset}")["recommendation"]
    print(about["headline"], about["reason"], f"Expected: {about['time'] or 'unknown'}.", flush=True)
    model = server.finished(server.create_model("Benchmark", dataset, **settings))
    log, _ = events.read(server.jobs / model / "train" / "events.jsonl")
    samples = [event for event in log if isinstance(event, UsageSampled)]
    spent = sum(
        second.cpu_percent / 100 * (second.at - first.at) for first, second in itertools.pairwise(samples)
    )
    print(f"{spent / CORES / 60:.1f} minutes on {CORES} cores")
    validations = [event for event in log if isinstance(event, Measured) and event.stage == "val"]
    best = server.json("GET", f"/models/{model}.json")["best_epoch"]
    for event in validations:
        numbers = ", ".join(f"{name} {value:.3f}" for name, value in event.values.items())
        print(f"epoch {event.epoch:g}: {numbers}{' (best)' if event.epoch == best else ''}")
    described = server.json("GET", f"/datasets/{dataset}.json")
    print(f"baseline: {_baseline(kind, described, validations[0].values):.3f}")


def _baseline(kind: str, dataset: dict[str, Any], untrained: dict[str, float]) -> float:
    match kind:
        case "images/segmentation":
            return float(max(dataset["pixel_shares"])) / len(dataset["labels"])
        case "images/multilabel":
            return statistics.mean(dataset["label_frequencies"])
        case "images/pairs":
            return 0.5
        case "images/processing":
            return untrained["psnr"]
        case _:
            return 0.0


if __name__ == "__main__":
    main()
