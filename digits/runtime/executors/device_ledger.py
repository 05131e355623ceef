"""Device allocations on this machine: every running task has an entry here.

The runs of jobs, short tasks and inference servers take their devices from the same ledger, so that no two of them
get the same GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import filterfalse

from digits.core.job import DeviceRequest
from digits.core.task import Failure
from digits.runtime.executors.executor import CPU, Busy, Holder, Placement

_MISSING = {"dataset": "another dataset to be finished", "training": "the CPU, which trains another model"}


@dataclass
class Resources:
    """Free resources: slots of each pool, and the indexes of the free ones among ``known_gpus``.

    Pools without an entry are unlimited.
    """

    slots: dict[str, int]
    gpus: list[str]
    known_gpus: tuple[str, ...] = ()

    def take(self, request: DeviceRequest, holder: Holder | None = None) -> Placement | Busy | Failure:
        """Take the GPUs of ``request``, or a slot of its pool and the CPU.

        A request for the next free GPUs gets the CPU if the machine has none. One for GPUs only ``if_free`` takes a
        slot of its pool in any case.
        """
        if request.if_free:
            return self._take_slot(request, self._free(request) or ())
        unknown = [gpu for gpu in request.gpus if gpu not in self.known_gpus]
        if unknown:
            return Failure(
                f"This machine has no GPU {', '.join(unknown)}.", "Clone the model and choose another device."
            )
        if not (request.gpu_count and self.known_gpus):
            return self._take_slot(request)
        if request.indivisible:
            return Failure(request.indivisible, "Clone the model and choose other numbers.")
        if request.gpu_count > len(self.known_gpus):
            return Failure(
                f"The training needs {request.gpu_count} GPUs, and this machine has {len(self.known_gpus)}.",
                "Clone the model and choose fewer GPUs or workers.",
            )
        gpus = self._free(request)
        if gpus is None:
            count = "a free GPU" if request.gpu_count == 1 else f"{request.gpu_count} free GPUs"
            return Busy(f"GPU {', '.join(request.gpus)}" if request.gpus else count)
        return self._take_gpus(request, gpus)

    def _free(self, request: DeviceRequest) -> tuple[str, ...] | None:
        """Return the GPUs of ``request`` if all of them are free."""
        gpus = request.gpus or tuple(self.gpus[: request.gpu_count])
        return gpus if len(gpus) == request.gpu_count and set(gpus) <= set(self.gpus) else None

    def _take_gpus(self, request: DeviceRequest, gpus: tuple[str, ...]) -> Placement:
        if gpus == tuple(self.gpus[: len(gpus)]):
            del self.gpus[: len(gpus)]  # quickly, because there may be thousands
        else:
            self.gpus = [gpu for gpu in self.gpus if gpu not in gpus]
        return Placement(request, gpus or (CPU,))

    def _take_slot(self, request: DeviceRequest, gpus: tuple[str, ...] = ()) -> Placement | Busy:
        free = self.slots.get(request.pool)
        if free is not None:
            if free < 1:
                return Busy(_MISSING.get(request.pool, "another task to be finished"))
            self.slots[request.pool] = free - 1
        return self._take_gpus(request, gpus)


class DeviceLedger:
    """The devices and slots in use.

    ``limits`` is the number of tasks that may run at the same time in each pool. ``gpus`` lists
    the indexes of this machine's GPUs.
    """

    def __init__(self, limits: Mapping[str, int], gpus: Callable[[], Sequence[str]] = tuple) -> None:
        self._limits = dict(limits)
        self._gpus = gpus
        self._entries: dict[Placement, Holder | None] = {}
        # The sums of the entries, so that an offer does not examine thousands of them.
        self._used: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()

    def offer(self) -> Resources:
        """Return the free slots and GPUs."""
        known = tuple(self._gpus())  # first, because it may yield
        slots = {pool: limit - self._used[pool] for pool, limit in self._limits.items()}
        return Resources(slots, list(filterfalse(self._busy.__contains__, known)), known)

    def reserve(self, placement: Placement, holder: Holder | None = None) -> None:
        """Record devices taken from `offer`, or those of a task found running after a restart."""
        if placement not in self._entries:
            self._count(placement, 1)
        self._entries[placement] = holder

    def release(self, placement: Placement) -> None:
        """Remove an entry, which may already have been removed."""
        if placement in self._entries:
            self._count(placement, -1)
            del self._entries[placement]

    def _count(self, placement: Placement, change: int) -> None:
        if _has_slot(placement):
            self._used[placement.request.pool] += change
        for device in placement.devices:
            self._busy[device] += change
            if not self._busy[device]:
                del self._busy[device]

    def holders(self) -> dict[str, str]:
        """Return the devices in use, including ``cpu``, with the names of their users.

        A run without a holder, or one that uses GPUs only if they are free and got the CPU, is not shown.
        """
        return {
            device: holder.name
            for entry, holder in self._entries.items()
            if holder and not (entry.request.if_free and CPU in entry.devices)
            for device in entry.devices
        }


def _has_slot(entry: Placement) -> bool:
    return entry.request.if_free or set(entry.devices) <= {CPU}
