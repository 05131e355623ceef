"""Which objects detections find, and which classes they confuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits.data.targets.box_matching import FALSE, IGNORED_BOX, IN_IGNORED, confusion, match

SQUARE = (0, 0, 10, 10)
CLASSES = 2


def detections_of(*rows: tuple[tuple[int, ...], float, int]) -> Any:
    return np.array([[*edges, score, index] for edges, score, index in rows], np.float32).reshape(-1, 6)


def objects_of(*rows: tuple[tuple[int, ...], int]) -> Any:
    return np.array([[*edges, index] for edges, index in rows], np.float32).reshape(-1, 5)


@pytest.mark.parametrize(
    ("edges", "index", "found"),
    [
        (SQUARE, 0, 0),
        (SQUARE, 1, FALSE),
        ((0, 0, 10, 5), 0, 0),  # an IoU of a half
        ((0, 0, 10, 4), 0, FALSE),
        ((20, 0, 30, 10), 0, IN_IGNORED),
        ((20, 0, 24, 4), 1, IN_IGNORED),  # a small part of the region
        ((16, 0, 24, 10), 0, IN_IGNORED),  # half of it in the region
        ((15, 0, 24, 10), 0, FALSE),
    ],
)
def test_a_detection_finds_an_object_of_its_class(edges: tuple[int, ...], index: int, found: int) -> None:
    objects = objects_of((SQUARE, 0), ((20, 0, 30, 10), IGNORED_BOX))
    assert match(detections_of((edges, 0.9, index)), objects).tolist() == [found]


def test_each_object_is_found_once_by_the_detection_with_the_highest_score() -> None:
    detections = detections_of((SQUARE, 0.2, 0), ((0, 0, 10, 9), 0.8, 0), ((0, 0, 9, 9), 0.5, 0))
    assert match(detections, objects_of((SQUARE, 0))).tolist() == [FALSE, 0, FALSE]
    assert match(detections, objects_of()).tolist() == [FALSE] * 3
    assert match(detections_of(), objects_of((SQUARE, 0))).tolist() == []


def test_false_detections_confuse_the_classes_of_missed_objects() -> None:
    far = (40, 40, 50, 50)
    objects = objects_of((SQUARE, 0), ((20, 0, 30, 10), 1), (far, 1))
    detections = detections_of((SQUARE, 0.9, 0), ((20, 0, 30, 9), 0.8, 0), ((60, 0, 70, 10), 0.7, 1))
    counts = confusion(detections, objects, match(detections, objects), CLASSES)
    assert counts.tolist() == [[1, 0, 0], [1, 0, 1], [0, 1, 0]]
