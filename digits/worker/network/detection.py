"""Single-stage object detection without anchors: the loss of a network's maps, and the boxes in them.

The maps have a cell for every few pixels of the image. ``scores``, float32 [N, rows, columns, classes], are logits: a
cell in the middle of an object has the largest. ``edges``, float32 [N, rows, columns, 4], are the distances from the
middle of a cell to the left, top, right and bottom edge of the object, in cells and positive.

The scores are those of CenterNet (X. Zhou, D. Wang, P. Krähenbühl, "Objects as Points", 2019), and the edges are
learned around the middle, as in TTFNet (Z. Liu et al., "Training-Time-Friendly Network for Real-Time Object
Detection", 2020).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from digits.data.targets.box_matching import IGNORED_BOX
from digits.worker.precision import full_precision

# The fraction of a box, around its center, whose cells are trained to predict it.
_CENTRAL_SHARE = 0.54
# Standard deviations of a Gaussian in this share.
_DEVIATIONS = 6.0
_SMALLEST_DEVIATION = 0.3
# Cells farther away do not belong to the object; exp(-3²/2).
_SMALLEST_WEIGHT = 0.011
_EDGE_WEIGHT = 2.0
_EPSILON = 1e-6


def detection_loss(scores: Any, edges: Any, y: Any, stride: float) -> tf.Tensor:
    """Return the loss of the maps ``scores`` and ``edges``; a cell has ``stride`` × ``stride`` pixels.

    ``y``, float32 [N, objects, 5], contains the boxes in pixels and the class. Rows with a negative class are no
    objects; the scores of cells in regions to ignore, whose class is -2, are not trained to be low. The loss is
    the focal loss of the scores per object, plus the weighted mean of the boxes' generalized IoU loss
    (H. Rezatofighi et al., 2019).
    """
    scores, edges = full_precision.to_float32(scores), full_precision.to_float32(edges)
    boxes, classes = tf.cast(y[..., :4], tf.float32) / stride, tf.cast(y[..., 4], tf.int32)
    rows, columns, count = tf.shape(scores)[1], tf.shape(scores)[2], tf.shape(scores)[3]
    nearness = _nearness(boxes, classes, rows, columns)
    of_class = tf.one_hot(classes, count, dtype=tf.float32)
    heat = tf.reduce_max(nearness[..., None] * of_class[:, :, None, None, :], axis=1)
    nearest = tf.argmax(nearness, axis=1, output_type=tf.int32)
    target = tf.gather(boxes, nearest, batch_dims=1)
    weights = tf.reduce_max(nearness, axis=1)
    weights = tf.where(weights > _SMALLEST_WEIGHT, weights, 0.0)
    boxes_loss = tf.math.divide_no_nan(
        tf.reduce_sum(weights * _iou_loss(_as_boxes(edges), target)), tf.reduce_sum(weights)
    )
    ignored = _touched(boxes, classes == IGNORED_BOX, rows, columns)[..., None]
    return tf.add(_focal_loss(scores, heat, ignored), _EDGE_WEIGHT * boxes_loss, name="detection_loss")


def decode_boxes(scores: Any, edges: Any, stride: float, count: int = 100) -> tf.Tensor:
    """Return the ``count`` detections with the highest scores, float32 [N, count, 6], from `detection_loss`'s maps.

    A row contains the left, top, right and bottom edge in pixels, the score from 0 to 1, and the class. Only the
    largest scores in their neighborhood of 3 × 3 cells count. Rows after the last detection have the score 0.
    """
    probabilities = tf.sigmoid(full_precision.to_float32(scores))
    peaks = tf.nn.max_pool2d(probabilities, 3, 1, "SAME")
    probabilities = tf.where(probabilities >= peaks, probabilities, 0.0)
    shape = tf.shape(probabilities)
    flat = tf.reshape(probabilities, [shape[0], -1])
    # The map of a small image can have fewer cells.
    flat = tf.pad(flat, [[0, 0], [0, tf.maximum(count - tf.shape(flat)[1], 0)]])
    best, places = tf.math.top_k(flat, count)
    cells = tf.minimum(places // shape[3], shape[1] * shape[2] - 1)
    boxes = tf.reshape(_as_boxes(full_precision.to_float32(edges)), [shape[0], -1, 4])
    boxes = tf.gather(boxes, cells, batch_dims=1) * stride
    classes = tf.cast(places % shape[3], tf.float32)
    rows = tf.concat([boxes, best[..., None], classes[..., None]], axis=2)
    return tf.ensure_shape(rows, [None, count, 6])


def _nearness(boxes: tf.Tensor, classes: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Return the closeness of cells to the centers of objects, float32 [N, objects, rows, columns]: 1 in its cell."""

    def along(low: tf.Tensor, high: tf.Tensor, cells: tf.Tensor) -> tf.Tensor:
        middle = tf.clip_by_value(tf.floor((low + high) / 2), 0, tf.cast(cells - 1, tf.float32))
        deviation = tf.maximum((high - low) * _CENTRAL_SHARE / _DEVIATIONS, _SMALLEST_DEVIATION)
        distance = (tf.range(tf.cast(cells, tf.float32)) - middle[..., None]) / deviation[..., None]
        return tf.exp(-tf.square(distance) / 2)

    left, top, right, bottom = tf.unstack(boxes, axis=2)
    across, down = along(left, right, columns), along(top, bottom, rows)
    near = down[..., :, None] * across[..., None, :]
    return tf.where((classes >= 0)[..., None, None], near, 0.0)


def _touched(boxes: tf.Tensor, chosen: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Return whether cells touch one of the ``chosen`` boxes, bool [N, rows, columns]."""

    def along(low: tf.Tensor, high: tf.Tensor, cells: tf.Tensor) -> tf.Tensor:
        start = tf.range(tf.cast(cells, tf.float32))
        return tf.cast((start < high[..., None]) & (start + 1 > low[..., None]), tf.float32)

    left, top, right, bottom = tf.unstack(boxes, axis=2)
    down = along(top, bottom, rows) * tf.cast(chosen, tf.float32)[..., None]
    return tf.matmul(down, along(left, right, columns), transpose_a=True) > 0


def _as_boxes(edges: tf.Tensor) -> tf.Tensor:
    """Convert distances from the centers of cells to boxes, float32 [N, rows, columns, 4], in cells."""
    rows, columns = (tf.range(tf.cast(tf.shape(edges)[axis], tf.float32)) + 0.5 for axis in (1, 2))
    y, x = tf.meshgrid(rows, columns, indexing="ij")
    left, top, right, bottom = tf.unstack(edges, axis=3)
    return tf.stack([x - left, y - top, x + right, y + bottom], axis=3)


def _focal_loss(logits: tf.Tensor, heat: tf.Tensor, ignored: tf.Tensor) -> tf.Tensor:
    """The penalty-reduced focal loss of CenterNet, per object; cells that are ``ignored`` are not background."""
    p = tf.sigmoid(logits)
    is_middle = heat > 1 - _EPSILON
    positive = tf.square(1 - p) * tf.nn.softplus(-logits)
    negative = tf.pow(1 - tf.minimum(heat, 1.0), 4.0) * tf.square(p) * tf.nn.softplus(logits)
    negative = tf.where(ignored, 0.0, negative)
    objects = tf.reduce_sum(tf.cast(is_middle, tf.float32))
    return tf.reduce_sum(tf.where(is_middle, positive, negative)) / tf.maximum(objects, 1.0)


def _iou_loss(boxes: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """1 - generalized IoU of boxes [..., 4]."""
    low = tf.maximum(boxes[..., :2], target[..., :2])
    high = tf.minimum(boxes[..., 2:], target[..., 2:])
    both = tf.reduce_prod(tf.maximum(high - low, 0), axis=-1)
    union = _areas(boxes) + _areas(target) - both
    outer_low = tf.minimum(boxes[..., :2], target[..., :2])
    outer_high = tf.maximum(boxes[..., 2:], target[..., 2:])
    hull = tf.reduce_prod(tf.maximum(outer_high - outer_low, 0), axis=-1)
    iou = both / (union + _EPSILON)
    return 1 - iou + (hull - union) / (hull + _EPSILON)


def _areas(boxes: tf.Tensor) -> tf.Tensor:
    return tf.reduce_prod(tf.maximum(boxes[..., 2:] - boxes[..., :2], 0), axis=-1)
