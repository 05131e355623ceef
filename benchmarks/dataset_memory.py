"""Measure the memory of creating a dataset of a million records: the task and all its processes.

    python benchmarks/dataset_memory.py [--records 1000000] [--source csv|folder] [--classes 100]

Writes one small PNG file per class. A CSV file lists them again and again, or ``--source folder`` makes a hard link for
each record. The dataset is created by another program, and the proportional set size (PSS) of all its processes is
sampled until it ends. Prints one line of JSON: the highest sample before records are written and in each tenth of the
progress.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from product import memory

from digits.core.events import EventLog
from digits.data.images import images
from digits.kinds.classification.recipe import CreateClassification, FolderSplit, ListedSplit, Tables
from digits.worker.tasks import create_dataset

SIDE = 28
SAMPLE_SECONDS = 0.5
TARGET_MB = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--source", choices=["csv", "folder"], default="csv")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--create", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.create:
        create(options.create, options.source)
        return
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        write_source(scratch, options)
        print(json.dumps(measure(scratch, options)))


def write_source(scratch: Path, options: argparse.Namespace) -> None:
    chance = np.random.default_rng(0)
    files = []
    for number in range(options.classes):
        files.append(scratch / "images" / f"class {number}" / "image 000000000.png")
        files[-1].parent.mkdir(parents=True)
        files[-1].write_bytes(images.encode(chance.integers(0, 256, (SIDE, SIDE, 1), np.uint8), "png"))
    if options.source == "folder":
        for number in range(options.classes, options.records):
            file = files[number % options.classes]
            os.link(file, file.with_name(f"image {number:09}.png"))
    else:
        with (scratch / "images.csv").open("w") as file:
            file.write("image,label\n")
            for number in range(options.records):
                folder = f"class {number % options.classes}"
                file.write(f"{folder}/image 000000000.png,{folder}\n")


def create(scratch: Path, source: str) -> None:
    folder = str(scratch / "images")
    table = Tables(train=ListedSplit(file=str(scratch / "images.csv"), folder=folder))
    recipe = CreateClassification(
        **({"files": table} if source == "csv" else {"train": FolderSplit(folder=folder)}),
        pct_val=10.0,
        width=SIDE,
        height=SIDE,
        channels=1,
    )
    task = scratch / "job" / "create"
    task.mkdir(parents=True)
    events = EventLog(task / "events.jsonl")
    create_dataset.run(recipe, task, events)
    events.close()


def measure(scratch: Path, options: argparse.Namespace) -> dict[str, object]:
    command = [sys.executable, __file__, "--create", str(scratch), "--source", options.source]
    task = psutil.Process(subprocess.Popen(command).pid)
    began = time.monotonic()
    before, peaks = 0.0, [0.0] * 10
    while task.status() != psutil.STATUS_ZOMBIE:
        used, share = memory(task) / 1e6, progress(scratch / "job" / "create" / "events.jsonl")
        if share is None:
            before = max(before, used)
        else:
            place = min(9, int(share * 10))
            peaks[place] = max(peaks[place], used)
        time.sleep(SAMPLE_SECONDS)
    assert task.wait() == 0
    return {
        "records": options.records,
        "source": options.source,
        "before_writing_mb": round(before),
        "writing_mb": [round(peak) for peak in peaks],
        "highest_mb": round(max(before, *peaks)),
        "target_mb": TARGET_MB,
        "seconds": round(time.monotonic() - began),
    }


def progress(events: Path) -> float | None:
    """Return the share of the records that are written, according to the log of the task; None before."""
    try:
        with events.open("rb") as file:
            file.seek(max(0, events.stat().st_size - 4096))
            lines = [line for line in file.read().splitlines() if b"Writing images" in line]
        return float(json.loads(lines[-1])["fraction"])
    except (OSError, IndexError, ValueError):
        return None


if __name__ == "__main__":
    main()
