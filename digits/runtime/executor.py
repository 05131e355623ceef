"""The interface between the task runner and whatever runs the processes of tasks.

Another executor (for a cluster, for containers) is one module in `digits.runtime.executors`
that implements `Executor`; nothing else depends on where tasks run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from digits.core.task import Handle

OUTPUT_LIMIT = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The end of a task's process: exit code or signal, Unix time, and running time in seconds.

    ``lost``: the supervisor was killed, or its record is damaged; then ``damage`` is the reason.
    """

    code: int | None = None
    signal: int | None = None
    stopped: bool = False
    out_of_memory: bool = False
    disk_full: bool = False
    lost: bool = False
    damage: str = ""
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
    """

    poll_seconds: float
    stop_seconds: float

    def start(self, folder: Path, devices: Sequence[str], *, run: int = 1, owned: bool = False) -> Handle:
        """Start the task in ``folder`` so that it can use only ``devices``: ``cpu``, or GPU indexes.

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
        """Prepare for starting tasks quickly, in the background."""

    def is_warm(self) -> bool:
        """Return whether tasks start quickly."""

    def close(self) -> None:
        """Release the executor's own resources. Tasks keep running."""
