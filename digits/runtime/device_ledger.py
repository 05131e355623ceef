"""Device allocations: every running task has an entry here.

The scheduler allocates the devices of jobs (`digits.runtime.scheduler.choose`), and the task runner those of
short tasks and inference servers, from the same ledger, so that no two of them get the same GPU.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from digits.core.job import DeviceRequest

CPU = "cpu"


class Holder(Protocol):
    """The user of a device as shown on pages, such as a job."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Allocation:
    """A slot of ``pool`` and the ``devices`` allocated to one task: ``cpu``, or GPU indexes.

    Without a ``holder``, pages do not show the devices as busy.
    """

    pool: str
    devices: tuple[str, ...]
    holder: Holder | None = None


@dataclass
class Resources:
    """Free resources: slots of each pool, and GPU indexes.

    ``gpus`` is None if the machine has no GPU. Pools without an entry are unlimited.
    """

    slots: dict[str, int]
    gpus: list[str] | None = None
    known_gpus: tuple[str, ...] = ()

    def take(self, request: DeviceRequest) -> tuple[str, tuple[str, ...]] | None:
        """Take the resources of ``request``; return pool and devices, or None if they are not free."""
        if request.pool == "gpu" and self.gpus is not None:
            chosen = list(request.chosen) or self.gpus[: request.count]
            if len(chosen) < request.count or any(gpu not in self.gpus for gpu in chosen):
                return None
            self.gpus = [gpu for gpu in self.gpus if gpu not in chosen]
            return "gpu", tuple(chosen)
        pool = CPU if request.pool == "gpu" else request.pool
        if not self._take_slot(pool):
            return None
        return pool, (CPU,)

    def take_spare(self, pool: str, request: DeviceRequest) -> tuple[str, tuple[str, ...]] | None:
        """Take a slot of ``pool``, with the GPUs of ``request`` if they are free, otherwise with the CPU."""
        if not self._take_slot(pool):
            return None
        on_gpu = self.take(request) if request.pool == "gpu" and self.gpus else None
        return pool, on_gpu[1] if on_gpu else (CPU,)

    def _take_slot(self, pool: str) -> bool:
        free = self.slots.get(pool)
        if free is None:
            return True
        self.slots[pool] = free - 1
        if free < 1:
            self.slots[pool] = free
            return False
        return True


class DeviceLedger:
    """The devices and slots in use.

    ``limits`` is the number of tasks that may run at the same time in each pool. ``gpus`` lists
    the indexes of this machine's GPUs.
    """

    def __init__(self, limits: Mapping[str, int], gpus: Callable[[], list[str]] = list) -> None:
        self._limits = dict(limits)
        self._gpus = gpus
        self._entries: list[Allocation] = []
        self._numbers = itertools.count(1)
        self.version = 0  # incremented with every change

    def free(self) -> Resources:
        """Return the free slots and GPUs."""
        known = self._gpus()  # first, because it may yield
        used = Counter(entry.pool for entry in self._entries)
        slots = {pool: limit - used[pool] for pool, limit in self._limits.items()}
        busy = {device for entry in self._entries for device in entry.devices}
        return Resources(slots, [gpu for gpu in known if gpu not in busy] if known else None, tuple(known))

    def reserve(self, pool: str, devices: tuple[str, ...], holder: Holder | None = None) -> Allocation:
        """Record devices taken from `free`, or those of a task found running after a restart."""
        entry = Allocation(pool, devices, holder)
        self._entries.append(entry)
        self.version = next(self._numbers)
        return entry

    def reserve_slot(self, pool: str, holder: Holder | None = None) -> Allocation | None:
        """Reserve the CPU and a slot of ``pool``; return None if all slots are in use."""
        in_use = sum(entry.pool == pool for entry in self._entries)
        return self.reserve(pool, (CPU,), holder) if in_use < self._limits.get(pool, in_use + 1) else None

    def reserve_spare(
        self, pool: str, request: DeviceRequest, holder: Holder | None = None
    ) -> Allocation | None:
        """Reserve a slot of ``pool``, with the GPUs of ``request`` if they are free, otherwise with the CPU.

        Return None if all slots are in use.
        """
        taken = self.free().take_spare(pool, request)
        if taken is None:
            return None
        pool, devices = taken
        return self.reserve(pool, devices, holder if CPU not in devices else None)

    def release(self, entry: Allocation) -> None:
        """Remove an entry, which may already have been removed."""
        if entry in self._entries:
            self._entries.remove(entry)
            self.version = next(self._numbers)

    def holders(self) -> dict[str, str]:
        """Return the devices in use, including ``cpu``, with the names of their users."""
        return {
            device: entry.holder.name for entry in self._entries if entry.holder for device in entry.devices
        }
