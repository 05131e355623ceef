"""The GPUs of the machine of the server, and the processes on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from digits.runtime.devices import Devices, DriverError
from digits.runtime.executors.processes import TASK_VARIABLE, wait_until_identifiable
from tests.site import Site

GIB = 1 << 30


@pytest.fixture
def task(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a task of the job ``finished``."""
    job = site.finished_model("20260101-000000-000000")
    folder = site.services.store.folder / job / "train"
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, TASK_VARIABLE: str(folder)},
        start_new_session=True,
    )
    wait_until_identifiable(process.pid)
    yield process
    process.communicate(b"\n")


def gpu(number: int, *processes: tuple[int, int]) -> dict[str, Any]:
    known = {"memory_total": 16 * GIB, "memory_used": 4 * GIB, "utilization": 40, "temperature": 60}
    return {"id": str(number), "name": "H200", **known, "processes": processes}


def test_the_page_shows_who_uses_each_gpu(site: Site, task: subprocess.Popen[bytes]) -> None:
    ended = psutil.pids()[-1] + 100_000
    gpus = [gpu(0, (task.pid, 2 * GIB), (os.getpid(), GIB)), gpu(1, (os.getpid(), GIB), (ended, GIB)), gpu(2)]
    site.services.devices = Devices(lambda: gpus, {})
    (target,) = site.json("/compute.json")["targets"]
    first, second, third = target["machine"]["gpus"]
    ours, other = first["processes"]
    assert (ours["pid"], ours["is_ours"], ours["job"]) == (task.pid, True, "finished")
    assert ours["url"].startswith("/models/") and ours["memory"] == 2 * GIB
    assert not other["is_ours"] and other["user"] == psutil.Process().username() and other["job"] is None
    assert second["processes"][1]["name"] == "" and third["processes"] == []
    assert (first["utilization"], first["temperature"]) == (40, 60)
    page = site.get("/compute").text
    assert "topnav-compute" in page
    site.services.devices = Devices(lambda: gpus[:1], {})
    assert "topnav-compute" not in site.get("/compute").text
    assert "GPU 1: H200" in page and page.count("Used by other programs") == 2
    assert f'<a href="{ours["url"]}">' in page and f"process {os.getpid()}" in page


def test_a_driver_that_fails_is_reported(site: Site) -> None:
    def fail() -> list[dict[str, Any]]:
        raise DriverError("The GPU driver reports: version mismatch")

    site.services.devices = Devices(fail, {})
    page = site.get("/compute").text
    assert "The GPU driver reports: version mismatch" in page and "No GPU found" not in page
