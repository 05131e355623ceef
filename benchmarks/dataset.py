"""How fast a dataset is created, next to the least that any program would have to do.

    python benchmarks/dataset.py [FOLDER]

FOLDER is a sample laid out by ``digits download-data mnist FOLDER``; without it, MNIST
is downloaded into a temporary folder first. The limit is decoding every PNG and
encoding it again with Pillow on all cores, with nothing looked up and nothing
written. Both are measured in turns in the same run, because what else the machine
does at the time changes both; the ratio is what counts.
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from digits import download, parallel
from digits.events import EventLog
from digits.recipe import CreateDataset
from digits.worker import create

TURNS = 3
PIECE = 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch) / "mnist"
        download.download("mnist", folder, lambda fraction, doing: None)
        files = [str(path) for split in ("train", "test") for path in (folder / split).glob("*/*.png")]
        print(f"{len(files):,} images, {parallel.available_cores()} cores, load {os.getloadavg()[0]:.1f}")
        limits, creations, kept = [], [], []
        for turn in range(TURNS):
            limits.append(limit(files))
            creations.append(creation(folder, Path(scratch) / f"job-{turn}"))
            print(
                f"limit {limits[-1]:7,.0f} images/s   creation {creations[-1]:7,.0f} images/s   "
                f"ratio {creations[-1] / limits[-1]:.2f}"
            )
            kept.append(creations[-1] / limits[-1])
        print(f"median ratio {statistics.median(kept):.2f} (target 0.60)")


def limit(files: list[str]) -> float:
    """Images per second when every file is decoded and encoded in memory, and nothing else is done."""

    def work(piece: int, send: parallel.Send) -> None:
        for path in files[piece * PIECE : (piece + 1) * PIECE]:
            with Image.open(path) as image:
                image.save(io.BytesIO(), "PNG")

    with stopwatch(len(files)) as rate:
        list(parallel.run(work, -(-len(files) // PIECE)))
    return rate[0]


def creation(folder: Path, job: Path) -> float:
    """Images per second from the recipe to the complete dataset: both splits, mean and manifest."""
    task = job / "create"
    task.mkdir(parents=True)
    recipe = CreateDataset(
        train={"folder": str(folder / "train")},
        val={"folder": str(folder / "test")},
        width=28,
        height=28,
        channels=1,
    )
    events = EventLog(task / "events.jsonl")
    with stopwatch(70_000) as rate:
        result = create.run(recipe, task, events)
    events.close()
    assert result == {"images": 70_000, "skipped": 0}
    return rate[0]


@contextmanager
def stopwatch(images: int) -> Iterator[list[float]]:
    rate: list[float] = []
    start = time.perf_counter()
    yield rate
    rate.append(images / (time.perf_counter() - start))


if __name__ == "__main__":
    main()
