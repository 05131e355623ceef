"""What is submitted to Slurm for a run: the options of `sbatch`, and the batch script."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from digits.core.job import DeviceRequest
from digits.runtime.executors.queue_executor import Submission
from digits.runtime.executors.slurm import batch

# Time between the warning before the time limit and the limit, in seconds. Slurm checks every 30 s.
WARNING_SECONDS = 120
# Options of `sbatch` that DIGITS sets itself. It follows jobs on one cluster only.
RESERVED_OPTIONS = frozenset(
    "array batch chdir clusters comment error export export-file get-user-env help input job-name nodes no-requeue "
    "ntasks ntasks-per-node open-mode output parsable quiet requeue signal tasks-per-node test-only uid gid usage "
    "version wait wait-all-nodes workdir wrap".split()
)
# Options without a value, or with one that may be left out. Any other one would take the next argument as its value.
FLAGS = frozenset(
    "contiguous exclusive hold ignore-pbs nice no-kill overcommit oversubscribe propagate reboot share spread-job "
    "stepmgr use-min-nodes verbose".split()
)


class SlurmSubmission(Submission, kw_only=True):
    """The ``arguments`` of `sbatch` for a run that do not depend on its folder."""

    FILE: ClassVar[str] = batch.SUBMISSION_FILE
    SCRIPT: ClassVar[str] = "slurm.sh"
    LOG: ClassVar[str] = batch.LOG_FILE

    arguments: tuple[str, ...]

    @classmethod
    def create(
        cls,
        folder: Path,
        run: int,
        request: DeviceRequest,
        program: Sequence[str],
        environment: Mapping[str, str],
    ) -> SlurmSubmission:
        """Write the files of a new submission into the ``folder`` of a task; raises OSError."""
        token, workers = secrets.token_hex(8), str(request.compute.workers)
        command = [sys.executable, "-P", "-S", "-m", batch.__name__, str(folder), token, workers]
        cls.write_script(folder, run, [*command, *program, str(folder)], environment)
        submission = cls(run=run, token=token, arguments=tuple(options(request)))
        submission.save(folder)
        return submission


def own_arguments(folder: Path, comment: str) -> list[str]:
    """Return the arguments of `sbatch` for the task in ``folder`` alone, after those that do not depend on it."""
    log_file = str(folder / batch.LOG_FILE).replace("%", "%%")
    return [
        f"--job-name=digits-{folder.parent.name}-{folder.name}",
        f"--comment={comment}",
        f"--chdir={folder}",
        f"--output={log_file}",
        str(folder / SlurmSubmission.SCRIPT),
    ]


def options(request: DeviceRequest) -> list[str]:
    """Return the options of `sbatch` for a task, except those for its folder."""
    compute, gpus = request.compute, request.gpus_per_worker
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
    return [
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


def option_problem(given: Sequence[str]) -> tuple[str, str] | None:
    """Return what is wrong with one of the options of `sbatch` in ``given``, and a remedy; None if nothing is.

    As `sbatch` does, take the beginning of a name for the name: no other option has one that begins a reserved one.
    """
    for option in given:
        name, _, value = option[2:].partition("=")
        meant = next((full for full in sorted(RESERVED_OPTIONS) if full.startswith(name)), None)
        if meant:
            short = (
                ""
                if name in RESERVED_OPTIONS
                else f"--{name} is short for --{meant}, which DIGITS sets itself."
            )
            return short or f"DIGITS sets --{name} itself.", "Remove it from the additional options."
        if not value and name not in FLAGS:
            return f"--{name} needs a value, as in --{name}=VALUE.", "Correct the additional options."
    return None
