"""How the workers that share a training find each other: by files in the task's folder, which all of them see.

A worker waits for the others before it connects to one of them, at most for `DEADLINE_SECONDS`, and can be stopped
while it waits. Every attempt of a run has a folder of its own, so that it does not meet the workers of an earlier one.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from digits.core import events, files
from digits.core.events import Event, EventLog, Failed
from digits.core.task import ATTEMPT_VARIABLE, RANK_VARIABLE, RUN_VARIABLE, WORKERS_VARIABLE
from digits.worker.failure import PartnerLost

DEADLINE_SECONDS = 120.0
POLL_SECONDS = 0.05
LOOPBACK = "127.0.0.1"

_FOLDER, _FAILURE = "rendezvous", "failure"
# The name by which other nodes find this one.
_NODE_VARIABLE = "SLURMD_NODENAME"
# A socket that is connected to an address of this network, which is reserved for documentation, sends nothing, but
# knows the address of this machine in the network of its default route.
_ANYWHERE = ("192.0.2.1", 9)


class Rendezvous:
    """The meeting of the workers of a run in ``task_folder``: ``rank`` is the number of this one, of ``workers``.

    By default, they are those in the environment of this process.
    """

    def __init__(self, task_folder: Path, rank: int | None = None, workers: int | None = None) -> None:
        self.rank = int(os.environ.get(RANK_VARIABLE, "0")) if rank is None else rank
        self.workers = int(os.environ.get(WORKERS_VARIABLE, "1")) if workers is None else workers
        run, attempt = os.environ.get(RUN_VARIABLE, "1"), os.environ.get(ATTEMPT_VARIABLE, "0")
        self._folder = task_folder / _FOLDER / f"{run}.{attempt}"

    @property
    def is_lead(self) -> bool:
        """Whether this worker reports events and saves the training."""
        return self.rank == 0

    def exchange(self, name: str, value: str, deadline: float | None = None) -> list[str]:
        """Publish ``value`` under ``name``, and return the values of all workers by rank.

        Raises PartnerLost if one is missing at the ``deadline`` of `time.monotonic`, by default `DEADLINE_SECONDS` from
        now.
        """
        deadline = time.monotonic() + DEADLINE_SECONDS if deadline is None else deadline
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_bytes(self._folder / f"{self.rank}.{name}", value.encode())
        while True:
            values = [self._read(rank, name) for rank in range(self.workers)]
            known = [value for value in values if value is not None]
            if len(known) == self.workers:
                return known
            if time.monotonic() > deadline:
                missing = ", ".join(str(rank) for rank, value in enumerate(values) if value is None)
                raise PartnerLost(
                    f"Only {len(known)} of {self.workers} workers started within {DEADLINE_SECONDS:.0f} seconds. "
                    f"Missing: {missing}.",
                    "Look for its error in the output of the task, and start the training again. If workers are on "
                    "several machines, check that all of them see the jobs folder.",
                )
            time.sleep(POLL_SECONDS)

    def report(self, failure: Failed) -> None:
        """Save the failure of this worker where the first worker finds it and reports it to the user."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_bytes(self._folder / f"{self.rank}.{_FAILURE}", events.encode(failure))

    def failure_of_another(self) -> Failed | None:
        """Return the failure that another worker has reported, if any."""
        for rank in range(self.workers):
            line = self._read(rank, _FAILURE) if rank != self.rank else None
            failure = events.decode(line.encode()) if line else None
            if isinstance(failure, Failed):
                return failure
        return None

    def leave(self) -> None:
        """Remove the files, which nobody needs once all workers are connected."""
        files.remove_tree(self._folder.parent, ignore_errors=True)

    def _read(self, rank: int, name: str) -> str | None:
        try:
            return (self._folder / f"{rank}.{name}").read_text()
        except FileNotFoundError:
            return None


def place() -> str:
    """Identify the network of this process: workers with the same one reach each other by loopback."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"


def node_name() -> str:
    """Return the name of this machine, for users, as other machines and the scheduler know it."""
    return os.environ.get(_NODE_VARIABLE) or socket.gethostname()


def address() -> str:
    """Return the address of this machine that other machines can reach."""
    try:
        host = socket.gethostbyname(node_name())
    except OSError:
        host = LOOPBACK
    if not host.startswith("127."):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYWHERE)
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


class SilentLog(EventLog):
    """The events of a worker that does not lead: only its failure is reported."""

    def __init__(self, meeting: Rendezvous) -> None:
        self._meeting = meeting

    def append(self, *events: Event) -> None:
        for failure in events:
            if isinstance(failure, Failed):
                self._meeting.report(failure)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass
