"""Reference values for a base rate of 0.01, 1000 steps and the form's default settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digits.core.schedules import POLICIES, LearningRate, TwoPhaseRate, from_settings, preview


def rate(policy: str, **settings: object) -> LearningRate:
    return LearningRate(from_settings(policy, **settings), base=0.01, max_steps=1000)


@pytest.mark.parametrize(
    ("policy", "step", "expected"),
    [
        ("fixed", 0, 0.01),
        ("fixed", 999, 0.01),
        ("exp", 100, 0.00598737),
        ("inv", 100, 0.00707107),
        ("poly", 500, 0.00125),
        ("sigmoid", 0, 0.00993307),
        ("sigmoid", 500, 0.005),
    ],
)
def test_reference_values(policy: str, step: int, expected: float) -> None:
    assert rate(policy).at(step) == pytest.approx(expected, rel=1e-5)


def test_step_decay_drops_at_every_third() -> None:
    at = rate("step").at
    drops = [step for step in range(1, 1000) if at(step) != at(step - 1)]
    assert drops == [330, 660, 990]
    assert at(330) == pytest.approx(0.001)
    assert at(990) == pytest.approx(0.00001)


def test_multistep_decay_drops_after_its_values() -> None:
    at = rate("multistep").at
    drops = [step for step in range(1, 1000) if at(step) != at(step - 1)]
    assert drops == [501, 851]
    assert at(999) == pytest.approx(0.0025)


def test_multistep_decay_accepts_more_values_than_steps() -> None:
    short = LearningRate(from_settings("multistep", values=[10, 20, 30]), 1.0, max_steps=2)
    assert [short.at(step) for step in range(4)] == [1.0, 1.0, 0.125, 0.125]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_preview_matches_the_training(policy: str) -> None:
    (values,) = preview(from_settings(policy), [0.01])
    assert len(values) == 101
    assert values == [LearningRate(from_settings(policy), 0.01, 100).at(step) for step in range(101)]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_preview_of_a_fine_tuning_matches_it(policy: str) -> None:
    (values,) = preview(from_settings(policy), [0.01], 0.5, 0.3)
    rate = TwoPhaseRate(0.5, 30, LearningRate(from_settings(policy), 0.01, 70))
    assert values == pytest.approx([rate.at(step) for step in range(101)])
    whole = preview(from_settings(policy), [0.01], 0.5, 1.0)
    assert preview(from_settings(policy), [0.01], 0.5, 1.5) == whole and whole[0][-1] == pytest.approx(0)


def test_the_rate_is_defined_past_the_last_step() -> None:
    assert LearningRate(from_settings("poly"), 0.01, max_steps=9.5).at(10) == 0.0


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"policy": "nonesuch"}, r"Invalid value 'nonesuch' - at `\$.policy`"),
        ({"policy": "step", "sizes": 3}, "unknown field `sizes`"),
        ({"policy": "step", "size": "many"}, r"Expected `float`, got `str` - at `\$.size`"),
    ],
)
def test_errors_name_the_invalid_value(policy: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_settings(**policy)


@pytest.mark.parametrize(
    ("policy", "settings", "step", "expected"),
    [
        ("cosine", {}, 0, 0.01),
        ("cosine", {}, 500, 0.005),
        ("cosine", {"final": 0.1}, 1000, 0.001),
        ("onecycle", {}, 0, 0.0004),
        ("onecycle", {}, 300, 0.01),
        ("onecycle", {}, 1000, 0.000001),
        ("onecycle", {"peak": 100}, 1000, 0.000001),
        ("fixed", {"warmup": 10}, 0, 0.0001),
        ("fixed", {"warmup": 10}, 49, 0.005),
        ("fixed", {"warmup": 10}, 99, 0.01),
        ("fixed", {"warmup": 10}, 500, 0.01),
        ("step", {"warmup": 10}, 330, 0.001),
    ],
)
def test_newer_policies_and_warmup(
    policy: str, settings: dict[str, float], step: int, expected: float
) -> None:
    assert rate(policy, **settings).at(step) == pytest.approx(expected, rel=1e-9)


@given(
    policy=st.sampled_from(list(POLICIES)),
    base=st.floats(1e-6, 10),
    max_steps=st.floats(1, 1e5),
    warmup=st.floats(0, 100),
    place=st.floats(0, 1),
)
def test_every_rate_is_a_nonnegative_number(
    policy: str, base: float, max_steps: float, warmup: float, place: float
) -> None:
    at = LearningRate(from_settings(policy, warmup=warmup), base, max_steps).at(int(place * max_steps))
    assert 0 <= at <= base * 1.0001
