"""Jobs on a stand-in for a Ray cluster, which answers as a real one was recorded to answer."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from digits.core.compute import Compute
from digits.core.job import DeviceRequest
from digits.core.status import Status
from digits.runtime.executors.processes import processes_in
from digits.runtime.executors.queued_run import MAX_STARTS
from digits.runtime.executors.ray import job as ray_job
from digits.runtime.executors.ray.executor import RayExecutor
from tests.ray_server import ACTOR_DIED, START_TIMEOUT, Job, RayServer
from tests.runtime.executors.cluster_jobs import (
    PROGRAM,
    ClusterServer,
    kill_in_turn,
    kill_programs,
    message,
)
from tests.runtime.toy_jobs import ToyJob
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

LIST_SECONDS = 0.2


def executor(folder: Path, ray: RayServer, **options: Any) -> RayExecutor:
    program = [sys.executable, "-c", PROGRAM]
    return RayExecutor(folder, ray.address, program=program, list_seconds=LIST_SECONDS, **options)


@pytest.fixture
def ray() -> Iterator[RayServer]:
    with RayServer() as ray:
        yield ray


@pytest.fixture
def server(tmp_path: Path, ray: RayServer) -> Iterator[ClusterServer]:
    with ClusterServer(tmp_path, "ray", executor(tmp_path, ray)) as server:
        yield server
    wait_until(lambda: not list(processes_in(tmp_path)))  # the program of a job ends after its record


def job_id(ray: RayServer, job: ToyJob) -> str:
    return next(id for id in ray.jobs if job.id in id)


def test_a_job_runs_as_it_does_locally(server: ClusterServer, ray: RayServer) -> None:
    job = server.run("finishes", cpus=2, memory_mb=100)
    assert server.wait_for_end(job) is Status.DONE
    assert server.output(job) == "rank 0 of 1  ''\n"
    (body,) = ray.bodies
    name = body["metadata"]["digits"]
    assert body["submission_id"] == name.replace(":", "-").replace("/", "-") and f":{job.id}/toy:" in name
    assert (body["entrypoint_num_cpus"], body["entrypoint_memory"]) == (2, 100 * 2**20)
    assert "runtime_env" not in body  # which every user of Ray's dashboard sees


def test_a_job_waits_with_a_reason_and_is_aborted_although_ray_does_not_stop_it(
    server: ClusterServer, ray: RayServer
) -> None:
    ray.places = 1
    first = server.run("hangs")
    server.wait_for_output(first, "rank 0")
    second = server.run("counts")
    server.wait(lambda: "all suitable nodes are in use (Ray job" in second.waiting_for)
    assert second.status is Status.WAIT and second.elapsed == 0
    server.scheduler.abort(second)
    assert server.wait_for_end(second) is Status.ABORT
    assert ray.jobs[job_id(ray, second)].status == "PENDING"
    # Resumed, it has a new id; the old job ends without doing anything once it gets a place.
    server.scheduler.resume(second)
    ray.places = 3
    server.wait(lambda: len(server.steps(second)) > 2)
    assert server.output(second).count("counts from 0") == 1
    server.scheduler.abort(first)
    assert server.wait_for_end(second) is Status.DONE
    assert server.wait_for_end(first) is Status.ABORT


def test_a_stopped_task_has_the_time_that_it_needs(server: ClusterServer, ray: RayServer) -> None:
    job = server.run("saves slowly")
    server.wait_for_output(job, "rank 0")
    server.scheduler.abort(job)
    assert server.wait_for_end(job) is Status.ABORT
    assert "saved" in server.output(job)
    assert not any(request.endswith("/stop") for request in ray.requests)


def test_a_job_canceled_in_ray_says_so_and_can_be_resumed(server: ClusterServer, ray: RayServer) -> None:
    job = server.run("counts")
    server.wait(lambda: len(server.steps(job)) > 2)
    ray.answer("POST", f"/api/jobs/{job_id(ray, job)}/stop", {})
    assert server.wait_for_end(job) is Status.ABORT
    assert "The job was canceled in Ray, not here." in message(job)
    server.scheduler.resume(job)
    assert server.wait_for_end(job) is Status.DONE
    assert server.steps(job) == list(range(1, 61))


def test_a_job_that_ray_gives_up_after_waiting_is_submitted_again(
    server: ClusterServer, ray: RayServer
) -> None:
    ray.places = 0
    job = server.run("finishes")
    server.wait(lambda: ray.jobs)
    ray.kill(job_id(ray, job), **START_TIMEOUT)
    ray.places = 1
    assert server.wait_for_end(job) is Status.DONE
    first, second = (body["submission_id"] for body in ray.bodies)
    assert (first[-2:], second) == ("-1", f"{first[:-2]}-2")
    server.wait(lambda: not ray.jobs)


def test_a_job_whose_node_is_lost_resumes_by_itself(
    server: ClusterServer, ray: RayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.executors.queued_run.FILE_SECONDS", 0.5)
    job = server.run("counts")
    server.wait(lambda: len(server.steps(job)) > 2)
    ray.kill(job_id(ray, job), **ACTOR_DIED)
    assert server.wait_for_end(job) is Status.DONE
    assert server.steps(job) == list(range(1, 61))
    text = server.output(job)
    # Its supervisor noticed the loss, and let it save its state.
    assert text.index("saved") < text.rindex("counts from")


def test_a_time_limit_interrupts_a_run_which_then_continues(
    server: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.executors.ray.executor.MINUTE_SECONDS", 4.0)
    job = server.run("counts slowly", minutes=1)
    server.wait(lambda: server.output(job).count("counts from") == 2)
    (job.folder / "toy" / "hurry").touch()
    assert server.wait_for_end(job) is Status.DONE
    assert server.steps(job) == list(range(1, 61))


def test_a_job_whose_processes_are_killed_resumes_by_itself(
    server: ClusterServer, ray: RayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.executors.queued_run.FILE_SECONDS", 0.5)
    kill_in_turn(server, ("-c", PROGRAM), ("-m", ray_job.__name__))


def test_a_job_that_is_killed_resumes_while_ray_still_takes_it_for_running(
    server: ClusterServer, ray: RayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.executors.queued_run.FILE_SECONDS", 0.5)
    ray.delay = 6.0
    job = server.run("counts")
    server.wait(lambda: len(server.steps(job)) > 2)
    kill_programs(job, ("-c", PROGRAM))
    assert server.wait_for_end(job) is Status.DONE, message(job)
    assert server.steps(job) == list(range(1, 61))
    assert server.output(job).count("counts from") == 2


def test_a_job_that_ray_can_never_start_fails(
    server: ClusterServer, ray: RayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digits.runtime.executors.queued_run.FILE_SECONDS", 0.0)
    ray.places = 0
    job = server.run("finishes")

    def fail_all() -> bool:
        for id in [id for id, started in ray.jobs.items() if started.status == "PENDING"]:
            ray.kill(id, **ACTOR_DIED)
        return not job.status.is_running

    server.wait(fail_all)
    assert "ended without a result: Job supervisor actor died" in message(job)


def test_an_answer_that_is_lost_does_not_end_a_job_that_starts_again(
    server: ClusterServer, ray: RayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is unknown whether Ray has the new job, while it still lists the old one."""
    monkeypatch.setattr("digits.runtime.executors.queued_run.FILE_SECONDS", 0.5)
    job = server.run("counts")
    server.wait(lambda: len(server.steps(job)) > 2)
    submit = ray._submit

    def submit_and_fail(body: dict[str, Any]) -> tuple[int, Any]:
        submit(body)
        monkeypatch.setattr(ray, "_submit", submit)
        return 500, "Traceback (most recent call last):\nTimeoutError: the agent did not answer\n"

    monkeypatch.setattr(ray, "_submit", submit_and_fail)
    kill_programs(job, ("-c", PROGRAM))
    assert server.wait_for_end(job) is Status.DONE, message(job)
    assert server.steps(job) == list(range(1, 61)) and len(ray.bodies) == 2


def test_a_job_that_the_head_forgets_resumes_by_itself(tmp_path: Path, ray: RayServer) -> None:
    with ClusterServer(tmp_path, "ray", executor(tmp_path, ray, lost_seconds=1.0)) as server:
        job = server.run("counts slowly")
        server.wait(lambda: len(server.steps(job)) > 1)
        ray.kill(job_id(ray, job), **ACTOR_DIED)
        ray.jobs.clear()
        (job.folder / "toy" / "hurry").touch()
        assert server.wait_for_end(job) is Status.DONE
        assert server.steps(job) == list(range(1, 61))


def test_a_job_that_the_head_never_lists_is_lost(tmp_path: Path, ray: RayServer) -> None:
    class Forgetful(dict[str, Job]):
        def __setitem__(self, id: str, job: Job) -> None: ...

    ray.jobs = Forgetful()
    with ClusterServer(tmp_path, "ray", executor(tmp_path, ray, lost_seconds=1.0)) as server:
        job = server.run("hangs")
        assert server.wait_for_end(job) is Status.ERROR
        assert "The job is no longer in Ray's queue, and left no result." in message(job)
        assert len(ray.bodies) == MAX_STARTS


def test_a_restarted_server_follows_its_jobs_while_ray_is_away(tmp_path: Path, ray: RayServer) -> None:
    server = ClusterServer(tmp_path, "ray", executor(tmp_path, ray))
    running = server.run("counts slowly")
    server.wait(lambda: server.steps(running))
    ray.close()
    submitted = server.run("finishes")
    server.wait(lambda: "Ray does not" in submitted.waiting_for)
    server.stop()
    with ClusterServer(tmp_path, "ray", executor(tmp_path, ray)) as server:
        running, submitted = (server.store.get(job.id, ToyJob) for job in (running, submitted))
        server.wait(lambda: len(server.steps(running)) > 1)
        assert running.status is Status.RUN and submitted.status is Status.WAIT
        with RayServer(port=ray.port) as again:
            again.jobs = ray.jobs
            (running.folder / "toy" / "hurry").touch()
            assert server.wait_for_end(running) is Status.DONE
            assert server.wait_for_end(submitted) is Status.DONE
            assert len(again.bodies) == 1


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_several_workers_without_ray_fail_with_what_to_install(server: ClusterServer) -> None:
    job = server.run("finishes", workers=2)
    assert server.wait_for_end(job) is Status.ERROR
    assert "Several workers need the package of Ray: No module named 'ray'." in message(job)


def test_what_the_cluster_does_not_have_is_refused(
    tmp_path: Path, ray: RayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = executor(tmp_path, ray)

    def refusal(gpus: int = 0, **compute: Any) -> str:
        request = DeviceRequest(
            "training", gpus * compute.get("workers", 1), compute=Compute(target="ray", **compute)
        )
        found = cluster.refusal(tmp_path / "job", request)
        return f"{found.message} {found.hint}" if found else ""

    assert refusal(2, workers=1) == ""
    if importlib.util.find_spec("ray") is None:
        assert "Several workers need the package of Ray in the Python of DIGITS. Install" in refusal(
            workers=2
        )
        monkeypatch.setattr("digits.runtime.executors.ray.executor.has_ray", lambda python: True)
    assert refusal(0, workers=2) == ""
    assert "have what one worker needs: 1. Workers: 2." in refusal(1, workers=2)
    assert "No node of the Ray cluster has 3 GPUs." in refusal(3)
    assert "No node of the Ray cluster has 9 cores." in refusal(cpus=9)
    assert "Ray has no partition" in refusal(partition="main")
    ray.token = "secret"
    assert refusal() == ""  # the job waits until Ray answers
    with pytest.raises(OSError, match="requires a token"):
        cluster.overview()
    assert executor(tmp_path, ray, token="secret").overview().nodes


def test_the_overview_shows_nodes(tmp_path: Path, ray: RayServer) -> None:
    nodes = executor(tmp_path, ray).overview().nodes
    assert [
        (node.name, node.state, node.cpus_used, node.cpus, node.gpus_used, node.gpus) for node in nodes
    ] == [
        ("127.0.0.1", "idle", 0, 4, 0, 0),
        ("127.0.0.2", "in use", 1, 8, 1, 2),
        ("127.0.0.3", "dead", 0, 0, 0, 0),
    ]
    assert nodes[0].memory_mb == 20107 and nodes[2].reason == "Unexpected termination"


@pytest.mark.tensorflow
def test_a_check_reports_what_works(tmp_path: Path, ray: RayServer) -> None:
    findings = {finding.title: finding for finding in executor(tmp_path, ray).check(tmp_path)}
    assert findings["Ray answers"].detail == "version 2.60.0, 3 nodes"
    assert findings["A job reads and writes files of the jobs folder"].is_ok
    assert findings["TensorFlow can be imported"].is_ok
    assert not findings["TensorFlow sees a GPU"].is_ok  # the stand-in has none
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.slow
def test_the_same_on_a_real_cluster() -> None:
    """Two nodes of Ray, in network and process namespaces of their own, so that nothing listens elsewhere or stays."""
    python = os.environ.get("DIGITS_RAY_PYTHON") or (
        sys.executable if importlib.util.find_spec("ray") else ""
    )
    if not python:
        pytest.skip(
            "Ray is not installed: pip install 'digits[ray]', or set DIGITS_RAY_PYTHON to a Python that has it"
        )
    isolated = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ]
    if not shutil.which("unshare") or subprocess.run([*isolated, "true"], capture_output=True).returncode:
        pytest.skip("this system does not permit namespaces of users")
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        command = [*isolated, sys.executable, "-m", "tests.ray_cluster", python, folder]
        subprocess.run(command, cwd=Path(__file__).parents[3], check=True, timeout=900)
