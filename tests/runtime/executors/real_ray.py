"""Jobs on the real cluster that `tests.ray_cluster` starts; without it, these tests are not collected."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from digits.core.status import Status
from digits.core.task import EVENTS_FILE, RANK_VARIABLE
from digits.runtime.executors.processes import processes_in
from digits.runtime.executors.ray import job as ray_job
from digits.runtime.executors.ray.executor import RayExecutor
from tests.ray_cluster import ADDRESS, PYTHON, TOKEN
from tests.real_server import RealServer, create_dataset, rows, start_training, weights
from tests.runtime.executors.cluster_jobs import PROGRAM, ClusterServer, kill_in_turn, message
from tests.site import bars
from tests.waiting import wait_until

KILLS = int(os.environ.get("DIGITS_RAY_KILLS", "4"))
KILLS_PER_TRAINING = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClusterServer]:
    program = [sys.executable, "-c", PROGRAM]
    python = os.environ[PYTHON]
    ray = RayExecutor(tmp_path, ADDRESS, token=TOKEN, python=python, program=program, list_seconds=1.0)
    with ClusterServer(tmp_path, "ray", ray) as server:
        yield server
    wait_until(lambda: not list(processes_in(tmp_path)))  # the program of a job ends after its record


def test_a_job_runs(server: ClusterServer) -> None:
    began = time.monotonic()
    job = server.run("finishes", memory_mb=100)
    server.wait_for_output(job, "rank 0")
    print(f"\nfrom the submission to the first line: {time.monotonic() - began:.1f} s")
    assert server.wait_for_end(job) is Status.DONE
    assert server.output(job) == "rank 0 of 1  ''\n"
    with pytest.raises(OSError, match="requires a token"):
        RayExecutor(job.folder, ADDRESS).overview()


def test_a_job_gets_its_gpu(server: ClusterServer) -> None:
    jobs = [server.run("hangs", gpus=1, cpus=1), server.run("finishes", gpus=1)]
    server.wait_for_output(jobs[0], "rank 0")
    assert server.output(jobs[0]) == "rank 0 of 1  '0'\n"
    server.scheduler.abort(jobs[0])
    assert server.wait_for_end(jobs[1]) is Status.DONE


def test_jobs_wait_and_are_aborted(server: ClusterServer) -> None:
    running = [server.run("saves slowly"), server.run("saves slowly")]
    for job in running:
        server.wait_for_output(job, "rank 0")
    waiting = server.run("counts")
    server.wait(lambda: "all suitable nodes are in use" in waiting.waiting_for)
    server.scheduler.abort(waiting)
    assert server.wait_for_end(waiting) is Status.ABORT
    for job in running:
        server.scheduler.abort(job)
    for job in running:
        assert server.wait_for_end(job) is Status.ABORT
        assert "saved" in server.output(job)  # takes longer than Ray would wait
    server.scheduler.resume(waiting)
    assert server.wait_for_end(waiting) is Status.DONE
    assert server.steps(waiting) == list(range(1, 61))


def test_a_gang_has_a_node_for_each_worker_and_ends_with_the_first_that_fails(server: ClusterServer) -> None:
    began = time.monotonic()
    job = server.run("finishes", workers=2)
    server.wait_for_output(job, "rank 0 of 2")
    print(f"\nfrom the submission to the first line of two workers: {time.monotonic() - began:.1f} s")
    assert server.wait_for_end(job) is Status.DONE
    assert (job.folder / "toy" / "rank-1.log").read_text().startswith("rank 1 of 2")
    job = server.run("loses one", workers=2)
    assert server.wait_for_end(job) is Status.ERROR
    assert message(job).startswith("Worker 1 of the task ended early with exit code 3.")
    job = server.run("hangs", workers=2)
    server.wait_for_output(job, "rank 0 of 2")
    server.scheduler.abort(job)
    assert server.wait_for_end(job) is Status.ABORT
    assert server.output(job).endswith("saved\n")


def test_a_gang_waits_for_all_of_its_nodes(server: ClusterServer) -> None:
    first = server.run("hangs")
    server.wait_for_output(first, "rank 0")
    gang = server.run("finishes", workers=2)
    server.wait(lambda: "free nodes" in gang.waiting_for)
    server.scheduler.abort(first)
    assert server.wait_for_end(gang) is Status.DONE


def test_a_job_whose_processes_are_killed_resumes_by_itself(server: ClusterServer) -> None:
    kill_in_turn(server, ("-c", PROGRAM), ("-m", ray_job.__name__))


def test_a_training_equals_a_local_one(tmp_path: Path) -> None:
    bars(tmp_path / "data" / "bars")
    server = RealServer(tmp_path, "--ray", ADDRESS, environment={**os.environ, "DIGITS_RAY_TOKEN": TOKEN})
    try:
        dataset = create_dataset(server)
        tables = []
        for target in ("local", "ray"):
            began = time.monotonic()
            training = {"train_epochs": 3, "random_seed": 1, "select_gpu": "cpu", "compute_target": target}
            model = start_training(server, dataset, **training)
            metrics = f"/models/{model}/metrics.csv"
            server.wait(lambda: server.read(metrics).count("\n") > 1)  # noqa: B023
            print(
                f"\nfrom the creation of a model to its first metrics, {target}: {time.monotonic() - began:.1f} s"
            )
            server.wait_for_status(model, "Done")
            tables.append(rows(server, model))
        assert tables[0] == tables[1] != []
    finally:
        server.stop()


def test_no_kill_changes_a_row_of_a_training(tmp_path: Path) -> None:
    """``DIGITS_RAY_KILLS`` is the number of kills, of the task, its supervisor or the program of the job."""
    bars(tmp_path / "data" / "bars")
    server = RealServer(tmp_path, "--ray", ADDRESS, environment={**os.environ, "DIGITS_RAY_TOKEN": TOKEN})
    chance, kills = random.Random(int(os.environ.get("DIGITS_SEED", "1"))), Counter[str]()
    training = {"train_epochs": 60, "snapshot_interval": 3, "random_seed": 1, "select_gpu": "cpu"}
    try:
        dataset = create_dataset(server)
        undisturbed = start_training(server, dataset, **training)
        server.wait_for_status(undisturbed, "Done")
        while kills.total() < KILLS:
            model = start_training(server, dataset, **training, compute_target="ray")
            folder = tmp_path / "jobs" / model
            until = min(KILLS, kills.total() + KILLS_PER_TRAINING)
            while kills.total() < until and server.ask(f"/models/{model}/status")["status"] != "Done":
                time.sleep(chance.uniform(0, 6))
                victim = chance.choice(("digits.worker", "supervisor.py", ray_job.__name__))
                kills[victim] += kill_one(folder, victim)
            wait_until(lambda: server.ask(f"/models/{model}/status")["status"] in ("Done", "Error"), 300)  # noqa: B023
            log = (folder / "train" / "ray.log").read_text()
            assert server.ask(f"/models/{model}/status")["status"] == "Done", (
                server.ask(f"/models/{model}.json"),
                log,
            )
            assert rows(server, model) == rows(server, undisturbed) != []
            assert weights(server, model) == weights(server, undisturbed) != {}
        print(f"\n{dict(kills)}: all with the rows and weights of an undisturbed training")
    finally:
        server.stop()


def kill_one(folder: Path, name: str) -> bool:
    """Kill a process of the task whose command line contains ``name``; return whether there was one."""
    for pid in processes_in(folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(word == name or word.endswith(f"/{name}") for word in psutil.Process(pid).cmdline()[:6]):
                psutil.Process(pid).kill()
                return True
    return False


def test_a_training_on_two_nodes_that_is_killed_and_aborted_equals_an_undisturbed_one(tmp_path: Path) -> None:
    bars(tmp_path / "data" / "bars")
    # The Python of DIGITS finds Ray after its own packages.
    ray = subprocess.check_output(
        [os.environ[PYTHON], "-c", "import sysconfig; print(sysconfig.get_path('purelib'), end='')"],
        text=True,
    )
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.path.append({ray!r})")
    variables = {**os.environ, "DIGITS_RAY_TOKEN": TOKEN, "PYTHONPATH": str(tmp_path)}
    server = RealServer(tmp_path, "--ray", ADDRESS, environment=variables)
    try:
        dataset = create_dataset(server)
        training = {"train_epochs": 15, "snapshot_interval": 5, "random_seed": 1, "select_gpu": "cpu"}
        single, pair = (
            start_training(server, dataset, **training, compute_workers=count) for count in (1, 2)
        )
        for model in (single, pair):
            server.wait_for_status(model, "Done")
        began = time.monotonic()
        model = start_training(server, dataset, **training, compute_workers=2, compute_target="ray")
        server.wait(lambda: len(rows(server, model)) > 3)
        print(
            f"\nfrom the creation of a model with two workers to its first rows: {time.monotonic() - began:.1f} s"
        )
        (second,) = (
            process
            for process in map(psutil.Process, processes_in(tmp_path / "jobs" / model))
            if "digits.worker" in process.cmdline()[:5] and process.environ().get(RANK_VARIABLE) == "1"
        )
        second.kill()
        events = tmp_path / "jobs" / model / "train" / EVENTS_FILE
        server.wait(lambda: '"resumed"' in events.read_text())
        before = len(rows(server, model))
        server.wait(lambda: len(rows(server, model)) > before + 1)
        server.ask(f"/models/{model}/abort", "POST")
        server.wait_for_status(model, "Aborted")
        server.ask(f"/models/{model}/resume", "POST")
        server.wait_for_status(model, "Done")
        assert rows(server, model) == rows(server, pair) != []
        assert weights(server, model) == weights(server, pair) != {}
        for row, other in zip(rows(server, pair), rows(server, single), strict=True):
            assert row.pop("stage") == other.pop("stage")
            numbers, others = ([float(text or "nan") for text in one.values()] for one in (row, other))
            assert numbers == pytest.approx(others, rel=1e-4, abs=1e-5, nan_ok=True)
    finally:
        server.stop()


def test_a_job_whose_node_dies_resumes_on_another(server: ClusterServer) -> None:
    """The last test, because the second node stays dead."""
    first = server.run("hangs", gpus=1)  # occupies the second node
    server.wait_for_output(first, "rank 0")
    blocker = server.run("hangs")  # occupies the head
    server.wait_for_output(blocker, "rank 0")
    job = server.run("counts slowly")
    server.scheduler.abort(first)
    server.wait(lambda: len(server.steps(job)) > 1)
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        if command[0].endswith("/raylet") and any("127.0.0.2" in part for part in command):
            for one in (*process.children(recursive=True), process):
                one.kill()
    server.scheduler.abort(blocker)
    began = time.monotonic()
    server.wait(lambda: server.output(job).count("counts from") == 2)
    (job.folder / "toy" / "hurry").touch()
    print(f"\nfrom the death of a node to the resume: {time.monotonic() - began:.1f} s")
    assert server.wait_for_end(job) is Status.DONE
    assert server.steps(job) == list(range(1, 61))
