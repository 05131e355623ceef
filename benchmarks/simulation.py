"""Simulate an institute: 1,000 people, 10,000 GPUs and a million jobs a year, on one server without any real task.

    .venv/bin/python benchmarks/simulation.py [--jobs 10000] [--people 1000] [--gpus 10000] [--hours 2] [--seconds 20]

Fills a jobs folder with ``--jobs`` finished jobs and as many running trainings as keep nine tenths of the GPUs busy,
and measures three things, each in a process of its own. Prints one line of JSON.

- ``store``: the start of the store, the memory of each job, and the lists of the home page.
- ``schedule``: the scheduler during some hours of a fake clock, with an executor that starts nothing: trainings are
  submitted one by one and in sweeps, start, end, and wait for GPUs.
- ``serve``: the server with connected people, each with the home page open, while all running trainings log metrics.
  Nobody computes anything, so this is the load of the event loop alone.

Times are CPU times of the measured process, which depend little on other programs. The delay of the event loop is also
measured by wall time; its CPU time is about the delay on a core of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.client
import json
import multiprocessing
import os
import random
import resource
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from product import ROOT, classification_manifest, quantiles

from digits.core.events import Finished, Measured, Progressed, encode
from digits.core.job import Job, Summary
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.status import Status
from digits.core.task import EVENTS_FILE, Handle, Task
from digits.data.manifest import SplitRecords
from digits.kinds.classification.recipe import CreateClassification, FolderSplit
from digits.kinds.jobs import JOB_TYPES, DatasetJob
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import OUTPUT_LIMIT, Executor, Exit, Placement
from digits.runtime.executors.pools import Executors
from digits.runtime.job_index import COLUMNS
from digits.runtime.scheduler import Scheduler
from digits.runtime.store import Store
from digits.runtime.task_runner import TaskRun, TaskRunner

TARGETS = {"decision_p99_ms": 10, "loop_delay_p99_ms": 50}
YEAR_HOURS = 365 * 24.0
MODELS_PER_DATASET = 19
CLASSES = [f"class {number}" for number in range(10)]
JOBS_A_YEAR = 1_000_000
BUSY_SHARE = 0.9
# The numbers of GPUs of a training, and how many trainings of twenty ask for each.
GPU_COUNTS = {1: 10, 2: 4, 4: 3, 8: 2, 16: 1}
MEAN_GPUS = sum(count * share for count, share in GPU_COUNTS.items()) / sum(GPU_COUNTS.values())
SWEEP_HOURS, SWEEP_JOBS = 1.0, 500
RUNNING_ID = "20261001-{:06d}-{:06x}"
# What a running training logs: a row of metrics and its progress, at these intervals in seconds.
ROW_SECONDS, PROGRESS_SECONDS = 5.0, 10.0
# Pages that people open, and the seconds after which each open home page requests its lists again. Jobs are added,
# start and end every eight seconds on average, and pages wait for up to fifteen more.
PAGES_PER_SECOND, REFETCH_SECONDS = 5.0, 15.0
LAG_SECONDS = 0.01
SETTLE_SECONDS = 6.0
PING_SECONDS = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=2.0, help="simulated by the scheduler")
    parser.add_argument("--seconds", type=float, default=20.0, help="served to the people")
    parser.add_argument("--parts", default="store,schedule,serve")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        PARTS[options.part](options.folder, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(simulate(Path(folder), options)))


def simulate(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    ids = make_jobs(folder / "jobs", options.jobs)
    running = make_running_jobs(folder / "jobs", ids[0], options.gpus)
    result = {"jobs": options.jobs, "running": running, "load": round(os.getloadavg()[0], 1)}
    for part in options.parts.split(","):
        arguments = {"jobs": options.jobs, "people": options.people, "gpus": options.gpus}
        arguments |= {"hours": options.hours, "seconds": options.seconds, "folder": folder, "part": part}
        words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        program = subprocess.Popen(
            [sys.executable, __file__, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert program.stdout
        with program.stdout as lines:
            if part == "serve":
                port = json.loads(lines.readline())["port"]
                result["people"] = visit(port, folder / "jobs", ids, options)
            result[part] = json.loads(lines.readlines()[-1])
        program.wait()
    return {**result, "targets": TARGETS}


# The world: jobs, a clock and a cluster


def mean_hours(gpus: int) -> float:
    """Return the mean running time in hours at which a million trainings a year keep the GPUs busy."""
    return BUSY_SHARE * gpus * YEAR_HOURS / (JOBS_A_YEAR * MEAN_GPUS)


def gpu_count(dice: random.Random) -> int:
    return dice.choices(list(GPU_COUNTS), list(GPU_COUNTS.values()))[0]


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
        began = time.time() - YEAR_HOURS * 3600 * (1 - number / count)
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


def make_running_jobs(jobs: Path, dataset: str, gpus: int) -> int:
    """Write the trainings that run; return their number."""
    dice, used, number = random.Random(1), 0, 0
    while (count := gpu_count(dice)) + used <= BUSY_SHARE * gpus:
        job_id = RUNNING_ID.format(number // 1000, number % 1000 + 1)
        job = new_model(jobs / job_id, dataset, count)
        task = job.tasks[0]
        for status in (Status.WAIT, Status.RUN):
            task.move(status)
        task.handle = {"hours": dice.expovariate(1 / mean_hours(gpus))}
        task.devices = [str(used + index) for index in range(count)]
        job.update_status()
        job.task_folder(task).mkdir(parents=True)
        (job.folder / "network.py").write_text("class UserModel(Tower):\n    pass\n")
        (job.folder / "job.json").write_text(json.dumps(job.as_json()))
        used, number = used + count, number + 1
    return number


def new_model(folder: Path, dataset: str, gpus: int) -> ModelJob:
    recipe = Train(dataset=str(folder.with_name(dataset)))
    name = f"LeNet on {gpus} GPUs"
    return ModelJob.create(folder, name=name, recipe=recipe, dataset_id=dataset, device=f"next:{gpus}")


class Clock:
    """A clock that only the simulation advances, in seconds."""

    def __init__(self) -> None:
        self._wall, self.passed = time.time(), 0.0

    def monotonic(self) -> float:
        return 1e6 + self.passed

    def time(self) -> float:
        return self._wall + self.passed

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        with patch("time.monotonic", self.monotonic), patch("time.time", self.time):
            yield


class Cluster(Executor):
    """An executor that runs nothing: each run ends after the hours in its handle, by ``clock``."""

    poll_seconds = 5.0
    stop_seconds = 10.0

    def __init__(self, gpus: int, clock: Callable[[], float] = time.monotonic) -> None:
        known = tuple(map(str, range(gpus)))
        self.ledger = DeviceLedger({}, gpus=lambda: known)
        self._clock, self._began = clock, clock()
        self._dice, self._hours = random.Random(2), mean_hours(gpus)

    def start(self, folder: Path, placement: Placement, *, run: int = 1, owned: bool = False) -> Handle:
        passed = (self._clock() - self._began) / 3600
        return {"hours": passed + self._dice.expovariate(1 / self._hours)}

    def find(self, folder: Path, run: int) -> Handle | None:
        return None

    def is_alive(self, handle: Handle) -> bool:
        return (self._clock() - self._began) / 3600 < handle["hours"]

    def poll(self, folder: Path, handle: Handle | None) -> Exit | None:
        if handle is None or self.is_alive(handle):
            return None
        with open(folder / EVENTS_FILE, "ab") as log:
            log.write(encode(Finished()))
        return Exit(code=0)

    def stop(self, handle: Handle) -> None: ...

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        return True

    def output(self, folder: Path, after: int = 0, limit: int = OUTPUT_LIMIT) -> tuple[str, int]:
        return "", 0


# Part 1: the store


def measure_store(folder: Path, options: argparse.Namespace) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    store = Store(folder / "jobs", JOB_TYPES)
    wall, (seconds, _) = time.perf_counter(), timed(store.load)
    wall, count = time.perf_counter() - wall, len(store.all(ModelJob)) + len(store.all(DatasetJob))
    job = store.all(ModelJob)[0]
    lists = {
        "home": lambda: home_lists(store),
        "home after a change": lambda: (store.index.update(job), changed(job), home_lists(store)),
        "home, searched": lambda: home_lists(store, "group 7"),
    }
    for column in COLUMNS:
        lists[f"home by {column} after a change"] = functools.partial(sorted_lists, store, column)
    times = {name: quantiles([timed(call)[0] for _ in range(5)])["p50"] for name, call in lists.items()}
    print(
        json.dumps(
            {
                "load_seconds": round(wall, 2),
                "load_cpu_seconds": round(seconds, 2),
                "load_cpu_ms_per_job": round(1000 * seconds / count, 3),
                "bytes_per_job": round((process.memory_info().rss - before) / count),
                "megabytes": round(process.memory_info().rss / 1e6),
                "list_ms": times,
            }
        )
    )
    store.close()


def changed(job: ModelJob) -> None:
    job.summary.last_accuracy = (job.summary.last_accuracy or 0.0) + 0.001


def home_lists(store: Store, words: str = "", sort: str = "") -> None:
    """Select the jobs of the home page like `digits.web.pages.home`."""
    for job_type in (ModelJob, DatasetJob):
        store.index.select(job_type, words, sort, running=True)
        store.index.select(job_type, "", running=True)
        store.index.select(job_type, words, sort, running=False)


def sorted_lists(store: Store, column: str) -> None:
    for table in store.index._tables.values():
        table.forget_orders({column})
    home_lists(store, sort=column)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of ``call()`` in seconds, and its result."""
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


# Part 2: the scheduler


def measure_schedule(folder: Path, options: argparse.Namespace) -> None:
    clock = Clock()
    with clock.installed():
        print(json.dumps(schedule(folder, options, clock)))


def schedule(folder: Path, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    store = Store(folder / "jobs", JOB_TYPES)
    store.load()
    runner = TaskRunner(Executors(Cluster(options.gpus, clock.monotonic)), may_run=store.maintain)
    scheduler = Scheduler(store, runner)
    scheduler.start()
    decisions, rounds, saves = [], [], []
    # The server starts each run in a greenlet of its own, after the round.
    later: list[TaskRun] = []
    start = runner._start
    runner._start = later.append  # type: ignore[method-assign, assignment]
    decide = runner.every_round[0]

    def timed_decision() -> None:
        has_candidates = bool(scheduler._waiting)
        seconds, _ = timed(decide)
        if has_candidates:
            decisions.append(seconds)

    runner.every_round[0] = timed_decision
    dice, dataset = random.Random(3), store.all(DatasetJob)[0].id
    arrivals = list(arrival_times(dice, options.hours))
    submitted: dict[str, float] = {}
    waits: dict[str, float] = {}
    longest_queue = 0
    steps = sorted(
        {*(moment for moment, _ in arrivals), *(n * 30.0 for n in range(int(options.hours * 120)))}
    )
    coming = iter([*arrivals, (float("inf"), 0)])
    moment, count = next(coming)
    for step in steps:
        clock.passed = step
        while moment <= step:
            jobs = [new_model(store.new_folder(), dataset, gpu_count(dice)) for _ in range(count)]
            for job in jobs:
                (job.folder / "network.py").write_text("class UserModel(Tower):\n    pass\n")
                submitted[job.id] = step
            saves.append(timed(lambda jobs=jobs: scheduler.submit(*jobs))[0] / count)
            moment, count = next(coming)
        rounds.append(timed(runner.tick)[0])
        for run in later:
            start(run)
            waits[run.folder.parent.name] = step - submitted.get(run.folder.parent.name, step)
        later.clear()
        queue = [job for job in store.running() if job.status is not Status.RUN]
        longest_queue = max(longest_queue, len(queue))
    started = sorted(wait for job_id, wait in waits.items() if job_id in submitted)
    result = {
        "hours": options.hours,
        "submitted": len(submitted),
        "started": len(started),
        "longest_queue": longest_queue,
        "decisions": len(decisions),
        "decision_ms": quantiles(decisions, 2),
        "round_ms": quantiles(rounds, 2),
        "submit_ms_per_job": quantiles(saves, 2),
        "wait_seconds": {
            "p50": statistics.median(started),
            "p99": started[int(len(started) * 0.99)],
            "max": started[-1],
        },
    }
    runner.close()
    store.close()
    return result


def arrival_times(dice: random.Random, hours: float) -> Iterator[tuple[float, int]]:
    """Yield the times of submissions in seconds, oldest first, and the numbers of trainings submitted."""
    sweeps = [(n + 0.5) * SWEEP_HOURS for n in range(int(hours / SWEEP_HOURS))]
    single = JOBS_A_YEAR / YEAR_HOURS - SWEEP_JOBS / SWEEP_HOURS * 0.1
    moments = [(moment * 3600, SWEEP_JOBS) for moment in sweeps]
    now = dice.expovariate(single)
    while now < hours:
        moments.append((now * 3600, 1))
        now += dice.expovariate(single)
    yield from sorted(moments)


# Part 3: the server


def measure_server(folder: Path, options: argparse.Namespace) -> None:
    from digits.cli.main import patch_standard_library

    patch_standard_library()

    import gevent

    from digits.web.app import create_app, load_pages
    from digits.web.server import http as servers
    from tests.site import site_settings

    files: Counter[str] = Counter()
    count_files(files)
    began = time.process_time()
    settings = site_settings(folder, allowed_hosts=("127.0.0.1",))
    app = create_app(settings, executor=Cluster(options.gpus))
    services = app.extensions["digits"]
    start_seconds = time.process_time() - began
    delays: list[float] = []
    cpu_delays: list[float] = []
    published: Counter[str] = Counter()
    publish = services.live.publish

    def counted(room: str, event: str, body: dict[str, Any]) -> None:
        published["to everyone" if room == "job_management" else "to a page"] += 1
        publish(room, event, body)

    services.live.publish = counted
    marks: dict[str, float] = {}

    def measure_delays() -> None:
        while True:
            before, cpu = time.perf_counter(), time.thread_time()
            gevent.sleep(LAG_SECONDS)
            delays.append(time.perf_counter() - before - LAG_SECONDS)
            cpu_delays.append(min(delays[-1], time.thread_time() - cpu))

    def begin(*_: Any) -> None:
        """Forget what was measured before all people were connected."""
        delays.clear()
        cpu_delays.clear()
        files.clear()
        published.clear()
        marks.update(wall=time.perf_counter(), cpu=time.process_time())

    def ready(port: int) -> None:
        load_pages(app)
        print(json.dumps({"port": port}), flush=True)
        gevent.spawn(measure_delays)
        begin()

    gevent.signal_handler(signal.SIGUSR1, begin)
    limits = {"max_connections": 2 * options.people + 100, "max_connections_per_address": None}
    servers.serve(app, ("127.0.0.1", 0), socketio=services.live.socketio, on_start=ready, **limits)
    wall = time.perf_counter() - marks["wall"]
    result = {
        "start_cpu_seconds": round(start_seconds, 2),
        "loop_delay_ms": quantiles(delays),
        "loop_delay_cpu_ms": quantiles(cpu_delays),
        "cpu_percent": round(100 * (time.process_time() - marks["cpu"]) / wall, 1),
        "files_per_second": {name: round(count / wall) for name, count in files.most_common()},
        "messages_per_second": {name: round(count / wall, 1) for name, count in published.items()},
        "megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
    }
    services.stop()
    print(json.dumps(result), flush=True)


def count_files(counts: Counter[str]) -> None:
    """Count the calls that look at files or open, list or rename them."""
    for name in ("stat", "lstat"):
        setattr(os, name, counting(getattr(os, name), name, counts))
    named = {"open": "open", "os.listdir": "list", "os.scandir": "list", "os.rename": "rename"}

    def note(event: str, arguments: Any) -> None:
        if event in named:
            counts[named[event]] += 1

    sys.addaudithook(note)


def counting(call: Callable[..., Any], name: str, counts: Counter[str]) -> Callable[..., Any]:
    def counted(*arguments: Any, **keywords: Any) -> Any:
        counts[name] += 1
        return call(*arguments, **keywords)

    return counted


# The people


def visit(port: int, jobs: Path, ids: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Connect the people, let all trainings log and some people browse; return the times of pages."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    server = next(
        connection.pid for connection in psutil.net_connections("tcp4") if connection.laddr.port == port
    )
    arguments = (port, server, jobs, ids, options.people, options.seconds, results)
    people = context.Process(target=be_people, args=arguments)
    people.start()
    answer: dict[str, Any] = results.get()
    people.join()
    return answer


def be_people(
    port: int, server: int, jobs: Path, ids: list[str], people: int, seconds: float, results: Any
) -> None:
    running = sorted(jobs.glob("20261001-*"))
    first = Browser(port)
    for path in addresses(random.Random(4), *split(ids)):
        first.open(path)  # the first request of each type imports modules and lists devices
    selector = selectors.DefaultSelector()
    for _ in range(people):
        selector.register(watch(port), selectors.EVENT_READ)
    start = time.monotonic() + SETTLE_SECONDS
    end, began = start + seconds, 0.0
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    browsers = context.Process(target=browse, args=(port, ids, people, start, end, answers))
    browsers.start()  # in a process of its own, which reading the messages does not delay
    logged = time.monotonic()
    next_ping, received, step = logged + PING_SECONDS, 0, 0
    while time.monotonic() < end:
        if not began and time.monotonic() >= start:
            began, received = time.monotonic(), 0
            os.kill(server, signal.SIGUSR1)
        for key, _ in selector.select(0.01):
            data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
            received += len(data)
            if not data:
                selector.unregister(key.fileobj)
        for _ in range(int((time.monotonic() - logged) / ROW_SECONDS * len(running))):
            log(running[step % len(running)], step // len(running))
            step, logged = step + 1, logged + ROW_SECONDS / len(running)
        if time.monotonic() >= next_ping:
            next_ping += PING_SECONDS
            for key in list(selector.get_map().values()):
                key.fileobj.sendall(frame("3"))  # type: ignore[union-attr]
    connected = len(selector.get_map())
    megabits = round(received * 8 / (time.monotonic() - began) / 1e6, 1)
    os.kill(server, signal.SIGTERM)
    results.put({"connected": connected, "megabits_per_second": megabits, **answers.get()})
    browsers.join()


def browse(port: int, ids: list[str], people: int, start: float, end: float, answers: Any) -> None:
    """Open pages, and request the lists of open home pages, from ``start`` to ``end``."""
    dice = random.Random(5)
    pages, lists = Browser(port), Browser(port, {"X-Fragment": "jobs"})
    threads = [
        threading.Thread(target=pages.run, args=(start, end, PAGES_PER_SECOND, lambda: a_page(dice, ids))),
        threading.Thread(target=lists.run, args=(start, end, people / REFETCH_SECONDS, lambda: "/")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.put({"pages": pages.result(end - start), "lists": lists.result(end - start)})


def a_page(dice: random.Random, ids: list[str]) -> str:
    return dice.choice(addresses(dice, *split(ids)))


def split(ids: list[str]) -> tuple[list[str], list[str]]:
    """Return the ids of the datasets and of the models."""
    datasets = ids[:: MODELS_PER_DATASET + 1]
    return datasets, sorted(set(ids) - set(datasets))


def addresses(dice: random.Random, datasets: list[str], models: list[str]) -> list[str]:
    """Return the path of a page of each type."""
    order = dice.choice(("name", "last_accuracy", "elapsed", "bytes"))
    return [
        "/",
        f"/?models_page={dice.randrange(2, 20)}",
        f"/?sort={order}",
        f"/?q=group+{dice.randrange(50)}",
        f"/models/{dice.choice(models)}",
        f"/datasets/{dice.choice(datasets)}",
        "/models/images/classification/new",
        f"/index.json?page={dice.randrange(1, 90)}",
        f"/completed_jobs.json?page={dice.randrange(1, 90)}",
    ]


class Browser:
    """Requests pages one after another, and notes how long each takes."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self._client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Accept": "text/html", **(headers or {})}
        self._times: list[float] = []

    def run(self, start: float, end: float, rate: float, path: Callable[[], str]) -> None:
        """Request a page ``rate`` times in a second, or as often as the server answers, until ``end``."""
        due = start
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            asked = time.monotonic()
            with contextlib.suppress(OSError, http.client.HTTPException):  # the server ends
                self.open(path())
                self._times.append(time.monotonic() - asked)
            due = max(due + 1 / rate, time.monotonic() - 1)

    def open(self, path: str) -> None:
        self._client.request("GET", path, headers=self._headers)
        answer = self._client.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")

    def result(self, seconds: float) -> dict[str, Any]:
        times = {"ms": quantiles(self._times)} if self._times else {}
        return {"per_second": round(len(self._times) / seconds, 1), **times}


def log(job: Path, row: int) -> None:
    values = {"loss": 1 / (row + 1), "accuracy": 0.5}
    lines = encode(Measured(stage="train", step=row, epoch=row / 100, values=values))
    if row % round(PROGRESS_SECONDS / ROW_SECONDS) == 0:
        lines += encode(Progressed(fraction=row % 1000 / 1000, seconds_left=60.0))
    with open(job / "train" / EVENTS_FILE, "ab") as file:
        file.write(lines)


def watch(port: int) -> socket.socket:
    """Open a websocket and join the room of the home page, like its script."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(
        f"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    answer = connection.recv(4096)
    if b" 101 " not in answer:
        raise SystemExit(f"no websocket: {answer!r}")
    connection.sendall(frame("40/jobs,"))
    connection.sendall(frame('42/jobs,["join",{"room":"job_management"}]'))
    return connection


def frame(text: str) -> bytes:
    """Return the frame of a short text, masked with zeros."""
    data = text.encode()
    return bytes([0x81, 0x80 | len(data), 0, 0, 0, 0]) + data


PARTS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "store": measure_store,
    "schedule": measure_schedule,
    "serve": measure_server,
}

if __name__ == "__main__":
    main()
