"""Confident learning, on numbers."""

from __future__ import annotations

import numpy as np

from digits.data.health import label_errors


def test_a_label_is_wrong_if_another_class_is_confident() -> None:
    probabilities = np.array(
        [[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95], [0.45, 0.55]], np.float32
    )
    given = np.array([0, 0, 1, 1, 0, 0])
    found = label_errors.find(probabilities, given, split=1)
    # The thresholds are 0.55 and 0.85; record 5 is not confidently in class 1.
    assert found["number"].tolist() == [4]
    assert (found["split"][0], found["given"][0], found["suggested"][0]) == (1, 0, 1)
    assert np.allclose([found["given_confidence"][0], found["confidence"][0]], [0.05, 0.95])


def test_the_likeliest_errors_come_first() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.1, 0.9], [0.2, 0.8]], np.float32)
    found = label_errors.find(probabilities, np.array([0, 0, 0, 0, 1]))
    assert found["number"].tolist() == [3]
    more = label_errors.find(probabilities, np.array([0, 0, 0, 0, 0]))
    assert len(more) == 0  # no record is confidently in a class without records
    both = label_errors.find(
        np.array([[0.9, 0.1], [0.1, 0.9], [0.05, 0.95], [0.5, 0.5]], np.float32), np.array([0, 0, 0, 1])
    )
    assert both["number"].tolist() == [2, 1]


def test_flipped_labels_are_found_far_above_chance() -> None:
    """A calibrated model of 4 classes, with 5% of the labels flipped."""
    chance = np.random.default_rng(0)
    true = chance.integers(0, 4, 4000)
    logits = chance.normal(0, 1, (4000, 4)) + 4 * np.eye(4)[true]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    flipped = chance.random(4000) < 0.05
    given = np.where(flipped, (true + chance.integers(1, 4, 4000)) % 4, true)
    found = label_errors.find(probabilities, given)
    right = flipped[found["number"]]
    assert right.sum() > 0.6 * flipped.sum()
    assert right.mean() > 0.8
    assert np.mean(found["suggested"][right] == true[found["number"][right]]) > 0.9
