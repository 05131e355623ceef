"""Create a dataset and train a model as the forms recommend, and compare it with a trivial baseline.

    .venv/bin/python benchmarks/kinds.py KIND NAME=VALUE … [--model NAME=VALUE …] [--weights FOLDER] [--output FOLDER]

KIND is the route of the kind, such as ``images/classification``, and the fields are those that name the source, such
as ``folder_train=photos``, or ``table=scores.csv image_folder=photos``, and others of the form. Without ``--model``,
all settings of the training are recommended ones. FOLDER contains ImageNet weights, unless they can be downloaded.

Prints the recommendation, the metrics of each validation, the baseline, and the time of the processor divided by two:
what two cores would take that do nothing else. What the pages said of the time, before the training and at some points
of it, is divided by the true time; on a shared machine, also by the CPU time that was spent, at the CPU time per second
that the training had had until then. Baselines of the best validation:

    images/segmentation   predict the most frequent class for every pixel: mean IoU
    images/multilabel     random scores: mAP, the mean frequency of the labels
    images/pairs          random distances: AUC 0.5
    images/processing     return the image unchanged, as DnCNN does before the training: PSNR
    others                predict the mean, or nothing: R² and mAP 0
"""

from __future__ import annotations

import argparse
import itertools
import operator
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from product import Product, product

from digits.core import events
from digits.core.events import Event, Finished, Measured, Progressed, UsageSampled

CORES = 2
# The shares of the steps after which the time left is compared with the true one.
POINTS = (0.1, 0.25, 0.5, 0.75, 0.9)


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
    began = time.time()
    model = server.finished(server.create_model("Benchmark", dataset, **settings))
    log, _ = events.read(server.jobs / model / "train" / "events.jsonl")
    print("\n".join(_times(log, began, about["seconds"])))
    validations = [event for event in log if isinstance(event, Measured) and event.stage == "val"]
    best = server.json("GET", f"/models/{model}.json")["best_epoch"]
    for event in validations:
        numbers = ", ".join(f"{name} {value:.3f}" for name, value in event.values.items())
        print(f"epoch {event.epoch:g}: {numbers}{' (best)' if event.epoch == best else ''}")
    described = server.json("GET", f"/datasets/{dataset}.json")
    print(f"baseline: {_baseline(kind, described, validations[0].values):.3f}")


def _times(log: Sequence[Event], began: float, expected: float | None) -> Iterator[str]:
    """Compare what was said of the duration with the true one, of a training that was requested at ``began``."""
    end = log[-1].at
    samples = [event for event in log if isinstance(event, UsageSampled)]
    moments = [began, *(sample.at for sample in samples)]
    spans = [second - first for first, second in itertools.pairwise(moments)]
    shares = [sample.cpu_percent / 100 for sample in samples]
    spent = [0.0, *itertools.accumulate(map(operator.mul, shares, spans))]
    total = spent[-1] + shares[-1] * (end - moments[-1])
    moments, spent = [*moments, end], [*spent, total]
    yield f"{total / CORES / 60:.1f} minutes on {CORES} cores, {(end - began) / 60:.1f} minutes elapsed"
    if expected:
        ratios = f"ratio {expected / (end - began):.2f}, {expected / total * CORES:.2f} by CPU time"
        yield f"before: {expected:.0f} s said, {ratios}"
    said = [event for event in log if isinstance(event, Progressed) and event.seconds_left]
    if isinstance(log[-1], Finished) and "ended_early" in log[-1].result:
        yield f"ended early, after {said[-1].fraction:.0%} of the steps: all times that were said are longer"
    for point in POINTS:
        event = next((event for event in said if event.fraction >= point), None)
        if event and event.seconds_left:
            first, now = np.interp([said[0].at - 2, event.at], moments, spent)
            pace = (now - first) / (event.at - said[0].at + 2)
            ratio, by_cpu = event.seconds_left / (end - event.at), event.seconds_left * pace / (total - now)
            ratios = f"ratio {ratio:.2f}, {by_cpu:.2f} by CPU time"
            yield f"after {event.fraction:.0%}: {event.seconds_left:.0f} s said, {ratios}"


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
