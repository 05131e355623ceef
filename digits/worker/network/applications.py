"""The networks of `digits.data.models.pretrained_catalog`, built with keras.applications, KerasHub or own code."""

from __future__ import annotations

import importlib
from typing import Any

import keras
import tensorflow as tf

from digits.data.models.pretrained_catalog import Pretrained
from digits.worker import packages
from digits.worker.failure import UserFault
from digits.worker.network import efficientnet_lite

# The only size for which the position embeddings of ViT-B/16 have been trained.
VIT_SIDE = 224


def is_installed(entry: Pretrained) -> bool:
    """Return whether the package that builds the network of ``entry`` is installed."""
    return packages.is_installed(entry.package)


def build(
    entry: Pretrained, input_shape: tuple[int, int, int], *, include_top: bool, pooling: str | None = None
) -> Any:
    """Build the network of ``entry``, a Keras model with random weights.

    ``input_shape`` is that of the images, (H, W, 3). It returns features, [N, C] with ``pooling``, or the logits of
    ImageNet's classes if ``include_top``. Raises UserFault if its package is not installed, or if it has no classifier.
    """
    if entry.package in ("keras", "digits"):
        top = {"classifier_activation": None} if include_top else {"pooling": pooling}
        module = keras.applications if entry.package == "keras" else efficientnet_lite
        make = getattr(module, entry.application)
        return make(weights=None, include_top=include_top, input_shape=input_shape, **top)
    if include_top:
        raise UserFault(
            f"The ImageNet weights of {entry.title} have no classifier.", "Leave out include_top=True."
        )
    return _vit(entry, pooling)


def preprocess(entry: Pretrained, x: tf.Tensor) -> tf.Tensor:
    """Convert RGB pixels of 0 to 255 to the input of the network; networks that are not listed do this themselves."""
    if entry.id == "resnet50":
        return tf.reverse(x, [3]) - tf.constant([103.939, 116.779, 123.68], x.dtype)
    if entry.id == "vit":
        return tf.image.resize(x, [VIT_SIDE, VIT_SIDE]) / 127.5 - 1.0
    return x


def _vit(entry: Pretrained, pooling: str | None) -> Any:
    """Return ViT-B/16: the class token, [N, 768], with ``pooling``, else all tokens, [N, 197, 768]."""
    if not is_installed(entry):
        raise UserFault(
            f"{entry.title} requires the package {entry.package}, which is not installed.",
            packages.advice(entry.package),
        )
    backbone = getattr(importlib.import_module(entry.package).models, entry.application)
    net = backbone(
        image_shape=(VIT_SIDE, VIT_SIDE, 3),
        patch_size=16,
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        mlp_dim=3072,
    )
    return keras.Model(net.inputs, net.output[:, 0], name=net.name) if pooling else net
