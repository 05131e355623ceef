"""Write a network as a ``.keras`` file by building it again on a Keras input, with the same variables.

The network must consist of Keras layers and operators. Other TensorFlow functions cannot be part of a Keras model.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from digits.worker.compat.keras1 import TensorFlowOperation
from digits.worker.exporting.exported import input_name, named
from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.network import tower
from digits.worker.network.variables import MODEL_SCOPE
from digits.worker.training.trained import Trained

HINT = (
    "A .keras file can contain only Keras layers: use keras.layers and keras.ops in inference, "
    "or export the network as a SavedModel."
)


def write_keras(found: Trained, file: Path) -> None:
    """Write a ``.keras`` file. Raises UserFault, with the line, if the network uses anything but Keras layers."""
    try:
        model = _build(found)
        for operation in model.operations:
            if isinstance(operation, TensorFlowOperation):
                raise UserFault(
                    "The network cannot be exported as a Keras model: "
                    f"it calls the TensorFlow function {operation.title}, which is not a Keras layer.",
                    HINT,
                    operation.line or None,
                )
        model.save(file)
    except UserFault:
        raise
    except Exception as error:  # networks and layers raise anything
        raise UserFault(
            f"The network cannot be exported as a Keras model: {_reason(error)}", HINT, _line(error)
        ) from error


def _build(found: Trained) -> Any:
    if found.traced.latent:
        raise UserFault("A network that generates images cannot be exported as a Keras model.", HINT)
    inputs = keras.Input(found.input_shape, dtype="float32", name=input_name(found))
    net = found.network
    with found.store.trace(net.own, tower.INFERENCE), net.building(None):
        built = net.tower_class(
            _prepared(found, inputs), None, list(net.shape), net.target.outputs, False, True
        )
        with (
            net.building(built, None, net.accessed),
            tf.compat.v1.variable_scope(MODEL_SCOPE, reuse=tf.compat.v1.AUTO_REUSE),
        ):
            outputs = built.fineTuneHook(built.inference)
    if isinstance(outputs, (list, tuple)):
        outputs = list(outputs)
    return keras.Model(inputs, outputs, name="model")


def outputs_of(values: Any) -> dict[str, Any]:
    """Return the outputs of a loaded Keras model as a dict."""
    return named(values)


def _prepared(found: Trained, images: Any) -> Any:
    """Apply the preprocessing of the training as Keras layers."""
    prepare = found.prepare
    if prepare.augment.whitening:
        raise UserFault(
            "Per-image standardization cannot be part of a Keras model.",
            "Export the network as a SavedModel.",
        )
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
        sides = [(side - prepare.crop) // 2 for side in prepare.image_shape[:2]]
        rests = [
            side - prepare.crop - start for side, start in zip(prepare.image_shape[:2], sides, strict=True)
        ]
        if min(sides) < 0 or min(rests) < 0:
            raise UserFault(
                "A crop larger than the images cannot be part of a Keras model.",
                "Export the network as a SavedModel.",
            )
        images = keras.layers.Cropping2D(tuple(zip(sides, rests, strict=True)), name="crop")(images)
    return images


def _reason(error: BaseException) -> str:
    text = str(error).strip()
    if "KerasTensor" in text:
        return "it calls a TensorFlow function that is not a Keras layer."
    first = text.partition("\n")[0][:300] or type(error).__name__
    return first if first.endswith(".") else f"{first}."


def _line(error: BaseException) -> int | None:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == NETWORK_FILE and frame.lineno
    ]
    return lines[-1] if lines else None
