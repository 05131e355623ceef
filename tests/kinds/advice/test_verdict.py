"""The verdict on a finished training."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any

import pytest

from digits.kinds.advice.verdict import ClassScore, Outcome, improves, judge
from digits.kinds.views import ACCURACY, Baseline, Metric

MAP = Metric("map", "mAP", "%", grades=(0.2, 0.5))
R2 = Metric("r2", "R²", perfect=1.0, grades=(0.3, 0.8))
TWO_CLASSES = Baseline(0.5, "Always answering “cat” reaches 50.0%.")
NO_BOXES = Baseline(0.0, "Hardly any of the objects is found.", "Finds almost nothing")
AVERAGE = Baseline(0.0, "Always predicting the average would be about as good.", "No better than the average")
LEVEL = [0.5, 0.7, 0.8, 0.81, 0.8, 0.81, 0.8, 0.81]
RISING = [0.5, 0.55, 0.6, 0.65, 0.7, 0.73, 0.76, 0.8]
WEAK_DOG = ClassScore("dog", 0.4, 0.7, "recall")


def outcome(value: float, **known: Any) -> Outcome:
    facts = {"metric": ACCURACY, "records": 300, "training_records": 1000, "baseline": TWO_CLASSES}
    return Outcome(value=value, **(facts | known))


@pytest.mark.parametrize(
    ("known", "title", "label"),
    [
        (outcome(0.97, history=LEVEL), "Good", "Use it"),
        # A good model is used, even if it could still improve.
        (outcome(0.97, history=RISING), "Good", "Use it"),
        (outcome(0.93, weakest=ClassScore("dog", 0.6, 0.9, "recall")), "Good", "Get more images of “dog”"),
        (
            outcome(0.93, weakest=ClassScore("dog", 0.6, 0.9, "recall", 30)),
            "Good",
            "Get more images of “dog”",
        ),
        (outcome(0.96, weakest=ClassScore("dog", 0.75, 0.958, "recall", 4)), "Good", "Use it"),
        (outcome(0.96, weakest=ClassScore("dog", 0.75, 0.99, "recall", 4)), "Good", "Use it"),
        (outcome(0.96, weakest=ClassScore("dog", 0.0, 0.9, "recall", 4)), "Good", "Get more images of “dog”"),
        (outcome(0.93, weakest=ClassScore("dog", 0.5, 0.83, "recall", 4)), "Good", "Use it"),
        (outcome(0.97, suspects=12), "Good", "Check 12 suspect labels"),
        (outcome(0.97, suspects=2), "Good", "Use it"),
        (outcome(0.80, history=RISING), "Still improving", "Train longer"),
        (outcome(0.80, history=LEVEL, weakest=WEAK_DOG), "Fair", "Get more images of “dog”"),
        (outcome(0.60, history=LEVEL, training_records=9000), "Weak", "Choose another network"),
        (
            outcome(0.71, trained=0.98, training_records=21),
            "Memorizes its 21 training images",
            "Get more images",
        ),
        # Not the images, but the network is the reason: it is as bad on those that it has seen.
        (
            outcome(0.50, trained=1.0, recalled=0.5, training_records=21),
            "Predicts otherwise than it trains",
            "Change the network",
        ),
        (
            outcome(0.71, trained=0.98, recalled=0.97, training_records=21),
            "Memorizes its 21 training images",
            "Get more images",
        ),
        (outcome(0.97, trained=1.0, recalled=0.5, history=LEVEL), "Good", "Use it"),
        # More images do not help a model that has not learned those that it has.
        (outcome(0.60, history=LEVEL, trained=0.61, weakest=WEAK_DOG), "Weak", "Choose another network"),
        (outcome(0.50, losses=[0.7, 0.69, 0.69, 0.69]), "At the level of guessing", "Choose another network"),
        (outcome(0.50, losses=[0.7, 0.69, 0.65, 0.6]), "Still improving", "Train longer"),
        (
            outcome(0.50, trained=1.0, training_records=21),
            "Memorizes its 21 training images",
            "Get more images",
        ),
        # A network that memorizes is as sure of its mistakes as of the rest.
        (
            outcome(0.78, trained=1.0, suspects=90, training_records=5000, history=LEVEL),
            "Memorizes its 5,000 training images",
            "Get more images",
        ),
        # A training that was short, not one that learned nothing.
        (
            outcome(0.04, metric=MAP, baseline=NO_BOXES, history=[0, 0, 0, 0.01, 0.01, 0.02, 0.03, 0.04]),
            "Still improving",
            "Train longer",
        ),
        (outcome(0.03, metric=MAP, baseline=NO_BOXES, history=[0, 0.03]), "Still improving", "Train longer"),
        # Not known to be better than guessing.
        (outcome(0.60, interval=(0.48, 0.71)), "At the level of guessing", "Choose another network"),
        (outcome(0.0, metric=MAP, baseline=NO_BOXES), "Finds almost nothing", "Choose another network"),
        (outcome(0.55, metric=MAP, baseline=NO_BOXES), "Good", "Use it"),
        (
            outcome(0.3, metric=MAP, baseline=NO_BOXES, losses=[9, 5, 4, 7], training_loss=1.0),
            "Memorizes its 1,000 training images",
            "Get more images",
        ),
        (outcome(-0.2, metric=R2, baseline=AVERAGE), "No better than the average", "Choose another network"),
        (outcome(0.9, metric=R2, baseline=AVERAGE), "Good", "Use it"),
        # Without a baseline, nothing is good or bad.
        (outcome(31.0, metric=Metric("psnr", "PSNR", "dB"), baseline=None), "", "Use it"),
    ],
)
def test_the_first_rule_that_applies_decides(known: Outcome, title: str, label: str) -> None:
    verdict = judge(known)
    assert (verdict.title, verdict.label) == (title, label)


def number_of_rule(known: Outcome) -> int:
    """Return the row of the first rule in the table of docs/evaluation.md that applies, from 1."""
    span = known.metric.perfect - known.baseline.value if known.baseline and known.metric.perfect else 0

    def way(value: float | None) -> float:
        return math.nan if value is None or not known.baseline else (value - known.baseline.value) / span

    value, trained, recalled = map(way, (known.value, known.trained, known.recalled))
    learned = recalled if math.isnan(trained) else trained
    low = known.interval[0] if known.interval else known.value
    reached = known.baseline.value if known.baseline else math.nan
    guesses = value < 0.05 or (reached > 0 and low <= reached)
    good, fair = value >= known.metric.grades[1] and not guesses, value >= known.metric.grades[0]
    memorizes = learned - value >= 0.15
    quarter = max(1, len(known.history) // 4)
    first, last = known.history[:-quarter], known.history[-quarter:]
    rises = (
        bool(first)
        and (not guesses or reached == 0)
        and min(max(last) - max(first), sum(last) / quarter - sum(first[-quarter:]) / len(first[-quarter:]))
        > 0.05 * (max(known.history) - known.history[0])
    )
    quarter = max(1, len(known.losses) // 4)
    first, last = known.losses[:-quarter], known.losses[-quarter:]
    improves = rises or (guesses and bool(first) and min(last) < 0.98 * min(first))
    is_weak = known.weakest is not None and known.weakest.score < known.weakest.mean - 0.15
    suspects = known.suspects >= max(3, known.records / 100)
    rules = [
        not good and trained - recalled >= 0.25,
        guesses and not improves and not memorizes,
        not good and improves,
        not good and memorizes,
        not good and learned < known.metric.grades[1],
        is_weak or (not good and not math.isnan(value) and known.training_records < 1000),
        suspects and (good or fair or math.isnan(value)) and not memorizes,
        not good and not math.isnan(value),
        True,
    ]
    return rules.index(True) + 1


def drawn(random: Random) -> Outcome:
    baseline = random.choice([TWO_CLASSES, Baseline(0.1, "Guessing."), NO_BOXES, None])
    value = random.uniform(-0.05, 1)
    trained = random.choice([None, min(1.0, max(0.0, value + random.uniform(-0.1, 0.5)))])
    epochs = random.choice([0, 1, 2, 3, 8, 30])
    return outcome(
        value,
        metric=random.choice([ACCURACY, MAP]),
        baseline=baseline,
        records=random.choice([5, 44, 300, 5000]),
        training_records=random.choice([20, 999, 1000, 60_000]),
        interval=random.choice([None, (value - 0.1, value + 0.1)]),
        trained=trained,
        recalled=random.choice([None, trained, (trained or value) - random.uniform(0, 0.6)]),
        history=[
            value * (epoch / epochs) ** random.choice([0.05, 1]) + random.uniform(0, 0.02)
            for epoch in range(1, epochs + 1)
        ],
        losses=[2 - random.random() * epoch / 10 for epoch in range(epochs)],
        weakest=random.choice([None, ClassScore("dog", random.random(), 0.8, "recall")]),
        suspects=random.choice([0, 2, 3, 40]),
    )


# What each row of the table in docs/evaluation.md suggests.
SUGGESTED = (
    "fix_network",
    "other_network",
    "train_longer",
    "more_images",
    "other_network",
    "more_images",
    "fix_labels",
    "other_network",
    "use",
)


def test_the_rules_apply_in_the_order_of_the_documentation() -> None:
    random, found = Random(4), Counter[int]()
    for _ in range(200):
        known = drawn(random)
        row = number_of_rule(known)
        found[row] += 1
        verdict = judge(known)
        assert verdict.action == SUGGESTED[row - 1], (row, known, verdict)
        assert "100%" not in verdict.reason.partition("weakest")[2]
    assert set(found) == set(range(1, 10)), found


def test_reasons_contain_the_numbers() -> None:
    assert judge(outcome(0.71, trained=0.98)).reason == "98.0% on the training images, but 71.0% on others."
    assert "“dog”: recall 40%" in judge(outcome(0.8, weakest=WEAK_DOG)).reason
    assert not judge(outcome(0.98, weakest=ClassScore("dog", 1.0, 1.0, "recall"))).reason
    few = judge(outcome(1.0, records=5, interval=(0.57, 1.0)))
    assert few.title == "Good" and "With only 5 images, the interval is wide." in few.reason


def test_a_metric_improves_if_its_last_quarter_adds_a_part_of_the_whole() -> None:
    assert improves(RISING, lower_is_better=False) and not improves(LEVEL, lower_is_better=False)
    assert improves([9, 5, 3, 2], lower_is_better=True)
    assert improves([9, 3], lower_is_better=True) and not improves([1, 1, 1, 1], lower_is_better=True)
    assert not improves([9], lower_is_better=True)
    # A single value that is better by chance.
    assert not improves([0.1, 0.7, 0.8, 0.8, 0.81, 0.79, 0.84, 0.77], lower_is_better=False)
