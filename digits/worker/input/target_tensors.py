"""Targets as tensors: how records are decoded, how their targets follow augmentation, and what they count in the loss.

Each class of targets (`digits.data.targets`) has its class here, in the table `TENSORS`. Methods take and return the
targets of a batch [N, …] as they are in memory: masks and images are uint8, [N, H, W] and [N, H, W, C]; boxes are
float32 [N, M, 5], in pixels. `convert` returns what a network receives.

Networks always receive integer class labels. If images are blended (MixUp, CutMix) or classes are weighted,
`digits.classification_loss` averages over both labels with the class weights.

The `Targets` of a batch are a dict of tensors [N, …]: ``y``, the network's targets, and optionally ``others``, the
labels of the blended images; ``share``, the weight of the first label, 0 to 1; ``weights`` and ``other_weights``,
the class weights of both labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.targets.box_matching import IGNORED_BOX, NO_BOX
from digits.data.targets.boxes import Boxes, are_visible
from digits.data.targets.class_index import ClassIndex
from digits.data.targets.mask import IGNORED, Mask
from digits.data.targets.target import Target
from digits.data.targets.target_image import TargetImage
from digits.worker import build_context
from digits.worker.failure import UserFault
from digits.worker.input.affine import AffineMap

# Excluded from AutoGraph, which would convert it again in each process.
_as_written = tf.autograph.experimental.do_not_convert


class TargetTensors:
    """Targets without positions in the image: numbers, labels, and arrays of any meaning."""

    # Whether the targets move with their images.
    in_image = False

    def feature(self, target: Target) -> tf.io.FixedLenFeature:
        """Return how TensorFlow parses the feature of a record."""
        return tf.io.FixedLenFeature(target.shape, target.dtype)

    def decode(self, values: tf.Tensor, target: Target) -> tf.Tensor:
        """Return the targets [N, …] from the parsed features."""
        return values

    def convert(self, y: tf.Tensor) -> tf.Tensor:
        """Return the targets for a network: masks are int64, images float32."""
        return y

    def warp(self, y: tf.Tensor, moved: AffineMap) -> tf.Tensor:
        """Move targets like images that `AffineMap.warp` has moved."""
        return y

    def crop(self, y: tf.Tensor, size: int, top: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        """Crop targets to ``size`` × ``size`` pixels, from ``top`` and ``left``, int32 [N]; these may be negative."""
        return y

    def center_crop(self, y: tf.Tensor, size: int, height: int, width: int) -> tf.Tensor:
        """Crop or pad targets of images of ``height`` × ``width`` like `tf.image.resize_with_crop_or_pad`."""
        starts = [(side - size) // 2 if side >= size else -((size - side) // 2) for side in (height, width)]
        top, left = (tf.fill([tf.shape(y)[0]], start) for start in starts)
        return self.crop(y, size, top, left)

    def resize(self, y: tf.Tensor, old: Sequence[int], new: Sequence[int]) -> tf.Tensor:
        """Return the targets of images [N, *old, C] after these are resized to ``new``, a height and a width."""
        return y

    def map_names(self, y: tf.Tensor, places: list[int]) -> tf.Tensor:
        """Return targets of a dataset as those of a model; ``places`` are those of a `DatasetFit`."""
        return tf.gather(y, places, axis=-1)


class ClassTensors(TargetTensors):
    """Indexes of classes; those that the model lacks become -1."""

    def map_names(self, y: tf.Tensor, places: list[int]) -> tf.Tensor:
        return tf.gather(tf.constant(places, y.dtype), y)


class ImageTensors(TargetTensors):
    """Target images. Pixels from outside become 0."""

    in_image = True

    def feature(self, target: Target) -> tf.io.FixedLenFeature:
        return tf.io.FixedLenFeature([], tf.string)

    def decode(self, values: tf.Tensor, target: Target) -> tf.Tensor:
        shape = target.shape

        @_as_written
        def decode(data: tf.Tensor) -> tf.Tensor:
            return tf.reshape(tf.io.decode_png(data, shape[2] if len(shape) == 3 else 1), shape)

        return tf.map_fn(decode, values, fn_output_signature=tf.TensorSpec(shape, tf.uint8))

    def convert(self, y: tf.Tensor) -> tf.Tensor:
        return tf.cast(y, tf.float32)

    def warp(self, y: tf.Tensor, moved: AffineMap) -> tf.Tensor:
        pixels, inside = moved.warp(y)
        return tf.cast(tf.round(pixels * inside), y.dtype)

    def crop(self, y: tf.Tensor, size: int, top: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        pixels, inside = _window(y, size, top, left)
        return tf.where(inside[..., None], pixels, tf.constant(0, y.dtype))

    def resize(self, y: tf.Tensor, old: Sequence[int], new: Sequence[int]) -> tf.Tensor:
        return tf.cast(tf.round(tf.image.resize(y, new, antialias=True)), y.dtype)


class MaskTensors(ImageTensors):
    """Masks. Pixels from outside become `IGNORED`, and so do classes that the model lacks."""

    def convert(self, y: tf.Tensor) -> tf.Tensor:
        return tf.cast(y, tf.int64)

    def warp(self, y: tf.Tensor, moved: AffineMap) -> tf.Tensor:
        pixels, inside = moved.nearest(y[..., None])
        return tf.where(inside, pixels, tf.constant(IGNORED, y.dtype))[..., 0]

    def crop(self, y: tf.Tensor, size: int, top: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        pixels, inside = _window(y, size, top, left)
        return tf.where(inside, pixels, tf.constant(IGNORED, y.dtype))

    def resize(self, y: tf.Tensor, old: Sequence[int], new: Sequence[int]) -> tf.Tensor:
        return tf.image.resize(y[..., None], new, "nearest")[..., 0]

    def map_names(self, y: tf.Tensor, places: list[int]) -> tf.Tensor:
        known = [place if place >= 0 else IGNORED for place in places]
        known += [IGNORED] * (IGNORED + 1 - len(known))
        return tf.gather(tf.constant(known, y.dtype), tf.cast(y, tf.int32))


class BoxTensors(TargetTensors):
    """Boxes. Objects that are barely visible become empty, and classes that the model lacks `IGNORED_BOX`."""

    in_image = True

    def warp(self, y: tf.Tensor, moved: AffineMap) -> tf.Tensor:
        left, top, right, bottom = tf.unstack(y[..., :4], axis=2)
        corners = tf.stack(
            [tf.concat([top, top, bottom, bottom], 1), tf.concat([left, right, left, right], 1)], axis=2
        )
        rows, columns = tf.unstack(moved.forward(corners), axis=2)
        rows, columns = (tf.reshape(item, [tf.shape(y)[0], 4, -1]) for item in (rows, columns))
        edges = [
            tf.reduce_min(columns, 1),
            tf.reduce_min(rows, 1),
            tf.reduce_max(columns, 1),
            tf.reduce_max(rows, 1),
        ]
        return _keep_visible(y, tf.stack(edges, axis=2), moved.height, moved.width)

    def crop(self, y: tf.Tensor, size: int, top: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        shift = -tf.cast(tf.stack([left, top, left, top], axis=1), y.dtype)
        return _keep_visible(y, y[..., :4] + shift[:, None, :], size, size)

    def resize(self, y: tf.Tensor, old: Sequence[int], new: Sequence[int]) -> tf.Tensor:
        across, down = new[1] / old[1], new[0] / old[0]
        factors = tf.constant([across, down, across, down, 1.0], y.dtype)
        return tf.where(y[..., 4:] == NO_BOX, y, y * factors)

    def map_names(self, y: tf.Tensor, places: list[int]) -> tf.Tensor:
        known = [place if place >= 0 else IGNORED_BOX for place in places]
        classes = y[..., 4:]
        named = tf.gather(tf.constant(known, y.dtype), tf.cast(tf.maximum(classes, 0), tf.int32))
        return tf.concat([y[..., :4], tf.where(classes >= 0, named, classes)], axis=-1)


TENSORS: dict[type[Target], TargetTensors] = {
    ClassIndex: ClassTensors(),
    Mask: MaskTensors(),
    TargetImage: ImageTensors(),
    Boxes: BoxTensors(),
}
PLAIN = TargetTensors()


def tensors_of(target: Target) -> TargetTensors:
    """Return how the targets of a dataset are handled as tensors."""
    return TENSORS.get(type(target), PLAIN)


def _window(y: tf.Tensor, size: int, top: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a window [N, size, size, …] of pixels, and whether each is inside the image, bool [N, size, size]."""
    rows, columns = (start[:, None] + tf.range(size)[None, :] for start in (top, left))
    height, width = y.shape[1:3]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    y = tf.gather(y, tf.clip_by_value(rows, 0, height - 1), axis=1, batch_dims=1)
    return tf.gather(y, tf.clip_by_value(columns, 0, width - 1), axis=2, batch_dims=1), inside


def _keep_visible(boxes: tf.Tensor, edges: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Return ``boxes`` with the new ``edges``, clipped to the image; objects that are barely visible become empty."""
    limits = tf.constant([width, height, width, height], edges.dtype)
    clipped = tf.clip_by_value(edges, tf.zeros_like(limits), limits)
    kept = (boxes[..., 4] != NO_BOX) & are_visible(edges, clipped, boxes[..., 4])
    return tf.where(
        kept[..., None], tf.concat([clipped, boxes[..., 4:]], 2), tf.constant(NO_BOX, boxes.dtype)
    )


Targets = dict[str, tf.Tensor]

_HINT = "Compute the loss of the network as digits.classification_loss(self.inference, self.y)."


def class_weights(labels: NDArray[np.integer[Any]], classes: int) -> NDArray[np.float32]:
    """Return n / (k · n_c) for each class c, of n records in k classes, float32 [classes]; 0 for empty classes.

    Over an epoch, each class has the same total weight and the mean weight of the records is 1. The formula is that
    of scikit-learn's ``class_weight="balanced"``.
    """
    counts = np.bincount(labels, minlength=classes)
    present = np.count_nonzero(counts)
    each = len(labels) / (present * np.maximum(counts, 1))
    return np.where(counts > 0, each, 0).astype(np.float32)


class _CurrentTargets:
    def __init__(self, targets: Targets) -> None:
        self.labels = tf.identity(targets["y"], name="y")
        self.targets = targets
        self.used = False

    @property
    def are_plain(self) -> bool:
        return not self.targets.keys() & {"others", "weights"}


@contextmanager
def use_targets(targets: Targets) -> Iterator[tf.Tensor]:
    """Yield the labels for the network that is built inside, where `mean_loss` uses ``targets``.

    Raises UserFault if the network computes its loss in another way, which would ignore the weights.
    """
    state = _CurrentTargets(targets)
    with build_context.extend(targets=state):
        yield state.labels
    if state.used or state.are_plain:
        return
    if "weights" in targets:
        raise UserFault(
            "Class weights require a loss computed by digits.classification_loss.",
            f"{_HINT} Or choose oversampling.",
        )
    # Blended images are valid for a network that does not use its labels, such as an autoencoder.
    if state.labels.consumers():
        raise UserFault("MixUp and CutMix require a loss computed by digits.classification_loss.", _HINT)


def mean_loss(logits: Any, y: Any) -> tf.Tensor:
    """Return the mean softmax cross-entropy of ``logits`` [N, classes] and ``y`` [N], weighted by `use_targets`."""
    labels = tf.cast(y, tf.int64)
    each = _cross_entropy(logits, labels)
    state: _CurrentTargets | None = build_context.current().targets
    if state is None or state.are_plain or labels is not state.labels:
        return tf.reduce_mean(each, name="cross_entropy")
    state.used = True
    targets = state.targets
    each = _apply_weights(each, targets.get("weights"))
    if "others" in targets:
        share = tf.cast(targets["share"], each.dtype)
        other = _apply_weights(_cross_entropy(logits, targets["others"]), targets.get("other_weights"))
        each = share * each + (1 - share) * other
    return tf.reduce_mean(each, name="cross_entropy")


def _cross_entropy(logits: Any, labels: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _apply_weights(each: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
    return each if weights is None else each * tf.cast(weights, each.dtype)
