"""Validation: metrics of the records of a whole split, whatever the batches and calls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker.lazily import validation


class _NoState:
    """Stands for a saved state: there is nothing to restore."""

    def restore_network(self) -> None: ...


class _Feed:
    def __init__(self, order: Any) -> None:
        self._order = iter(order)

    def take(self, batches: int) -> list[Any]:
        return [next(self._order) for _ in range(batches)]

    def close(self) -> None: ...


class _Records:
    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def feed(self, order: Any) -> _Feed:
        return _Feed(order)


class _Evaluation:
    """Returns the indexes of the records: as the metric of a batch their mean, and as the value of each."""

    names = ("mean",)
    record_width = 1

    def __init__(self) -> None:
        self.calls: list[int] = []

    def begin(self, step: int, first: int) -> None: ...

    def __call__(self, batches: list[Any]) -> tuple[Any, Any]:
        import numpy as np

        self.calls.append(len(batches))
        means = np.array([[batch.mean()] for batch in batches], np.float32)
        return means, np.concatenate(batches).astype(np.float32)[:, None]

    def summarize(self, means: list[float], values: Any) -> dict[str, Any]:
        return {"mean": means[0], "values": values[:, 0].tolist()}


def _validated(count: int, batch: int, limits: tuple[int, int] | None = None) -> tuple[Any, list[int]]:
    if limits:
        validation.MAX_RECORD_VALUES, validation.MAX_RECORD_VALUES_PER_CALL = limits
    evaluation: Any = _Evaluation()
    save_state: Any = _NoState
    records: Any = _Records(count)
    runs = validation.Validation(evaluation, records, batch, save_state, limit=100)
    return runs.run(1, 0.1, lambda: False), evaluation.calls


@pytest.mark.parametrize(("count", "batch"), [(1, 8), (24, 8), (25, 8), (30, 8), (100, 1)])
def test_every_record_counts_once(in_child: Any, count: int, batch: int) -> None:
    metrics, _ = in_child(_validated, count, batch)
    assert metrics["values"] == list(range(count))
    assert metrics["mean"] == pytest.approx((count - 1) / 2)


def test_the_values_of_records_are_limited(in_child: Any) -> None:
    metrics, calls = in_child(_validated, 100, 5, (20, 10))
    assert metrics["values"] == list(range(20))  # the first records
    assert metrics["mean"] == pytest.approx(49.5)  # all of them
    assert max(calls) == 2
