"""Metrics of pairs, compared with their definitions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

PAIRS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), st.booleans()), min_size=1, max_size=20
)


@given(PAIRS)
def test_the_area_is_the_probability_of_the_right_order(tensorflow, pairs):
    from digits.kinds.pairs.network.metrics import area_under_curve

    near = [distance for distance, same in pairs if same]
    far = [distance for distance, same in pairs if not same]
    orders = [(a < b) + 0.5 * (a == b) for a, b in itertools.product(near, far)]
    distances, matches = np.array([d for d, _ in pairs], np.float32), np.array([m for _, m in pairs])
    assert area_under_curve(distances, matches) == pytest.approx(np.mean(orders) if orders else 0.5)


@given(PAIRS)
def test_no_threshold_is_better(tensorflow, pairs):
    from digits.kinds.pairs.network.metrics import best_threshold

    distances, matches = np.array([d for d, _ in pairs], np.float32), np.array([m for _, m in pairs])
    threshold, accuracy = best_threshold(distances, matches)
    assert np.mean((distances < threshold) == matches) == pytest.approx(accuracy)
    others = [np.mean((distances < other) == matches) for other in (-1, 0.1, 0.3, 0.7, 1.5, 3)]
    assert accuracy == pytest.approx(max(others))


def test_a_network_returns_a_distance_for_each_pair(in_child: Any) -> None:
    values = [[0.25, 1.0], [2.0, 0.0]]
    assert in_child(_record_values) == [values, values, None, None]


def _record_values() -> list[Any]:
    import tensorflow as tf

    from digits.data.targets.class_index import ClassIndex
    from digits.kinds.pairs.network.metrics import Metrics

    metrics = Metrics(ClassIndex.of(["different", "same"]))
    outputs = ([0.25, 2.0], [[0.25], [2.0]], [[0.25, 2.0]] * 2, [[[0.25]], [[2.0]]])
    found = [metrics.record_values(tf.constant(output), tf.constant([1, 0])) for output in outputs]
    return [None if values is None else values.numpy().tolist() for values in found]
