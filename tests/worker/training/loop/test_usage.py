"""GPU usage from drivers that may not report everything."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from digits.core import events
from digits.worker.training.loop import usage


class DriverFault(Exception):
    """A fake NVMLError."""


class Driver:
    """A fake ``pynvml`` on a machine with one GPU."""

    NVMLError = DriverFault
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        if self._memory is None:
            raise DriverFault("not supported")
        return self._memory

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return "A GPU"

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        raise DriverFault("not supported")

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 50


def reported(folder: Path, gpu: str, count: int) -> list[Any]:
    """Return at least ``count`` reports about a ``gpu``."""
    path = folder / "events.jsonl"
    log = events.EventLog(path)
    with usage.reported(log, "GPU", [gpu], interval=0.01):
        deadline = time.monotonic() + 60
        while len(events.read(path)[0]) < count and time.monotonic() < deadline:
            time.sleep(0.01)
    log.close()
    return events.read(path)[0]


@pytest.mark.parametrize(
    ("memory", "gpus"),
    [
        (
            SimpleNamespace(used=1, total=2),
            [{"index": 0, "name": "A GPU", "memory_used": 1, "memory_total": 2, "temperature": 50}],
        ),
        (None, []),
    ],
)
def test_values_the_driver_does_not_report_are_omitted(
    tmp_path: Path, monkeypatch: Any, memory: Any, gpus: list[dict[str, Any]]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Driver(memory))
    assert [event.gpus for event in reported(tmp_path, "0", 2)][:2] == [gpus, gpus]


def test_a_gpu_that_is_named_by_its_uuid_is_reported_with_its_index(tmp_path: Path, monkeypatch: Any) -> None:
    driver = Driver(SimpleNamespace(used=1, total=2))
    driver.nvmlDeviceGetIndex = lambda handle: 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    assert [gpu["index"] for gpu in reported(tmp_path, "GPU-1a2b", 1)[0].gpus] == [3]


def test_a_hanging_driver_does_not_keep_the_training(tmp_path: Path, monkeypatch: Any) -> None:
    driver = Driver(SimpleNamespace(used=1, total=2))
    asked, answers = threading.Event(), threading.Event()

    def hang(index: int) -> int:
        asked.set()
        answers.wait()
        return index

    driver.nvmlDeviceGetHandleByIndex = hang  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(usage, "DRIVER_SECONDS", 0.01)
    path = tmp_path / "events.jsonl"
    log = events.EventLog(path)
    with usage.reported(log, "GPU", ["0"], interval=0.01):
        assert asked.wait(60)
    log.close()
    thread = next(each for each in threading.enumerate() if each.name == "usage")
    answers.set()  # after the end of the task
    thread.join()
    assert events.read(path)[0] == []
