"""Allocations: no device is allocated twice, and released devices are free again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.compute import Compute
from digits.core.job import DeviceRequest
from digits.core.model_job import request_devices
from digits.core.task import Failure
from digits.runtime.executors.device_ledger import DeviceLedger
from digits.runtime.executors.executor import Busy, Placement, place
from digits.runtime.short_tasks import Holder

REQUESTS = st.one_of(
    st.just(DeviceRequest("training")),
    st.just(DeviceRequest("dataset")),
    st.builds(
        DeviceRequest,
        st.just("training"),
        st.integers(1, 4),
        if_free=st.booleans(),
        compute=st.builds(Compute, workers=st.integers(1, 3)),
    ),
    st.builds(
        request_devices,
        st.one_of(
            st.sampled_from(["cpu", "next", "next:2", "next:3", "next:4"]),
            st.lists(st.sampled_from("0123"), min_size=1, max_size=4).map(",".join),
        ),
        st.builds(Compute, workers=st.integers(1, 3)),
    ),
)


@given(gpus=st.integers(0, 4), steps=st.lists(st.one_of(REQUESTS, st.integers(0, 5)), max_size=20))
def test_a_gpu_has_one_user_and_pools_have_limits(gpus: int, steps: list[DeviceRequest | int]) -> None:
    known = [str(number) for number in range(gpus)]
    limits = {"dataset": 1, "training": 2}
    ledger = DeviceLedger(limits, gpus=lambda: known)
    entries: list[Placement] = []
    for step in steps:
        if isinstance(step, int):
            if step < len(entries):
                ledger.release(entries.pop(step))
            continue
        taken = ledger.offer().take(step)
        if isinstance(taken, Placement):
            ledger.reserve(taken)
            entries.append(taken)
            assert taken.devices == ("cpu",) or len(taken.devices) == step.gpu_count
            assert taken.devices == ("cpu",) or step.if_free or step.gpu_count % step.compute.workers == 0
            assert set(step.gpus) <= set(taken.devices) or step.if_free
        else:
            # What waits can start when everything else has ended; what fails never can.
            alone = DeviceLedger(limits, gpus=lambda: known).offer().take(step)
            assert isinstance(alone, Failure if isinstance(taken, Failure) else Placement)
        used = [gpu for entry in entries for gpu in entry.devices if gpu != "cpu"]
        assert sorted(used) == sorted(set(used)) and set(used) <= set(known)
        on_cpu = [entry.request.pool for entry in entries if entry.devices == ("cpu",)]
        assert all(on_cpu.count(pool) <= limit for pool, limit in limits.items())
    for entry in entries:
        ledger.release(entry)
    free = ledger.offer()
    assert (free.slots, free.gpus) == (limits, known)


def test_an_optional_gpu_is_used_if_free_and_not_awaited() -> None:
    ledger = DeviceLedger({"short": 2}, gpus=lambda: ["0", "1"])
    request = DeviceRequest("short", gpus=("1",), if_free=True)
    first, second = (place(ledger, request, Holder("check")) for _ in range(2))
    assert first and second
    assert (first.devices, second.devices) == (("1",), ("cpu",))
    assert ledger.holders() == {"1": "check"}
    assert ledger.offer().take(request) == Busy("another task to be finished")
    ledger.release(first)
    ledger.release(first)
    again = place(ledger, DeviceRequest("short"))
    assert again and again.devices == ("cpu",)
    assert place(ledger, DeviceRequest("short")) is None
    assert place(ledger, DeviceRequest("unlimited"))


def test_a_gang_gets_all_its_gpus_or_waits() -> None:
    ledger = DeviceLedger({}, gpus=lambda: ["0", "1", "2", "3"])
    first = place(ledger, request_devices("next", Compute(workers=3)))
    assert first and first.devices == ("0", "1", "2")
    assert ledger.offer().take(request_devices("next:2", Compute(workers=2))) == Busy("2 free GPUs")


@pytest.mark.parametrize(
    ("device", "workers", "devices"),
    [
        ("0,1", 2, ("0", "1")),
        ("3,1", 2, ("3", "1")),
        ("next:4", 2, ("0", "1", "2", "3")),
        ("next:2", 2, ("0", "1")),
        ("next", 4, ("0", "1", "2", "3")),
        ("next", 1, ("0",)),
        ("0,1,2,3", 1, ("0", "1", "2", "3")),
        ("2,2", 1, ("2",)),
        ("cpu", 3, ("cpu",)),
    ],
)
def test_workers_divide_the_gpus_of_this_machine(device: str, workers: int, devices: tuple[str, ...]) -> None:
    ledger = DeviceLedger({}, gpus=lambda: ["0", "1", "2", "3"])
    placement = place(ledger, request_devices(device, Compute(workers=workers)))
    assert placement and placement.devices == devices


@pytest.mark.parametrize(
    ("device", "workers", "message"),
    [
        ("0,1,2", 2, "3 GPUs cannot be divided equally among 2 workers."),
        ("next:3", 2, "3 GPUs cannot be divided equally among 2 workers."),
        ("0", 2, "1 GPU cannot be divided equally among 2 workers."),
        ("next", 5, "The training needs 5 GPUs, and this machine has 4."),
        ("next:8", 2, "The training needs 8 GPUs, and this machine has 4."),
        ("0,7", 2, "This machine has no GPU 7."),
    ],
)
def test_what_this_machine_can_never_give_fails(device: str, workers: int, message: str) -> None:
    resources = DeviceLedger({}, gpus=lambda: ["0", "1", "2", "3"]).offer()
    refused = resources.take(request_devices(device, Compute(workers=workers)))
    assert isinstance(refused, Failure) and refused.message == message and refused.hint
