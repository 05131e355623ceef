"""A server subprocess with an HTTP client, for tests that kill it."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.leftovers import check_folders_of_server
from tests.waiting import has_ended, pause_after, wait_until

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


def start_digits(
    folder: Path,
    *options: str,
    environment: dict[str, str] | None = None,
    errors: Path | None = None,
    module: str = "digits",
) -> tuple[subprocess.Popen[str], str]:
    """Start the ``digits`` command with everything below ``folder``; return its process and the server's address.

    ``module`` is the program, by default that of the command. Its error output goes to the file ``errors``.
    """
    places = {"jobs-dir": "jobs", "data-root": "data", "state-dir": "state"}
    places |= {"samples-dir": "samples", "weights-dir": "weights"}
    words = [f"--{option}={folder / name}" for option, name in places.items()]
    words += ["--port=0", f"--log-file={folder / 'digits.log'}", "--no-health-checks", "--no-evaluations"]
    with open(errors, "w") if errors else contextlib.nullcontext() as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words, *options],
            cwd=Path(__file__).resolve().parents[1],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        )
    assert process.stdout
    for line in process.stdout:
        if found := re.search(r"address\s+(\S+)/", line):
            return process, found[1]
    process.wait()
    raise AssertionError("the server did not start" + (f":\n{errors.read_text()[-3000:]}" if errors else ""))


class RealServer:
    """The ``digits`` command as a subprocess, with the given options."""

    def __init__(self, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.process, self.address = start_digits(folder, *options, environment=environment)

    def ask(self, path: str, verb: str | None = None, **fields: Any) -> Any:
        """Return the JSON of a response; raises HTTPError for an error status."""
        return json.loads(self.read(path, verb, **fields))

    def read(self, path: str, verb: str | None = None, **fields: Any) -> str:
        body = urllib.parse.urlencode(fields).encode() if fields else None
        headers = {"Accept": "application/json"}
        request = urllib.request.Request(self.address + path, body, headers, method=verb)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.read(), "utf-8")

    def wait(self, question: Callable[[], Any]) -> None:
        began = time.monotonic()
        while not question():
            waited = time.monotonic() - began
            assert waited < PATIENCE_SECONDS, "timed out"
            time.sleep(max(0.05, pause_after(waited)))

    def wait_until_warm(self) -> None:
        """Wait for the fork server: until it is ready, each task loads TensorFlow itself."""
        log = self.folder / "digits.log"
        self.wait(lambda: "the fork server is ready" in log.read_text())

    def wait_for_status(self, model: str, status: str) -> None:
        self.wait(lambda: self.ask(f"/models/{model}/status")["status"] == status)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server, after checking that it has not left folders open."""
        try:
            check_folders_of_server(self.process.pid)
        finally:
            self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=20)
        assert self.process.stdout
        self.process.stdout.close()


def create_dataset(server: RealServer, name: str = "bars", side: int = 16, **fields: Any) -> str:
    """Create a dataset from the folder ``name`` of the data, and return its id when it is done."""
    dataset = server.ask(
        "/datasets/images/classification.json",
        dataset_name=name,
        folder_train=server.folder / "data" / name,
        resize_width=side,
        resize_height=side,
        **fields,
    )["id"]
    server.wait(lambda: server.ask(f"/datasets/{dataset}/status")["status"] == "Done")
    return str(dataset)


def start_training(server: RealServer, dataset: str = "", network: str = SLOW_LINEAR, **fields: Any) -> str:
    """Start training on the dataset, by default a new one, and return the model's id."""
    dataset = dataset or create_dataset(server)
    model = server.ask(
        "/models/images/classification.json",
        model_name="slow",
        dataset=dataset,
        method="custom",
        custom_network=network,
        batch_size=6,
        **fields,
    )
    return str(model["id"])


def rows(server: RealServer, model: str) -> list[dict[str, str]]:
    """Return all rows of metrics without what depends on the speed."""
    table = csv.DictReader(server.read(f"/models/{model}/metrics.csv").splitlines())
    return [
        {name: value for name, value in row.items() if name not in ("images_per_second", "waiting_share")}
        for row in table
    ]


def weights(server: RealServer, model: str) -> dict[str, str]:
    """Return the hashes of the weights of all snapshots by their file names."""
    files = sorted((server.folder / "jobs" / model).glob("snapshot_*.data-*"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def processes_of(folder: Path) -> set[psutil.Process]:
    """Return the supervisors of tasks below ``folder`` and the processes of these tasks."""
    found = set()
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if any("supervisor.py" in word for word in words) and any(str(folder) in word for word in words):
                found |= {process, *process.children(recursive=True)}
        except psutil.Error:
            pass
    return found


def assert_all_end(processes: set[psutil.Process]) -> None:
    wait_until(lambda: all(map(has_ended, processes)))
