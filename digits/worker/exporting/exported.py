"""A trained network as a single TensorFlow function from pixels to named outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import tensorflow as tf

from digits.data.models.export import PREDICTIONS_SIGNATURE
from digits.worker.failure import UserFault
from digits.worker.network.variables import MODEL_SCOPE
from digits.worker.training.models.batches import Batches
from digits.worker.training.models.outputs import named, restore_structure
from digits.worker.training.models.trained import Trained
from digits.worker.training.step import numerics

SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_OF_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


class NotExportable(UserFault):
    """Raised if a network cannot be exported in a format, with any weights."""


class Exported(tf.Module):
    """The variables of a network and a function that maps float32 [N, ...] to a dict of tensors.

    ``batch`` fixes N; None allows any. ``outputs`` computes the outputs by name (default: those of the network).
    """

    def __init__(
        self, model: Trained, batch: int | None = None, outputs: Callable[[Any], dict[str, Any]] | None = None
    ) -> None:
        super().__init__()
        known = [*model.store.variables.values(), *model.store.local.values()]
        # The network may also use variables that it does not own, such as the step number.
        self._variables = list(
            {id(item): item for item in [*known, *model.traced.function.variables]}.values()
        )
        spec = tf.TensorSpec((batch, *model.input_shape), tf.float32, name=input_name(model))
        compute = outputs or (lambda values: named(model.outputs(values)))
        self.predict = tf.function(compute, autograph=False, input_signature=[spec])
        self.signature = self.predict.get_concrete_function()


class ServedModel(Exported):
    """An `Exported` network that can also return the predictions of its kind, as DIGITS serves them."""

    def __init__(self, model: Trained) -> None:
        super().__init__(model)
        self.functions = {SIGNATURE: self.signature}
        if model.traced.latent:
            return
        structure = model.traced.function.structured_outputs

        def predictions(values: tf.Tensor) -> dict[str, tf.Tensor]:
            outputs = restore_structure(structure, self.predict(values))
            return {PREDICTIONS_SIGNATURE: model.targets.predict(outputs)}

        self.predictions = tf.function(
            predictions, autograph=False, input_signature=self.predict.input_signature
        )
        self.functions[PREDICTIONS_SIGNATURE] = self.predictions.get_concrete_function()


def input_name(model: Trained) -> str:
    """Return the name of the input: ``vectors`` for networks that generate images, otherwise ``images``."""
    return "vectors" if model.traced.latent else "images"


def check_is_exportable(model: Trained) -> None:
    """Raise NotExportable, with the line, if the network calls Python code at run time."""
    if place := place_of(model, _OF_PYTHON):
        raise NotExportable(
            "The network calls Python code at run time (tf.py_func), which cannot be exported.",
            "Use TensorFlow functions instead.",
            place[1] or None,
        )


def refuse_operations(model: Trained, title: str, op_types: Collection[str]) -> NotExportable:
    """Return the error for unsupported operations, with the layer and line of the first one."""
    listed = ", ".join(sorted(op_types))
    place = place_of(model, op_types)
    where = f": {place[0]}" if place else ""
    return NotExportable(
        f"{title} does not support the operation {listed}{where}.",
        "Replace it in the network, or export it as a SavedModel, which supports all operations.",
        (place and place[1]) or None,
    )


def place_of(model: Trained, op_types: Collection[str]) -> tuple[str, int] | None:
    """Return the name and line of the first operation of these types, or None. The line is 0 if unknown."""
    graph = model.traced.function.graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for inner in definition.library.function for node in inner.node_def)]
    node = next((node for node in nodes if node.op in op_types), None)
    if node is None:
        return None
    return node.name.removeprefix(f"{MODEL_SCOPE}/"), numerics.line_that_created(graph, node.name)


class LayerOutputs(Exported):
    """A function that returns the output of each layer as ``layer_0000`` and so on; ``names`` maps them to layers."""

    def __init__(self, model: Trained, batch: int | None = None) -> None:
        self.names: dict[str, str] = {}

        def outputs(values: tf.Tensor) -> dict[str, tf.Tensor]:
            _, layers = model.build_layers(values)
            self.names.update({f"layer_{index:04}": name for index, name in enumerate(layers)})
            return dict(zip(self.names, layers.values(), strict=True))

        super().__init__(model, batch, outputs)


def required_batch(model: Trained) -> int:
    """Return the number of images that the network requires; 1 if it accepts any number. Raises its errors."""

    def compute(values: tf.Tensor) -> tf.Tensor:
        model.outputs(values)
        return values  # the outputs need not have a row for each image

    batches = Batches(compute, model.batch_size)
    batches(np.zeros((1, *model.input_shape), np.float32))
    return batches.smallest
