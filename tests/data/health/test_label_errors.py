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


def test_unseen_probabilities_do_not_depend_on_the_label_of_their_record() -> None:
    random = np.random.default_rng(0)
    given = np.arange(60) % 3
    features = np.eye(8)[given] + random.normal(0, 0.3, (60, 8))
    wrong = given.copy()
    wrong[7] = (given[7] + 1) % 3
    with_right, with_wrong = (label_errors.unseen_probabilities(features, each, 3) for each in (given, wrong))
    assert np.allclose(with_right[7], with_wrong[7])
    assert not np.allclose(with_right, with_wrong)
    assert np.allclose(with_right.sum(axis=1), 1) and (with_right.argmax(axis=1) == given).mean() > 0.9
    assert label_errors.find(with_wrong, wrong)[0]["number"] == 7


def test_unseen_probabilities_of_equal_features_are_finite() -> None:
    assert np.isfinite(label_errors.unseen_probabilities(np.ones((5, 4)), np.array([0, 1, 1, 0, 1]), 2)).all()
