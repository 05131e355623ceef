"""The compute devices of this machine, from the GPU driver and never from TensorFlow.

A driver can hang, and a process that waits for it cannot be killed. A short-lived
helper process (`digits.core.machine.gpu_driver`) therefore queries the driver, and is abandoned
if it takes too long.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from digits.core.machine import gpu_driver
from digits.core.machine.environment import SYSTEM_VARIABLES, inherited

HELPER_SECONDS = 5.0
FRESH_SECONDS = 3.0
# Query a missing or failing driver less often.
FRESH_SECONDS_WITHOUT_GPU = 60.0

CPU = "cpu"


@dataclass(frozen=True)
class Device:
    """A CPU or GPU. Memory is in bytes, utilization in percent, temperature in °C.

    ``id`` is ``cpu`` or the GPU's index in bus order, which is the order TensorFlow
    uses when ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` is set. ``uuid`` identifies a GPU
    permanently and is accepted in ``CUDA_VISIBLE_DEVICES``. ``processes`` are the ids
    of the processes that compute on a GPU, with the memory that each uses. Unknown values
    are None.
    """

    id: str
    name: str
    memory_total: int | None = None
    memory_used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    uuid: str = ""
    processes: tuple[tuple[int, int | None], ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.id != CPU


class DriverError(Exception):
    """The driver is present but did not give a valid answer in time."""


class Devices:
    """The devices of this machine, cached for a few seconds.

    ``ask`` returns a list of dicts with the fields of `Device`, one for each GPU,
    and may raise DriverError. ``problem`` is the reason why the last query failed, or
    empty.
    """

    def __init__(
        self,
        ask: Callable[[], list[dict[str, Any]]] | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem = ""
        self._ask = ask or Driver().ask
        self._visible = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
        self._clock = clock
        self._lock = threading.Lock()
        self._gpus: list[Device] = []
        self._fresh_until = float("-inf")
        self._has_asked = False

    def list(self) -> list[Device]:
        """Return the CPU, followed by the GPUs visible to TensorFlow. Never raises."""
        # Wait only for the first answer; later, return the old one while another greenlet refreshes it.
        if self._is_stale() and self._lock.acquire(blocking=not self._has_asked):
            try:
                if self._is_stale():
                    self._refresh()
            finally:
                self._lock.release()
        return [cpu(), *self._gpus]

    def gpus(self) -> tuple[str, ...]:
        """Return the ids of the GPUs visible to TensorFlow. Never raises."""
        return tuple(device.id for device in self.list() if device.is_gpu)

    def _is_stale(self) -> bool:
        return self._clock() >= self._fresh_until

    def _refresh(self) -> None:
        try:
            gpus = [_device(body) for body in self._ask()]
        except DriverError as error:
            # The GPUs are probably still there, so keep the last answer.
            self.problem = str(error)
        else:
            self.problem = ""
            self._gpus = visible(gpus, self._visible)
        is_lively = bool(self._gpus) and not self.problem
        self._fresh_until = self._clock() + (FRESH_SECONDS if is_lively else FRESH_SECONDS_WITHOUT_GPU)
        self._has_asked = True


class Driver:
    """Queries the driver through a helper process, one at a time."""

    def __init__(self, command: list[str] | None = None, seconds: float = HELPER_SECONDS) -> None:
        # -P: the helper must not import modules from its file's folder.
        self._command = command or [sys.executable, "-P", os.path.abspath(gpu_driver.__file__)]
        self._seconds = seconds
        self._stuck: subprocess.Popen[str] | None = None

    def ask(self) -> list[dict[str, Any]]:
        """Return the GPUs that the driver lists, none without a driver; raises DriverError."""
        if self._stuck is not None and self._stuck.poll() is None:
            raise DriverError("The GPU driver does not answer; an earlier query still hangs.")
        self._stuck = None
        helper = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env=inherited(os.environ, SYSTEM_VARIABLES),
        )
        try:
            output, _ = helper.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            self._abandon(helper)
            raise DriverError(f"The GPU driver did not answer within {self._seconds:g} seconds.") from None
        return _gpus_in(output, helper.returncode)

    def _abandon(self, helper: subprocess.Popen[str]) -> None:
        """Kill the helper, without waiting for long: while it is in the driver, it may not be killable."""
        helper.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            helper.wait(timeout=0.5)
        if helper.stdout is not None:
            helper.stdout.close()
        self._stuck = helper


def visible(gpus: list[Device], setting: str | None) -> list[Device]:
    """Return the GPUs visible to a program with ``CUDA_VISIBLE_DEVICES=setting``, in its order.

    As in CUDA, the list ends at the first entry that names no GPU.
    """
    if setting is None:
        return gpus
    listed: list[Device] = []
    for entry in setting.split(","):
        device = _named(gpus, entry.strip())
        if device is None or device in listed:
            break
        listed.append(device)
    return listed


def cpu() -> Device:
    """Return the CPU with its usable cores, and the machine's memory."""
    cores = len(os.sched_getaffinity(0))
    plural = "core" if cores == 1 else "cores"
    memory = psutil.virtual_memory()
    used = memory.total - memory.available
    return Device(CPU, f"{_processor_name()} ({cores} {plural})", memory_total=memory.total, memory_used=used)


def _device(body: dict[str, Any]) -> Device:
    """Return the GPU that the helper describes."""
    processes = ((pid, memory) for pid, memory in body.get("processes", ()))
    return Device(**{**body, "processes": tuple(processes)})


def _named(gpus: list[Device], entry: str) -> Device | None:
    if entry.startswith("GPU-"):
        return next((gpu for gpu in gpus if gpu.uuid.startswith(entry)), None)
    return next((gpu for gpu in gpus if gpu.id == entry), None)


def _gpus_in(output: str, code: int | None) -> list[dict[str, Any]]:
    try:
        answer = json.loads(output)
        problem, gpus = str(answer["problem"]), list(answer["gpus"])
    except (ValueError, KeyError, TypeError) as error:
        raise DriverError(f"The query of the GPU driver failed (exit code {code}).") from error
    if problem:
        raise DriverError(f"The GPU driver reports: {problem}")
    return gpus


@functools.cache
def _processor_name() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return os.uname().machine + " processor"
