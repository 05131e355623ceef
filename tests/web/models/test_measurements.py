"""Measuring workers on the nodes of a cluster, whose queue and programs the tests play."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from digits.core import preflight_result
from digits.core.task import EVENTS_FILE, Failure
from digits.runtime import measurements
from tests.fake_cluster import RESULT_FILE, FakeCluster
from tests.site import Site
from tests.web.trained import Finished

URL = "/models/measurements"
WORKERS = {"message": "2 workers: about 1.9 times as fast as one, measured on n1, n2.", "speedup": 1.9}


@pytest.fixture
def site(cluster_site: Site) -> Site:
    return cluster_site


@pytest.fixture
def fields(site: Site, finished: Finished) -> dict[str, Any]:
    return {
        "dataset": finished.dataset(site),
        "method": "standard",
        "standard_networks": "lenet",
        "compute_target": "slurm",
        "compute_workers": 2,
        "compute_cpus": 4,
        "compute_partition": "long",
        "compute_minutes": 600,
    }


def task_folder(site: Site) -> Path:
    (folder,) = (site.services.folder / "measurements").glob("*/preflight")
    return folder


def play(site: Site, *events: dict[str, Any], code: int | None = None) -> None:
    """Log events as the program of the measurement, and end it with an exit ``code``."""
    folder = task_folder(site)
    with open(folder / EVENTS_FILE, "a") as log:
        log.writelines(json.dumps({"at": time.time(), **event}) + "\n" for event in events)
    if code is not None:
        (folder / RESULT_FILE).write_text(str(code))


def start(site: Site, fields: dict[str, Any]) -> str:
    response = site.post(URL, **fields)
    assert response.status_code == 202, response.text
    return f"{URL}/{response.get_json()['id']}"


def wait_for(site: Site, url: str, state: str) -> dict[str, Any]:
    site.wait(lambda: site.json(url)["state"] == state)
    return site.json(url)


def is_idle(site: Site) -> bool:
    """Whether no folder of a measurement is left, which is removed only after its run has ended."""
    return not list((site.services.folder / "measurements").glob("*"))


def test_a_measurement_waits_runs_and_shows_its_result(
    site: Site, cluster: FakeCluster, fields: dict[str, Any]
) -> None:
    checked = site.services.folder / "previews" / "preview-0123456789ab"
    checked.mkdir(parents=True)
    preflight_result.save(checked, {"verdict": "Good.", "workers": {"speedup": 1.2}}, [])
    url = start(site, fields | {"preflight": checked.name})
    site.wait(lambda: site.json(url)["waiting_for"])
    waiting = site.json(url)
    assert (waiting["state"], waiting["waiting_at"]) == ("waiting", "Slurm")
    assert waiting["waiting_for"] == "the partition’s resources are in use"
    assert waiting["expected_start"] > time.time()
    (request,) = cluster.requests
    compute = request.compute
    assert (compute.workers, compute.cpus, compute.partition) == (2, 4, "long")
    assert compute.minutes == measurements.MAX_MINUTES
    recipe = json.loads((task_folder(site) / "recipe.json").read_text())
    assert (recipe["task"], recipe["dataset"].rpartition("/")[2]) == ("preflight", fields["dataset"])

    play(site, {"event": "progressed", "fraction": 0.5, "doing": "Measuring 2 workers"})
    running = wait_for(site, url, "running")
    site.wait(lambda: site.json(url)["doing"] == "Measuring 2 workers")
    assert (running["waiting_for"], running["nodes"]) == (None, "n[1-2]")

    play(site, {"event": "finished", "result": {"workers": WORKERS}}, code=0)
    done = wait_for(site, url, "done")
    assert (done["workers"], done["error"]) == (WORKERS, None)
    site.wait(lambda: is_idle(site))
    assert site.json(url)["workers"] == WORKERS
    assert preflight_result.load(checked) == {
        "result": {"verdict": "Good.", "workers": WORKERS},
        "warnings": [],
    }


def test_a_measurement_is_canceled_in_the_queue(
    site: Site, cluster: FakeCluster, fields: dict[str, Any]
) -> None:
    url = start(site, fields)
    site.wait(lambda: site.json(url)["waiting_for"] and cluster.requests)
    canceled = site.post(f"{url}/cancel").get_json()
    reason = canceled["waiting_for"], canceled["expected_start"]
    assert (canceled["state"], *reason) == ("canceled", None, None)
    site.wait(lambda: is_idle(site))
    assert not cluster.active()
    assert site.json(url)["state"] == "canceled" and site.json(url)["error"] is None
    assert site.post(f"{url}/cancel").status_code == 200


def test_a_measurement_for_which_nobody_asks_leaves_the_queue(
    site: Site, cluster: FakeCluster, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurements, "FIRST_LEASE_SECONDS", 0.2)
    url = start(site, fields)
    site.wait(lambda: cluster.requests and not cluster.active() and is_idle(site))
    assert site.get(url).status_code == 404


def test_failures_name_the_cause_and_a_remedy(
    site: Site, cluster: FakeCluster, fields: dict[str, Any]
) -> None:
    url = start(site, fields)
    site.wait(lambda: cluster.requests)
    failed = {"event": "failed", "message": "The network has no loss.", "hint": "Define one.", "line": 3}
    play(site, failed, code=1)
    assert wait_for(site, url, "failed")["error"] == {
        "message": "The network has no loss.",
        "hint": "Define one.",
        "line": 3,
    }

    url = start(site, fields)
    site.wait(lambda: len(cluster.requests) == 2)
    cluster.cancel(2, "The job was canceled in Slurm, not here.")
    error = wait_for(site, url, "failed")["error"]
    assert error["message"] == "The job was canceled in Slurm, not here."
    assert error["hint"] == "Measure again, or train without it."


def test_only_workers_that_the_cluster_accepts_are_measured(
    site: Site, cluster: FakeCluster, fields: dict[str, Any]
) -> None:
    for changes in ({"compute_workers": 1}, {"compute_target": "local"}):
        refused = site.post(URL, **fields | changes)
        assert refused.status_code == 400
        assert "Choose a cluster and at least two workers" in refused.get_json()["error"]["hint"]
    cluster.refused = Failure("Slurm refused the job: invalid partition specified: long", "Choose main.")
    refused = site.post(URL, **fields)
    assert "Choose main." in refused.get_json()["errors"]["compute_partition"][0]
    assert not cluster.requests
    cluster.refused = None
    for _ in range(measurements.MAX_UNFINISHED):
        start(site, fields)
    assert site.post(URL, **fields).status_code == 429


def test_measurements_end_with_the_server(site: Site, cluster: FakeCluster, fields: dict[str, Any]) -> None:
    start(site, fields)
    site.wait(lambda: cluster.requests)
    site.services.measurements.stop_all()
    assert not cluster.active()
