"""What a network with ImageNet weights sees in images, for tasks that compare them before a model is trained."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from PIL import Image

from digits.data import parallel
from digits.data.images import images
from digits.data.images.images import UnusableImage
from digits.data.models.pretrained_catalog import FEATURES
from digits.worker.failure import UserFault
from digits.worker.network import applications, batch_norm
from digits.worker.training.weights import restore

SIDE = 128
BATCH = 50

log = logging.getLogger(__name__)


def of_files(weights: Path, paths: Sequence[Path]) -> NDArray[np.float32] | None:
    """Return the features of the images in the files ``paths``, float32 [N, values].

    Return None if the file ``weights`` cannot be used, which is logged.
    """
    try:
        features = ImageFeatures(weights)
    except UserFault as fault:
        log.warning("Images are compared without a network: %s", fault.message)
        return None
    with ThreadPoolExecutor(parallel.available_cores()) as threads:
        return features(np.stack([*threads.map(_small, paths)]))


def _small(path: Path) -> NDArray[np.uint8]:
    """Return the image as RGB pixels, uint8 [`SIDE`, `SIDE`, 3]; zeros if it cannot be read any longer."""
    try:
        picture = images.open_picture(images.read_source(path), 3, enough=(SIDE, SIDE), bits=None)
        return np.asarray(picture.image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    except (UnusableImage, OSError):
        return np.zeros((SIDE, SIDE, 3), np.uint8)


class ImageFeatures:
    """Computes features of images with the weights of `FEATURES` in the file ``weights``.

    Raises UserFault if the file is damaged or contains other weights.
    """

    def __init__(self, weights: Path) -> None:
        batch_norm.install()
        shape = (SIDE, SIDE, 3)
        net = applications.build(FEATURES, shape, include_top=False, pooling="avg")
        source = restore.open_application(weights, FEATURES, net)
        if restore.assign(source, {item.path: item.value for item in net.variables}).missing:
            raise UserFault(f"{weights} does not contain the weights of {FEATURES.title}.")

        def compute(pixels: tf.Tensor) -> tf.Tensor:
            color = tf.tile(pixels, [1, 1, 1, 3 // tf.shape(pixels)[3]])
            x = tf.ensure_shape(tf.image.resize(color, [SIDE, SIDE]), (None, *shape))
            return tf.math.l2_normalize(net(x, training=False), axis=1)

        signature = [tf.TensorSpec((None, None, None, None), tf.uint8)]
        self._function = tf.function(compute, autograph=False, input_signature=signature)

    def __call__(self, pixels: Any) -> NDArray[np.float32]:
        """Return vectors of length 1, float32 [N, values], for images of 1 or 3 channels, uint8 [N, H, W, C]."""
        parts = [pixels[start : start + BATCH] for start in range(0, len(pixels), BATCH)]
        return np.concatenate([self._function(tf.constant(part)).numpy() for part in parts])
