"""Metrics of object detection: COCO's mean average precision."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from digits.data.targets.box_matching import IGNORED_BOX, count_detections
from digits.kinds.detection.network.targets import COLUMNS, select_boxes
from digits.kinds.network import metrics

_TRUE_COLUMNS = 5
_NO_PRECISION = {"map": 0.0, "map50": 0.0}


class Metrics(metrics.Metrics):
    """COCO's mAP, over IoU thresholds from 0.5 to 0.95, and mAP at 0.5, for whole splits.

    The detections with the highest scores of each image count, up to `count_detections`.
    """

    def record_values(self, output: Any, y: tf.Tensor) -> tf.Tensor | None:
        """The detections and the objects of each record, float32 [N, 6 · detections + 5 · objects]."""
        detected = select_boxes(output)
        if detected is None or detected.shape[1] is None:
            return None
        counted = count_detections(self.target.most_objects)
        _, order = tf.math.top_k(detected[..., 4], min(detected.shape[1], counted))
        best = tf.gather(detected, order, batch_dims=1)
        rows = tf.shape(y)[0]
        values = tf.concat(
            [tf.reshape(best, [rows, -1]), tf.reshape(tf.cast(y, tf.float32), [rows, -1])], axis=1
        )
        width = COLUMNS * best.shape[1] + _TRUE_COLUMNS * self.target.shape[0]
        return tf.ensure_shape(values, [None, width])

    def summarize_records(self, values: NDArray[np.float32]) -> dict[str, float]:
        return mean_average_precision(*self.split(values))

    def resampler(self, values: NDArray[np.float32]) -> Callable[[NDArray[np.intp]], Mapping[str, float]]:
        """Match the detections with the objects only once, because that takes most of the time."""
        detected, true = self.split(values)
        evaluation = _match(detected, true)
        images, matches = len(values), evaluation.evalImgs if evaluation else []

        def summarize(places: NDArray[np.intp]) -> Mapping[str, float]:
            if evaluation is None:
                return _NO_PRECISION
            # All images of a class follow each other.
            starts = range(0, len(matches), images)
            evaluation.evalImgs = [matches[start + place] for start in starts for place in places.tolist()]
            return _means(_accumulate(evaluation))

        return summarize

    def split(self, values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the detections and the objects in the `record_values`, as for `mean_average_precision`."""
        objects = self.target.shape[0]
        detected, true = np.split(values, [values.shape[1] - _TRUE_COLUMNS * objects], axis=1)
        detections = detected.shape[1] // COLUMNS
        detected = detected.reshape(len(values), detections, COLUMNS)
        true = true.reshape(len(values), objects, _TRUE_COLUMNS)
        return detected, true


def mean_average_precision(detected: NDArray[np.float32], true: NDArray[np.float32]) -> dict[str, float]:
    """Return COCO's mAP at IoU 0.5 to 0.95, ``map``, and at 0.5, ``map50``.

    ``detected`` are detections, float32 [images, detections, 6]: left, top, right, bottom, score, class. ``true`` are
    objects, float32 [images, objects, 5], with the class last; it is negative for empty rows, and `IGNORED_BOX` for
    regions to ignore. Detections in these that match no object do not count, and neither do those whose score is not
    positive. The means are over the classes that have objects.
    """
    precision = _precisions_of(detected, true)
    return dict(_NO_PRECISION) if precision is None else _means(precision)


def average_precisions(
    detected: NDArray[np.float32], true: NDArray[np.float32]
) -> dict[int, dict[str, float]]:
    """Return COCO's average precision of each class that has objects: ``ap`` at IoU 0.5 to 0.95, and ``ap50`` at 0.5.

    The arguments are those of `mean_average_precision`.
    """
    classes = np.unique(true[..., 4][true[..., 4] >= 0]).astype(int).tolist()
    precision = _precisions_of(detected, true)
    if precision is None:
        return {number: {"ap": 0.0, "ap50": 0.0} for number in classes}
    return {
        number: {"ap": _mean(precision[:, :, index]), "ap50": _mean(precision[0, :, index])}
        for index, number in enumerate(classes)
    }


def _precisions_of(detected: NDArray[np.float32], true: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """Return the precisions [thresholds, recalls, classes], -1 where a class has no objects.

    None without objects or detections.
    """
    evaluation = _match(detected, true)
    return None if evaluation is None else _accumulate(evaluation)


def _match(boxes: NDArray[np.float32], true: NDArray[np.float32]) -> Any:
    """Return a `COCOeval` that has matched the detections with the objects; None without objects or detections."""
    detected = np.isfinite(boxes).all(axis=2) & (boxes[..., 4] > 0)
    of_image, order = np.nonzero(detected)
    detections = boxes[of_image, order]
    if not (true[..., 4] >= 0).any() or not len(detections):
        return None
    with contextlib.redirect_stdout(io.StringIO()):  # its progress
        return _match_images(true, of_image, detections)


def _match_images(
    true: NDArray[np.float32], of_image: NDArray[np.integer], detections: NDArray[np.float32]
) -> Any:
    truth = COCO()
    classes = true[..., 4].astype(int)
    categories = np.unique(classes[classes >= 0]).tolist()
    annotations: list[dict[str, Any]] = []
    rows = (classes >= 0) | (classes == IGNORED_BOX)
    of_rows = (np.nonzero(rows)[0], classes[rows], _as_coco(true[rows]))
    for image, place, box in zip(*(values.tolist() for values in of_rows), strict=True):
        is_ignored = place == IGNORED_BOX
        # A crowd is of one class, a region to ignore of all.
        annotations += [
            {
                "id": len(annotations) + number,
                "image_id": image,
                "category_id": category,
                "bbox": box,
                "area": box[2] * box[3],
                "iscrowd": int(is_ignored),
            }
            for number, category in enumerate(categories if is_ignored else [place], 1)
        ]
    truth.dataset = {
        "images": [{"id": number} for number in range(len(true))],
        "categories": [{"id": number} for number in categories],
        "annotations": annotations,
    }
    truth.createIndex()
    results = truth.loadRes(
        np.column_stack([of_image, _as_coco(detections), detections[:, 4:6]]).astype(np.float64)
    )
    evaluation = COCOeval(truth, results, "bbox")
    # Objects of all areas, and all detections.
    parameters = evaluation.params
    parameters.areaRng, parameters.areaRngLbl = parameters.areaRng[:1], parameters.areaRngLbl[:1]
    parameters.maxDets = [len(detections)]
    evaluation.evaluate()
    return evaluation


def _accumulate(evaluation: Any) -> NDArray[np.float64]:
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.accumulate()
    precisions: NDArray[np.float64] = evaluation.eval["precision"][:, :, :, 0, 0]
    return precisions


def _means(precision: NDArray[np.float64]) -> dict[str, float]:
    return {"map": _mean(precision), "map50": _mean(precision[0])}


def _as_coco(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return left, top, width and height of boxes."""
    edges = rows[:, :4].astype(np.float64)
    return np.concatenate([edges[:, :2], np.maximum(edges[:, 2:] - edges[:, :2], 0)], axis=1)


def _mean(precision: NDArray[np.float64]) -> float:
    known = precision[precision > -1]
    return float(known.mean()) if known.size else 0.0
