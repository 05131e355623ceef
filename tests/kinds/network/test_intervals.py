"""Confidence intervals of metrics."""

from __future__ import annotations

import numpy as np
import pytest

from digits.kinds.network import intervals


def test_the_interval_of_a_share_is_never_empty_and_narrows_with_the_records() -> None:
    # Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I.
    published = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (hits, count), ends in published.items():
        found = intervals.wilson(hits / count, count)
        assert (found.low, found.high) == pytest.approx(ends, abs=5e-5)
    assert intervals.wilson(1.0, 5).low < 0.6 and intervals.wilson(1.0, 500).low > 0.99


def test_resampling_covers_the_mean_and_gives_up_on_slow_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(3, 2, 400)

    def mean(places: np.ndarray) -> dict[str, float]:
        return {"mean": float(values[places].mean()), "unknown": float("nan")}

    found = intervals.bootstrap(len(values), mean)
    assert found.keys() == {"mean"} and found["mean"].method == "bootstrap"
    margin = 1.96 * values.std() / 20
    ends = (values.mean() - margin, values.mean() + margin)
    assert (found["mean"].low, found["mean"].high) == pytest.approx(ends, abs=0.04)
    monkeypatch.setattr(intervals, "MAX_SECONDS", 0.0)
    assert intervals.bootstrap(len(values), mean) == {}
