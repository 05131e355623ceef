"""Convert records of another dataset to the size and the classes that a model was trained on."""

from __future__ import annotations

import tensorflow as tf

from digits.data.dataset_fit import DatasetFit
from digits.data.manifest import Manifest
from digits.data.target import IGNORED, IGNORED_BOX, NO_BOX


class Adaptation:
    """Converts records of ``other`` to those of ``own``, the dataset that the model was trained on."""

    def __init__(self, own: Manifest, other: Manifest, fit: DatasetFit) -> None:
        self._own, self._other, self._fit = own, other, fit
        self._resizes = (own.width, own.height) != (other.width, other.height)

    def images(self, images: tf.Tensor) -> tf.Tensor:
        """Convert images [N, H, W, C] of 0 to 255: their size, and between grayscale and RGB."""
        if self._resizes:
            images = self._resized(images)
        if self._own.channels == self._other.channels:
            return images
        return (
            tf.image.grayscale_to_rgb(images)
            if self._own.channels == 3
            else tf.image.rgb_to_grayscale(images)
        )

    def targets(self, y: tf.Tensor) -> tf.Tensor:
        """Convert targets [N, …] as they are decoded.

        Classes that the model lacks become -1, in masks `IGNORED`, and in boxes `IGNORED_BOX`.
        """
        target = self._fit.target
        if self._resizes and target.spatial:
            y = self._resized_targets(y)
        if not self._fit.maps_names:
            return y
        if target.classes:
            return tf.gather(tf.constant(self._fit.places, y.dtype), y)
        if target.spatial == "mask":
            known = [place if place >= 0 else IGNORED for place in self._fit.places]
            return tf.gather(
                tf.constant(known + [IGNORED] * (IGNORED + 1 - len(known)), y.dtype), tf.cast(y, tf.int32)
            )
        if target.spatial == "boxes":
            known = [place if place >= 0 else IGNORED_BOX for place in self._fit.places]
            classes = y[..., 4:]
            named = tf.gather(tf.constant(known, y.dtype), tf.cast(tf.maximum(classes, 0), tf.int32))
            return tf.concat([y[..., :4], tf.where(classes >= 0, named, classes)], axis=-1)
        return tf.gather(y, self._fit.places, axis=-1)

    def _resized(self, images: tf.Tensor) -> tf.Tensor:
        return tf.image.resize(images, self._own.shape[:2], antialias=True)

    def _resized_targets(self, y: tf.Tensor) -> tf.Tensor:
        if self._fit.target.spatial == "mask":
            return tf.image.resize(y[..., None], self._own.shape[:2], "nearest")[..., 0]
        if self._fit.target.spatial == "image":
            return tf.cast(tf.round(self._resized(y)), y.dtype)
        across, down = self._own.width / self._other.width, self._own.height / self._other.height
        factors = tf.constant([across, down, across, down, 1.0], y.dtype)
        return tf.where(y[..., 4:] == NO_BOX, y, y * factors)
