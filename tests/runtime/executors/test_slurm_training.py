"""Trainings on a real Slurm cluster, through a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.real_server import RealServer, create_dataset, rows, start_training, weights
from tests.site import bars
from tests.slurm_cluster import SlurmCluster, open_cluster

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

TRAINING = {"train_epochs": 15, "snapshot_interval": 5, "random_seed": 1, "select_gpu": "cpu"}
ON_SLURM = {"compute_target": "slurm", "compute_memory_mb": 1000}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    yield from open_cluster(tmp_path_factory.mktemp("slurm"))


@pytest.fixture
def server(tmp_path: Path, cluster: SlurmCluster) -> Iterator[RealServer]:
    bars(tmp_path / "data" / "bars")
    running = RealServer(tmp_path, "--slurm", "--no-standby", environment=cluster.environment)
    yield running
    cluster.cancel_all()
    running.stop()


# Each start of the training imports TensorFlow. tests/runtime/executors/test_slurm.py does the same with small programs.
@pytest.mark.nightly
@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_training_that_waits_and_is_interrupted_equals_an_undisturbed_one(
    server: RealServer, cluster: SlurmCluster, is_aborted: bool
) -> None:
    dataset = create_dataset(server)
    undisturbed = start_training(server, dataset, **TRAINING)
    blocker = cluster.run(
        "sbatch", "--parsable", "-N2", "-c2", "--mem=10", "--output=/dev/null", "--wrap=sleep 300"
    )
    model = start_training(server, dataset, **TRAINING, **ON_SLURM)

    def row() -> dict[str, str]:
        return server.ask(f"/jobs/{model}/table_data.json")["job"]  # type: ignore[no-any-return]

    server.wait(lambda: "all suitable nodes are in use" in row()["waiting_for"])
    assert (row()["status"], row()["waiting_at"]) == ("Waiting", "Slurm")
    server.wait_for_status(undisturbed, "Done")
    cluster.run("scancel", blocker.strip())
    server.wait(lambda: len(rows(server, model)) > 3)
    assert row()["status"] == "Running"
    cluster.run("sbatch", "-p", "urgent", "-N2", "-c2", "--mem=10", "--output=/dev/null", "--wrap=sleep 1")
    server.wait_for_status(model, "Waiting")
    if is_aborted:
        before = len(rows(server, model))
        server.wait(lambda: len(rows(server, model)) > before + 3)
        server.ask(f"/models/{model}/abort", "POST")
        server.wait_for_status(model, "Aborted")
        assert not cluster.jobs()
        server.ask(f"/models/{model}/resume", "POST")
    server.wait_for_status(model, "Done")
    assert rows(server, model) == rows(server, undisturbed)
    assert weights(server, model) == weights(server, undisturbed) != {}
    log = (server.folder / "jobs" / model / "train" / "slurm.log").read_text()
    assert "srun ended" in log

    # An evaluation runs where its model was trained.
    server.ask(f"/models/{model}/evaluation.json", "POST", split="val")
    server.wait(lambda: server.ask(f"/models/{model}/evaluation.json")["state"] != "running")
    assert server.ask(f"/models/{model}/evaluation.json")["state"] == "done"
    assert f"digits-{model}-evaluate" in cluster.run("squeue", "--states=all", "--noheader", "--format=%j")


def test_the_form_and_the_page_say_what_slurm_says(server: RealServer) -> None:
    (_, slurm) = server.ask("/compute.json")["targets"]
    assert (slurm["state"], slurm["cluster"]["partitions"]) == ("ready", ["main", "urgent"])
    assert [node["name"] for node in slurm["cluster"]["nodes"]] == ["n1", "n2"]
    fields = {"dataset_name": "a", "folder_train": server.folder / "data" / "bars", "compute_target": "slurm"}
    with pytest.raises(HTTPError) as refused:
        server.ask("/datasets/images/classification.json", **fields, compute_partition="moon")
    (message,) = json.loads(refused.value.read())["errors"]["compute_partition"]
    assert "invalid partition specified: moon" in message and message.endswith("partitions main, urgent.")
