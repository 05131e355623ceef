"""Single-stage object detection without anchors: the loss of a network's maps, and the boxes in them.

The maps have a cell for every few pixels of the image. ``scores``, float32 [N, rows, columns, classes], are logits: a
cell near the center of an object has a large one. ``edges``, float32 [N, rows, columns, 4], are the distances from the
middle of a cell to the left, top, right and bottom edge of the object, in cells and positive.

As in FCOS (Z. Tian et al., "FCOS: Fully Convolutional One-Stage Object Detection", 2019), the cells around the center
of an object predict it. Their scores learn how well their boxes fit, with the quality focal loss (X. Li et al.,
"Generalized Focal Loss", 2020), so that the best box of an object has the highest score.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from digits.data.targets.box_matching import IGNORED_BOX, count_detections
from digits.worker import build_context
from digits.worker.network.full_precision import to_float32

# The cells that predict an object are at most this far from its center, in cells or as a fraction of its size.
_RADIUS_CELLS = 1.5
_RADIUS_SHARE = 0.2
_BOXES_WEIGHT = 2.0
# Of two boxes of a class with a larger IoU, the one with the lower score is dropped.
_LARGEST_IOU = 0.6
# Peaks to choose from, per detection, and the most that are not chosen: memory grows with their square.
_CANDIDATES = 2
_MAX_REPEATED = 500
_EPSILON = 1e-6


def detection_loss(scores: Any, edges: Any, y: Any, stride: float) -> tf.Tensor:
    """Return the loss of the maps ``scores`` and ``edges``; a cell has ``stride`` × ``stride`` pixels.

    ``y``, float32 [N, objects, 5], contains the boxes in pixels and the class. Rows with a negative class are no
    objects; the scores of cells in regions to ignore, whose class is -2, are not trained to be low. The loss is
    the quality focal loss of the scores per cell that predicts an object, plus twice the mean generalized IoU loss
    (H. Rezatofighi et al., 2019) of the objects, which is the mean of that of their cells.
    """
    scores, edges = to_float32(scores), to_float32(edges)
    boxes, classes = tf.cast(y[..., :4], tf.float32) / stride, tf.cast(y[..., 4], tf.int32)
    rows, columns, count = tf.shape(scores)[1], tf.shape(scores)[2], tf.shape(scores)[3]
    index = assign_cells(boxes, classes >= 0, rows, columns)
    is_object = tf.cast(index >= 0, tf.float32)
    target = tf.gather(boxes, tf.maximum(index, 0), batch_dims=1)
    iou, loss = iou_and_loss(_as_boxes(edges), target)
    of_class = tf.one_hot(tf.gather(classes, tf.maximum(index, 0), batch_dims=1), count, dtype=tf.float32)
    quality = tf.stop_gradient(iou)[..., None] * of_class * is_object[..., None]
    ignored = _touched(boxes, classes == IGNORED_BOX, rows, columns) & (index < 0)
    focal = tf.where(ignored[..., None], 0.0, _focal_loss(scores, quality))
    # Large objects have many cells: without the shares, small ones would hardly be learned.
    cells_of = tf.reduce_sum(tf.one_hot(index, tf.shape(boxes)[1]), axis=[1, 2])
    shares = is_object / tf.maximum(tf.gather(cells_of, tf.maximum(index, 0), batch_dims=1), 1.0)
    scores_loss = tf.reduce_sum(focal) / tf.maximum(tf.reduce_sum(is_object), 1.0)
    boxes_loss = tf.reduce_sum(shares * loss) / tf.maximum(tf.reduce_sum(shares), 1.0)
    return tf.add(scores_loss, _BOXES_WEIGHT * boxes_loss, name="detection_loss")


def decode_boxes(scores: Any, edges: Any, stride: float, count: int | None = None) -> tf.Tensor:
    """Return the ``count`` detections with the highest scores, float32 [N, count, 6], from `detection_loss`'s maps.

    By default, these are 100, or if an image of the dataset has more objects, their number rounded up to hundreds.
    A row contains the left, top, right and bottom edge in pixels, the score from 0 to 1, and the class. Only the
    largest scores in their neighborhood of 3 × 3 cells count, and of boxes of a class that overlap at an IoU of more
    than 0.6, only the one with the highest score. Rows after the last detection have the score 0.
    """
    count = count or count_detections(_most_objects())
    probabilities = tf.sigmoid(to_float32(scores))
    peaks = tf.nn.max_pool2d(probabilities, 3, 1, "SAME")
    probabilities = tf.where(probabilities >= peaks, probabilities, 0.0)
    shape, candidates = tf.shape(probabilities), min(_CANDIDATES * count, count + _MAX_REPEATED)
    flat = tf.reshape(probabilities, [shape[0], -1])
    # The map of a small image can have fewer cells.
    flat = tf.pad(flat, [[0, 0], [0, tf.maximum(candidates - tf.shape(flat)[1], 0)]])
    best, places = tf.math.top_k(flat, candidates)
    cells = tf.minimum(places // shape[3], shape[1] * shape[2] - 1)
    boxes = tf.reshape(_as_boxes(to_float32(edges)), [shape[0], -1, 4])
    boxes = tf.gather(boxes, cells, batch_dims=1) * stride
    classes = tf.cast(places % shape[3], tf.float32)
    best, kept = tf.math.top_k(tf.where(_are_repeated(boxes, classes), 0.0, best), count)
    boxes, classes = (tf.gather(item, kept, batch_dims=1) for item in (boxes, classes))
    rows = tf.concat([boxes, best[..., None], classes[..., None]], axis=2)
    return tf.ensure_shape(rows, [None, count, 6])


def _most_objects() -> int:
    """Return the maximum number of objects in an image of the dataset whose network is being built, or 0."""
    tower = build_context.current().tower
    return tower.target.most_objects if tower else 0


def _are_repeated(boxes: tf.Tensor, classes: tf.Tensor) -> tf.Tensor:
    """Return whether boxes [N, K, 4] overlap an earlier one of the same class, bool [N, K].

    Unlike in the usual suppression, the earlier one may itself be dropped: a few operations on matrices, which every
    export format has, instead of a loop (D. Bolya et al., "YOLACT", 2019).
    """
    both, union = _overlap(boxes[:, :, None], boxes[:, None])
    is_same = classes[:, :, None] == classes[:, None]
    order = tf.range(tf.shape(boxes)[1])
    is_earlier = order[:, None] < order[None, :]
    # In int8, the area of a union can be zero: do not divide by it.
    return tf.reduce_any((both > _LARGEST_IOU * union) & is_same & is_earlier, axis=1)


def assign_cells(boxes: tf.Tensor, are_objects: tf.Tensor, rows: Any, columns: Any) -> tf.Tensor:
    """Return the index of the object that each cell predicts, int32 [N, rows, columns]; -1 for the background.

    ``boxes``, float32 [N, M, 4], are in cells; those that are not ``are_objects``, bool [N, M], are left out. These
    cells are inside of the box and near its center: within 1.5 cells or a fifth of its width and height. The cell that
    contains the center always belongs to them. A cell near several centers predicts the smallest object.
    """

    def along(low: tf.Tensor, high: tf.Tensor, cells: Any) -> tuple[tf.Tensor, tf.Tensor]:
        place = tf.range(tf.cast(cells, tf.float32)) + 0.5
        low, high = low[..., None], high[..., None]
        middle = (low + high) / 2
        radius = tf.maximum((high - low) * _RADIUS_SHARE, _RADIUS_CELLS)
        is_near = (tf.abs(place - middle) < radius) & (place > low) & (place < high)
        center = tf.clip_by_value(tf.floor(middle), 0, tf.cast(cells - 1, tf.float32))
        return is_near, tf.floor(place) == center

    left, top, right, bottom = tf.unstack(boxes, axis=2)
    (near_x, center_x), (near_y, center_y) = along(left, right, columns), along(top, bottom, rows)
    is_near = near_y[..., :, None] & near_x[..., None, :]
    is_near |= center_y[..., :, None] & center_x[..., None, :]
    is_near &= are_objects[..., None, None]
    areas = tf.where(is_near, _areas(boxes)[..., None, None], tf.float32.max)
    smallest = tf.argmin(areas, axis=1, output_type=tf.int32)
    return tf.where(tf.reduce_any(is_near, axis=1), smallest, -1)


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


def _focal_loss(logits: tf.Tensor, quality: tf.Tensor) -> tf.Tensor:
    """Return the quality focal loss: the cross-entropy, weighted by the squared error of the probability."""
    error = tf.square(tf.sigmoid(logits) - quality)
    return error * tf.nn.sigmoid_cross_entropy_with_logits(quality, logits)


def iou_and_loss(boxes: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the IoU of boxes [..., 4], and 1 minus their generalized IoU, which is negative for distant boxes."""
    both, union = _overlap(boxes, target)
    outer_low = tf.minimum(boxes[..., :2], target[..., :2])
    outer_high = tf.maximum(boxes[..., 2:], target[..., 2:])
    hull = tf.reduce_prod(tf.maximum(outer_high - outer_low, 0), axis=-1)
    iou = both / (union + _EPSILON)
    return iou, 1 - iou + (hull - union) / (hull + _EPSILON)


def _overlap(boxes: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the areas of the intersections and of the unions of boxes [..., 4]."""
    low = tf.maximum(boxes[..., :2], target[..., :2])
    high = tf.minimum(boxes[..., 2:], target[..., 2:])
    both = tf.reduce_prod(tf.maximum(high - low, 0), axis=-1)
    return both, _areas(boxes) + _areas(target) - both


def _areas(boxes: tf.Tensor) -> tf.Tensor:
    return tf.reduce_prod(tf.maximum(boxes[..., 2:] - boxes[..., :2], 0), axis=-1)
