"""Check that tasks can run as Slurm jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from digits.runtime.executors.cluster import Finding, Overview
from digits.runtime.executors.commands import CommandFailed, Commands
from digits.runtime.executors.probe import Probe
from digits.runtime.executors.queue_executor import Unreachable
from digits.runtime.executors.slurm import nodes


def check(commands: Commands, folder: Path, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the cluster with a job that uses a new folder in ``folder``; blocks, for minutes if the cluster is busy."""
    try:
        cluster = nodes.overview(commands)
    except Unreachable as error:
        hint = "Start the controller (slurmctld), and install Slurm's commands and its slurm.conf on this machine."
        yield Finding(title="Slurm answers", is_ok=False, detail=str(error), remedy=hint)
        return
    detail = f"{len(cluster.nodes)} nodes in the partitions {', '.join(cluster.partitions)}"
    yield Finding(title="Slurm answers", is_ok=True, detail=detail)
    yield from _SlurmProbe(commands, folder, cluster, environment).findings()


class _SlurmProbe(Probe):
    """A probe that `sbatch` submits."""

    def __init__(
        self, commands: Commands, folder: Path, cluster: Overview, environment: Mapping[str, str]
    ) -> None:
        super().__init__(folder, cluster, environment)
        self._commands = commands
        self._job = ""

    def submit(self, script: Path, log: Path, has_gpu: bool) -> Finding | None:
        options = [
            "--parsable",
            "--job-name=digits-check",
            f"--chdir={script.parent}",
            "--export=NIL",
            "--time=5",
            f"--output={log}",
            "--open-mode=append",
            "--no-requeue",
            "--ntasks=1",
        ]
        if has_gpu:
            options.append("--gres=gpu:1")
        code, text = self._call("sbatch", *options, str(script))
        last = text.strip().rpartition("\n")[2]
        if code != 0:
            return Finding(
                title="Slurm accepts a job",
                is_ok=False,
                detail=last,
                remedy="Ask the administrators of the cluster which partition and account you may use.",
            )
        self._job = last.partition(";")[0]
        return None

    def state(self) -> str:
        command = ("squeue", "--noheader", f"--jobs={self._job}", "--states=all", "--format=%T (%r)")
        code, text = self._call(*command)
        return text.strip() if code == 0 else ""

    def is_active(self, state: str) -> bool:
        return state.startswith(("PENDING", "CONFIGURING", "RUNNING"))

    def cancel(self) -> None:
        if self._job:
            self._call("scancel", self._job)

    def _call(self, *command: str) -> tuple[int, str]:
        try:
            return self._commands.run(*command)
        except CommandFailed as error:
            return 1, str(error)
