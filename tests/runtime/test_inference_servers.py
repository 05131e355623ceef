"""Inference servers and their sockets, with a small program in place of the real server."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from digits.core.errors import BadRequest, Unavailable
from digits.runtime import inference_servers
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.local import LocalExecutor
from digits.runtime.executors.pools import Executors
from digits.runtime.inference_servers import InferenceServers
from digits.runtime.task_runner import TaskRunner

pytestmark = pytest.mark.integration

ANSWERS = """
import json, os, pathlib, socket, sys
recipe = json.loads((pathlib.Path(sys.argv[1]) / "recipe.json").read_text())
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(recipe["socket"])
    listener.listen()
    connection = listener.accept()[0].makefile("rw")
for line in connection:
    request = json.loads(line)
    if request == {"call": "end"}:
        sys.exit()
    if request == {"call": "fail"}:
        answer = {"ok": False, "message": "It failed.", "status": 400, "trace": [{"line": 3, "own": True}, "odd"]}
        print(json.dumps(answer), file=connection, flush=True)
        continue
    print(json.dumps({"ok": True, "pid": os.getpid()}), file=connection, flush=True)
"""
ENDS_AT_ONCE = "print('no memory')"


class Site:
    """Inference servers that run ``program``, a model's folder, and a folder for temporary files."""

    def __init__(self, program: str, folder: Path) -> None:
        ledger = DeviceLedger({"inference": 4})
        self.executor = LocalExecutor(ledger, standby=False, program=[sys.executable, "-c", program])
        self.runner = TaskRunner(Executors(self.executor))
        self.runner.serve()
        self.servers = InferenceServers(self.runner)
        self.model, self.temporary = folder / "model", folder / "tmp"
        self.model.mkdir()
        self.temporary.mkdir()

    def close(self) -> None:
        self.servers.stop_all()
        self.runner.close()
        self.executor.close()


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(getattr(request, "param", ANSWERS), tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(site.temporary))
    yield site
    site.close()
    assert list(site.temporary.iterdir()) == []


def test_a_warm_server_leaves_no_socket_and_answers_again(site: Site) -> None:
    first = site.servers.ask(site.model, {"call": "predict"})
    assert list(site.temporary.iterdir()) == []
    assert site.servers.ask(site.model, {"call": "predict"}) == first


def test_a_server_that_ended_is_replaced(site: Site) -> None:
    first = site.servers.ask(site.model, {"call": "predict"})
    with pytest.raises(Unavailable, match="did not answer"):
        site.servers.ask(site.model, {"call": "end"})
    assert site.servers.ask(site.model, {"call": "predict"})["pid"] != first["pid"]


def test_an_error_carries_the_frames_of_the_network(site: Site) -> None:
    with pytest.raises(BadRequest, match="It failed") as raised:
        site.servers.ask(site.model, {"call": "fail"})
    assert raised.value.trace == [{"line": 3, "own": True}]


@pytest.mark.parametrize("site", [ENDS_AT_ONCE], indirect=True)
def test_a_server_that_cannot_start_reports_why(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference_servers, "START_SECONDS", float("inf"))  # it waits for no other reason
    pause, pauses = site.runner.pause, itertools.count()

    def counted(seconds: float) -> None:
        assert next(pauses) < 10_000, "the server has ended"
        pause(seconds)

    monkeypatch.setattr(site.runner, "pause", counted)
    for _ in range(2):
        with pytest.raises(Unavailable, match="could not be started") as raised:
            site.servers.ask(site.model, {"call": "predict"})
        assert "no memory" in raised.value.hint
        assert list(site.temporary.iterdir()) == []
