"""A cluster whose runs wait until they are released, and then run until they are stopped.

As a program, the module is the command ``digits`` on a server with this cluster as ``slurm``.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from digits.core.job import DeviceRequest
from digits.core.task import Failure, Handle
from digits.runtime.executors.cluster import ClusterExecutor, Finding, Node, Overview
from digits.runtime.executors.executor import OUTPUT_LIMIT, Exit, Ledger, OpenLedger, Placement, Waiting

OVERVIEW = Overview(
    nodes=(
        Node(name="n1", state="mixed", cpus=32, cpus_used=8, gpus=4, gpus_used=1, memory_mb=256_000),
        Node(name="n2", state="idle", cpus=32, cpus_used=0, gpus=4, gpus_used=0, memory_mb=256_000),
        Node(name="n3", state="drained", cpus=32, cpus_used=0, gpus=4, gpus_used=0, reason="disk is full"),
    ),
    partitions=("main", "long"),
)
FINDINGS = (
    Finding(title="Slurm answers", is_ok=True, detail="slurm 22.05.8, 3 nodes"),
    Finding(title="A job reads and writes the jobs folder", is_ok=True, detail="on n2, in 0.3 s"),
    Finding(
        title="TensorFlow can be imported on a node",
        is_ok=False,
        detail="ModuleNotFoundError: No module named 'tensorflow'",
        remedy="Install DIGITS in a folder that all nodes share.",
    ),
)


class FakeCluster(ClusterExecutor):
    """See the module. ``problem`` is why the scheduler does not answer; ``refused`` why it refuses all requests."""

    title = "Slurm"
    poll_seconds, stop_seconds = 0.02, 5.0

    def __init__(self) -> None:
        self.ledger: Ledger = OpenLedger()
        self.problem = ""
        self.refused: Failure | None = None
        self.requests: list[DeviceRequest] = []
        self.may_check = threading.Event()
        self.may_check.set()
        self._numbers = itertools.count(1)
        self._runs: dict[str, Exit | Waiting | None] = {}

    def start(self, folder: Path, placement: Placement, *, run: int = 1, owned: bool = False) -> Handle:
        name = str(next(self._numbers))
        self.requests.append(placement.request)
        self._runs[name] = Waiting("the partition’s resources are in use", time.time() + 1230)
        return {"name": name}

    def release(self) -> None:
        """Start all runs that wait."""
        self._runs = {name: None if isinstance(run, Waiting) else run for name, run in self._runs.items()}

    def find(self, folder: Path, run: int) -> Handle | None:
        return None

    def is_alive(self, handle: Handle) -> bool:
        return not isinstance(self._runs.get(handle["name"]), Exit)

    def poll(self, folder: Path, handle: Handle | None) -> Exit | Waiting | None:
        return self._runs.get((handle or {}).get("name", ""), Exit(lost=True))

    def active(self) -> list[str]:
        """Return the runs that wait or run."""
        return [name for name, state in self._runs.items() if not isinstance(state, Exit)]

    def cancel(self, number: int, message: str) -> None:
        """Cancel a run with the commands of the cluster."""
        self._runs[str(number)] = Exit(stopped=True, failure=Failure(message, "Start it again."))

    def stop(self, handle: Handle) -> None:
        self._runs[handle["name"]] = Exit(code=143, stopped=True)

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        return True

    def output(self, folder: Path, after: int = 0, limit: int = OUTPUT_LIMIT) -> tuple[str, int]:
        return "", 0

    def nodes(self, folder: Path) -> str:
        return "n[1-2]"

    def overview(self) -> Overview:
        if self.problem:
            raise OSError(self.problem)
        return OVERVIEW

    def check(self, folder: Path) -> Iterator[Finding]:
        for finding in FINDINGS:
            yield finding
            while not self.may_check.is_set():
                time.sleep(0.01)  # the events of gevent work only in its own thread

    def refusal(self, folder: Path, request: DeviceRequest) -> Failure | None:
        if self.problem:
            raise OSError(self.problem)
        return self.refused


if __name__ == "__main__":
    from digits.cli.main import main, patch_standard_library

    patch_standard_library()
    from digits.web import app

    create_app = app.create_app
    app.create_app = lambda settings: create_app(settings, clusters={"slurm": FakeCluster()})
    main()
