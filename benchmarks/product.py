"""What benchmarks share: a server of their own and its client, datasets to measure, and what processes cost."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for the server of the tests

from digits.client import Client  # noqa: E402
from digits.data.images import images  # noqa: E402
from digits.data.manifest import Manifest, SplitRecords  # noqa: E402
from digits.data.records import records  # noqa: E402
from digits.data.samples import samples  # noqa: E402
from digits.data.samples.catalog import SAMPLES  # noqa: E402
from digits.data.targets.class_index import ClassIndex  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

NETWORKS = ROOT / "digits" / "networks"
POLL_SECONDS = 0.02
# For `product`, whose servers otherwise do only what they are asked for.
WITH_BACKGROUND_TASKS = ("--health-checks", "--evaluations")
SHARDS = 32


class Product(Client):
    """The client of a server that runs as a separate program, with its files in ``folder``."""

    def __init__(self, address: str, folder: Path, pid: int) -> None:
        super().__init__(address, sleep=lambda seconds: time.sleep(POLL_SECONDS))
        self.address, self.jobs, self.log, self.pid = address, folder / "jobs", folder / "digits.log", pid

    def dataset_of(self, folder: Path, side: int, channels: int, **fields: Any) -> str:
        """Create a dataset of a folder with a subfolder per class; return its id when it is done."""
        size = {"resize_width": side, "resize_height": side, "resize_channels": channels}
        source = {"method": "folder", "folder_train": folder.resolve()}
        return self.finished(
            self.create_dataset("images/classification", "Benchmark", **source | size | fields)
        )

    def model_of(self, dataset: str, network: str = "lenet", **fields: Any) -> str:
        """Train a standard network, by default for an epoch; return the id of the model when it is done."""
        settings = {"method": "standard", "standard_networks": network, "train_epochs": 1, "batch_size": 64}
        return self.finished(self.create_model("Benchmark", dataset, **settings | fields))

    def digits_and_lenet(self, mnist: Path, count: int, **fields: Any) -> tuple[str, str]:
        """Create a dataset of the first test images of MNIST and train LeNet; return the ids of both."""
        limits = {"folder_train_max_per_class": count // 10 + 1000, "folder_pct_val": 0}
        dataset = self.dataset_of(mnist / "test", 28, 1, **limits)
        return dataset, self.model_of(dataset, **fields)

    def finished(self, job: Any) -> str:
        """Return the id of ``job`` when it is done."""
        self.wait(job.id)
        return str(job.id)

    def seconds(self, path: str, fields: dict[str, Any] | None = None) -> float:
        """Return the seconds until the last byte of a page."""
        began = time.perf_counter()
        body = urlencode(fields).encode() if fields else None
        with urllib.request.urlopen(self.address + path, body, timeout=120) as answer:
            answer.read()
        return time.perf_counter() - began


@contextmanager
def product(folder: Path, *options: str | Path) -> Iterator[Product]:
    """Run a server with its files in ``folder``."""
    from tests.real_server import RealServer

    (folder / "data").mkdir(exist_ok=True)
    server = RealServer(folder, *map(str, options))
    try:
        yield Product(server.address, folder, server.process.pid)
    finally:
        server.stop()


@contextmanager
def chromium(address: str) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
    path = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser.new_page(base_url=address)
        browser.close()


def mnist(folder: Path | None, scratch: Path) -> Path:
    """Return the folder of MNIST: ``folder``, or a new one below ``scratch``."""
    return (folder or samples.download("mnist", scratch / "mnist", lambda fraction, doing: None)).resolve()


def cifar10(folder: Path) -> Any:
    """Return the images of CIFAR-10 by split, downloaded to ``folder``."""
    downloads = folder / "downloads"
    downloads.mkdir(exist_ok=True)
    (source, read), *_ = SAMPLES["cifar10"].packages
    return read(source.fetch(downloads, lambda fraction: None))


def record(pixels: np.ndarray, label: int, labels: list[str], source: str = "x.png") -> records.Record:
    """Return the record of a PNG image with a class."""
    height, width, channels = pixels.shape
    return records.Record(
        data=images.encode(pixels, "png"),
        format="png",
        height=height,
        width=width,
        channels=channels,
        features={"image/class/label": [label], "image/class/text": [labels[label].encode()]},
        source=source.encode(),
        source_size=(height, width),
        source_mode="L" if channels == 1 else "RGB",
    )


def write_split(
    folder: Path,
    split: str,
    counts: list[int],
    items: Iterable[tuple[bytes, int, bytes]],
    shards: int = SHARDS,
) -> SplitRecords:
    """Write ``items``, each an example with its class and source, as a split; ``counts`` are their numbers by class."""
    rest, count = iter(items), sum(counts)
    names, size, hashes = [], 0, []
    for number in range(shards):
        names.append(records.shard_name(split, number, shards))
        with records.ShardWriter(folder / names[-1]) as writer:
            for _ in range(count * number // shards, count * (number + 1) // shards):
                writer.add(*next(rest))
        size += writer.size_bytes
        hashes.append(writer.sha256)
    return SplitRecords(count=count, counts=counts, bytes=size, shards=names, hashes=hashes)


def classification_manifest(
    labels: list[str], splits: dict[str, SplitRecords], side: int = 28, channels: int = 1
) -> Manifest:
    return Manifest(
        kind="image-classification",
        width=side,
        height=side,
        channels=channels,
        encoding="png",
        resize_mode="squash",
        target=ClassIndex.of(labels),
        groups=labels,
        splits=splits,
        mean_pixel=[127.5] * channels,
    )


def quantiles(seconds: Iterable[float], digits: int = 1) -> dict[str, float]:
    """Return the median, the 99th percentile and the maximum in milliseconds."""
    ordered = sorted(seconds)
    values = {"p50": statistics.median(ordered), "p99": ordered[int(len(ordered) * 0.99)], "max": ordered[-1]}
    return {name: round(1000 * value, digits) for name, value in values.items()}


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def memory(process: psutil.Process) -> int:
    """Return the memory of a process and its children in bytes; shared pages count once."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_full_info().pss
        except psutil.Error:
            continue  # it has ended
    return total


@contextmanager
def peak_memory(pid: int | None = None) -> Iterator[list[int]]:
    """Yield a list of the largest `memory` of the process, by default this one, while the block runs."""
    process, peak, is_over = psutil.Process(pid), [0], threading.Event()

    def sample() -> None:
        while not is_over.wait(0.1):
            try:
                peak[0] = max(peak[0], memory(process))
            except psutil.NoSuchProcess:
                return

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()


@dataclass(frozen=True)
class Spent:
    """The result and cost of a process. ``peak`` is its maximum memory in bytes."""

    value: float
    processor_seconds: float
    peak: int


def in_child(function: Callable[..., float], *arguments: Any) -> Spent:
    """Run ``function`` in a fork, because TensorFlow must not run in this process; return its number and cost."""
    reading, writing = os.pipe()
    errors = os.dup(2)
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, repr(function(*arguments)).encode())
            os._exit(0)
        except BaseException:
            os.write(errors, traceback.format_exc().encode())
        finally:
            os._exit(1)
    os.close(errors)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    _, _, used = os.wait4(pid, 0)
    return Spent(float(text), used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
