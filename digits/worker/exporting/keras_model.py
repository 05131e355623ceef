"""Write a network as a ``.keras`` file by building it again on a Keras input, with the same variables.

The network must consist of Keras layers and operations, and of TensorFlow functions that `keras_functions` translates.
"""

from __future__ import annotations

import math
import traceback
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from digits.worker.exporting import keras_functions
from digits.worker.exporting.exported import NotExportable, input_name
from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.network import tower
from digits.worker.network.functional_models import TensorFlowOperation
from digits.worker.network.variables import MODEL_SCOPE
from digits.worker.training.models.trained import Trained


def write_keras(trained: Trained, file: Path) -> None:
    """Write a ``.keras`` file. Raises NotExportable, with the line, if the network calls functions outside of Keras."""
    try:
        with keras_functions.enabled():
            model = _build(trained)
        for operation in model.operations:
            if isinstance(operation, TensorFlowOperation):
                raise keras_functions.refuse(operation)
        model.save(file)
    except (UserFault, OSError):
        raise
    except Exception as error:  # networks and layers raise anything
        raise NotExportable(
            f"The network cannot be exported as a Keras model: {_reason(error)}",
            keras_functions.HINT,
            _line(error),
        ) from error


def _build(model: Trained) -> Any:
    inputs = keras.Input(model.input_shape, dtype="float32", name=input_name(model))
    latent = model.traced.latent
    images = keras.layers.Reshape((1, 1, latent))(inputs) if latent else _prepared(model, inputs)
    net = model.network
    with model.store.trace(net.own, tower.INFERENCE), net.building(None):
        built = net.tower_class(images, None, list(net.shape), net.target.outputs, False, True)
        with (
            net.building(built, None, net.accessed),
            tf.compat.v1.variable_scope(MODEL_SCOPE, reuse=tf.compat.v1.AUTO_REUSE),
        ):
            outputs = built.fineTuneHook(built.inference)
    if isinstance(outputs, (list, tuple)):
        outputs = list(outputs)
    _rename_operations(outputs)
    return keras.Model(inputs, outputs, name="model")


def _rename_operations(outputs: Any) -> None:
    """Give operations that compute ``outputs`` other names than the layers, which the network may name like one."""
    operations_by_id: dict[int, Any] = {}
    waiting = tf.nest.flatten(outputs)
    while waiting:
        history = waiting.pop()._keras_history
        if id(history.operation) not in operations_by_id:
            operations_by_id[id(history.operation)] = history.operation
            waiting += [item for node in history.operation._inbound_nodes for item in node.input_tensors]
    operations = [item for item in operations_by_id.values() if not isinstance(item, keras.layers.Layer)]
    names = {item.name for item in operations_by_id.values() if isinstance(item, keras.layers.Layer)}
    for operation in operations:
        while operation.name in names:
            operation.name += "_operation"
        names.add(operation.name)


def _prepared(model: Trained, images: Any) -> Any:
    """Apply the preprocessing of the training as Keras layers and operations."""
    prepare = model.prepare
    if np.any(prepare.mean):
        mean = np.broadcast_to(prepare.mean, prepare.image_shape)
        if prepare.mean.ndim == 1:
            subtract = keras.layers.Normalization(
                mean=mean[0, 0].tolist(), variance=[1.0] * mean.shape[2], name="mean"
            )
        else:
            shape = prepare.image_shape
            subtract = keras.layers.Normalization(
                axis=(1, 2, 3), mean=mean.tolist(), variance=np.ones(shape).tolist(), name="mean"
            )
        images = subtract(images)
    if prepare.crop:
        images = _cropped_or_padded(images, prepare.crop)
    return _standardized(images) if prepare.augment.whitening else images


def _cropped_or_padded(images: Any, side: int) -> Any:
    """Return the center of images [N, H, W, C], with zeros around them if they are smaller."""
    height, width = images.shape[1:3]
    top, left = ((size - side) // 2 if size > side else 0 for size in (height, width))
    images = images[:, top : top + side, left : left + side]
    edges = [
        (missing // 2, missing - missing // 2) for missing in (side - size for size in images.shape[1:3])
    ]
    return images if edges == [(0, 0)] * 2 else keras.layers.ZeroPadding2D(edges, name="padding")(images)


def _standardized(images: Any) -> Any:
    """Subtract the mean of each image and divide by its standard deviation, as `augment.standardize` does."""
    centered = images - keras.ops.mean(images, axis=(1, 2, 3), keepdims=True)
    deviation = keras.ops.std(images, axis=(1, 2, 3), keepdims=True)
    return centered / keras.ops.maximum(deviation, math.prod(images.shape[1:]) ** -0.5)


def _reason(error: BaseException) -> str:
    text = str(error).strip()
    if "A KerasTensor " in text:
        return "it calls a TensorFlow function that Keras does not have."
    first = text.partition("\n")[0][:300] or type(error).__name__
    return first if first.endswith(".") else f"{first}."


def _line(error: BaseException) -> int | None:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == NETWORK_FILE and frame.lineno
    ]
    return lines[-1] if lines else None
