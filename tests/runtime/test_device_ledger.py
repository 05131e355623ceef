"""Allocations: no device is allocated twice, and released devices are free again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from digits.core.job import DeviceRequest
from digits.runtime.device_ledger import Allocation, DeviceLedger

REQUESTS = st.one_of(
    st.just(DeviceRequest(pool="cpu")),
    st.just(DeviceRequest(pool="create")),
    st.builds(DeviceRequest, pool=st.just("gpu"), count=st.integers(1, 3)),
    st.builds(
        lambda chosen: DeviceRequest(pool="gpu", chosen=tuple(chosen), count=len(chosen)),
        st.lists(st.sampled_from("012"), min_size=1, max_size=3, unique=True),
    ),
)


@given(gpus=st.integers(0, 3), steps=st.lists(st.one_of(REQUESTS, st.integers(0, 5)), max_size=20))
def test_a_gpu_has_one_user_and_pools_have_limits(gpus: int, steps: list[DeviceRequest | int]) -> None:
    known = [str(number) for number in range(gpus)]
    limits = {"create": 1, "cpu": 2}
    ledger = DeviceLedger(limits, gpus=lambda: known)
    entries: list[Allocation] = []
    for step in steps:
        if isinstance(step, int):
            if step < len(entries):
                ledger.release(entries.pop(step))
            continue
        taken = ledger.free().take(step)
        if taken is not None:
            entries.append(ledger.reserve(*taken))
        used = [gpu for entry in entries for gpu in entry.devices if gpu != "cpu"]
        assert sorted(used) == sorted(set(used)) and set(used) <= set(known)
        assert all(sum(entry.pool == pool for entry in entries) <= limits[pool] for pool in limits)
    for entry in entries:
        ledger.release(entry)
    free = ledger.free()
    assert free.slots == limits
    assert free.gpus == (known or None)


def test_an_optional_gpu_is_used_if_free_and_not_awaited() -> None:
    ledger = DeviceLedger({"short": 2}, gpus=lambda: ["0", "1"])
    chosen = DeviceRequest(pool="gpu", chosen=("1",))
    first, second = ledger.reserve_spare("short", chosen), ledger.reserve_spare("short", chosen)
    assert first and second
    assert (first.devices, second.devices) == (("1",), ("cpu",))
    assert ledger.reserve_spare("short", chosen) is None
    ledger.release(first)
    ledger.release(first)
    again = ledger.reserve_slot("short")
    assert again and again.devices == ("cpu",)
    assert ledger.reserve_slot("short") is None
    assert ledger.reserve_slot("unlimited")
