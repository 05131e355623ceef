"""Measure the creation of a dataset, compared with the minimum work of any program.

    python benchmarks/dataset.py [FOLDER]

FOLDER is a sample laid out by ``digits download-data mnist FOLDER``; without it, MNIST is downloaded to a temporary
folder first. The baseline decodes every PNG and encodes it again with Pillow on all cores, without lookups and
writes. Both are measured alternately in the same run, because the load of the machine affects both; the ratio is
the result.
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
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from digits.core.events import EventLog
from digits.data import parallel, samples
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.worker.tasks import create_dataset

TURNS = 3
PIECE = 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch) / "mnist"
        samples.download("mnist", folder, lambda fraction, doing: None)
        files = [str(path) for split in ("train", "test") for path in (folder / split).glob("*/*.png")]
        print(f"{len(files):,} images, {parallel.available_cores()} cores, load {os.getloadavg()[0]:.1f}")
        by_clock, by_processor = [], []
        for turn in range(TURNS):
            least = limit(files)
            ours = creation(folder, Path(scratch) / f"job-{turn}")
            by_clock.append(least.seconds / ours.seconds)
            by_processor.append(least.processor_seconds / ours.processor_seconds)
            print(f"limit {least}   creation {ours}   ratio {by_clock[-1]:.2f}")
        print(
            f"median ratio {statistics.median(by_clock):.2f} by the clock, "
            f"{statistics.median(by_processor):.2f} by processor time (target 0.60)"
        )


@dataclass
class Taken:
    """The cost of processing all images: wall time, and CPU time of all cores."""

    images: int
    seconds: float = 0.0
    processor_seconds: float = 0.0

    def __str__(self) -> str:
        each = self.processor_seconds / self.images * 1e6
        return f"{self.images / self.seconds:7,.0f} images/s ({each:3.0f} µs of a core each)"


def limit(files: list[str]) -> Taken:
    """Decode and encode every file in memory."""

    def work(piece: int, send: parallel.Send) -> None:
        for path in files[piece * PIECE : (piece + 1) * PIECE]:
            with Image.open(path) as image:
                image.save(io.BytesIO(), "PNG")

    with stopwatch(len(files)) as taken:
        list(parallel.run(work, -(-len(files) // PIECE)))
    return taken


def creation(folder: Path, job: Path) -> Taken:
    """Create the complete dataset from the recipe: both splits, mean image and manifest."""
    task = job / "create"
    task.mkdir(parents=True)
    recipe = CreateClassification(
        train=FolderSplit(folder=str(folder / "train")),
        val=FolderSplit(folder=str(folder / "test")),
        width=28,
        height=28,
        channels=1,
    )
    events = EventLog(task / "events.jsonl")
    with stopwatch(70_000) as taken:
        result = create_dataset.run(recipe, task, events)
    events.close()
    assert result == {"images": 70_000, "skipped": 0}
    return taken


@contextmanager
def stopwatch(images: int) -> Iterator[Taken]:
    """Record the cost of the block, including its child processes."""
    taken = Taken(images)
    start, before = time.perf_counter(), sum(os.times()[:4])
    yield taken
    taken.seconds = time.perf_counter() - start
    taken.processor_seconds = sum(os.times()[:4]) - before


if __name__ == "__main__":
    main()
