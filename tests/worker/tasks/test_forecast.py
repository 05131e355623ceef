"""The forecast of how much faster several workers train."""

from __future__ import annotations

import os
from typing import Any

import pytest

from digits.core.events import Finished, Warned
from digits.worker.tasks import forecast
from tests.worker import networks
from tests.worker.conftest import SECONDS_ALLOWED, Outcome


def test_a_gain_a_loss_and_a_draw_are_told_apart() -> None:
    faster = rounds([1.0], [0.295], workers=4).forecast()
    assert faster.speedup == pytest.approx(3.39, abs=0.01)
    assert faster.message.startswith(
        "4 workers: about 3.4 times as fast as one, measured on this machine: a step"
    )
    slower = rounds([1.0], [1.25]).forecast()
    assert slower.message.startswith("2 workers: slower than one (0.8 times as fast), so use one, measured")
    assert faster.is_faster and not slower.is_faster
    assert "no faster than one" in rounds([1.0], [0.98]).forecast().message


def test_the_network_limits_workers_on_several_machines() -> None:
    """Two workers exchange 100 MB in each step, which take 0.08 s with 10 Gbit/s and 0.8 s with 1 Gbit/s."""
    found = forecast.apart(2, alone=1.0, computing=0.5, adding=0.05, size=100_000_000)
    assert found.speedup == pytest.approx(1 / 0.58)
    assert (
        "2 workers: about 1.7 times as fast as one, if the network between them has 10 Gbit/s (0.8 "
        in found.message
    )
    assert "That is assumed" in found.message and found.nodes == ()
    unlimited = forecast.apart(2, alone=1.0, computing=0.5, adding=0.001, size=4000)
    assert "1 Gbit/s" not in unlimited.message.replace("10 Gbit/s", "")
    # Each of four workers sends 1.5 times its size, and each of two once.
    assert forecast.apart(4, 1.0, 0.25, adding=0.1, size=0).seconds_per_step == pytest.approx(0.4)


def rounds(
    alone: list[float], several: list[float], nodes: tuple[str, ...] = (), workers: int = 2
) -> forecast.Rounds:
    return forecast.Rounds(workers, alone, several, [0.01] * len(alone), 5_000_000, nodes)


def test_rounds_that_slow_down_together_do_not_change_the_forecast() -> None:
    slowdown = [1, 1, 1, 1, 3, 3, 3, 3, 3]
    found = rounds(
        [0.4 * factor for factor in slowdown], [0.25 * factor for factor in slowdown], ("n1", "n2")
    ).forecast()
    assert [found.speedup, found.low, found.high] == pytest.approx([1.6] * 3)
    assert found.message == (
        "2 workers: about 1.6 times as fast as one, measured on n1, n2: a step takes 750 ms instead of 1.2 s, 10 ms of "
        "it to add 5.0 MB of each worker."
    )


def test_a_large_spread_is_said_in_place_of_one_number() -> None:
    alone = [0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
    uncertain = rounds(alone, [0.5] * 7).forecast()
    assert uncertain.message.startswith("2 workers: between 1.8 and 3.0 times as fast as one, measured")
    assert (uncertain.low, uncertain.high) == pytest.approx((1.8, 3.0))
    assert "times as fast as one, so use one" in rounds(alone, [2.0] * 7).forecast().message
    # The first and the last of 20 values are not needed for 95%.
    assert forecast.median_interval(range(20)) == (5, 14)
    assert forecast.median_interval([2.0]) == (2.0, 2.0)


def test_a_preflight_measures_the_share_of_a_worker_and_a_sum(preflight: Any) -> None:
    result = result_of(preflight(networks.LINEAR, workers=2, apart=True))
    assert result["workers"]["workers"] == 2
    assert result["workers"]["speedup"] > 0
    assert result["workers"]["message"].endswith("steps and sums were measured on this machine.")


@pytest.mark.nightly
def test_a_preflight_runs_workers_of_this_machine(preflight: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "SECONDS_FOR_WORKERS", SECONDS_ALLOWED)
    monkeypatch.setattr(forecast, "HUNG_SECONDS", SECONDS_ALLOWED)
    outcome = preflight(networks.LINEAR, workers=2)
    assert result_of(outcome)["workers"]["message"].startswith("2 workers:")
    assert "measured on this machine: a step takes" in result_of(outcome)["workers"]["message"]
    assert not (outcome.job_folder / "workers").exists()


def test_too_many_workers_are_refused(preflight: Any) -> None:
    outcome = preflight(networks.LINEAR, workers=9)
    assert outcome.failure.message == "A batch of 8 records cannot be divided among 9 workers."
    outcome = preflight(networks.LINEAR, workers=64, batch_size=64)
    if (os.cpu_count() or 1) < 64:
        assert "workers" not in result_of(outcome)
        assert "each worker needs one" in outcome.of(Warned)[-1].message


def result_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.output
    return dict(outcome.of(Finished)[0].result)
