"""The timeline of the devices of this machine on the page of the compute targets."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from digits.core.compute import Compute
from digits.core.model_job import ModelJob
from digits.core.recipe import Train
from digits.core.status import Status
from digits.web.compute import timeline
from tests.site import Site, open_idle_site


@pytest.fixture
def site(settings: Any) -> Any:
    opened = open_idle_site(settings)
    yield opened
    opened.services.stop()


def add(site: Site, name: str, devices: list[str], *hours_ago: float, **fields: Any) -> ModelJob:
    """Add a training that ran on ``devices`` between these times; the last one runs on if their number is odd."""
    folder = site.services.store.new_folder()
    job = ModelJob.create(
        folder, name=name, recipe=Train(dataset="d"), dataset_id="20260101-000000-abcdef", **fields
    )
    task = job.tasks[0]
    now = time.time()
    task.history = [(Status.INIT, now - 3600 * hours_ago[0])]
    for number, hours in enumerate(hours_ago):
        if number and not number % 2:
            task.move(Status.INIT, now - 3600 * hours)
        task.move(Status.ABORT if number % 2 else Status.RUN, now - 3600 * hours)
    task.devices = devices
    job.update_status()
    site.services.store.add(job)
    return job


def uses(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.json("/compute.json")["targets"][0]["machine"]["uses"]
    return found


def test_each_device_shows_the_latest_run_of_each_job_of_the_last_day(site: Site) -> None:
    add(site, "over", ["cpu"], 30, 25)
    add(site, "elsewhere", ["0"], 3, 1, compute=Compute(target="slurm"))
    add(site, "again", ["0"], 20, 15, 10, 5)
    add(site, "two", ["0", "1"], 26, 4)
    add(site, "now", ["1"], 2)
    found = [(use["job"], use["device"], use["lane"], use["status_label"]) for use in uses(site)]
    assert found == [
        ("two", "0", 0, "Aborted"),
        ("two", "1", 0, "Aborted"),
        ("again", "0", 1, "Aborted"),
        ("now", "1", 0, "Running"),
    ]
    assert [use["ended"] is None for use in uses(site)] == [False, False, False, True]


def test_only_the_latest_uses_are_shown(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MAX_USES", 2)
    for number in range(4):
        add(site, f"net {number}", ["cpu"], 8 - number, 7.5 - number)
    assert [(use["job"], use["lane"]) for use in uses(site)] == [("net 2", 0), ("net 3", 0)]


def test_a_use_gets_the_first_free_lane(site: Site) -> None:
    for began, ended in ((10, 9), (10, 1), (10, 7), (8, 1), (6, 5)):
        add(site, f"{began}–{ended}", ["cpu"], began, ended)
    assert [use["lane"] for use in uses(site)] == [0, 1, 2, 0, 2]


def test_the_page_places_uses_by_their_time(site: Site) -> None:
    job = add(site, "bird <b>", ["cpu"], 12, 6)
    add(site, "old", ["cpu"], 36, 18)
    page = site.get("/compute").text
    bars = re.findall(
        r'<li class="tone-(\w+)" style="--from: ([\d.]+); --length: ([\d.]+); --lane: 0"><a href="([^"]+)" title="([^"]+)"',
        page,
    )
    assert [bar[0] for bar in bars] == ["warning", "warning"]
    assert [(round(float(bar[1])), round(float(bar[2]))) for bar in bars] == [(0, 25), (50, 25)]
    assert bars[1][3:] == (f"/models/{job.id}", "bird &lt;b&gt;, Aborted, 6 h")


def test_a_machine_without_jobs_shows_no_timeline(site: Site) -> None:
    assert uses(site) == [] and "Last 24 hours" not in site.get("/compute").text
