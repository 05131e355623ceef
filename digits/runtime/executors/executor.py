"""The interface between the task runner and whatever runs the processes of tasks.

Another executor (for a cluster, for containers) is one module in `digits.runtime.executors` that implements
`Executor`; nothing else depends on where tasks run. `digits.runtime.executors.pools` assigns tasks to executors.

The life of a run:

1. ``ledger.offer().take(request, holder)`` returns a `Placement`, or `Busy`: then the run waits in the server's queue.
   An executor with a queue of its own uses an `OpenLedger`, which only limits the runs of each owner.
2. ``ledger.reserve(placement, holder)``, and later ``ledger.release(placement)``.
3. ``start(folder, placement)`` returns a handle, which is saved.
4. ``poll`` returns `Waiting` while the executor has queued the run, None while it runs, and its `Exit` at the end.
5. ``stop`` and ``clear`` end it earlier. After a restart of the server, ``find`` replaces a handle that was not saved.

A run is one process, or a gang of ``request.compute.workers`` processes (*ranks*) that share the folder. Each rank
finds its number, from 0, in the environment variable ``DIGITS_RANK``, and the size of the gang in ``DIGITS_WORKERS``. A
gang starts as a whole and has one exit: it succeeds when all ranks have succeeded; when one of them fails, the others
are stopped, and the exit is that of the first one that failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from digits.core.job import DeviceRequest
from digits.core.task import Failure, Handle

OUTPUT_LIMIT = 256 * 1024
CPU = "cpu"


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The end of a task's process: exit code or signal, Unix time, and running time in seconds.

    ``lost``: the supervisor was killed, or its record is damaged; then ``damage`` is the reason. ``rank`` is the rank
    of a gang that failed first. ``failure`` is why the executor ended the run, if it did, such as a cluster that
    cancelled it.
    """

    code: int | None = None
    signal: int | None = None
    rank: int | None = None
    stopped: bool = False
    out_of_memory: bool = False
    disk_full: bool = False
    lost: bool = False
    damage: str = ""
    failure: Failure | None = None
    at: float | None = field(default=None, compare=False)
    seconds: float | None = field(default=None, compare=False)

    @property
    def went_well(self) -> bool:
        return self.code == 0


@dataclass(frozen=True)
class Waiting:
    """A run that the executor has queued: why it waits, as in “because …”, and the expected Unix time of its start."""

    reason: str
    expected_start: float | None = None


@dataclass(frozen=True, eq=False)
class Placement:
    """What an executor gives to a run for its ``request``.

    ``devices`` are those that the recipe lists and pages show: ``cpu``, or indexes of GPUs as the processes see them,
    in the order of the ranks.
    """

    request: DeviceRequest
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Busy:
    """The requested devices are in use; ``missing`` is what the run waits for, such as ``a free GPU``."""

    missing: str


class Holder(Protocol):
    """The user of a device as shown on pages, such as a job. Limits for each person count by ``owner``."""

    @property
    def name(self) -> str: ...

    @property
    def owner(self) -> str | None: ...


class Offer(Protocol):
    """The resources that are free at the moment."""

    def take(self, request: DeviceRequest, holder: Holder | None = None) -> Placement | Busy | Failure:
        """Take the resources of ``request`` out of this offer for ``holder``.

        Return Failure if the executor will never have them.
        """


class Ledger(Protocol):
    """The resources of an executor and their users."""

    def offer(self) -> Offer:
        """Return the free resources. May yield to other greenlets before they are determined."""

    def reserve(self, placement: Placement, holder: Holder | None = None) -> None:
        """Record a placement taken from `offer`, or that of a run which an earlier server started."""

    def release(self, placement: Placement) -> None:
        """Remove a placement, which may already have been removed."""

    def holders(self) -> dict[str, str]:
        """Return the devices of this machine in use, including ``cpu``, with the names of their users."""


class OpenLedger:
    """The ledger of an executor that has a queue and a scheduler of its own.

    It accepts every request, or at most ``per_owner`` at a time from the same owner.
    """

    def __init__(self, per_owner: int | None = None) -> None:
        self._per_owner = per_owner
        self._owners: dict[Placement, str | None] = {}

    def offer(self) -> OpenOffer:
        return OpenOffer(self._per_owner, Counter(self._owners.values()))

    def reserve(self, placement: Placement, holder: Holder | None = None) -> None:
        if holder is not None:
            self._owners[placement] = holder.owner

    def release(self, placement: Placement) -> None:
        self._owners.pop(placement, None)

    def holders(self) -> dict[str, str]:
        return {}


@dataclass
class OpenOffer:
    """The offer of an `OpenLedger`, with the number of the runs of each owner in ``counts``."""

    per_owner: int | None
    counts: Counter[str | None]

    def take(self, request: DeviceRequest, holder: Holder | None = None) -> Placement | Busy:
        """Place ``request``. The scheduler of the executor chooses the GPUs, which the processes see from index 0."""
        if holder is not None:
            if self.per_owner is not None and self.counts[holder.owner] >= self.per_owner:
                return Busy(
                    f"one of {self.per_owner:,} other jobs on the cluster to end, the most for a user"
                )
            self.counts[holder.owner] += 1
        return Placement(request, open_devices(request))


def open_devices(request: DeviceRequest) -> tuple[str, ...]:
    """Return the devices of ``request`` as the processes see them, if they see only their own: from index 0."""
    return tuple(map(str, range(request.gpus_per_worker))) or (CPU,)


def place(ledger: Ledger, request: DeviceRequest, holder: Holder | None = None) -> Placement | None:
    """Reserve the resources of ``request``; return None while they are in use."""
    placement = ledger.offer().take(request, holder)
    if not isinstance(placement, Placement):
        return None
    ledger.reserve(placement, holder)
    return placement


class Executor(Protocol):
    """Runs tasks, each described by the recipe in its folder.

    A handle identifies a run across restarts of the server: a JSON object, saved in ``job.json``, with contents
    that only the executor reads. It may have been made by another version or another executor, or be damaged;
    a handle that an executor cannot read is that of a run that is not active.

    The task appends its events to ``events.jsonl`` in its folder and saves its products in the folder above.
    An executor whose tasks run elsewhere copies both: after `poll`, the folder contains everything that
    the task had written at that time.

    All methods may be called from any greenlet, and return quickly. `poll` and `clear` are repeated at most every
    ``poll_seconds``. After `stop` or `clear`, processes normally exit within ``stop_seconds``.

    A class with this base need not implement `warm_up` and `close`.
    """

    stop_seconds: float
    ledger: Ledger

    @property
    def poll_seconds(self) -> float: ...

    def start(self, folder: Path, placement: Placement, *, run: int = 1, owned: bool = False) -> Handle:
        """Start the task in ``folder`` so that it can use only the devices of ``placement``.

        An ``owned`` task is stopped when the process that started it ends, however it ends. Other tasks
        keep running. Raises OSError if the task cannot be started.
        """

    def find(self, folder: Path, run: int) -> Handle | None:
        """Find a ``run`` of the task in ``folder`` whose handle was not saved because the server was killed.

        The run may have ended in the meantime.
        """

    def is_alive(self, handle: Handle) -> bool:
        """Return whether the run is still active; raises OSError if that cannot be determined."""

    def poll(self, folder: Path, handle: Handle | None) -> Exit | Waiting | None:
        """Return how the run ended, why it has not started yet, or None while any of its processes is running.

        A run that the executor interrupts and queues again is waiting again.
        """

    def stop(self, handle: Handle) -> None:
        """Ask the task to stop; it is killed if it does not. Returns immediately; raises OSError."""

    def clear(self, folder: Path, handles: Sequence[Handle] = ()) -> bool:
        """Kill all processes of the tasks in or below ``folder``; return whether there were none."""

    def output(self, folder: Path, after: int = 0, limit: int = OUTPUT_LIMIT) -> tuple[str, int]:
        """Return the text that the task printed after byte ``after``, and the offset of its end.

        Return at most ``limit`` bytes, the latest ones if there are more.
        """

    def warm_up(self) -> None:
        """Prepare for starting tasks quickly, and clear away what an earlier server left, in the background."""
        return

    def close(self) -> None:
        """Release the executor's own resources. Tasks keep running."""
        return
