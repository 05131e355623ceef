"""What a network with ImageNet weights sees in images, for tasks that compare them before a model is trained."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
        self._function = tf.function(
            lambda x: tf.math.l2_normalize(net(tf.cast(x, tf.float32), training=False), axis=1),
            autograph=False,
            input_signature=[tf.TensorSpec((None, *shape), tf.uint8)],
        )

    def __call__(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return vectors of length 1, float32 [N, values], for images of RGB pixels, uint8 [N, `SIDE`, `SIDE`, 3]."""
        parts = [pictures[start : start + BATCH] for start in range(0, len(pictures), BATCH)]
        return np.concatenate([self._function(tf.constant(part)).numpy() for part in parts])
