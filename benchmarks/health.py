"""Measure the health checks of a dataset: time, CPU time, and the memory of all processes.

    .venv/bin/python benchmarks/health.py [--records 60000] [--classes 100]

Writes a dataset of small images, 28×28, of which some are equal, then checks it like the task does. Prints one line of
JSON. ``peak_mb`` is the maximum memory of the process and its children, shared pages counted once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from digits.data.target import class_index  # noqa: E402

from digits.core.events import EventLog  # noqa: E402
from digits.core.recipe import CheckDataset  # noqa: E402
from digits.data import health, images, parallel, records  # noqa: E402
from digits.data.manifest import Manifest, SplitRecords  # noqa: E402
from digits.worker.tasks import check_dataset  # noqa: E402

TARGET_SECONDS = 60
SHARDS = 32
SIDE = 28


def write_dataset(folder: Path, count: int, classes: int) -> Manifest:
    """Write ``count`` records to the job's ``folder``, each twentieth of which repeats an earlier one."""
    labels = [f"class {number}" for number in range(classes)]
    chance = np.random.default_rng(0)
    names, size, hashes = [], 0, []
    counts = [0] * classes
    bounds = [count * number // SHARDS for number in range(SHARDS + 1)]
    for number in range(SHARDS):
        names.append(records.shard_name("train", number, SHARDS))
        with records.ShardWriter(folder / names[-1]) as writer:
            for place in range(bounds[number], bounds[number + 1]):
                group = place % classes
                if place % 20 or not place:
                    pixels = chance.integers(0, 256, (SIDE, SIDE, 1), np.uint8)
                    data = images.encode(pixels, "png")
                features = {"image/class/label": [group], "image/class/text": [labels[group].encode()]}
                record = records.Record(data, "png", SIDE, SIDE, 1, features, b"x.png", (SIDE, SIDE), "L")
                writer.add(records.encode_example(record), group)
                counts[group] += 1
        size += writer.size_bytes
        hashes.append(writer.sha256)
    manifest = Manifest(
        kind="image-classification",
        width=SIDE,
        height=SIDE,
        channels=1,
        encoding="png",
        resize_mode="squash",
        target=class_index(labels),
        groups=labels,
        splits={"train": SplitRecords(count=count, counts=counts, bytes=size, shards=names, hashes=hashes)},
        mean_pixel=[127.5],
    )
    manifest.save(folder)
    return manifest


class PeakMemory:
    """Samples the memory of this process and its children until it is closed."""

    def __init__(self) -> None:
        self.bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        process = psutil.Process()
        while not self._is_over.wait(0.1):
            total = 0
            for one in [process, *process.children(recursive=True)]:
                try:
                    total += one.memory_full_info().pss
                except psutil.Error:
                    continue
            self.bytes = max(self.bytes, total)


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
        memory = PeakMemory()
        load = os.getloadavg()[0]
        started, before = time.perf_counter(), sum(os.times()[:4])
        check_dataset.run(CheckDataset(dataset=str(job_folder)), task_folder, events)
        seconds, cpu_seconds = time.perf_counter() - started, sum(os.times()[:4]) - before
        memory.close()
        events.close()
        found = health.load(job_folder, manifest)
        result = {
            "records": options.records,
            "cores": parallel.available_cores(),
            "load": round(load, 1),
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu_seconds, 1),
            "target_seconds": TARGET_SECONDS,
            "peak_mb": round(memory.bytes / 1e6),
            "findings": {finding.id: finding.count for finding in found.findings},
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
