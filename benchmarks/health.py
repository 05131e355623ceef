"""Measure the health checks of a dataset: time, CPU time, and the memory of all processes.

    .venv/bin/python benchmarks/health.py [--records 60000] [--classes 100]

Writes a dataset of small images, 28×28, of which some are equal, then checks it like the task does. Prints one line of
JSON. ``peak_mb`` is the maximum memory of the process and its children, shared pages counted once.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from product import classification_manifest, peak_memory, record, write_split

from digits.core.events import EventLog
from digits.core.recipe import CheckDataset
from digits.data import parallel
from digits.data.health import health
from digits.data.manifest import Manifest
from digits.data.records.records import encode_example
from digits.worker.tasks import check_dataset

TARGET_SECONDS = 60
SIDE = 28


def write_dataset(folder: Path, count: int, classes: int) -> Manifest:
    """Write ``count`` records to the job's ``folder``, each twentieth of which repeats an earlier one."""
    labels = [f"class {number}" for number in range(classes)]

    def items() -> Iterator[tuple[bytes, int, bytes]]:
        chance = np.random.default_rng(0)
        for place in range(count):
            if place % 20 or not place:
                pixels = chance.integers(0, 256, (SIDE, SIDE, 1), np.uint8)
            yield encode_example(record(pixels, place % classes, labels)), place % classes, b""

    counts = np.bincount(np.arange(count) % classes, minlength=classes).tolist()
    manifest = classification_manifest(labels, {"train": write_split(folder, "train", counts, items())})
    manifest.save(folder)
    return manifest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--classes", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        job_folder = Path(scratch)
        task_folder = job_folder / "check"
        task_folder.mkdir()
        manifest = write_dataset(job_folder, options.records, options.classes)
        events = EventLog(task_folder / "events.jsonl")
        load = os.getloadavg()[0]
        with peak_memory() as peak:
            started, before = time.perf_counter(), sum(os.times()[:4])
            check_dataset.run(CheckDataset(dataset=str(job_folder)), task_folder, events)
            seconds, cpu_seconds = time.perf_counter() - started, sum(os.times()[:4]) - before
        events.close()
        found = health.load(job_folder, manifest)
        result = {
            "records": options.records,
            "cores": parallel.available_cores(),
            "load": round(load, 1),
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu_seconds, 1),
            "target_seconds": TARGET_SECONDS,
            "peak_mb": round(peak[0] / 1e6),
            "findings": {finding.id: finding.count for finding in found.findings},
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
