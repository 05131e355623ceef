"""Targets that move with their images: masks, images and boxes (see `digits.data.target`).

Functions take and return the targets of a batch as they are in memory: masks and images are uint8, [N, H, W] and
[N, H, W, C]; boxes are float32 [N, M, 5], in pixels. `convert` returns what a network receives.
"""

from __future__ import annotations

import tensorflow as tf

from digits.data.boxes import are_visible
from digits.data.target import IGNORED, NO_BOX, Spatial
from digits.worker.input.affine import AffineMap


def convert(y: tf.Tensor, spatial: Spatial) -> tf.Tensor:
    """Return the targets for a network: masks are int64, images float32."""
    dtypes = {"mask": tf.int64, "image": tf.float32}
    return tf.cast(y, dtypes[spatial]) if spatial in dtypes else y


def warp(y: tf.Tensor, spatial: Spatial, moved: AffineMap) -> tf.Tensor:
    """Move targets like images that `AffineMap.warp` has moved.

    Pixels outside a mask become `IGNORED`, and those outside an image 0.
    """
    if spatial == "boxes":
        return _warp_boxes(y, moved)
    if spatial == "mask":
        pixels, inside = moved.nearest(y[..., None])
        return tf.where(inside, pixels, tf.constant(IGNORED, y.dtype))[..., 0]
    pixels, inside = moved.warp(y)
    return tf.cast(tf.round(pixels * inside), y.dtype)


def crop(y: tf.Tensor, spatial: Spatial, size: int, top: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
    """Crop targets to ``size`` × ``size`` pixels, from ``top`` and ``left``, int32 [N]; these may be negative."""
    if spatial == "boxes":
        return _keep_visible(y, _shifted(y, -top, -left), size, size)
    rows, columns = (start[:, None] + tf.range(size)[None, :] for start in (top, left))
    height, width = y.shape[1:3]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    y = tf.gather(y, tf.clip_by_value(rows, 0, height - 1), axis=1, batch_dims=1)
    y = tf.gather(y, tf.clip_by_value(columns, 0, width - 1), axis=2, batch_dims=1)
    if spatial == "mask":
        return tf.where(inside, y, tf.constant(IGNORED, y.dtype))
    return tf.where(inside[..., None], y, tf.constant(0, y.dtype))


def center_crop(y: tf.Tensor, spatial: Spatial, size: int, height: int, width: int) -> tf.Tensor:
    """Crop or pad targets of images of ``height`` × ``width`` like `tf.image.resize_with_crop_or_pad`."""
    starts = [(side - size) // 2 if side >= size else -((size - side) // 2) for side in (height, width)]
    top, left = (tf.fill([tf.shape(y)[0]], start) for start in starts)
    return crop(y, spatial, size, top, left)


def _warp_boxes(boxes: tf.Tensor, moved: AffineMap) -> tf.Tensor:
    left, top, right, bottom = tf.unstack(boxes[..., :4], axis=2)
    corners = tf.stack(
        [tf.concat([top, top, bottom, bottom], 1), tf.concat([left, right, left, right], 1)], axis=2
    )
    rows, columns = tf.unstack(moved.forward(corners), axis=2)
    rows, columns = (tf.reshape(item, [tf.shape(boxes)[0], 4, -1]) for item in (rows, columns))
    edges = [
        tf.reduce_min(columns, 1),
        tf.reduce_min(rows, 1),
        tf.reduce_max(columns, 1),
        tf.reduce_max(rows, 1),
    ]
    return _keep_visible(boxes, tf.stack(edges, axis=2), moved.height, moved.width)


def _shifted(boxes: tf.Tensor, down: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    shift = tf.cast(tf.stack([right, down, right, down], axis=1), boxes.dtype)
    return boxes[..., :4] + shift[:, None, :]


def _keep_visible(boxes: tf.Tensor, edges: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Return ``boxes`` with the new ``edges``, clipped to the image; objects that are barely visible become empty."""
    limits = tf.constant([width, height, width, height], edges.dtype)
    clipped = tf.clip_by_value(edges, tf.zeros_like(limits), limits)
    kept = (boxes[..., 4] != NO_BOX) & are_visible(edges, clipped, boxes[..., 4])
    return tf.where(
        kept[..., None], tf.concat([clipped, boxes[..., 4:]], 2), tf.constant(NO_BOX, boxes.dtype)
    )
