"""The GPUs a training uses and their memory limits, tested without GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from digits.core import events, recipe
from tests.worker.lazily import device_config


class Configuration:
    """A fake ``tf.config`` of a machine with GPUs that records its settings."""

    def __init__(self, count: int) -> None:
        self.gpus = [f"gpu {number}" for number in range(count)]
        self.visible: list[str] = self.gpus
        self.growing: list[str] = []
        self.limits: dict[str, int] = {}
        self.experimental = self

    def list_physical_devices(self, kind: str) -> list[str]:
        return self.gpus

    def list_logical_devices(self, kind: str) -> list[Any]:
        count = len(self.visible) if kind == "GPU" else 1
        devices = [mock.Mock() for _ in range(count)]
        for number, device in enumerate(devices):
            device.name = f"/device:{kind}:{number}"
        return devices

    def set_visible_devices(self, devices: list[str], kind: str) -> None:
        self.visible = devices

    def set_memory_growth(self, gpu: str, grows: bool) -> None:
        self.growing.append(gpu)

    def LogicalDeviceConfiguration(self, memory_limit: int) -> int:
        return memory_limit

    def set_logical_device_configuration(self, gpu: str, limits: list[int]) -> None:
        self.limits[gpu] = limits[0]


def _prepare(
    count: int, folder: Path, settings: dict[str, Any], assigned: str | None = None
) -> tuple[Any, ...]:
    """Apply a recipe's settings in a process that sees ``count`` GPUs, those that the environment ``assigned``."""
    log = events.EventLog(folder / "events.jsonl")
    asked = recipe.Train(dataset="none", **settings)
    configuration = Configuration(count)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if assigned is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = assigned
    with mock.patch.object(device_config.tf, "config", configuration):
        found, gpus = device_config.configure(asked, log)
    warnings = [event.message for event in events.read(folder / "events.jsonl")[0]]
    return found, gpus, configuration.visible, configuration.growing, configuration.limits, warnings


def test_all_chosen_gpus_are_used(in_own_child: Any, tmp_path: Path) -> None:
    found, gpus, visible, growing, limits, warnings = in_own_child(
        _prepare, 2, tmp_path, {"devices": ["1", "3"]}, "1,3"
    )
    assert found.devices == ("/device:GPU:0", "/device:GPU:1")
    assert (gpus, visible, growing) == (["1", "3"], ["gpu 0", "gpu 1"], ["gpu 0", "gpu 1"])
    assert not limits
    assert not warnings
    assert not found.compiled


def test_chosen_gpus_are_selected_if_all_are_visible(in_own_child: Any, tmp_path: Path) -> None:
    found, gpus, visible, *_ = in_own_child(_prepare, 4, tmp_path, {"devices": ["3"]})
    assert found.devices == ("/device:GPU:0",)
    assert (gpus, visible) == (["3"], ["gpu 3"])
    assert found.compiled


@pytest.mark.parametrize(
    ("devices", "assigned", "gpus"),
    [
        (["0", "1", "2", "3"], "2,3", ["2", "3"]),  # the second worker of a gang on one machine
        (["0"], "5", ["5"]),  # on a node that Slurm shares without device cgroups
        (["0", "1"], "GPU-1a2b,GPU-3c4d", ["GPU-1a2b", "GPU-3c4d"]),
        (["0"], "1,2,3", ["1"]),  # set for all programs of a node
    ],
)
def test_the_gpus_are_those_that_were_assigned_to_the_process(
    in_own_child: Any, tmp_path: Path, devices: list[str], assigned: str, gpus: list[str]
) -> None:
    count = assigned.count(",") + 1
    found, used, visible, *_, warnings = in_own_child(
        _prepare, count, tmp_path, {"devices": devices}, assigned
    )
    assert (used, len(found.devices), len(visible)) == (gpus, len(gpus), len(gpus))
    assert not warnings


def test_gpus_that_tensorflow_does_not_see_are_reported(in_own_child: Any, tmp_path: Path) -> None:
    *_, warnings = in_own_child(_prepare, 1, tmp_path, {"devices": ["0", "1", "2", "3"]}, "2,3")
    assert warnings == ["TensorFlow sees 1 of the 2 chosen GPUs."]


def test_gpu_memory_is_limited(in_own_child: Any, tmp_path: Path) -> None:
    settings = {"devices": ["0", "1"], "gpu_memory_mb": 2000, "weights_on": "cpu", "xla": True}
    found, _, _, growing, limits, warnings = in_own_child(_prepare, 2, tmp_path, settings)
    assert limits == {"gpu 0": 2000, "gpu 1": 2000}
    assert not growing
    assert found.weights_device == "/device:CPU:0"
    assert len(warnings) == 1
    assert "XLA" in warnings[0]


def test_every_device_gets_a_record(in_own_child: Any, tmp_path: Path) -> None:
    found, *_ = in_own_child(_prepare, 4, tmp_path, {"devices": ["0", "1", "2", "3"], "batch_size": 2})
    assert len(found.devices) == 2


def test_without_gpus_the_cpu_trains(in_own_child: Any, tmp_path: Path) -> None:
    found, gpus, *_, warnings = in_own_child(_prepare, 0, tmp_path, {"devices": ["0"]})
    assert (found.devices, gpus) == (("/device:CPU:0",), [])
    assert not found.compiled
    assert "no GPU" in warnings[0]


def test_gpus_of_one_worker_cannot_be_synchronized(in_own_child: Any, tmp_path: Path) -> None:
    settings = {"devices": ["0", "1"], "synchronized_batch_norm": True}
    with pytest.raises(AssertionError, match="cannot be synchronized with 2 GPUs"):
        in_own_child(_prepare, 2, tmp_path, settings)
