"""A real server that is killed while it trains, and started again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.site import bars

PATIENCE_SECONDS = 90
SLOW_LINEAR = """import time
class UserModel(Tower):
    @model_property
    def inference(self):
        flat = tf.reshape(self.x, [-1, 16 * 16 * 3]) / 255.0
        return slim.fully_connected(flat, self.nclasses, activation_fn=None, scope='out')

    @model_property
    def loss(self):
        def wait():
            time.sleep(0.02)
            return np.float32(0)
        return digits.classification_loss(self.inference, self.y) + tf.py_func(wait, [], tf.float32)
"""


class RealServer:
    """The command ``digits`` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        places = [
            "--jobs-dir",
            folder / "jobs",
            "--data-root",
            folder / "data",
            "--state-dir",
            folder / "state",
        ]
        places += ["--samples-dir", folder / "samples", "--log-file", folder / "digits.log"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "digits", "--port", "0", *map(str, places)],
            cwd=Path(__file__).resolve().parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        for line in self.process.stdout:
            found = re.search(r"address\s+(\S+)/", line)
            if found:
                self.address = found[1]
                return
        raise AssertionError("the server did not start")

    def ask(self, path: str, **fields: Any) -> Any:
        body = urllib.parse.urlencode(fields).encode() if fields else None
        request = urllib.request.Request(self.address + path, body, {"Accept": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def wait(self, question: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not question():
            assert time.monotonic() < deadline, "this takes too long"
            time.sleep(0.1)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=20)
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    bars(tmp_path / "data" / "bars")
    yield tmp_path
    for process in psutil.process_iter(["cmdline"]):
        if any(str(tmp_path) in word for word in process.info["cmdline"] or []):
            process.kill()


def start_training(server: RealServer, **fields: Any) -> str:
    """Make the dataset of bars and start a model on it; returns the model's id."""
    dataset = server.ask(
        "/datasets/images/classification.json",
        dataset_name="bars",
        folder_train=server.folder / "data" / "bars",
        resize_width=16,
        resize_height=16,
    )["id"]
    server.wait(lambda: server.ask(f"/datasets/{dataset}/status")["status"] == "Done")
    model = server.ask(
        "/models/images/classification.json",
        model_name="slow",
        dataset=dataset,
        method="custom",
        custom_network=SLOW_LINEAR,
        batch_size=6,
        **fields,
    )
    return str(model["id"])


@pytest.mark.tensorflow
def test_training_survives_the_death_of_its_server(folder: Path) -> None:
    first = RealServer(folder)
    model = start_training(first, train_epochs=100, snapshot_interval=50)
    first.wait(lambda: len(first.ask(f"/models/{model}/metrics.json")["train"]["step"]) > 3)
    first.kill()
    log = folder / "jobs" / model / "train" / "events.jsonl"
    written = log.stat().st_size
    second_sight = time.monotonic() + PATIENCE_SECONDS
    while log.stat().st_size <= written:
        assert time.monotonic() < second_sight, "the training stopped with its server"
        time.sleep(0.1)

    second = RealServer(folder)
    try:
        assert second.ask(f"/models/{model}/status")["status"] == "Running"
        second.wait(lambda: second.ask(f"/models/{model}/status")["status"] == "Done")
        curves = second.ask(f"/models/{model}/metrics.json")["train"]
        in_the_log = [
            event["step"]
            for event in map(json.loads, log.read_text().splitlines())
            if event["event"] == "measured" and event["stage"] == "train"
        ]
        assert curves["step"] == in_the_log == sorted(set(in_the_log))
        assert second.ask(f"/models/{model}.json")["snapshots"] == [50, 100]
    finally:
        second.stop()


@pytest.mark.tensorflow
def test_abort_reaches_a_training_of_an_earlier_server(folder: Path) -> None:
    first = RealServer(folder)
    model = start_training(first, train_epochs=1000)
    first.wait(lambda: first.ask(f"/models/{model}/status")["status"] == "Running")
    first.stop()
    second = RealServer(folder)
    try:
        handle = json.loads((folder / "jobs" / model / "job.json").read_text())["tasks"][0]["handle"]
        supervisor = psutil.Process(handle["pid"])
        second.ask(f"/models/{model}/abort", sure="yes")
        second.wait(lambda: second.ask(f"/models/{model}/status")["status"] == "Aborted")
        second.wait(lambda: not supervisor.is_running())
    finally:
        second.stop()
