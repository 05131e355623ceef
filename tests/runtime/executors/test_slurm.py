"""Jobs on a real Slurm cluster of two nodes, with small programs instead of TensorFlow."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from digits.core.compute import Compute
from digits.core.job import DeviceRequest
from digits.core.status import Status
from digits.runtime.executors.node_job import ATTEMPT_FILE, EXIT_FILE, MAX_FRUITLESS
from digits.runtime.executors.processes import processes_in
from digits.runtime.executors.slurm import batch
from digits.runtime.executors.slurm.executor import (
    UNREACHABLE,
    SlurmExecutor,
    command_environment,
    option_problem,
    parse_node,
    reason_in_words,
)
from tests.runtime.executors.cluster_jobs import PROGRAM, ClusterServer, kill_in_turn, message
from tests.runtime.toy_jobs import ToyJob
from tests.slurm_cluster import SlurmCluster, open_cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

LIST_SECONDS = 1.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    yield from open_cluster(tmp_path_factory.mktemp("slurm"))


@pytest.fixture
def healthy(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster, with all of its parts running and all jobs gone after the test."""
    yield cluster
    cluster.heal()
    cluster.skip_lost_ids()
    cluster.cancel_all()


class SlurmServer(ClusterServer):
    """A server whose jobs run on ``cluster``."""

    def __init__(self, folder: Path, cluster: SlurmCluster, **options: Any) -> None:
        environment = options.pop("environment", cluster.environment)
        program = [sys.executable, "-c", PROGRAM]
        self.slurm = SlurmExecutor(
            folder, program=program, environment=environment, **{"list_seconds": LIST_SECONDS, **options}
        )
        super().__init__(folder, "slurm", self.slurm, memory_mb=100)


@pytest.fixture
def server(tmp_path: Path, healthy: SlurmCluster, caplog: pytest.LogCaptureFixture) -> Iterator[SlurmServer]:
    with SlurmServer(tmp_path / "jobs", healthy) as server:
        yield server
    assert not list(processes_in(tmp_path))
    logged = [*caplog.get_records("call"), *caplog.get_records("teardown")]
    assert [record.getMessage() for record in logged if record.levelno >= logging.ERROR] == []


def test_a_job_runs_on_a_node_as_it_does_locally(server: SlurmServer, cluster: SlurmCluster) -> None:
    job = server.run("finishes")
    assert server.wait_for_end(job) is Status.DONE
    assert server.output(job) == "rank 0 of 1 n1 ''\n"
    record = json.loads((job.folder / "toy" / "exit.json").read_text())
    assert (record["code"], record["stopped"], record["run"]) == (0, False, 1)
    assert server.slurm.queries <= 1 + 60 / LIST_SECONDS


def test_a_job_waits_with_a_reason_and_is_aborted_in_the_queue(
    server: SlurmServer, cluster: SlurmCluster
) -> None:
    first = server.run("hangs", workers=2, cpus=2, minutes=60)
    server.wait_for_output(first, "rank 0 of 2")
    second = server.run("counts", cpus=2)
    server.wait(lambda: "Resources" in second.waiting_for)
    assert second.status is Status.WAIT and second.elapsed == 0
    assert "all suitable nodes are in use (Slurm job" in second.waiting_for
    server.wait(lambda: second.expected_start and second.expected_start > time.time() + 1800)
    server.scheduler.abort(second)
    assert server.wait_for_end(second) is Status.ABORT
    assert cluster.jobs() == ["RUNNING"]
    server.scheduler.remove(first)
    assert not first.folder.exists() and not cluster.jobs("--states=RUNNING")


def test_an_aborted_job_saves_its_state_and_is_resumed_by_the_user(
    server: SlurmServer, cluster: SlurmCluster
) -> None:
    job = server.run("counts")
    server.wait(lambda: len(server.steps(job)) > 2)
    server.scheduler.abort(job)
    assert server.wait_for_end(job) is Status.ABORT
    assert "saved" in server.output(job) and job.failure is None
    server.scheduler.resume(job)
    assert server.wait_for_end(job) is Status.DONE
    assert server.steps(job) == list(range(1, 61))


def test_a_preempted_job_resumes_by_itself(server: SlurmServer, cluster: SlurmCluster) -> None:
    job = server.run("counts slowly", workers=1, cpus=2, options=["--nodelist=n1"])
    server.wait(lambda: server.steps(job))
    urgent = server.run("finishes", partition="urgent", cpus=2, options=("--nodelist=n1",))
    server.wait(lambda: job.status is Status.WAIT and job.waiting_for)
    (job.folder / "toy" / "hurry").touch()
    assert server.wait_for_end(urgent) is Status.DONE
    assert server.wait_for_end(job) is Status.DONE
    assert server.steps(job) == list(range(1, 61))
    text = server.output(job)
    assert "counts from 0" in text and text.index("saved") < text.rindex("counts from")
    assert text.rstrip().endswith("1")  # DIGITS_RESTARTED


def test_jobs_are_canceled_requeued_and_signaled_on_their_own(
    server: SlurmServer, cluster: SlurmCluster
) -> None:
    first, second = jobs = server.sweep(2, "counts slowly", cpus=2)
    server.wait(lambda: all(server.steps(job) for job in jobs))  # one on each node
    waiting = server.run("counts slowly", cpus=2)
    server.wait(lambda: "Slurm job" in waiting.waiting_for)

    def name(job: ToyJob) -> str:
        return cluster.run("squeue", "-h", "-o", "%i", "-n", f"digits-{job.id}-toy").strip()

    cluster.run("scancel", name(waiting))
    assert server.wait_for_end(waiting) is Status.ABORT
    assert message(waiting).startswith("The job was canceled in Slurm, not here.")
    cluster.run("scontrol", "requeue", name(first))
    cluster.run("scancel", "--signal=TERM", f"{name(second)}.0")
    for job in jobs:
        (job.folder / "toy" / "hurry").touch()
    for job in jobs:
        assert server.wait_for_end(job) is Status.DONE
        assert server.steps(job) == list(range(1, 61))
        assert server.output(job).count("counts from") == 2
    logs = [(job.folder / "toy" / "slurm.log").read_text() for job in jobs]
    assert "DUE TO JOB REQUEUE" in logs[0] and "queued again after an interruption" in logs[1]
    assert not cluster.jobs()


@pytest.mark.nightly
@pytest.mark.slow
def test_a_job_whose_processes_are_killed_resumes_by_itself(server: SlurmServer) -> None:
    kill_in_turn(server, ("-c", PROGRAM), ("-m", batch.__name__))


def test_a_gang_ends_with_the_rank_that_failed_first(server: SlurmServer) -> None:
    job = server.run("loses one", workers=2)
    assert server.wait_for_end(job) is Status.ERROR
    assert message(job).startswith("Worker 1 of the task ended early with exit code 3.")
    assert server.output(job).startswith("rank 0 of 2 n1")
    assert (job.folder / "toy" / "rank-1.log").read_text().startswith("rank 1 of 2 n2")


def test_what_slurm_refuses_fails_with_its_message(server: SlurmServer) -> None:
    job = server.run("finishes", partition="nope")
    assert server.wait_for_end(job) is Status.ERROR
    assert "invalid partition specified: nope" in message(job).lower()
    assert "Choose one of the partitions main, urgent." in message(job)

    def refusal(**compute: Any) -> str:
        request = DeviceRequest("training", compute=Compute(target="slurm", **compute))
        found = server.slurm.refusal(job.folder, request)
        return f"{found.message} {found.hint}" if found else ""

    assert refusal(partition="urgent", workers=2) == ""
    assert "Request fewer workers" in refusal(workers=3)
    assert "DIGITS sets --output itself" in refusal(options=("--output=x",))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--array=1-5", "DIGITS sets --array itself."),
        ("--arra=1-5", "--arra is short for --array, which DIGITS sets itself."),
        ("--out=x", "--out is short for --output, which DIGITS sets itself."),
        ("--wra=:", "--wra is short for --wrap, which DIGITS sets itself."),
        ("--clusters=b", "DIGITS sets --clusters itself."),
        ("--tasks-per-node=4", "DIGITS sets --tasks-per-node itself."),
        ("--workdir=/", "DIGITS sets --workdir itself."),
        ("--no-r", "--no-r is short for --no-requeue, which DIGITS sets itself."),
        ("--account", "--account needs a value, as in --account=VALUE."),
        ("--mem", "--mem needs a value, as in --mem=VALUE."),
        ("--constraint=a100", ""),
        ("--constr=a100", ""),
        ("--mem=10G", ""),
        ("--exclusive", ""),
        ("--exclusive=user", ""),
        ("--nodelist=n1", ""),
        ("--gres-flags=enforce-binding", ""),
        ("--ntasks-per-core=1", ""),
    ],
)
def test_options_that_digits_sets_are_refused_also_if_they_are_shortened(option: str, words: str) -> None:
    problem = option_problem(("--hold", option))
    assert (problem[0] if problem else "") == words


def test_jobs_are_accepted_while_nodes_are_drained_or_the_controller_is_away(
    server: SlurmServer, healthy: SlurmCluster
) -> None:
    """Slurm queues them, and the server keeps them until then, but ``sbatch --test-only`` does not say so."""

    def refusal(**compute: Any) -> str:
        request = DeviceRequest("training", compute=Compute(target="slurm", memory_mb=100, **compute))
        found = server.slurm.refusal(server.store.folder, request)
        return f"{found.message} {found.hint}" if found else ""

    healthy.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    assert refusal(workers=2) == refusal(options=("--nodelist=n1",)) == ""
    assert "Request fewer cores" in refusal(cpus=4)
    assert "has 2 nodes" in refusal(workers=3)
    job = server.run("finishes", workers=2)
    server.wait(lambda: "down, drained or reserved" in job.waiting_for)
    assert healthy.jobs() == ["PENDING"]
    healthy.heal()
    assert server.wait_for_end(job) is Status.DONE
    healthy.kill("controller", signal.SIGTERM)
    assert refusal() == ""


def test_a_restarted_server_follows_its_jobs_while_the_controller_is_away(
    tmp_path: Path, healthy: SlurmCluster
) -> None:
    server = SlurmServer(tmp_path / "jobs", healthy)
    running = server.run("counts slowly")
    server.wait(lambda: server.steps(running))
    submitted = server.run("hangs")
    healthy.kill("controller")
    server.wait(lambda: submitted.waiting_for)
    server.stop()
    with SlurmServer(tmp_path / "jobs", healthy) as server:
        running, submitted = (server.store.get(job.id, ToyJob) for job in (running, submitted))
        server.wait(lambda: len(server.steps(running)) > 1)
        assert running.status is Status.RUN and submitted.status is Status.WAIT
        healthy.start_controller()
        (running.folder / "toy" / "hurry").touch()
        assert server.wait_for_end(running) is Status.DONE
        server.wait_for_output(submitted, "rank 0")
        # Not twice, although it is unknown whether the controller had accepted it. It may have forgotten recent ends.
        assert healthy.jobs(f"--name=digits-{submitted.id}-toy") == ["RUNNING"]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_time_limit_interrupts_a_job_that_resumes(server: SlurmServer) -> None:
    job = server.run("counts slowly", minutes=1)
    server.wait(lambda: job.status is Status.RUN)
    wait_until(lambda: "saved" in server.output(job), seconds=120)
    (job.folder / "toy" / "hurry").touch()
    assert server.wait_for_end(job) is Status.DONE
    assert server.steps(job) == list(range(1, 61))


@pytest.mark.nightly
@pytest.mark.slow
def test_a_job_on_a_killed_node_resumes_on_another(server: SlurmServer, cluster: SlurmCluster) -> None:
    job = server.run("counts slowly")
    server.wait(lambda: len(server.steps(job)) > 2)
    cluster.kill_node("n1")
    assert job.status is Status.RUN  # nobody knows yet
    (job.folder / "toy" / "hurry").touch()
    wait_until(lambda: not job.status.is_running, seconds=180)
    assert job.status is Status.DONE and server.steps(job) == list(range(1, 61))
    assert server.output(job).count("counts from") == 2 and " n2 " in server.output(job)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_job_ends_once_although_the_controller_forgets_it(
    server: SlurmServer, cluster: SlurmCluster
) -> None:
    """A controller that is killed right after a submission may start a job that has already ended again."""
    job = server.run("counts")
    server.wait_for_output(job, "rank 0")  # `srun` needs the controller to start it
    cluster.kill("controller")
    server.wait(lambda: (job.folder / "toy" / EXIT_FILE).exists())
    cluster.heal()
    assert server.wait_for_end(job) is Status.DONE
    assert server.output(job).count("counts from") == 1


@pytest.mark.nightly
@pytest.mark.slow
def test_a_new_server_cancels_jobs_whose_end_slurm_has_missed(tmp_path: Path, healthy: SlurmCluster) -> None:
    with SlurmServer(tmp_path / "jobs", healthy) as server:
        jobs = server.sweep(2, "counts slowly")
        server.wait(lambda: all(len(server.steps(job)) > 0 for job in jobs))
        healthy.kill("controller", signal.SIGTERM)  # so that it saves that they run
        for job in jobs:
            (job.folder / "toy" / "hurry").touch()
            assert server.wait_for_end(job) is Status.DONE
        healthy.end_reports()
    healthy.start_controller()
    assert healthy.jobs() == ["RUNNING", "RUNNING"]
    with SlurmServer(tmp_path / "jobs", healthy) as server:
        server.wait(lambda: not healthy.jobs())


@pytest.mark.nightly
@pytest.mark.slow
def test_a_job_resumes_although_the_controller_loses_its_state(tmp_path: Path, healthy: SlurmCluster) -> None:
    with SlurmServer(tmp_path / "jobs", healthy, lost_seconds=5.0) as server:
        job = server.run("counts slowly")
        server.wait(lambda: len(server.steps(job)) > 1)
        healthy.kill("controller")
        shutil.rmtree(healthy.folder / "state")
        (healthy.folder / "state").mkdir(mode=0o700)
        healthy.start_controller()
        (job.folder / "toy" / "hurry").touch()
        assert server.wait_for_end(job) is Status.DONE
        assert server.steps(job) == list(range(1, 61))


@pytest.mark.nightly
@pytest.mark.slow
def test_a_job_that_never_makes_progress_fails(server: SlurmServer, cluster: SlurmCluster) -> None:
    job = server.run("never begins")
    attempts = job.folder / "toy" / ATTEMPT_FILE
    for fruitless in range(MAX_FRUITLESS):
        expected = {"phase": "running", "fruitless": fruitless}
        wait_until(lambda: attempts.exists() and expected.items() <= json.loads(attempts.read_text()).items())  # noqa: B023
        server.wait_for_output(job, "rank 0")
        cluster.run("scontrol", "requeue", *cluster.run("squeue", "-h", "-o", "%i").split())
    assert server.wait_for_end(job) is Status.ERROR
    assert message(job).startswith("The task was interrupted 5 times in a row before it could make progress.")


def test_a_job_that_is_canceled_in_slurm_is_aborted(server: SlurmServer, cluster: SlurmCluster) -> None:
    job = server.run("hangs")
    server.wait_for_output(job, "rank 0")
    cluster.run("scancel", *cluster.run("squeue", "-h", "-o", "%i").split())
    assert server.wait_for_end(job) is Status.ABORT
    assert message(job).startswith("The job was canceled in Slurm, not here.")


def test_the_check_runs_a_job_on_a_node(tmp_path: Path, healthy: SlurmCluster) -> None:
    executor = SlurmExecutor(tmp_path, environment=healthy.environment)
    findings = list(executor.check(tmp_path))
    assert [(finding.title, finding.is_ok) for finding in findings] == [
        ("Slurm answers", True),
        ("A job reads and writes files of the jobs folder", True),
        ("The clocks agree", True),
        ("TensorFlow can be imported", True),
    ]
    assert not list(tmp_path.iterdir())


def test_the_check_explains_why_slurm_does_not_answer(tmp_path: Path) -> None:
    executor = SlurmExecutor(tmp_path, environment={"PATH": str(tmp_path)})
    (finding,) = executor.check(tmp_path)
    assert not finding.is_ok and "scontrol is not installed" in finding.detail


def test_the_overview_shows_nodes_and_partitions(healthy: SlurmCluster, tmp_path: Path) -> None:
    overview = SlurmExecutor(tmp_path, environment=healthy.environment).overview()
    assert overview.partitions == ("main", "urgent")
    assert [(node.name, node.cpus, node.memory_mb) for node in overview.nodes] == [
        ("n1", 2, 4000),
        ("n2", 2, 4000),
    ]


def test_a_node_is_read_from_the_text_of_scontrol() -> None:
    node = parse_node(
        "NodeName=g7 Arch=x86_64 CPUAlloc=12 CPUEfctv=64 CPUTot=64 Gres=gpu:a100:4(S:0-1) GresDrain=N/A "
        "GresUsed=gpu:a100:3(IDX:0-2) RealMemory=512000 State=MIXED+DRAIN ThreadsPerCore=2 "
        "Reason=fan is broken [root@2026-11-01T10:00:00]"
    )
    assert (node.gpus, node.gpus_used, node.cpus_used, node.state) == (4, 3, 12, "mixed+drain")
    assert node.reason == "fan is broken"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "all suitable nodes are in use"),
        ("QOSMaxJobsPerUserLimit", "a limit of your account"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "down, drained or reserved"),
        ("Nodes required for job are DOWN, DRAINED or reserved", "down, drained or reserved"),
        ("SomethingNew", "it is queued"),
        ("launch failed requeued held", "a node could not start it"),
        ("BeginTime", "it may not begin before a set time"),
    ],
)
def test_reasons_are_in_words(reason: str, words: str) -> None:
    text = reason_in_words(reason, "7")
    assert words in text and reason in text and "7" in text


def test_a_run_that_slurm_has_interrupted_waits_for_another_reason_than_a_delayed_one() -> None:
    assert "before it starts an interrupted job again" in reason_in_words("BeginTime", "7", has_begun=True)


@pytest.mark.parametrize(
    ("text", "is_unreachable"),
    [
        ("sbatch: error: Batch job submission failed: Transport endpoint is not connected", True),
        ("Batch job submission failed: Unexpected missing socket error", True),
        ("Batch job submission failed: Connection reset by peer", True),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", True),
        ("Batch job submission failed: Requested node configuration is not available", False),
        ('sbatch: error: Invalid numeric value "x" for --sockets-per-node.', False),
    ],
)
def test_a_controller_that_ends_during_a_submission_has_not_refused_it(
    text: str, is_unreachable: bool
) -> None:
    assert bool(UNREACHABLE.search(text)) is is_unreachable


def test_variables_that_change_the_commands_of_slurm_are_not_passed_on() -> None:
    variables = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SBATCH_PARTITION": "p",
        "SLURM_JOB_ID": "1",
    }
    assert command_environment(variables) == {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_TIME_FORMAT": "%s",
        "LC_ALL": "C.UTF-8",
    }
