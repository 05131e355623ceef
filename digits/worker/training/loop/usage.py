"""Report the resource usage of the task periodically: CPU, memory, GPUs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import psutil

from digits.core.events import EventLog, ReportInterval, UsageSampled

INTERVAL_SECONDS = 2.0
# Time to wait for the driver, which never answers after some faults of a GPU, when the block ends.
DRIVER_SECONDS = 5.0


@contextlib.contextmanager
def reported(
    events: EventLog, device: str, gpus: list[int], interval: float = INTERVAL_SECONDS
) -> Iterator[None]:
    """Log `UsageSampled` while the block runs, every ``interval`` seconds at first and less often later.

    A driver that hangs ends the reports but not the block. ``gpus`` contains the driver's GPU indexes.
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


def _report(events: EventLog, device: str, gpus: list[int], interval: float, stop: threading.Event) -> None:
    process = psutil.Process()
    process.cpu_percent()  # the first call starts the measurement
    until_next = ReportInterval(interval)
    with _driver(gpus) as read_gpus:
        while not stop.wait(until_next.current):
            sample = UsageSampled(
                cpu_percent=process.cpu_percent(),
                memory_bytes=process.memory_info().rss,
                device=device,
                gpus=read_gpus(),
            )
            if stop.is_set():
                return  # the driver hung, and the log may be closed
            events.append(sample)


@contextlib.contextmanager
def _driver(gpus: list[int]) -> Iterator[Any]:
    """Yield a function that returns the state of each GPU; without a driver, an empty list."""
    if not gpus:
        yield list
        return
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield list
        return

    def read() -> list[dict[str, Any]]:
        # GPUs that share the main memory do not report theirs, and a GPU may fall off the bus.
        with contextlib.suppress(pynvml.NVMLError):
            return [_gpu(pynvml, index) for index in gpus]
        return []

    try:
        yield read
    finally:
        pynvml.nvmlShutdown()


def _gpu(pynvml: Any, index: int) -> dict[str, Any]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    state: dict[str, Any] = {
        "index": index,
        "name": pynvml.nvmlDeviceGetName(handle),
        "memory_used": int(memory.used),
        "memory_total": int(memory.total),
    }
    with contextlib.suppress(pynvml.NVMLError):
        state["utilization"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    with contextlib.suppress(pynvml.NVMLError):
        state["temperature"] = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    return state
