"""GPUs as NVIDIA's driver describes them, without TensorFlow.

A call may hang. As a program, the module prints all GPUs as JSON; `digits.runtime.devices` abandons it if it does.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def opened() -> Iterator[Any]:
    """Yield NVML while it is initialized; raises ``pynvml.NVMLError``."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def describe(nvml: Any, gpu: str, *, with_processes: bool = False) -> dict[str, Any] | None:
    """Return the state of a GPU, given by its index or UUID; None if it has failed.

    Values that the GPU does not report are None: GPUs that share the main memory do not report theirs.
    ``with_processes``, it includes the id and the memory in bytes of each process that computes on the GPU; in a
    container, the driver may list none, or ids outside of it.
    """
    try:
        find = nvml.nvmlDeviceGetHandleByIndex if gpu.isdigit() else nvml.nvmlDeviceGetHandleByUUID
        handle = find(int(gpu) if gpu.isdigit() else gpu)
        index = gpu if gpu.isdigit() else str(nvml.nvmlDeviceGetIndex(handle))
    except nvml.NVMLError:
        return None

    def known(question: Any, *arguments: Any) -> Any:
        try:
            return question(handle, *arguments)
        except nvml.NVMLError:
            return None

    memory = known(nvml.nvmlDeviceGetMemoryInfo)
    rates = known(nvml.nvmlDeviceGetUtilizationRates)
    state = {
        "id": index,
        "name": known(nvml.nvmlDeviceGetName) or f"GPU {index}",
        "uuid": known(nvml.nvmlDeviceGetUUID) or "",
        "memory_total": memory.total if memory else None,
        "memory_used": memory.used if memory else None,
        "utilization": rates.gpu if rates else None,
        "temperature": known(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
    }
    if with_processes:
        processes = known(nvml.nvmlDeviceGetComputeRunningProcesses) or ()
        state["processes"] = [(process.pid, process.usedGpuMemory) for process in processes]
    return state


def _answer() -> dict[str, Any]:
    """Return all GPUs, or the driver's error; no GPUs without a driver."""
    import pynvml

    absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    try:
        with opened() as nvml:
            gpus = [
                describe(nvml, str(index), with_processes=True) for index in range(nvml.nvmlDeviceGetCount())
            ]
    except pynvml.NVMLError as error:
        return {"gpus": [], "problem": "" if error.value in absent else str(error)}
    return {"gpus": [gpu for gpu in gpus if gpu is not None], "problem": ""}


if __name__ == "__main__":
    json.dump(_answer(), sys.stdout)
