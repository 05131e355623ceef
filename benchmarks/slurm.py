"""Measure a server whose jobs run on Slurm, with a cluster of two nodes on this machine.

    .venv/bin/python benchmarks/slurm.py [--repeats 3] [--jobs 1000] [--seconds 60]

Prints two lines of JSON. The first one contains the median times in seconds from the request that creates a training to
the first row of its metrics: on this machine with and without a process that has loaded TensorFlow, and as a Slurm job.
The second one contains the CPU time of a server in percent of a core while ``--jobs`` jobs wait in the queue of Slurm,
and the number of queries per poll.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gevent
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.real_server import RealServer, create_dataset, start_training
from tests.runtime.executors.test_slurm import SlurmServer
from tests.site import bars
from tests.slurm_cluster import SlurmCluster

QUICK = {"train_epochs": 3, "snapshot_interval": 3, "random_seed": 1, "select_gpu": "cpu"}
TARGETS: dict[str, dict[str, Any]] = {
    "local": {},
    "slurm": {"compute_target": "slurm", "compute_memory_mb": 1000},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with SlurmCluster(folder / "cluster") as cluster:
            if options.repeats:
                print(json.dumps(first_points(folder, cluster, options.repeats)), flush=True)
            if options.jobs:
                print(
                    json.dumps(waiting(folder / "waiting", cluster, options.jobs, options.seconds)),
                    flush=True,
                )


def first_points(folder: Path, cluster: SlurmCluster, repeats: int) -> dict[str, float]:
    """Return the times from the creation of a training to its first row."""
    times: dict[str, list[float]] = {"local": [], "slurm": [], "local without standby": []}
    bars(folder / "data" / "bars")
    for standby in (True, False):
        server = RealServer(
            folder, "--slurm", *(() if standby else ("--no-standby",)), environment=cluster.environment
        )
        if standby:
            server.wait_until_warm()
        dataset = create_dataset(server)
        for _ in range(repeats):
            for target in TARGETS if standby else ("local",):
                seconds = first_point(server, dataset, TARGETS[target])
                times[target if standby else "local without standby"].append(seconds)
        server.stop()
    return {name: round(statistics.median(seconds), 2) for name, seconds in times.items()}


def first_point(server: RealServer, dataset: str, target: dict[str, Any]) -> float:
    began = time.monotonic()
    model = start_training(server, dataset, **QUICK, **target)
    while len(server.read(f"/models/{model}/metrics.csv").splitlines()) < 2:
        time.sleep(0.05)
    seconds = time.monotonic() - began
    server.wait_for_status(model, "Done")
    return seconds


def waiting(folder: Path, cluster: SlurmCluster, jobs: int, seconds: float) -> dict[str, float]:
    """Return what ``jobs`` that wait in the queue cost the server, in percent of a core."""
    server = SlurmServer(folder, cluster, list_seconds=5.0)
    cpu = {"none": cpu_percent(seconds / 2)}
    cluster.run("sbatch", "-N2", "-c2", "--mem=10", "--output=/dev/null", "--wrap=sleep 3600")
    began = time.monotonic()
    submitted = [server.run("finishes") for _ in range(jobs)]
    while not all("Slurm job" in job.waiting_for for job in submitted):
        gevent.sleep(0.5)
    submission = time.monotonic() - began
    gevent.sleep(10)
    queries, began = server.slurm.queries, time.monotonic()
    cpu["waiting"] = cpu_percent(seconds)
    elapsed = time.monotonic() - began
    queries = server.slurm.queries - queries
    commands = psutil.Process().cpu_times()
    server.scheduler.stop()
    server.runner.close()
    server.slurm.close()
    return {
        "jobs": jobs,
        "seconds_to_submit": round(submission, 1),
        "cpu_percent_without_jobs": cpu["none"],
        "cpu_percent": cpu["waiting"],
        "queries_per_minute": round(queries / elapsed * 60, 1),
        "queries_per_poll": round(queries / max(1, round(elapsed / 5.0)), 2),
        "cpu_seconds_of_all_commands": round(commands.children_user + commands.children_system, 1),
    }


def cpu_percent(seconds: float) -> float:
    """Return the CPU time of this process in the next ``seconds``, in percent of a core."""
    began, cpu = time.monotonic(), time.process_time()
    gevent.sleep(seconds)
    return round((time.process_time() - cpu) / (time.monotonic() - began) * 100, 2)


if __name__ == "__main__":
    main()
