"""Match detected boxes with the objects of an image: which are found, missed or false."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# The class of rows without an object: empty ones, and regions that are neither objects nor background.
NO_BOX, IGNORED_BOX = -1, -2
# The smallest intersection over union (IoU) at which a detection matches an object of its class.
MIN_IOU = 0.5
# Results of `match` for detections without an object: false ones, and those in regions to ignore.
FALSE, IN_IGNORED = -1, -2

# COCO's limit on the detections of an image that count.
_USUAL_DETECTIONS = 100

Rows = NDArray[np.float32]


def count_detections(most_objects: int) -> int:
    """Return how many detections of an image count if none has more than ``most_objects`` objects.

    COCO's limit, or if there are more objects, their number rounded up to hundreds: a perfect detector finds all.
    """
    return max(1, -(-most_objects // _USUAL_DETECTIONS)) * _USUAL_DETECTIONS


def overlaps(boxes: Rows, others: Rows) -> NDArray[np.float64]:
    """Return the overlaps of ``boxes`` with ``others``, whose first columns are the edges, float64 [boxes, others].

    It is the IoU; for others of the class `IGNORED_BOX`, the fraction of the box that is inside of them, as for COCO's
    crowds: detections of single objects in a large region are all ignored.
    """
    one, other = boxes[:, None, :4].astype(np.float64), others[None, :, :4].astype(np.float64)
    sides = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
    shared: NDArray[np.float64] = np.prod(np.maximum(0, sides), axis=2)
    areas = [np.prod(np.maximum(0, each[..., 2:] - each[..., :2]), axis=2) for each in (one, other)]
    whole = np.where(others[:, 4] == IGNORED_BOX, areas[0], areas[0] + areas[1] - shared)
    shared /= np.where(whole > 0, whole, 1)
    return shared


def match(detections: Rows, objects: Rows) -> NDArray[np.int64]:
    """Return the place of the object that each detection finds, else `FALSE` or `IN_IGNORED`; int64 [detections].

    ``detections``, float32 [detections, 6], are left, top, right, bottom, score and class, and ``objects``, float32
    [objects, 5], have the class last; it is negative for rows without an object, and `IGNORED_BOX` for regions to
    ignore. Detections with higher scores choose first, so that those above any score match as they do among all.
    """
    matched = np.full(len(detections), FALSE)
    if not len(detections) or not len(objects):
        return matched
    shared = overlaps(detections, objects)
    is_free = objects[:, 4] >= 0
    is_ignored = objects[:, 4] == IGNORED_BOX
    for place in np.argsort(-detections[:, 4], kind="stable"):
        fitting = np.where(is_free & (objects[:, 4] == detections[place, 5]), shared[place], 0)
        if fitting.max() >= MIN_IOU:
            matched[place] = fitting.argmax()
            is_free[matched[place]] = False
        elif shared[place, is_ignored].max(initial=0) >= MIN_IOU:
            matched[place] = IN_IGNORED
    return matched


def confusion(detections: Rows, objects: Rows, matched: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Return the number of objects of each class, by row, detected as each class, int64 [classes + 1, classes + 1].

    The last column counts missed objects, the last row detections without an object. ``matched`` is the result of
    `match` for these ``detections``. A false detection that overlaps an object that is not found confuses its class.
    """
    counts = np.zeros((classes + 1, classes + 1), np.int64)
    hits = matched >= 0
    np.add.at(counts, (objects[matched[hits], 4].astype(int), detections[hits, 5].astype(int)), 1)
    is_missed = objects[:, 4] >= 0
    is_missed[matched[hits]] = False
    false = np.flatnonzero(matched == FALSE)
    shared = overlaps(detections[false], objects)
    for place in np.argsort(-detections[false, 4], kind="stable"):
        fitting = np.where(is_missed, shared[place], 0)
        detected = int(detections[false[place], 5])
        if fitting.max(initial=0) >= MIN_IOU:
            is_missed[fitting.argmax()] = False
            counts[int(objects[fitting.argmax(), 4]), detected] += 1
        else:
            counts[classes, detected] += 1
    np.add.at(counts, (objects[is_missed, 4].astype(int), classes), 1)
    return counts
