"""The loss of object detectors and the boxes that are decoded from their maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def _maps(strength: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return maps of 8×6 cells with two objects, of a certain strength, and the objects in pixels."""
    y = np.array([[[4, 8, 20, 16, 1], [16, 20, 30, 24, 0], [-1] * 5]], np.float32)
    scores = np.full((1, 6, 8, 2), -strength, np.float32)
    edges = np.ones((1, 6, 8, 4), np.float32)
    for left, top, right, bottom, place in y[0, :2]:
        column, row = int((left + right) / 8), int((top + bottom) / 8)
        scores[0, row, column, int(place)] = strength
        for i in range(6):
            for j in range(8):
                if abs(i - row) <= 1 and abs(j - column) <= 1:
                    x, z = (j + 0.5) * 4, (i + 0.5) * 4
                    edges[0, i, j] = np.maximum([x - left, z - top, right - x, bottom - z], 0.01)
    edges /= 4
    return scores, edges, y


def _results(strength: float) -> dict[str, Any]:
    import tensorflow as tf

    from digits.worker.network.api import decode_boxes, detection_loss

    scores, edges, y = _maps(strength)
    with tf.GradientTape() as tape:
        logits = tf.constant(scores)
        tape.watch(logits)
        loss = detection_loss(logits, edges, y, 4)
    nothing = detection_loss(scores, edges, np.full_like(y, -1), 4)
    ignoring = y.copy()
    ignoring[0, 1, 4] = -2
    with tf.GradientTape() as ignoring_tape:
        ignoring_tape.watch(logits)
        ignored = detection_loss(logits, edges, ignoring, 4)
    return {
        "loss": float(loss),
        "gradient": tape.gradient(loss, logits).numpy(),
        "nothing": float(nothing),
        "ignoring": ignoring_tape.gradient(ignored, logits).numpy(),
        "boxes": decode_boxes(scores, edges, 4, count=5).numpy(),
        "more": decode_boxes(scores, edges, 4, count=200).shape.as_list(),
    }


def test_the_loss_is_small_for_maps_that_decode_to_the_objects(in_shared_child):
    result = in_shared_child(_results, 8.0)
    found = result["boxes"][0]
    rows = sorted(found[:2].tolist())
    assert rows[0][:4] == pytest.approx([4, 8, 20, 16]) and rows[0][5] == 1
    assert rows[1][:4] == pytest.approx([16, 20, 30, 24]) and rows[1][5] == 0
    assert (found[:2, 4] > 0.99).all() and (found[2:, 4] < 0.01).all()
    assert result["more"] == [1, 200, 6]
    wrong = in_shared_child(_results, -8.0)
    assert 0 <= result["loss"] < 0.7 < wrong["loss"]
    assert np.isfinite(wrong["gradient"]).all() and np.isfinite(result["nothing"])
    # The score at the center must increase; that of the other class must not.
    assert wrong["gradient"][0, 3, 3, 1] < 0 < wrong["gradient"][0, 3, 3, 0]


def test_regions_to_ignore_are_neither_objects_nor_background(in_shared_child):
    gradient = in_shared_child(_results, 8.0)["ignoring"][0]
    region = np.zeros(gradient.shape[:2], bool)
    region[5:6, 4:8] = True  # 16 to 30 and 20 to 24 pixels
    assert not gradient[region].any()
    # The other object is still learned, and the rest is background.
    assert gradient[3, 3, 1] < 0
    assert (gradient[~region][:, 0] > 0).all()
