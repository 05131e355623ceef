"""``digits.feature_maps``: the intermediate features of a network that can have ImageNet weights."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from digits.data.models.pretrained_catalog import CATALOG
from digits.worker.failure import UserFault
from digits.worker.network import applications

# The maps have 1/2, 1/4, … of the resolution of the images.
SCALES = (2, 4, 8, 16, 32)
# Networks that compute features at a single resolution.
WITHOUT_MAPS = {"vit"}


def feature_maps(encoder: str, x: Any, *, training: bool) -> list[Any]:
    """Return the features of images at decreasing resolutions, for U-Nets and feature pyramids.

    ``x`` contains pixels from 0 to 255, float32 [N, H, W, 1 or 3], which the network ``encoder`` preprocesses itself:
    ``resnet50``, ``efficientnetlite``, ``mobilenetv3``, ``efficientnetv2`` or ``convnext``. Returns its last features
    at 1/2 (not for ``convnext``), 1/4, 1/8, 1/16 and 1/32 of the resolution, rounded up, float32 [N, h, w, C].

    The weights are random, and have the names of the network's ImageNet weights, from which a training can start. If
    ``training``, batch normalization uses the statistics of the batch, except in fine-tuning. Raises UserFault if there
    is no such network.
    """
    if encoder not in CATALOG or encoder in WITHOUT_MAPS:
        raise UserFault(
            f"digits.feature_maps: there is no network {encoder!r} with feature maps.",
            f"Pass one of {', '.join(name for name in CATALOG if name not in WITHOUT_MAPS)}.",
        )
    color = x if x.shape[3] == 3 else tf.repeat(x, 3, axis=3)
    height, width = x.shape[1:3]
    entry = CATALOG[encoder]
    net = applications.build(entry, (height, width, 3), include_top=False)
    for layer in net.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            # Validation uses the moving averages. Keras' momentum takes thousands of steps to converge.
            layer.momentum = 0.9
    by_size = {tuple(layer.output.shape[1:3]): layer.output for layer in net.layers if _is_map(layer)}
    sizes = [(-(-height // scale), -(-width // scale)) for scale in SCALES]
    outputs = [by_size[size] for size in dict.fromkeys(sizes) if size in by_size]
    maps: list[Any] = keras.Model(net.inputs, outputs, name=net.name)(
        applications.preprocess(entry, color), training=training
    )
    return maps


def _is_map(layer: Any) -> bool:
    return not isinstance(layer.output, list) and len(layer.output.shape) == 4
