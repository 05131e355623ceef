"""Memory for decoded images: how much is free, and how much other trainings are about to use.

The kernel reports memory as free until it is used. Trainings that start together would therefore all count on the
same memory, so each claims its share before it looks at those of others, and gives it up if they do not fit together.
A claim is a socket whose name in the kernel's abstract namespace contains the size: all processes can list it,
whichever server started them, and it ends with its process, however that ends. Other local users could make false
claims, and trainings that start at the same instant see each other's: they then only read their images from disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from digits.core.machine import gpu_driver

# Maximum fraction of the free memory used for decoded images.
RESIDENT_SHARE = 0.4

NAMESPACE = "digits-memory"


@dataclass(frozen=True)
class Budget:
    """Memory for decoded images: the ``budget`` of the ``free`` bytes in ``place``."""

    budget: float
    free: int
    place: str = "memory"


class Claim:
    """A claim of ``size`` bytes by this process. It ends when the memory has been allocated, or with the process."""

    def __init__(self, size: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            self._socket.bind(f"\0{NAMESPACE}/{os.getpid()}/{id(self)}/{size}")

    def end(self) -> None:
        self._socket.close()


def claimed_by_others() -> int:
    """Return the bytes that other processes have claimed; 0 if that is unknown."""
    try:
        sockets = Path("/proc/net/unix").read_text(errors="replace")
    except OSError:
        return 0
    claims = re.findall(rf"@{re.escape(NAMESPACE)}/(\d+)/\d+/(\d{{1,18}})$", sockets, re.MULTILINE)
    return sum(int(size) for pid, size in claims if int(pid) != os.getpid())


def free_bytes() -> int:
    """Return the memory that is available without swapping, in bytes."""
    return int(psutil.virtual_memory().available)


def budget(free_on_gpu: int | None, taken: int = 0) -> Budget:
    """Return the memory budget for decoded images, excluding ``taken`` bytes and those claimed by other trainings.

    On a GPU, images must fit into its memory, of which ``free_on_gpu`` bytes are free, as well as the main memory.
    """
    free, place = free_bytes() - claimed_by_others(), "memory"
    if free_on_gpu is not None and free_on_gpu < free:
        free, place = free_on_gpu, "GPU memory"
    free = max(0, free - taken)
    return Budget(free * RESIDENT_SHARE, free, place)


def free_gpu_bytes() -> int | None:
    """Return the bytes that this process can allocate on its first GPU; None without a GPU or if unknown."""
    import tensorflow as tf

    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        return None
    limits = tf.config.get_logical_device_configuration(gpus[0]) or []
    known = [limit.memory_limit * 2**20 for limit in limits[:1] if limit.memory_limit]
    free = free_bytes_by_driver()
    return min([*known, *([] if free is None else [free])], default=None)


def free_bytes_by_driver() -> int | None:
    """Return the free memory of the first visible GPU in bytes; None if the driver does not report it."""
    import pynvml

    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    with contextlib.suppress(pynvml.NVMLError), gpu_driver.opened() as nvml:
        gpu = gpu_driver.describe(nvml, first)
        return int(gpu["memory_total"] - gpu["memory_used"]) if gpu and gpu["memory_total"] else None
    return None
