"""The list of devices, with and without a working driver."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import psutil
import pytest

from digits.core.machine import gpu_driver
from digits.runtime import devices
from digits.runtime.devices import Device, Devices, Driver, DriverError, visible

GIB = 1024**3


def gpu(index: int) -> dict[str, Any]:
    return {
        "id": str(index),
        "name": f"GPU {index}",
        "uuid": f"GPU-{index}{index}{index}",
        "memory_total": 16 * GIB,
        "memory_used": GIB,
        "utilization": 40,
        "temperature": 60,
    }


class FakeDriver:
    """Returns ``gpus``, or raises it if it is an exception; counts the calls."""

    def __init__(self, gpus: Any) -> None:
        self.gpus = gpus
        self.questions = 0

    def __call__(self) -> list[dict[str, Any]]:
        self.questions += 1
        if isinstance(self.gpus, Exception):
            raise self.gpus
        return self.gpus


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_cpu_is_listed_first_with_its_name() -> None:
    first, *others = Devices(FakeDriver([gpu(0)]), {}).list()
    assert first.id == "cpu" and not first.is_gpu
    assert "core" in first.name
    assert first.memory_total and first.memory_used and first.memory_used < first.memory_total
    assert others == [Device(**gpu(0))] and others[0].is_gpu


def test_devices_are_cached_for_a_while() -> None:
    now = [0.0]
    driver = FakeDriver([gpu(0)])
    here = Devices(driver, {}, clock=lambda: now[0])
    assert len(here.list()) == len(here.list()) == 2
    assert driver.questions == 1
    now[0] += devices.FRESH_SECONDS
    driver.gpus = [gpu(0), gpu(1)]
    assert [device.id for device in here.list()] == ["cpu", "0", "1"]


def test_without_gpus_the_driver_is_queried_less_often() -> None:
    now = [0.0]
    driver = FakeDriver([])
    here = Devices(driver, {}, clock=lambda: now[0])
    assert [device.id for device in here.list()] == ["cpu"]
    now[0] += devices.FRESH_SECONDS
    here.list()
    assert driver.questions == 1 and here.problem == ""


def test_driver_failure_keeps_the_last_known_devices() -> None:
    now = [0.0]
    driver = FakeDriver([gpu(0)])
    here = Devices(driver, {}, clock=lambda: now[0])
    here.list()
    driver.gpus = DriverError("The GPU driver reports: Unknown Error")
    now[0] += devices.FRESH_SECONDS
    assert [device.id for device in here.list()] == ["cpu", "0"]
    assert "Unknown Error" in here.problem


@pytest.mark.parametrize(
    ("setting", "ids"),
    [
        (None, ["0", "1", "2"]),
        ("", []),
        ("-1", []),
        ("1", ["1"]),
        ("2, 0", ["2", "0"]),
        ("0,-1,1", ["0"]),
        ("0,0", ["0"]),
        ("GPU-222", ["2"]),
        ("GPU-9", []),
        ("seven", []),
    ],
)
def test_cuda_visible_devices_is_respected(setting: str | None, ids: list[str]) -> None:
    gpus = [Device(**gpu(index)) for index in range(3)]
    assert [device.id for device in visible(gpus, setting)] == ids


def test_helper_works_on_this_machine() -> None:
    assert isinstance(Driver().ask(), list)


def test_helper_output_is_parsed() -> None:
    answer = json.dumps({"gpus": [gpu(0)], "problem": ""})
    assert Driver(program(f"print({answer!r})")).ask() == [gpu(0)]


def test_helper_sees_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DIGITS_TOKEN", "NVIDIA_API_KEY", "TF_TOKEN_example"):
        monkeypatch.setenv(name, "hidden-word")
    prints = "import json, os; print(json.dumps({'gpus': [dict(os.environ)], 'problem': ''}))"
    (environment,) = Driver(program(prints)).ask()
    assert "hidden-word" not in environment.values() and environment["PATH"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('print(\'{"gpus": [], "problem": "version mismatch"}\')', "version mismatch"),
        ("raise SystemExit(3)", "exit code 3"),
        ("print('[]')", "failed"),
        ("print('not json')", "failed"),
        ("import os; os.abort()", "failed"),
    ],
)
def test_failing_helper_is_an_error(text: str, message: str) -> None:
    with pytest.raises(DriverError, match=message):
        Driver(program(text)).ask()


def helpers() -> list[psutil.Process]:
    """Return helper processes that are still running."""
    children = psutil.Process().children()
    return [
        child
        for child in children
        if child.status() != psutil.STATUS_ZOMBIE and "time.sleep(600)" in " ".join(child.cmdline())
    ]


def test_hanging_helper_is_killed() -> None:
    driver = Driver(program("import time; time.sleep(600)"), seconds=0.2)
    with pytest.raises(DriverError, match="did not answer"):
        driver.ask()
    assert helpers() == []
    with pytest.raises(DriverError, match="did not answer"):
        driver.ask()


def test_no_second_helper_starts_while_one_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(program("import time; time.sleep(600)"), seconds=0.2)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "kill", lambda self: None)
        with pytest.raises(DriverError, match="did not answer"):
            driver.ask()
        with pytest.raises(DriverError, match="still hangs"):
            driver.ask()
    (helper,) = helpers()
    helper.terminate()
    helper.wait()
    # Another helper starts and is killed.
    with pytest.raises(DriverError, match="did not answer"):
        driver.ask()
    assert helpers() == []


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def fake_pynvml(**answers: Any) -> types.ModuleType:
    """A fake driver library; values that are exceptions are raised."""

    def question(answer: Any) -> Any:
        def ask(*arguments: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return ask

    module = types.ModuleType("pynvml")
    defaults: dict[str, Any] = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": "H200",
        "nvmlDeviceGetUUID": "GPU-1",
        "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=4 * GIB, used=GIB),
        "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=7),
        "nvmlDeviceGetTemperature": 33,
        "nvmlDeviceGetComputeRunningProcesses": [types.SimpleNamespace(pid=7, usedGpuMemory=GIB)],
    }
    for name, answer in (defaults | answers).items():
        setattr(module, name, question(answer))
    module.NVMLError = FakeError  # type: ignore[attr-defined]
    module.NVML_ERROR_LIBRARY_NOT_FOUND = 12  # type: ignore[attr-defined]
    module.NVML_ERROR_DRIVER_NOT_LOADED = 9  # type: ignore[attr-defined]
    module.NVML_TEMPERATURE_GPU = 0  # type: ignore[attr-defined]
    return module


def lost_gpu(index: int) -> int:
    if index == 0:
        raise FakeError(15)
    return index


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"nvmlInit": FakeError(12)}, {"gpus": [], "problem": ""}),
        ({"nvmlInit": FakeError(9)}, {"gpus": [], "problem": ""}),
        ({"nvmlInit": FakeError(18)}, {"gpus": [], "problem": "error 18"}),
        ({"nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": lost_gpu}, {"gpus": [], "problem": ""}),
    ],
)
def test_driver_errors_become_messages(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_pynvml(**answers))
    assert helper_output(capsys) == expected


def helper_output(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the helper in this process, and return its output."""
    runpy.run_path(gpu_driver.__file__, run_name="__main__")
    return json.loads(capsys.readouterr().out)


def test_gpu_with_unknown_values_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = {"nvmlDeviceGetMemoryInfo": FakeError(3), "nvmlDeviceGetUtilizationRates": FakeError(3)}
    monkeypatch.setitem(sys.modules, "pynvml", fake_pynvml(**silent))
    (found,) = helper_output(capsys)["gpus"]
    _, listed = Devices(FakeDriver([found]), {}).list()
    assert listed == Device("0", "H200", None, None, None, 33, "GPU-1", processes=((7, GIB),))


def test_helper_finds_its_modules_from_anywhere(tmp_path: Path) -> None:
    # Modules beside gpu_driver.py must not shadow library modules.
    path = Path(gpu_driver.__file__)
    answer = subprocess.run([sys.executable, "-P", path], cwd=path.parent, capture_output=True, check=True)
    assert json.loads(answer.stdout)["gpus"] == Driver().ask()
