"""The verdict on a finished training."""

from __future__ import annotations

from typing import Any

import pytest

from digits.kinds.advice.verdict import ClassScore, Outcome, improves, judge
from digits.kinds.views import ACCURACY, Baseline, Metric

MAP = Metric("map", "mAP", "%", grades=(0.2, 0.5))
R2 = Metric("r2", "R²", perfect=1.0, grades=(0.3, 0.8))
TWO_CLASSES = Baseline(0.5, "Always answering “cat” reaches 50.00%.")
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
        (outcome(0.50, losses=[0.7, 0.69, 0.65, 0.6]), "At the level of guessing", "Train longer"),
        (outcome(0.50, trained=1.0, training_records=21), "At the level of guessing", "Get more images"),
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


def test_reasons_contain_the_numbers() -> None:
    assert judge(outcome(0.71, trained=0.98)).reason == "98.00% on the training images, but 71.00% on others."
    assert "“dog”: recall 40%" in judge(outcome(0.8, weakest=WEAK_DOG)).reason
    few = judge(outcome(1.0, records=5, interval=(0.57, 1.0)))
    assert few.title == "Good" and "With only 5 images, the interval is wide." in few.reason


def test_a_metric_improves_if_its_last_quarter_adds_a_part_of_the_whole() -> None:
    assert improves(RISING, lower_is_better=False) and not improves(LEVEL, lower_is_better=False)
    assert improves([9, 5, 3, 2], lower_is_better=True)
    assert not improves([9, 5, 3], lower_is_better=True) and not improves([1, 1, 1, 1], lower_is_better=True)
