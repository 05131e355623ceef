"""Measure the creation of a dataset, compared with Pillow doing only the decoding, resizing and encoding.

    python benchmarks/dataset.py [FOLDER] [--source folder|csv|text|parquet]
    python benchmarks/dataset.py --photos 2000 [--encoding jpg|png]

FOLDER is a sample laid out by ``digits download-data mnist FOLDER``; without it, MNIST is downloaded to a temporary
folder first. Its 60,000 training images are read from the folders of their classes or listed in another ``--source``.
The baseline decodes each PNG and encodes it again.

With ``--photos``, that many JPEG files of 500×375 are generated: smooth noise with edges, textures and grain. They are
resized to 256×256 and stored as ``--encoding``. The baseline does the same with Pillow (JPEG quality 90, PNG level 1).

The baseline uses as many processes, and does no lookups, checks and writes. Both are measured alternately in the same
run, because the load of the machine affects both; the ratio is the result.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from product import mnist

from digits.core.events import EventLog
from digits.data import parallel
from digits.kinds.classification.recipe import (
    CreateClassification,
    DatasetFolder,
    FolderSplit,
    ListedSplit,
    Tables,
    TextFiles,
)
from digits.worker.tasks import create_dataset

PIECE = 100
PHOTO_SIZE = (500, 375)
SIDE = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--source", choices=list(SOURCES), default="folder")
    parser.add_argument("--photos", type=int, default=0)
    parser.add_argument("--encoding", choices=["jpg", "png"], default="jpg")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if options.photos:
            folder = scratch / "photos"
            generate_photos(folder, options.photos)
            files = sorted(folder.glob("*/*.jpg"))
            recipe = CreateClassification(
                train=FolderSplit(folder=str(folder)),
                pct_val=0.0,
                width=SIDE,
                height=SIDE,
                encoding=options.encoding,
            )
        else:
            folder = mnist(options.folder, scratch) / "train"
            files = sorted(folder.glob("*/*.png"))
            recipe = SOURCES[options.source](folder, files, scratch)
        compare(
            files, convert_photo(options.encoding) if options.photos else copy_png, recipe, options, scratch
        )


def compare(
    files: list[Path],
    convert: Callable[[str], None],
    recipe: CreateClassification,
    options: argparse.Namespace,
    scratch: Path,
) -> None:
    print(f"{len(files):,} images, {parallel.available_cores()} cores, load {os.getloadavg()[0]:.1f}")
    by_clock, by_processor = [], []
    for turn in range(options.turns):
        least = baseline([str(path) for path in files], convert)
        ours = creation(recipe, len(files), scratch / f"job-{turn}")
        by_clock.append(least.seconds / ours.seconds)
        by_processor.append(least.processor_seconds / ours.processor_seconds)
        print(
            f"Pillow {least}   creation {ours}   ratio {by_clock[-1]:.2f}, by CPU time {by_processor[-1]:.2f}"
        )
    print(
        f"median ratio {statistics.median(by_clock):.2f}, by CPU time {statistics.median(by_processor):.2f}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


@dataclass
class Taken:
    """The cost of processing all images: wall time, and CPU time of all cores."""

    images: int
    seconds: float = 0.0
    processor_seconds: float = 0.0

    def __str__(self) -> str:
        each = self.processor_seconds / self.images * 1e6
        return f"{self.images / self.seconds:7,.0f} images/s ({each:3,.0f} µs of a core each)"


def baseline(files: list[str], convert: Callable[[str], None]) -> Taken:
    """Call ``convert`` with each file, in as many processes as a creation uses."""

    def work(piece: int, send: parallel.Send) -> None:
        for path in files[piece * PIECE : (piece + 1) * PIECE]:
            convert(path)

    with stopwatch(len(files)) as taken:
        list(parallel.run(work, -(-len(files) // PIECE)))
    return taken


def copy_png(path: str) -> None:
    with Image.open(path) as image:
        image.save(io.BytesIO(), "PNG", compress_level=1)


def convert_photo(encoding: str) -> Callable[[str], None]:
    arguments = {"jpg": {"format": "JPEG", "quality": 90}, "png": {"format": "PNG", "compress_level": 1}}[
        encoding
    ]

    def convert(path: str) -> None:
        with Image.open(path) as image:
            image.resize((SIDE, SIDE), Image.Resampling.BILINEAR).save(io.BytesIO(), **arguments)

    return convert


def creation(recipe: CreateClassification, images: int, job: Path) -> Taken:
    """Create the complete dataset from the recipe: records, mean image and manifest."""
    task = job / "create"
    task.mkdir(parents=True)
    events = EventLog(task / "events.jsonl")
    with stopwatch(images) as taken:
        result = create_dataset.run(recipe, task, events)
    events.close()
    assert result == {"images": images, "skipped": 0}
    return taken


@contextmanager
def stopwatch(images: int) -> Iterator[Taken]:
    """Record the cost of the block, including its child processes."""
    taken = Taken(images)
    start, before = time.perf_counter(), sum(os.times()[:4])
    yield taken
    taken.seconds = time.perf_counter() - start
    taken.processor_seconds = sum(os.times()[:4]) - before


def from_folder(folder: Path, files: list[Path], scratch: Path) -> CreateClassification:
    return of_digits(train=FolderSplit(folder=str(folder)))


def from_csv(folder: Path, files: list[Path], scratch: Path) -> CreateClassification:
    with (scratch / "train.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label"])
        writer.writerows((path.relative_to(folder), path.parent.name) for path in files)
    return of_digits(files=Tables(train=ListedSplit(file=str(scratch / "train.csv"), folder=str(folder))))


def from_text(folder: Path, files: list[Path], scratch: Path) -> CreateClassification:
    names = sorted({path.parent.name for path in files})
    (scratch / "labels.txt").write_text("".join(f"{name}\n" for name in names))
    lines = [f"{path.relative_to(folder)} {names.index(path.parent.name)}\n" for path in files]
    (scratch / "train.txt").write_text("".join(lines))
    train = ListedSplit(file=str(scratch / "train.txt"), folder=str(folder))
    return of_digits(files=TextFiles(train=train, labels=str(scratch / "labels.txt")))


def from_parquet(folder: Path, files: list[Path], scratch: Path) -> CreateClassification:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table(
        {
            "image": [{"bytes": path.read_bytes(), "path": path.name} for path in files],
            "label": [int(path.parent.name) for path in files],
        }
    )
    target = scratch / "parquet" / "train-00000-of-00001.parquet"
    target.parent.mkdir()
    parquet.write_table(table, target)
    return of_digits(files=DatasetFolder(folder=str(target.parent)))


SOURCES = {"folder": from_folder, "csv": from_csv, "text": from_text, "parquet": from_parquet}


def of_digits(**source: object) -> CreateClassification:
    return CreateClassification(**source, pct_val=0.0, width=28, height=28, channels=1)


def generate_photos(folder: Path, count: int) -> None:
    """Write ``count`` JPEG files with the spectrum of photos, half of them to each of two classes."""
    width, height = PHOTO_SIZE
    frequencies = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    amplitudes = 1 / np.maximum(frequencies, 1 / width) ** 1.2

    def smooth(chance: np.random.Generator) -> np.ndarray:
        phases = np.exp(2j * np.pi * chance.random(amplitudes.shape))
        return np.fft.irfft2(amplitudes * phases, s=(height, width))

    def work(piece: int, send: parallel.Send) -> None:
        for number in range(piece * PIECE, min(count, (piece + 1) * PIECE)):
            chance = np.random.default_rng(number)
            brightness = smooth(chance)
            pixels = np.stack([brightness + 0.35 * smooth(chance) for _ in range(3)], axis=-1)
            pixels = (pixels - pixels.mean()) / pixels.std() * 50 + chance.uniform(90, 160)
            for _ in range(6):
                top, left, high, wide = chance.integers(0, 250, 4)
                block = pixels[top : top + high, left : left + wide]
                block[:] = block / 2 + chance.uniform(0, 128, 3)
            pixels += chance.normal(0, 3, pixels.shape)
            path = folder / "ab"[number % 2] / f"{number:06d}.jpg"
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=85)

    for name in "ab":
        (folder / name).mkdir(parents=True)
    list(parallel.run(work, -(-count // PIECE)))


if __name__ == "__main__":
    main()
