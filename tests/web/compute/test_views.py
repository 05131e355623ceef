"""The page of the compute targets, and jobs that choose one."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from digits.core.compute import Compute
from digits.core.model_job import ModelJob
from digits.core.task import Failure
from digits.data.models.production import Production
from digits.kinds.jobs import DatasetJob
from digits.runtime.executors.executor import OpenLedger
from digits.web.services import clusters
from tests.fake_cluster import OVERVIEW, FakeCluster
from tests.site import Site
from tests.web.trained import Finished


@pytest.fixture
def site(cluster_site: Site) -> Site:
    return cluster_site


def target(site: Site, name: str) -> dict[str, Any]:
    targets = site.json("/compute.json")["targets"]
    return next(found for found in targets if found["name"] == name)


ON_SLURM = {
    "compute_target": "slurm",
    "compute_workers": 2,
    "compute_cpus": 4,
    "compute_memory_mb": 8000,
    "compute_minutes": 90,
    "compute_partition": "long",
    "compute_account": "lab",
    "compute_qos": "high",
    "compute_options": "--constraint=a100\n--exclusive",
    "select_gpu_count": 2,
}
WANTED = Compute(
    target="slurm",
    workers=2,
    cpus=4,
    memory_mb=8000,
    minutes=90,
    partition="long",
    account="lab",
    qos="high",
    options=("--constraint=a100", "--exclusive"),
)


def test_a_training_waits_on_the_cluster_that_its_form_chooses(
    site: Site, cluster: FakeCluster, finished: Finished
) -> None:
    dataset = finished.dataset(site)
    model = site.api.create_model("far away", dataset, standard_networks="lenet", **ON_SLURM).id
    job = site.services.store.get(model, ModelJob)
    site.wait(lambda: job.waiting_at)
    assert job.compute == cluster.requests[0].compute == WANTED
    assert (job.device, cluster.requests[0].gpus_per_worker) == ("next:2", 2)
    row = site.json(f"/jobs/{model}/table_data.json")["job"]
    assert (row["cluster"], row["waiting_at"]) == ("Slurm", "Slurm")
    assert row["waiting_for"] == "the partition’s resources are in use" and row["expected_start"]
    words = "Waiting at Slurm because the partition’s resources are in use; expected to start <time "
    for page in ("/", f"/models/{model}", "/compute"):
        assert words in site.get(page).text
    assert ">Slurm, partition long, 2 workers</dd>" in site.get(f"/models/{model}").text
    assert [row["id"] for row in target(site, "slurm")["jobs"]] == [model]
    assert target(site, "local")["jobs"] == []

    cluster.release()
    site.wait(lambda: site.status(model) == "Running")
    assert ">Slurm, partition long, 2 workers, on n[1-2]</dd>" in site.get(f"/models/{model}").text
    clone = site.get(f"/models/images/classification/new?clone={model}").text
    for field in (
        'value="slurm" checked',
        'name="compute_cpus"',
        'value="8000"',
        "--constraint=a100\n--exclusive",
    ):
        assert field in clone
    copy = site.api.create_model("again", dataset, clone=model).id
    assert site.services.store.get(copy, ModelJob).compute == WANTED
    for job_id in (model, copy):
        site.api.abort(job_id)
        assert site.wait_for_end(job_id) == "Aborted"


def test_a_user_has_a_limited_number_of_jobs_on_the_cluster(
    site: Site, cluster: FakeCluster, finished: Finished
) -> None:
    cluster.ledger = OpenLedger(per_owner=2)
    dataset = finished.dataset(site)
    models = [
        site.api.create_model(f"net {number}", dataset, standard_networks="lenet", **ON_SLURM).id
        for number in range(3)
    ]
    jobs = [site.services.store.get(model, ModelJob) for model in models]
    site.wait(lambda: len(cluster.requests) == 2 and jobs[2].waiting_for)
    assert [job.waiting_at for job in jobs] == ["Slurm", "Slurm", ""]
    assert jobs[2].waiting_for == "one of 2 other jobs on the cluster to end, the most for a user"
    other = site.api.create_model("of another user", dataset, standard_networks="lenet", **ON_SLURM).id
    site.services.store.get(other, ModelJob).owner = "other"
    site.wait(lambda: len(cluster.requests) == 3)
    site.api.abort(models[0])
    site.wait(lambda: len(cluster.requests) == 4 and jobs[2].waiting_at == "Slurm")
    assert target(site, "slurm")["cluster"]["jobs_per_user"] == site.services.settings.cluster_jobs


def test_a_dataset_is_created_on_the_cluster(site: Site, cluster: FakeCluster) -> None:
    dataset = site.dataset(compute_target="slurm", compute_partition="long")
    job = site.services.store.get(dataset, DatasetJob)
    site.wait(lambda: job.waiting_at)
    assert job.compute == cluster.requests[0].compute == Compute(target="slurm", partition="long")
    assert 'value="slurm" checked' in site.get(f"/datasets/images/classification/new?clone={dataset}").text


def test_on_this_machine_only_the_number_of_workers_counts(site: Site, finished: Finished) -> None:
    dataset = finished.dataset(site)
    fields = {**ON_SLURM, "compute_target": "local", "select_gpu": "cpu", "standard_networks": "lenet"}
    model = site.api.create_model("here", dataset, **fields).id
    assert site.services.store.get(model, ModelJob).compute == Compute(workers=2)


@pytest.mark.parametrize(
    ("fields", "wrong", "message"),
    [
        ({"compute_target": "moon"}, "compute_target", "Not a valid choice."),
        ({"compute_target": "ray"}, "compute_target", "Not a valid choice."),
        ({"compute_partition": "a b"}, "compute_partition", "Use letters"),
        ({"compute_options": "rm -rf"}, "compute_options", "Enter options such as"),
        ({"compute_workers": 65}, "compute_workers", "between 1 and 64"),
        ({"compute_minutes": 0}, "compute_minutes", "between 1 and"),
        ({"select_gpu": "0,1"}, "select_gpu", "a number of GPUs for each worker"),
        ({"compute_target": "local", "select_gpu": "0,1,2"}, "select_gpu", "divided equally among 2 workers"),
        ({"compute_target": "local", "select_gpu_count": 3}, "select_gpu", "divided equally among 2 workers"),
        (
            {"compute_target": "local", "synchronized_batch_norm": 1, "select_gpu_count": 4},
            "synchronized_batch_norm",
            "as many workers",
        ),
        ({"synchronized_batch_norm": 1, "select_gpu_count": 2}, "synchronized_batch_norm", "as many workers"),
        (
            {"synchronized_batch_norm": 1, "select_gpu_count": 1, "xla": "on"},
            "synchronized_batch_norm",
            "Set XLA compilation",
        ),
        (
            {"synchronized_batch_norm": 1, "select_gpu_count": 1, "averaging_interval": 2},
            "synchronized_batch_norm",
            "every step",
        ),
    ],
)
def test_invalid_choices_are_refused_at_their_fields(
    site: Site, finished: Finished, fields: dict[str, Any], wrong: str, message: str
) -> None:
    sent = {
        "model_name": "a",
        "dataset": finished.dataset(site),
        "standard_networks": "lenet",
        **ON_SLURM,
        **fields,
    }
    answer = site.post("/models/images/classification.json", **sent)
    assert answer.status_code == 400
    assert message in answer.get_json()["errors"][wrong][0]


def test_what_the_scheduler_would_refuse_is_not_queued(
    site: Site, cluster: FakeCluster, finished: Finished
) -> None:
    sent = {"model_name": "a", "dataset": finished.dataset(site), "standard_networks": "lenet", **ON_SLURM}

    def errors(path: str = "/models/images/classification.json", **fields: Any) -> Any:
        answer = site.post(path, **{**sent, **fields})
        assert answer.status_code == 400
        return answer.get_json()["errors"]

    words = "Requested time limit is invalid (missing or exceeds some limit)."
    cluster.refused = Failure(words, "Enter a shorter time limit.")
    assert (
        errors()
        == errors("/models/preflight")
        == {"compute_minutes": [f"{words} Enter a shorter time limit."]}
    )
    cluster.refused = Failure("Requested node configuration is not available.")
    assert errors().keys() == {"compute_target"}
    cluster.problem = "Slurm does not answer: Unable to contact slurm controller."
    assert errors()["compute_target"] == [f"{cluster.problem} Try again, or choose another target."]
    cluster.problem = ""
    answer = site.post(
        "/datasets/images/classification.json",
        dataset_name="b",
        folder_train=str(site.data / "bars"),
        compute_target="slurm",
    )
    assert answer.status_code == 400 and cluster.requests == []


def test_the_page_shows_nodes_and_what_a_check_found(site: Site, cluster: FakeCluster) -> None:
    slurm = target(site, "slurm")
    assert (slurm["state"], slurm["title"], slurm["cluster"]["partitions"]) == (
        "ready",
        "Slurm",
        ["main", "long"],
    )
    assert slurm["cluster"]["nodes"][2]["reason"] == "disk is full" and slurm["cluster"]["check"] is None
    page = site.get("/compute").text
    assert "8 of 96 in use" in page and "1 of 12 in use" in page and "disk is full" in page

    cluster.may_check.clear()
    assert site.post("/compute/slurm/check").headers["Location"] == "/compute#target-slurm"
    site.wait(lambda: target(site, "slurm")["cluster"]["check"]["findings"])
    check = site.api.check_compute("slurm").cluster
    assert check and check.check and check.check.is_running and len(check.check.findings) == 1
    assert "Checking…" in site.get("/compute").text
    cluster.may_check.set()
    site.wait(lambda: not target(site, "slurm")["cluster"]["check"]["is_running"])
    page = site.get("/compute").text
    assert "1 check failed" in page and "Install DIGITS in a folder that all nodes share." in page


def test_a_cluster_that_does_not_answer_keeps_its_last_nodes(site: Site, cluster: FakeCluster) -> None:
    cluster.problem = "Slurm does not answer: Unable to contact slurm controller (connect failure)."
    slurm = target(site, "slurm")
    assert (slurm["state"], slurm["problem"]) == ("unreachable", cluster.problem)
    assert f"<strong>{cluster.problem}</strong>" in site.get("/compute").text
    form = site.get("/datasets/images/classification/new").text
    assert re.search(r'<input [^>]*id="compute_partition"', form)


def test_the_first_answer_after_a_while_is_new(
    site: Site, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "FRESH_SECONDS", 0.0)
    before = target(site, "slurm")["cluster"]
    assert len(before["nodes"]) == 3 and before["at"] <= time.time()
    monkeypatch.setattr(cluster, "overview", lambda: replace(OVERVIEW, nodes=OVERVIEW.nodes[:1]))
    after = target(site, "slurm")["cluster"]
    assert len(after["nodes"]) == 1 and after["at"] > before["at"]


def test_jobs_that_are_deleted_together_are_stopped_together(
    site: Site, cluster: FakeCluster, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = finished.dataset(site)
    models = [
        site.api.create_model(f"net {number}", dataset, standard_networks="lenet", **ON_SLURM).id
        for number in range(4)
    ]
    jobs = [site.services.store.get(model, ModelJob) for model in models]
    site.wait(lambda: all(job.waiting_at for job in jobs))
    production = site.services.production
    entry = Production(models[0], "snapshot_1.ckpt", 1.0, 1e9)
    monkeypatch.setattr(production, "of", lambda model: {"kept": entry} if model == models[0] else {})
    left: list[int] = []
    stop = cluster.stop

    def stop_and_count(handle: Any) -> None:
        left.append(sum(job.folder.exists() for job in jobs))
        stop(handle)

    monkeypatch.setattr(cluster, "stop", stop_and_count)
    answer = site.client.delete("/jobs", data={"job_ids[]": models}, headers={"Accept": "application/json"})
    assert answer.status_code == 400 and "in production" in answer.get_json()["error"]["message"]
    assert left[:3] == [4, 4, 4]
    assert [job.folder.exists() for job in jobs] == [True, False, False, False]
    assert jobs[0].status.is_running


def test_this_machine_has_no_check_and_other_targets_are_unknown(site: Site) -> None:
    for name in ("local", "moon"):
        assert site.post(f"/compute/{name}/check.json").status_code == 404
    machine = target(site, "local")["machine"]
    assert machine["processor"]["is_gpu"] is False and machine["cores"] >= 1
    assert "No GPU found on this machine." in site.get("/compute").text


def test_a_version_of_a_dataset_runs_where_the_dataset_ran(
    site: Site, cluster: FakeCluster, finished: Finished
) -> None:
    parent = site.services.store.get(finished.dataset(site), DatasetJob)
    for target, expected in (("slurm", "slurm"), ("gone", "local")):
        parent.compute = Compute(target=target, partition="long")
        created = site.post(f"/datasets/{parent.id}/versions.json", dataset_name="half", keep=50).json
        version = site.services.store.get(created["id"], DatasetJob)
        assert version.compute.target == expected
    site.wait(lambda: cluster.requests)
    assert cluster.requests[-1].compute.partition == "long"


def test_an_evaluation_runs_where_its_model_was_trained(
    site: Site, cluster: FakeCluster, finished: Finished
) -> None:
    model = finished.model(site, finished.dataset(site))
    site.services.store.get(model, ModelJob).compute = WANTED
    assert site.post(f"/models/{model}/evaluation.json", split="val").status_code == 202
    site.wait(lambda: cluster.requests)
    assert cluster.requests[0].compute == structs.replace(WANTED, workers=1)
    site.post(f"/models/{model}/evaluation/stop.json")
    site.wait(lambda: not cluster.active())
