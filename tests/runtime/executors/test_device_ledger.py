"""Allocations: no device is allocated twice, and released devices are free again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from digits.core.compute import Compute
from digits.core.job import DeviceRequest
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
        st.integers(1, 3),
        if_free=st.booleans(),
        compute=st.builds(Compute, workers=st.integers(1, 2)),
    ),
    st.lists(st.sampled_from("012"), min_size=1, max_size=3, unique=True).map(
        lambda gpus: DeviceRequest("training", len(gpus), tuple(gpus))
    ),
)


@given(gpus=st.integers(0, 3), steps=st.lists(st.one_of(REQUESTS, st.integers(0, 5)), max_size=20))
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
            asked_for = step.gpu_count * step.compute.workers
            assert taken.devices == ("cpu",) or len(taken.devices) == asked_for
        else:
            assert isinstance(taken, Failure) == bool(set(step.gpus) - set(known))
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
    gang = DeviceRequest("training", gpu_count=1, compute=Compute(workers=3))
    first = place(ledger, gang)
    assert first and first.devices == ("0", "1", "2")
    assert ledger.offer().take(gang) == Busy("a free GPU")
