"""Measure what many finished jobs cost: one round of the task runner, and the CPU time of an idle server.

    .venv/bin/python benchmarks/scheduler.py [--jobs 10000] [--seconds 20] [--rows-per-second 7]

Fills a jobs folder with finished models, and starts a task that logs events like a training. Prints one line of
JSON: the time of a round with that task running, and the CPU time of the command ``digits`` as a
percentage of one core, without any task and with it. Nobody watches the pages.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from product import WITH_BACKGROUND_TASKS, cpu_seconds, product

from digits.core.job import DeviceRequest
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.status import Status
from digits.core.task import Handle
from digits.kinds.jobs import JOB_TYPES
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import Placement
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.pools import Executors
from digits.runtime.scheduler import Scheduler
from digits.runtime.store import Store
from digits.runtime.task_runner import TaskRunner

TARGET_TICK_MS = 1.0
TARGET_CPU_PERCENT = 2.0
ROUNDS = 200
SETTLE_SECONDS = 5.0
DATASET = "20260101-000000-000000"
RUNNING = "20260102-000000-000000"
# Logs the same events as a training of a small network, at the same rate.
TRAINING = """
import json, sys, time
log = open(sys.argv[2] + "/events.jsonl", "a")
step, pause, progressed = 0, 1 / float(sys.argv[1]), 0
while True:
    step += 1
    values = {"loss": 1 / step, "accuracy": 0.5}
    events = [{"event": "measured", "stage": "train", "step": step, "epoch": step / 1000, "values": values}]
    if time.monotonic() - progressed > 0.5:
        progressed = time.monotonic()
        events.append({"event": "progressed", "fraction": step % 1000 / 1000, "seconds_left": 60.0})
    for event in events:
        log.write(json.dumps({"at": time.time(), **event}) + "\\n")
    log.flush()
    time.sleep(pause)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rows-per-second", type=float, default=7.0)
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # for the server
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), options)))


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    jobs = folder / "jobs"
    make_finished_jobs(jobs, options.jobs)
    idle = cpu_of_server(folder, options.seconds)
    program = [sys.executable, "-c", TRAINING, str(options.rows_per_second)]
    executor = LocalExecutor(standby=False, program=program)
    handle = start_training(jobs, executor)
    try:
        training = cpu_of_server(folder, options.seconds)
        rounds = time_rounds(jobs, executor)
    finally:
        executor.stop(handle)
        while executor.poll(jobs / RUNNING / "train", handle) is None:
            time.sleep(0.05)
    return {
        "jobs": options.jobs,
        "tick_ms_median": round(1000 * statistics.median(rounds), 3),
        "tick_ms_p99": round(1000 * sorted(rounds)[int(len(rounds) * 0.99)], 3),
        "tick_ms_target": TARGET_TICK_MS,
        "cpu_percent_idle": round(idle, 2),
        "cpu_percent_training": round(training, 2),
        "cpu_percent_target": TARGET_CPU_PERCENT,
    }


def make_finished_jobs(jobs: Path, count: int) -> None:
    for number in range(count):
        job_id = f"20260101-{number // 1000:06d}-{number % 1000 + 1:06x}"
        save_job(jobs / job_id, f"finished {number}", Status.DONE)


def save_job(folder: Path, name: str, status: Status, handle: Handle | None = None) -> None:
    """Write a model job; not by the store, which would wait for the disk each time."""
    task = ModelJob.first_tasks()[0]
    for step in (Status.WAIT, Status.RUN, Status.DONE):
        task.move(step)
        if step is status:
            break
    task.handle, task.devices = handle, ["cpu"]
    job = ModelJob(
        id=folder.name,
        folder=folder,
        name=name,
        tasks=[task],
        dataset_id=DATASET,
        recipe=Train(dataset=DATASET),
    )
    job.update_status()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(job.as_json()))


def start_training(jobs: Path, executor: LocalExecutor) -> Handle:
    folder = jobs / RUNNING / "train"
    folder.mkdir(parents=True)
    handle = executor.start(folder, Placement(DeviceRequest("training"), ("cpu",)))
    save_job(jobs / RUNNING, "running", Status.RUN, handle)
    return handle


def cpu_of_server(folder: Path, seconds: float) -> float:
    """CPU time of a server, as a percentage of one core."""
    with product(folder, "--no-standby", *WITH_BACKGROUND_TASKS) as server:
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(server.pid)
        time.sleep(seconds)
        return 100 * (cpu_seconds(server.pid) - before) / seconds


def time_rounds(jobs: Path, executor: LocalExecutor) -> list[float]:
    """Seconds of CPU time for each of `ROUNDS` rounds in which the running task is polled."""
    store = Store(jobs, JOB_TYPES)
    store.load()
    executor.ledger = DeviceLedger({"dataset": 1, "training": 1})
    runner = TaskRunner(Executors(executor), may_run=store.maintain)
    scheduler = Scheduler(store, runner)
    scheduler.start()
    measured = []
    for _ in range(ROUNDS):
        time.sleep(0.05)
        began = time.process_time()
        runner.tick()
        measured.append(time.process_time() - began)
    runner.close()
    store.close()
    return measured


if __name__ == "__main__":
    main()
