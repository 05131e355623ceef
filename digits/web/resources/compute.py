"""The compute targets of the server, as pages and programs see them. Memory is in bytes, times are Unix times."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from digits.runtime.executors.cluster import Node
from digits.web.resources.jobs import Device, JobRow


class CheckFinding(Struct):
    """What a check examined, whether it is in order, and what to change if it is not."""

    title: str
    is_ok: bool
    detail: str
    remedy: str


class TargetCheck(Struct):
    """The latest check of a cluster since the start of the server: its beginning, and its findings so far."""

    at: float
    is_running: bool
    findings: list[CheckFinding]


class Cluster(Struct):
    """The nodes of a cluster ``at`` a Unix time, its partitions with the default one first, and the latest check.

    At most ``jobs_per_user`` jobs of a user wait or run on it; further ones wait in the server.
    """

    nodes: list[Node]
    partitions: list[str]
    at: float | None
    check: TargetCheck | None
    jobs_per_user: int


class GpuProcess(Struct):
    """A process that uses a GPU.

    ``is_ours`` is whether DIGITS started it; ``job`` is the name of the job that it belongs to, if any.
    """

    pid: int
    name: str
    user: str
    memory: int | None
    is_ours: bool
    job: str | None
    url: str | None


class GpuCard(Device):
    """A GPU of this machine. Utilization is in percent, temperature in °C."""

    utilization: int | None
    temperature: int | None
    processes: list[GpuProcess]


class DeviceUse(Struct):
    """A run of a job on a device of this machine, which is over unless ``ended`` is null.

    Runs on the same device at the same time have different lanes, counted from 0.
    """

    device: str
    job: str
    url: str
    status_label: str
    status_css: str
    began: float
    ended: float | None
    lane: int


class Machine(Struct):
    """The machine of the server: its processor with the memory, and its GPUs.

    ``load`` is the average number of busy cores in the last minute; ``problem`` is why the GPU driver did not answer.
    ``uses`` are the runs of the last 24 hours before the time ``at``.
    """

    processor: Device
    cores: int
    load: float
    gpus: list[GpuCard]
    problem: str
    at: float
    uses: list[DeviceUse]


class Target(Struct):
    """Where jobs can run: the machine of the server, or a cluster.

    ``state`` is *unreachable* with the ``problem`` if the scheduler does not answer, and *asking* until its first
    answer. ``jobs`` are the first ones that run or wait there, of ``job_count`` in all.
    """

    name: str
    title: str
    state: Literal["ready", "asking", "unreachable"]
    problem: str
    jobs: list[JobRow]
    job_count: int
    machine: Machine | None
    cluster: Cluster | None


class Targets(Struct):
    """The compute targets of the server, its own machine first."""

    targets: list[Target]
