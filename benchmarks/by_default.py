"""Create a dataset and train a model with nothing but the recommendations, and print how good and how fast it is.

    python benchmarks/by_default.py KIND NAME=VALUE ... [--weights FOLDER] [--output FOLDER]

KIND is the route of the kind, such as ``images/classification``, and the fields are those that name the source, such
as ``folder_train=photos``, or ``table=scores.csv image_folder=photos``. FOLDER contains ImageNet weights, unless they
can be downloaded. The time is that of the processor divided by two: what two cores would take that do nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

from product import Product, product

from digits.core import events
from digits.core.events import Measured, UsageSampled

CORES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind")
    parser.add_argument("fields", nargs="+", metavar="NAME=VALUE")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--output", type=Path, help="keep the jobs in this folder")
    asked = parser.parse_args()
    fields = dict(field.split("=", 1) for field in asked.fields)
    weights = [f"--weights-source={asked.weights.resolve()}"] if asked.weights else []
    with tempfile.TemporaryDirectory() as scratch:
        folder = (asked.output or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        with product(folder, "--data-root=/", *weights) as server:
            _train(server, asked.kind, fields)


def _train(server: Product, kind: str, fields: dict[str, str]) -> None:
    dataset = server.finished(server.create_dataset(kind, "By default", recommended=1, **fields))
    about = server.json("GET", f"/models/recommendation.json?dataset={dataset}")["recommendation"]
    print(about["headline"], about["reason"], f"Expected: {about['time'] or 'unknown'}.", flush=True)
    model = server.finished(server.create_model("By default", dataset, recommended=1))
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


if __name__ == "__main__":
    main()
