"""The machine of the server: its processor and GPUs, and which jobs and other processes use them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from digits.core.job import Job
from digits.runtime.devices import Device
from digits.runtime.executors.processes import task_of
from digits.runtime.offload import in_thread
from digits.web.compute.timeline import latest_uses
from digits.web.jobs import serializers
from digits.web.resources.compute import GpuCard, GpuProcess, Machine
from digits.web.resources.encoding import describe
from digits.web.services import services


def machine() -> Machine:
    """Return the state of this machine, which is at most a few seconds old."""
    processor, *gpus = services().devices.list()
    busy = services().executor.ledger.holders()
    processes = in_thread(_processes_on, gpus)
    return Machine(
        processor=serializers.device_row(processor, busy),
        cores=len(os.sched_getaffinity(0)),
        load=os.getloadavg()[0],
        gpus=[
            describe(
                GpuCard,
                serializers.device_row(gpu, busy),
                utilization=gpu.utilization,
                temperature=gpu.temperature,
                processes=[_with_job(process, task) for process, task in processes_of],
            )
            for gpu, processes_of in zip(gpus, processes, strict=True)
        ],
        problem=services().devices.problem,
        at=time.time(),
        uses=latest_uses(),
    )


def _processes_on(gpus: Sequence[Device]) -> list[list[tuple[GpuProcess, Path | None]]]:
    """Return the processes on each GPU, with the folder of the task of those that DIGITS started."""
    return [[_describe(pid, memory) for pid, memory in gpu.processes] for gpu in gpus]


def _describe(pid: int, memory: int | None) -> tuple[GpuProcess, Path | None]:
    name = user = ""
    try:
        process = psutil.Process(pid)
        name, user = process.name(), process.username()
    except (psutil.Error, KeyError):
        pass  # it has ended, belongs to another container, or its user has no name
    task = task_of(pid)
    known = GpuProcess(pid=pid, name=name, user=user, memory=memory, is_ours=bool(task), job=None, url=None)
    return known, task


def _with_job(process: GpuProcess, task: Path | None) -> GpuProcess:
    """Fill in the job of a task; short tasks and inference servers have none."""
    folder = services().store.folder
    job = None
    if task is not None and task.is_relative_to(folder):
        job = services().store.find(task.relative_to(folder).parts[0])
    if isinstance(job, Job):
        process.job, process.url = job.name, serializers.job_url(job)
    return process
