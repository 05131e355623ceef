"""Preparing decoded images for the network: mean, crops and augmentation, in the graph of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from msgspec import structs
from numpy.typing import NDArray

from digits.core.recipe import Augment
from digits.data.targets.target import Target
from digits.worker.gang.share import Share
from digits.worker.input import augment
from digits.worker.input.augment import Draws
from digits.worker.input.target_tensors import PLAIN, Targets, TargetTensors


class Chunk(NamedTuple):
    """Batches for one call: the ``positions``, int64 [batches, size], of their records in the other tensors.

    ``images`` are decoded, uint8 or another type of the dataset [M, H, W, C]; ``targets`` are theirs, [M, …].
    """

    images: tf.Tensor
    targets: tf.Tensor
    positions: tf.Tensor

    def batch(self, index: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """The images [size, H, W, C] and targets [size, …] of the batch with this index, an integer scalar."""
        positions = self.positions[index]
        return gather_records(self.images, positions), gather_records(self.targets, positions)


def chunk_signature(prepare: Preparation, target: Target) -> list[tf.TensorSpec]:
    """Return the types of the tensors of a `Chunk` that ``prepare`` accepts."""
    return [
        tf.TensorSpec((None, *prepare.image_shape), prepare.image_dtype, name="images"),
        tf.TensorSpec([None, *target.shape], target.decoded_dtype, name="targets"),
        tf.TensorSpec([None, None], tf.int64, name="positions"),
    ]


@dataclass(frozen=True)
class Preparation:
    """Preprocessing of images for the network.

    Subtracts the mean, crops to ``crop`` pixels (random crops in training, center crops otherwise; zero outside of
    the image) and standardizes each image if ``augment`` enables it. Training also applies the random augmentations
    of `digits.worker.input.augment`. ``class_weights`` are the weights of the classes in the training loss.
    ``targets`` handles those of the records. ``image_dtype`` is the type of the decoded images. In training, the
    images of a batch may be the ``share`` that one of several workers computes: they are augmented as in the whole.
    """

    mean: NDArray[np.float32]
    crop: int | None
    image_shape: tuple[int, int, int]
    augment: Augment = field(default_factory=Augment)
    class_weights: NDArray[np.float32] | None = None
    targets: TargetTensors = PLAIN
    image_dtype: str = "uint8"
    share: Share | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the network's input: height, width, channels."""
        height, width, channels = self.image_shape
        return (self.crop, self.crop, channels) if self.crop else (height, width, channels)

    @property
    def blends(self) -> bool:
        """Whether training blends each image with the one before it."""
        return bool(self.augment.mixup or self.augment.cutmix)

    @property
    def is_random(self) -> bool:
        """Whether training prepares an image differently each time."""
        return bool(self.crop) or structs.replace(self.augment, whitening=False) != Augment()

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        """Convert images, uint8 [N, H, W, C], to float32 of `shape`, for inference."""
        batch = self._subtract_mean(tf.cast(images, tf.float32))
        if self.crop:
            batch = tf.image.resize_with_crop_or_pad(batch, self.crop, self.crop)
        return self._standardize(batch)

    def for_validation(self, images: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Convert images, uint8 [N, H, W, C], and the targets of their records, [N, …], for the validation network."""
        if self.crop:
            y = self.targets.center_crop(_gatherable(y), self.crop, *self.image_shape[:2])
        return self(images), self.targets.convert(y)

    def for_training(self, images: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, Targets]:
        """Augment images, uint8 [N, H, W, C], to float32 of `shape`; also returns the targets for the loss.

        ``y`` are the targets of the records, [N, …]. All random numbers are drawn from ``seed``, int32 [2].
        """
        share = self.share
        draws = (
            augment.Draws(seed, share.count, share.positions)
            if share
            else augment.Draws(seed, tf.shape(images)[0])
        )
        images, y = _gatherable(images), _gatherable(y)
        moved, y, inside = self._move(images, y, draws)
        batch = augment.augment_colors(tf.cast(moved, tf.float32), self.augment, draws)
        batch = self._subtract_mean(batch)
        if inside is not None:
            batch *= inside
        if self.crop:
            batch, y = self._random_windows(batch, y, draws)
        batch, original = augment.blend(self._standardize(batch), self.augment, draws)
        prepared = batch, self._targets(self.targets.convert(y), original)
        if share and share.blends:
            return tf.nest.map_structure(lambda values: values[1:], prepared)
        return prepared

    def _move(
        self, images: tf.Tensor, y: tf.Tensor, draws: Draws
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Return the geometrically augmented images, their targets, and the mask of `augment.augment_geometry`."""
        if not self.targets.in_image:
            moved, inside = augment.augment_geometry(images, self.augment, draws)
            return moved, y, inside
        if not augment.changes_geometry(self.augment):
            return images, y, None
        moving = augment.affine_map(self.augment, draws, *self.image_shape[:2])
        moved, inside = moving.warp(images)
        return moved, self.targets.warp(y, moving), inside

    def _subtract_mean(self, batch: tf.Tensor) -> tf.Tensor:
        return batch - self.mean if np.any(self.mean) else batch

    def _standardize(self, batch: tf.Tensor) -> tf.Tensor:
        return augment.standardize(batch) if self.augment.whitening else batch

    def _random_windows(self, batch: tf.Tensor, y: tf.Tensor, draws: Draws) -> tuple[tf.Tensor, tf.Tensor]:
        """Crop each image and its target at random."""
        assert self.crop is not None
        height, width = self.image_shape[:2]
        if min(height, width) < self.crop:
            y = self.targets.center_crop(y, self.crop, height, width)
            return tf.image.resize_with_crop_or_pad(batch, self.crop, self.crop), y
        top = draws.integer("window_y", 0, height - self.crop)
        left = draws.integer("window_x", 0, width - self.crop)
        for axis, starts in ((1, top), (2, left)):
            places = starts[:, None] + tf.range(self.crop)[None, :]
            batch = tf.gather(batch, places, axis=axis, batch_dims=1)
        return tf.ensure_shape(batch, (None, *self.shape)), self.targets.crop(y, self.crop, top, left)

    def _targets(self, y: tf.Tensor, share: tf.Tensor | None) -> Targets:
        if share is not None and y.dtype.is_floating:
            # MixUp blends numbers like images.
            part = tf.reshape(tf.cast(share, y.dtype), [-1] + [1] * (y.shape.rank - 1))
            return {"y": part * y + (1 - part) * augment.take_partners(y)}
        targets = {"y": y}
        if self.class_weights is not None:
            targets["weights"] = tf.gather(self.class_weights, y)
        if share is None:
            return targets
        targets.update(others=augment.take_partners(y), share=share)
        if self.class_weights is not None:
            targets["other_weights"] = augment.take_partners(targets["weights"])
        return targets


def _gatherable(values: tf.Tensor) -> tf.Tensor:
    """Return bytes as float32 on a GPU, which cannot gather single bytes."""
    is_on_gpu = values.dtype == tf.uint8 and tf.config.list_logical_devices("GPU")
    return tf.cast(values, tf.float32) if is_on_gpu else values


# Dtypes that a GPU can gather, by their size in bytes. It cannot gather single bytes.
GATHERED = {8: tf.int64, 2: tf.float16}


def gather_records(images: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Gather images or targets [N, …] at the ``positions`` [n], on their device."""
    if images.dtype != tf.uint8:
        return tf.gather(images, positions)
    shape = images.shape[1:]
    size = int(np.prod(shape))
    width = next((width for width in GATHERED if size % width == 0), None)
    if width is None:
        return tf.gather(images, positions)
    rows = tf.reshape(images, [-1, size // width, width])
    taken = tf.gather(tf.bitcast(rows, GATHERED[width]), positions)
    return tf.reshape(tf.bitcast(taken, tf.uint8), [-1, *shape])
