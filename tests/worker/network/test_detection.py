"""The loss of object detectors and the boxes that are decoded from their maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.worker.lazily import api, detection, tf


def _maps(strength: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return maps of 8×6 cells with two objects, of a certain strength, and the objects in pixels."""
    y = np.array([[[4, 8, 20, 16, 1], [16, 20, 30, 24, 0], [-1] * 5]], np.float32)
    scores = np.full((1, 6, 8, 2), -strength, np.float32)
    edges = np.ones((1, 6, 8, 4), np.float32)
    for left, top, right, bottom, place in y[0, :2]:
        for i in range(6):
            for j in range(8):
                x, z = (j + 0.5) * 4, (i + 0.5) * 4
                is_near = abs(x - (left + right) / 2) < 6 and abs(z - (top + bottom) / 2) < 6
                if is_near and left < x < right and top < z < bottom:
                    scores[0, i, j, int(place)] = strength
                    edges[0, i, j] = np.array([x - left, z - top, right - x, bottom - z]) / 4
    return scores, edges, y


def _results(strength: float) -> dict[str, Any]:
    scores, edges, y = _maps(strength)
    with tf.GradientTape() as tape:
        logits = tf.constant(scores)
        tape.watch(logits)
        loss = api.detection_loss(logits, edges, y, 4)
    nothing = api.detection_loss(scores, edges, np.full_like(y, -1), 4)
    ignoring = y.copy()
    ignoring[0, 1, 4] = -2
    with tf.GradientTape() as ignoring_tape:
        ignoring_tape.watch(logits)
        ignored = api.detection_loss(logits, edges, ignoring, 4)
    return {
        "loss": float(loss),
        "gradient": tape.gradient(loss, logits).numpy(),
        "nothing": float(nothing),
        "ignoring": ignoring_tape.gradient(ignored, logits).numpy(),
        "boxes": api.decode_boxes(scores, edges, 4, count=5).numpy(),
        "more": api.decode_boxes(scores, edges, 4, count=200).shape.as_list(),
    }


def test_the_loss_is_small_for_maps_that_decode_to_the_objects(in_child):
    result = in_child(_results, 8.0)
    found = result["boxes"][0]
    rows = sorted(found[:2].tolist())
    assert rows[0][:4] == pytest.approx([4, 8, 20, 16]) and rows[0][5] == 1
    assert rows[1][:4] == pytest.approx([16, 20, 30, 24]) and rows[1][5] == 0
    assert (found[:2, 4] > 0.99).all() and (found[2:, 4] < 0.01).all()
    assert result["more"] == [1, 200, 6]
    wrong = in_child(_results, -8.0)
    assert 0 <= result["loss"] < 0.01 < 1 < wrong["loss"]
    assert np.isfinite(wrong["gradient"]).all() and np.isfinite(result["nothing"])
    # The score at the center must increase; that of the other class must not.
    assert wrong["gradient"][0, 3, 3, 1] < 0 < wrong["gradient"][0, 3, 3, 0]


def test_regions_to_ignore_are_neither_objects_nor_background(in_child):
    gradient = in_child(_results, 8.0)["ignoring"][0]
    region = np.zeros(gradient.shape[:2], bool)
    region[5:6, 4:8] = True  # 16 to 30 and 20 to 24 pixels
    assert not gradient[region].any()
    # The other object is still learned, and the rest is background.
    assert gradient[3, 3, 1] < 0
    assert (gradient[~region][:, 0] > 0).all()


def _assigned(boxes: list[list[float]], are_objects: list[bool]) -> list[list[int]]:
    found = detection.assign_cells(tf.constant([boxes], tf.float32), tf.constant([are_objects]), 4, 6)
    return found.numpy()[0].tolist()


def test_cells_near_the_center_predict_the_smallest_object(in_child):
    large, small, nothing = [0, 0, 6, 4], [0.2, 1.2, 0.4, 1.4], [-1] * 4
    # Within 1.5 cells of the center of the first, and the cell that contains the second, though not its middle.
    assert in_child(_assigned, [large, small, nothing], [True, True, False]) == [
        [-1, -1, -1, -1, -1, -1],
        [1, -1, 0, 0, -1, -1],
        [-1, -1, 0, 0, -1, -1],
        [-1, -1, -1, -1, -1, -1],
    ]
    inner = [2, 1, 3, 2]
    assert in_child(_assigned, [large, inner], [True, True])[1][2:4] == [1, 0]
    assert in_child(_assigned, [large, inner], [True, False])[1][2:4] == [0, 0]


def _iou_losses() -> Any:
    box = tf.constant([0.0, 0.0, 2.0, 2.0])
    others = tf.constant([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0], [3.0, 0.0, 4.0, 2.0]])
    return [values.numpy() for values in detection.iou_and_loss(box, others)]


def test_the_loss_of_boxes_grows_with_their_distance(in_child):
    iou, loss = in_child(_iou_losses)
    assert iou == pytest.approx([1, 1 / 3, 0], abs=1e-5)
    assert loss == pytest.approx([0, 2 / 3, 1 + 2 / 8], abs=1e-5)


def _repeated() -> Any:
    scores = np.full((1, 8, 8, 2), -9.0, np.float32)
    edges = np.full((1, 8, 8, 4), 3.0, np.float32)
    scores[0, 4, 1, 0], scores[0, 4, 4, 1], scores[0, 4, 7, 0] = 3, 2, 1
    edges[0, 4, 4], edges[0, 4, 7] = [6, 3, 0, 3], [9, 3, -3, 3]  # the box of the first
    return api.decode_boxes(scores, edges, 4, count=4).numpy()[0]


def test_of_overlapping_boxes_of_a_class_the_best_is_kept(in_child):
    found = in_child(_repeated)
    assert found[:2, 5].tolist() == [0, 1] and found[0, :4] == pytest.approx(found[1, :4])
    assert (found[:2, 4] > 0.8).all() and (found[2:, 4] < 0.01).all()
