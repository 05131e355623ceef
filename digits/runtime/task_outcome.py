"""The outcome of a task."""

from __future__ import annotations

import signal

from digits.core.status import Status
from digits.core.task import EXIT_BUSY, EXIT_DISK_FULL, Failure, TaskState
from digits.runtime.executors.executor import Exit


def verdict(ended: Exit, state: TaskState, last_lines: list[str]) -> tuple[Status, Failure | None]:
    """Determine the final status of a task from its exit, its events, and the last lines of its output."""
    # A signal after the end of the work does not matter.
    if state.is_finished and (ended.went_well or ended.code is None or ended.stopped):
        return Status.DONE, None
    if ended.stopped:
        return Status.ABORT, ended.failure
    if ended.failure:
        return Status.ERROR, ended.failure
    if state.failure and ended.code != EXIT_BUSY:  # a busy task reports no failure of its own
        return Status.ERROR, state.failure
    remedy = {"batch_factor": "0.5"} if ended.out_of_memory else {}
    return Status.ERROR, Failure(*_why(ended, last_lines), remedy=remedy)


def _why(ended: Exit, last_lines: list[str]) -> tuple[str, str]:
    tail = "\n".join(last_lines)
    task = "The task" if ended.rank is None else f"Worker {ended.rank} of the task"
    output = f"Last lines of its output:\n{tail}" if tail else "It produced no output."
    if ended.damage:
        return (
            f"The outcome of the task is unknown because its exit record is damaged: {ended.damage}.",
            output,
        )
    if ended.lost:
        return "The task's process is gone: it was killed, or the machine shut down.", output
    if ended.out_of_memory:
        return "The machine ran out of memory, and the kernel killed the task.", (
            "Choose a smaller batch size, smaller images or a smaller network."
        )
    if ended.disk_full or ended.code == EXIT_DISK_FULL:
        return (
            "The disk is full.",
            f"Free up space on the disk with the jobs folder, then start it again. {output}",
        )
    if ended.signal is not None:
        try:
            name = signal.Signals(ended.signal).name
        except ValueError:
            name = "unknown"
        return f"{task} crashed (signal {ended.signal}, {name}).", output
    if ended.code == EXIT_BUSY:
        return "Another process, such as digits train, is already working on this job.", (
            "Wait until it ends, or stop it."
        )
    if ended.code == 0:
        return "The task ended early: something called exit before all work was done.", output
    return f"{task} ended early with exit code {ended.code}.", output
