"""What an executor of a cluster adds to `Executor`: an overview of its nodes, and checks of its setup."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from digits.core.job import DeviceRequest
from digits.core.task import Failure
from digits.runtime.executors.executor import Executor


class Unreachable(OSError):
    """The scheduler did not answer."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of a cluster: cores and GPUs, all and in use, and memory in MiB.

    ``state`` is the scheduler's word, such as ``idle``, and ``reason`` why it is down or drained.
    """

    name: str
    state: str
    cpus: int
    cpus_used: int
    gpus: int = 0
    gpus_used: int = 0
    memory_mb: int | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The nodes of a cluster, the names of its partitions, the default one first, and the version of the scheduler."""

    nodes: tuple[Node, ...]
    partitions: tuple[str, ...] = ()
    version: str = ""

    @property
    def summary(self) -> str:
        """The numbers for users."""
        version = f"version {self.version}, " if self.version else ""
        partitions = f" in the partitions {', '.join(self.partitions)}" if self.partitions else ""
        return f"{version}{len(self.nodes)} nodes{partitions}"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check: what was checked, whether it is in order, details, and what to change if it is not."""

    title: str
    is_ok: bool
    detail: str = ""
    remedy: str = ""


class ClusterExecutor(Executor, Protocol):
    """An executor whose scheduler is a program outside the server. ``title`` is its name on pages, such as ``Slurm``.

    Except `nodes`, the methods below wait for other programs: call them in a thread.
    """

    title: str

    def nodes(self, folder: Path) -> str:
        """Return the nodes of the latest run of the task in ``folder``, such as ``n[1-2]``; empty if unknown."""

    def overview(self) -> Overview:
        """Return the nodes and partitions; raises Unreachable."""

    def check(self, folder: Path) -> Iterator[Finding]:
        """Check that tasks can run: the scheduler, the shared ``folder``, TensorFlow, GPUs and clocks on a node."""

    def refusal(self, folder: Path, request: DeviceRequest) -> Failure | None:
        """Return why the scheduler would refuse a task in ``folder`` with this ``request``, or None if it would not."""
