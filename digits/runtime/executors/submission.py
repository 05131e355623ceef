"""What is submitted to a scheduler for a run: files in the folder of its task.

The names of the files begin with that of the scheduler: ``slurm.json`` is the `Submission`, ``slurm.sh`` runs on a
node, and ``slurm.log`` is what the scheduler and `digits.runtime.executors.node_job` print.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from digits.core import files
from digits.core.job import DeviceRequest
from digits.runtime import supervisor
from digits.runtime.executors import node_job, processes


class Submission(Struct):
    """What is submitted for a ``run``.

    The ``token`` distinguishes this run from earlier ones, whose jobs may still start. ``attempt`` counts its
    submissions; it is saved before each, because the scheduler may accept one although no answer comes.
    """

    run: int
    token: str
    request: DeviceRequest
    attempt: int = 0

    def save(self, path: Path) -> None:
        """Write it to ``path``; raises OSError."""
        files.write_json(path, msgspec.to_builtins(self))


class Attempt(Struct):
    """What the file of `node_job` contains about the latest attempt."""

    token: str
    phase: Literal["waiting", "running", "interrupted"]
    nodes: str = ""


def load_submission(path: Path, run: int | None = None) -> Submission | None:
    """Return the submission in ``path``, if it is that of this ``run``, by default of any run."""
    try:
        saved = files.read_json(path, Submission, below=path.parents[1])
    except files.UnreadableFile:
        return None
    return saved if run in (saved.run, None) else None


def load_attempt(folder: Path) -> Attempt | None:
    """Return what is known about the latest attempt of the task in ``folder``."""
    try:
        return files.read_json(folder / node_job.ATTEMPT_FILE, Attempt, below=folder)
    except files.UnreadableFile:
        return None


def write_script(path: Path, run: int, variables: Mapping[str, str], command: Sequence[str]) -> None:
    """Write a script that becomes ``command``, and remove what an earlier run left beside it; raises OSError."""
    folder = path.parent
    for stale in (node_job.ATTEMPT_FILE, f"{path.stem}.log", supervisor.EXIT_FILE):
        (folder / stale).unlink(missing_ok=True)
    # A node asks for the contents of an existing file, but may remember for a minute that there was none.
    files.write_bytes(folder / node_job.STOP_FILE, b"0")
    own = {processes.TASK_VARIABLE: str(folder), supervisor.RUN_VARIABLE: str(run)}
    lines = [
        "#!/bin/sh",
        "trap '' TERM",  # one that came before the command handles it would end the job
        *(f"export {name}={shlex.quote(value)}" for name, value in {**variables, **own}.items()),
        f"exec {shlex.join(command)}",
    ]
    files.write_bytes(path, "\n".join([*lines, ""]).encode())


def is_to_stop(folder: Path, run: int) -> bool:
    """Return whether the user has asked this ``run`` to stop, also before a restart of the server."""
    try:
        return (folder / node_job.STOP_FILE).read_text() == str(run)
    except (OSError, ValueError):
        return False


def grace_seconds(folder: Path) -> float:
    """Return the time that the task in ``folder`` needs to stop."""
    try:
        return min(float((folder / supervisor.STOP_SECONDS_FILE).read_text()), supervisor.MAX_GRACE_SECONDS)
    except (OSError, ValueError):
        return supervisor.GRACE_SECONDS


def node_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environment`` that also apply on a node, where the scheduler assigns the GPUs."""
    own = ("TMPDIR", "CUDA_VISIBLE_DEVICES")
    kept = {name: value for name, value in environment.items() if name not in own}
    return {**kept, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
