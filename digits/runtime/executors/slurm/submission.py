"""What is submitted to Slurm for a run: the options of `sbatch`, and the batch script."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from digits.core import files
from digits.core.job import DeviceRequest
from digits.runtime import supervisor
from digits.runtime.executors import processes
from digits.runtime.executors.slurm import batch

SCRIPT_FILE = "slurm.sh"
# Time between the warning before the time limit and the limit, in seconds. Slurm checks every 30 s.
WARNING_SECONDS = 120
# Options of `sbatch` that DIGITS sets itself.
RESERVED_OPTIONS = frozenset(
    "array batch chdir comment error export export-file get-user-env help input job-name nodes no-requeue ntasks "
    "ntasks-per-node open-mode output parsable quiet requeue signal test-only uid gid usage version wait "
    "wait-all-nodes wrap".split()
)


class Submission(Struct, kw_only=True):
    """What ``slurm.json`` contains: the ``run`` that the folder was submitted for, and the arguments of `sbatch`.

    The ``token`` distinguishes this submission from earlier ones, whose jobs may still start. Without ``is_accepted``,
    it is unknown whether Slurm has the job.
    """

    run: int
    token: str
    arguments: tuple[str, ...]
    is_accepted: bool = False

    @classmethod
    def create(
        cls,
        folder: Path,
        run: int,
        request: DeviceRequest,
        comment: str,
        program: Sequence[str],
        environment: Mapping[str, str],
    ) -> Submission:
        """Write the files of a new submission into the ``folder`` of a task; raises OSError."""
        stale = (batch.STOP_FILE, batch.ATTEMPT_FILE, batch.LOG_FILE, supervisor.EXIT_FILE)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        token = secrets.token_hex(8)
        variables = {**environment, processes.TASK_VARIABLE: str(folder), supervisor.RUN_VARIABLE: str(run)}
        if not gpus_per_node(request):
            variables["CUDA_VISIBLE_DEVICES"] = ""
        command = [
            sys.executable,
            "-I",
            "-S",
            batch.__file__,
            str(folder),
            token,
            str(request.compute.workers),
        ]
        script = batch_script([*command, *program, str(folder)], variables)
        files.write_bytes(folder / SCRIPT_FILE, script.encode())
        arguments = (*options(folder, request, comment), str(folder / SCRIPT_FILE))
        submission = cls(run=run, token=token, arguments=arguments)
        submission.save(folder)
        return submission

    @classmethod
    def load(cls, folder: Path, run: int) -> Submission | None:
        """Return the submission of this ``run`` from its folder."""
        try:
            found = files.read_json(folder / batch.SUBMISSION_FILE, cls, below=folder.parent)
        except files.UnreadableFile:
            return None
        return found if found.run == run else None

    def save(self, folder: Path) -> None:
        """Write ``slurm.json``; raises OSError."""
        files.write_json(folder / batch.SUBMISSION_FILE, msgspec.to_builtins(self))


def options(folder: Path, request: DeviceRequest, comment: str) -> list[str]:
    """Return the options of `sbatch` for a task in ``folder``."""
    compute, gpus = request.compute, gpus_per_node(request)
    warning = min(WARNING_SECONDS, compute.minutes * 20) if compute.minutes else WARNING_SECONDS
    chosen = {
        "partition": compute.partition,
        "account": compute.account,
        "qos": compute.qos,
        "time": compute.minutes,
        "cpus-per-task": compute.cpus,
        "mem": f"{compute.memory_mb}M" if compute.memory_mb else "",
        "gres": f"gpu:{gpus}" if gpus else "",
    }
    log_file = str(folder / batch.LOG_FILE).replace("%", "%%")
    return [
        f"--job-name=digits-{folder.parent.name}-{folder.name}",
        f"--comment={comment}",
        f"--chdir={folder}",
        f"--output={log_file}",
        "--open-mode=append",
        "--export=NIL",  # NONE would run a login shell on the node
        "--requeue",
        # To the tasks, not to the script: they save their state, and the script queues the job again.
        f"--signal=TERM@{warning}",
        f"--nodes={compute.workers}",
        f"--ntasks={compute.workers}",
        "--ntasks-per-node=1",
        *(f"--{name}={value}" for name, value in chosen.items() if value),
        *compute.options,
    ]


def reserved_options(given: Sequence[str]) -> list[str]:
    """Return the names of the options of `sbatch` in ``given`` that DIGITS sets itself."""
    names = [option[2:].partition("=")[0] for option in given]
    return [f"--{name}" for name in names if name in RESERVED_OPTIONS]


def batch_script(command: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return a script that becomes ``command`` with these environment variables.

    A SIGTERM that came before the command handles it would end the job.
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join(["#!/bin/sh", "trap '' TERM", *exports, f"exec {shlex.join(command)}", ""])


def node_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environment`` that also apply on a node, where Slurm assigns the GPUs."""
    kept = {
        name: value for name, value in environment.items() if name not in ("TMPDIR", "CUDA_VISIBLE_DEVICES")
    }
    return {**kept, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def gpus_per_node(request: DeviceRequest) -> int:
    """Return the number of GPUs that each worker of a ``request`` gets."""
    return max(request.gpu_count, len(request.gpus))
