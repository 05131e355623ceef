"""Measure a server with many jobs: startup time, idle CPU time, and the latency of `/health` while people browse.

    .venv/bin/python benchmarks/many_jobs.py [--jobs 10000] [--people 10] [--pause 1] [--seconds 30]

Fills a jobs folder with finished datasets and models, and starts a task that logs events like a training. Ten people
keep the home page open and request a page or list once a second on average: the home page with various sort orders and
searches, job pages, the model form, and JSON. Another client requests `/health` fifty times a second. All clients are
separate processes on this machine. Prints one line of JSON.

Wall times mean little on a busy machine. The benchmark therefore also measures the server's CPU time until its first
response, and between each request to `/health` and its response, which is about the latency on a dedicated core.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import simple_websocket
from product import WITH_BACKGROUND_TASKS, classification_manifest, cpu_seconds, product, quantiles
from scheduler import RUNNING, SETTLE_SECONDS, TRAINING, start_training

from digits.core.job import Job, Summary
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.status import Status
from digits.core.task import Task
from digits.data.manifest import SplitRecords
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import DatasetJob
from digits.runtime.executors.local import LocalExecutor

TARGETS = {"health_p99_ms": 20, "cpu_percent": 2, "start_seconds": 3}
MODELS_PER_DATASET = 19
YEAR_SECONDS = 365 * 24 * 3600.0
CLASSES = [f"class {number}" for number in range(10)]
HEALTH_SECONDS = 0.02
STARTS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between a person's requests")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # for the server
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), options)))


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    ids = make_jobs(folder / "jobs", options.jobs)
    starts, start_cpu = [], []
    for _ in range(STARTS):
        with server(folder) as (pid, _, seconds):
            starts.append(seconds)
            start_cpu.append(cpu_seconds(pid))
    executor = LocalExecutor(standby=False, program=[sys.executable, "-c", TRAINING, "7"])
    handle = start_training(folder / "jobs", executor)
    try:
        with server(folder) as (pid, port, _):
            time.sleep(SETTLE_SECONDS)
            before = cpu_seconds(pid)
            time.sleep(options.seconds)
            cpu = 100 * (cpu_seconds(pid) - before) / options.seconds
            before = cpu_seconds(pid)
            health, health_cpu, pages = browse(pid, port, ids, options)
            busy = 100 * (cpu_seconds(pid) - before) / options.seconds
    finally:
        executor.stop(handle)
        while executor.poll(folder / "jobs" / RUNNING / "train", handle) is None:
            time.sleep(0.05)
    stalls = re.findall(
        r"blocked for [\d.]+ s \(([\d.]+) s of CPU time\) by (.*)", (folder / "digits.log").read_text()
    )
    return {
        "jobs": options.jobs,
        "load": round(os.getloadavg()[0], 1),
        "start_seconds": [round(seconds, 2) for seconds in starts],
        "start_cpu_seconds": [round(seconds, 2) for seconds in start_cpu],
        "cpu_percent_unwatched": round(cpu, 2),
        "cpu_percent_browsed": round(busy, 1),
        "health_ms": quantiles(health),
        "health_cpu_ms": quantiles(health_cpu),
        "health_requests": len(health),
        "page_ms": {name: quantiles(times) for name, (times, _) in sorted(pages.items())},
        "page_kilobytes": {name: round(size / 1000) for name, (_, size) in sorted(pages.items())},
        "stalls": Counter(what for _, what in stalls),
        "targets": TARGETS,
    }


def make_jobs(jobs: Path, count: int) -> list[str]:
    """Write finished datasets with models created during the last year, and return their ids.

    Bypass the store, which would wait for the disk.
    """
    dice = random.Random(0)
    ids = []
    dataset = ""
    for number in range(count):
        job_id = f"20260101-{number // 1000:06d}-{number % 1000 + 1:06x}"
        folder = jobs / job_id
        folder.mkdir(parents=True)
        began = time.time() - YEAR_SECONDS * (1 - number / count)
        steps = [
            (Status.INIT, began),
            (Status.RUN, began + 1),
            (Status.DONE, began + dice.randrange(10, 9999)),
        ]
        facts: dict[str, Any] = {"id": job_id, "folder": folder, "history": steps}
        facts["group"] = f"group {dice.randrange(50)}"
        job: Job
        if number % (MODELS_PER_DATASET + 1) == 0:
            dataset = job_id
            recipe = CreateClassification(train=FolderSplit(folder="/data/flowers"))
            job = DatasetJob(
                **facts,
                name=f"flowers {number}",
                recipe=recipe,
                tasks=[Task(name="create", title="Create the records", history=steps)],
            )
            job.summary.record_bytes = dice.randrange(10**9)
            split = SplitRecords(count=1000, counts=[100] * 10, bytes=job.summary.record_bytes, shards=[])
            classification_manifest(CLASSES, {"train": split}, side=32, channels=3).save(folder)
        else:
            summary = Summary(
                sparkline=[round(dice.random(), 4) for _ in range(60)], last_accuracy=100 * dice.random()
            )
            job = ModelJob(
                **facts,
                name=f"LeNet {number} on flowers",
                recipe=Train(dataset=str(jobs / dataset)),
                dataset_id=dataset,
                tasks=[Task(name="train", title="Train the network", history=steps)],
                summary=summary,
            )
            (folder / "network.py").write_text("class UserModel(Tower):\n    pass\n")
            (folder / "snapshot_1.ckpt.index").touch()
        (folder / "job.json").write_text(json.dumps(job.as_json()))
        ids.append(job_id)
    return ids


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[int, int, float]]:
    """Run a server; yield its process id, its port, and the seconds from its start to the first response."""
    began = time.perf_counter()
    with product(folder, "--no-standby", *WITH_BACKGROUND_TASKS) as started:
        port = int(started.address.rpartition(":")[2])
        Client(port).get("/health")
        yield started.pid, port, time.perf_counter() - began


class Client:
    """A persistent HTTP connection, as a browser has."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(self, path: str) -> tuple[float, int]:
        """Return the duration in seconds and the size of the response in bytes."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers={"Accept": "text/html"})
        answer = self._connection.getresponse()
        size = len(answer.read())
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        return time.perf_counter() - began, size


def browse(
    pid: int, port: int, ids: list[str], options: argparse.Namespace
) -> tuple[list[float], list[float], dict[str, tuple[list[float], int]]]:
    """Return the wall and CPU times of `/health`, and the times and sizes of each type of page."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    people = context.Process(target=run_people, args=(port, ids, vars(options), results))
    people.start()
    results.get()  # all clients have opened the home page
    client, times, end = Client(port), [], time.monotonic() + options.seconds
    cpu_times = []
    while time.monotonic() < end:
        before = processor_seconds(pid)
        times.append(client.get("/health")[0])
        cpu_times.append(processor_seconds(pid) - before)
        time.sleep(HEALTH_SECONDS)
    pages = results.get()
    people.join()
    return times, cpu_times, pages


def processor_seconds(pid: int) -> float:
    """Return the CPU time of a process's main thread in seconds, with nanosecond resolution."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def run_people(port: int, ids: list[str], options: dict[str, Any], results: Any) -> None:
    pages: dict[str, tuple[list[float], int]] = {}
    sockets = [watch(port) for _ in range(options["people"])]
    for _, path in addresses(random.Random(0), *split(ids)):
        Client(port).get(path)  # the first request of each type imports modules and lists devices
    results.put(None)
    end = time.monotonic() + options["seconds"]
    threads = [
        threading.Thread(target=visit, args=(port, ids, number, options["pause"], end, pages))
        for number in range(options["people"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for socket in sockets:
        socket.close()
    results.put(pages)


def watch(port: int) -> simple_websocket.Client:
    """Receive the messages for the home page like its script."""
    socket = simple_websocket.Client(f"ws://127.0.0.1:{port}/socket.io/?EIO=4&transport=websocket")
    socket.send("40/jobs,")
    socket.send('42/jobs,["join",{"room":"job_management"}]')

    def receive() -> None:
        with contextlib.suppress(simple_websocket.ConnectionClosed):
            while True:
                if socket.receive() == "2":
                    socket.send("3")  # the answer to a ping

    threading.Thread(target=receive, daemon=True).start()
    return socket


def split(ids: list[str]) -> tuple[list[str], list[str]]:
    """Return the ids of the datasets and of the models."""
    datasets = ids[:: MODELS_PER_DATASET + 1]
    return datasets, sorted(set(ids) - set(datasets))


def addresses(dice: random.Random, datasets: list[str], models: list[str]) -> list[tuple[str, str]]:
    """Return the name and path of a page of each type."""
    order = dice.choice(("name", "last_accuracy", "elapsed", "bytes"))
    return [
        ("home", "/"),
        ("home, another page", f"/?models_page={dice.randrange(2, 20)}"),
        ("home, sorted", f"/?sort={order}"),
        ("home, searched", f"/?q=group+{dice.randrange(50)}"),
        ("model", f"/models/{dice.choice(models)}"),
        ("dataset", f"/datasets/{dice.choice(datasets)}"),
        ("new model", "/models/images/classification/new"),
        ("index.json", f"/index.json?page={dice.randrange(1, 90)}"),
        ("completed_jobs.json", f"/completed_jobs.json?page={dice.randrange(1, 90)}"),
    ]


def visit(
    port: int,
    ids: list[str],
    number: int,
    pause: float,
    end: float,
    pages: dict[str, tuple[list[float], int]],
) -> None:
    dice, client = random.Random(number), Client(port)
    datasets, models = split(ids)
    while (waited := dice.uniform(0, 2 * pause)) + time.monotonic() < end:
        time.sleep(waited)
        name, path = dice.choice(addresses(dice, datasets, models))
        seconds, size = client.get(path)
        times, largest = pages.get(name, ([], 0))
        pages[name] = [*times, seconds], max(size, largest)


if __name__ == "__main__":
    main()
