"""Report the resource usage of the task periodically: CPU, memory, GPUs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, cast

import psutil

from digits.core.events import EventLog, Gpu, ReportInterval, UsageSampled
from digits.core.machine import gpu_driver

INTERVAL_SECONDS = 2.0
# Time to wait for the driver, which never answers after some faults of a GPU, when the block ends.
DRIVER_SECONDS = 5.0
REPORTED = ("name", "memory_used", "memory_total", "utilization", "temperature")


@contextlib.contextmanager
def reported(
    events: EventLog, device: str, gpus: list[str], interval: float = INTERVAL_SECONDS
) -> Iterator[None]:
    """Log `UsageSampled` while the block runs, every ``interval`` seconds at first and less often later.

    A driver that hangs ends the reports but not the block. ``gpus`` contains the driver's indexes or UUIDs of GPUs.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_report, args=(events, device, gpus, interval, stop), name="usage")
    thread.daemon = True
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(DRIVER_SECONDS)


def _report(events: EventLog, device: str, gpus: list[str], interval: float, stop: threading.Event) -> None:
    process = psutil.Process()
    process.cpu_percent()  # the first call starts the measurement
    until_next = ReportInterval(interval)
    with contextlib.ExitStack() as stack:
        nvml = None
        if gpus:
            import pynvml

            with contextlib.suppress(pynvml.NVMLError):
                nvml = stack.enter_context(gpu_driver.opened())
        while not stop.wait(until_next.current):
            sample = UsageSampled(
                cpu_percent=process.cpu_percent(),
                memory_bytes=process.memory_info().rss,
                device=device,
                gpus=_states(nvml, gpus) if nvml else [],
            )
            if stop.is_set():
                return  # the driver hung, and the log may be closed
            events.append(sample)


def _states(nvml: Any, gpus: list[str]) -> list[Gpu]:
    """Return the known values of each GPU; none if one has failed or does not report its memory."""
    states: list[Gpu] = []
    for gpu in gpus:
        state = gpu_driver.describe(nvml, gpu)
        if state is None or state["memory_used"] is None:
            return []
        known = {name: state[name] for name in REPORTED if state[name] is not None}
        states.append(cast(Gpu, {"index": int(state["id"]), **known}))
    return states
