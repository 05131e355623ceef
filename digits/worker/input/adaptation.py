"""Convert records of another dataset to the size and the classes that a model was trained on."""

from __future__ import annotations

import tensorflow as tf

from digits.data.manifest import Manifest
from digits.data.targets.target import DatasetFit
from digits.worker.input.target_tensors import tensors_of


class Adaptation:
    """Converts records of ``other`` to those of ``own``, the dataset that the model was trained on."""

    def __init__(self, own: Manifest, other: Manifest, fit: DatasetFit) -> None:
        self._own, self._other, self._fit = own, other, fit
        self._resizes = (own.width, own.height) != (other.width, other.height)

    def images(self, images: tf.Tensor) -> tf.Tensor:
        """Convert images [N, H, W, C] of 0 to 255: their size, and between grayscale and RGB."""
        if self._resizes:
            images = tf.image.resize(images, self._own.shape[:2], antialias=True)
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
        tensors = tensors_of(self._fit.target)
        if self._resizes:
            y = tensors.resize(y, self._other.shape[:2], self._own.shape[:2])
        return tensors.map_names(y, self._fit.places) if self._fit.maps_names else y
