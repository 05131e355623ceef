"""The table of a network's layers, for any API.

Layers of Keras, tf.layers and tf_slim are known by their calls. Layers written with `get_variable` and ``tf.nn``
are found in the graph: an operation that reads weights is a layer, and so is a pooling operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from digits.core.events import Layer as LayerRow
from digits.worker.network.layer_calls import Call, variables_of
from digits.worker.network.network import Built
from digits.worker.network.variables import MODEL_SCOPE, count, plain

_POOLING = {"MaxPool", "MaxPoolV2", "AvgPool", "LRN"}
# Operations that add their weights to the previous layer.
_FINISHING = {"BiasAdd", "Add", "AddV2", "Mul", "Sub"}
_SHOWN_TYPES = {
    "MatMul": "Dense",
    "BatchMatMulV2": "Dense",
    "DepthwiseConv2dNative": "DepthwiseConv2D",
    "Conv2DBackpropInput": "Conv2DTranspose",
    "MaxPool": "MaxPooling2D",
    "MaxPoolV2": "MaxPooling2D",
    "AvgPool": "AveragePooling2D",
    "LRN": "LocalResponseNormalization",
}


# Activation functions that a network or tf_slim applies to the output of a layer.
_ACTIVATIONS = {"Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign", "Sigmoid", "Tanh"}


@dataclass
class _Layer:
    """A layer whose operations start at ``position``, its ``row`` of the table, its ``output`` and its ``weights``."""

    position: int
    row: LayerRow
    output: Any
    weights: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class LayerOutput:
    """A layer of an inference graph: its ``row`` of the table, its ``output`` and the variables that it reads.

    The output, [N, …], is that of the activation function after the layer, if there is one.
    """

    row: LayerRow
    output: tf.Tensor
    weights: list[tf.Variable]


def layers(graph: Any, built: Built) -> list[LayerRow]:
    """Return a row ``{name, type, shape, parameters}`` for each layer of the inference graph, in order."""
    return [layer.row for layer in _layers(graph, built, graph.variables)]


def activations(graph: Any, built: Built, variables: Iterable[tf.Variable]) -> dict[str, tf.Tensor]:
    """Return the output of each layer, after its activation function, by name, in order.

    ``graph`` may still be under construction; ``variables`` are the network's.
    """
    return {name: layer.output for name, layer in outputs(graph, built, variables).items()}


def outputs(graph: Any, built: Built, variables: Iterable[tf.Variable]) -> dict[str, LayerOutput]:
    """Return the layers with floating-point outputs, by unique name, in order; see `activations`."""
    named: dict[str, LayerOutput] = {}
    for layer in _layers(graph, built, variables):
        output = layer.output
        if not isinstance(output, tf.Tensor) or output.graph is not graph or not output.dtype.is_floating:
            continue
        consumers = output.consumers()
        if len(consumers) == 1 and consumers[0].type in _ACTIVATIONS:
            output = consumers[0].outputs[0]
        name, number = layer.row["name"], 0
        while name in named:
            number += 1
            name = f"{layer.row['name']}_{number}"
        named[name] = LayerOutput(layer.row, output, layer.weights)
    return named


def _layers(graph: Any, built: Built, variables: Iterable[tf.Variable]) -> list[_Layer]:
    calls = [call for call in built.calls.calls if _is_row(call)]
    first_calls = {id(call.layer): call for call in reversed(calls)}  # shared layers have one row
    seen: set[int] = set()
    layers = [
        _Layer(call.first, _row_of(call, seen), tf.nest.flatten(call.outputs)[0], _weights_of(call))
        for call in calls
        if first_calls[id(call.layer)] is call
    ]
    taken = [(call.first, call.last) for call in calls]
    layers += _layers_between(graph, built.calls.last, variables, taken, seen)
    return sorted(layers, key=lambda layer: layer.position)


def _is_row(call: Call) -> bool:
    # A model or block is represented by the layers inside it.
    # Keras also calls layers with symbolic tensors, to infer shapes.
    outputs = tf.nest.flatten(call.outputs)
    return not call.has_inner and bool(outputs) and isinstance(outputs[0], tf.Tensor)


def _row_of(call: Call, seen: set[int]) -> LayerRow:
    output = tf.nest.flatten(call.outputs)[0]
    name = call.layer.name if call.is_keras else _scope(output.op.name)
    return {
        "name": _without_model(name),
        "type": type(call.layer).__name__,
        "shape": _shape(output),
        "parameters": _count_new(_weights_of(call), seen),
    }


def _weights_of(call: Call) -> list[Any]:
    return [plain(variable) for variable in variables_of(call.layer)]


def _layers_between(
    graph: Any, last: int, variables: Iterable[tf.Variable], layers_at: list[tuple[int, int]], seen: set[int]
) -> list[_Layer]:
    """Return layers for operations with weights, up to number ``last``, that belong to no known layer."""
    handles = {id(variable.handle): variable for variable in variables}
    weights = _Weights({inner.op.name: handles.get(id(outer)) for outer, inner in graph.captures})
    inside = {position for first, last in layers_at for position in range(first, last)}
    layers: list[_Layer] = []
    giving: dict[str, _Layer] = {}
    for position, operation in enumerate(graph.get_operations()[:last]):
        read = weights.read(operation)
        if weights.are_computed(operation) or position in inside or _GRADIENT.search(operation.name):
            continue
        before = next((giving[item.op.name] for item in operation.inputs if item.op.name in giving), None)
        if read and before is not None and _finishes(operation, read, before):
            before.row["parameters"] += _count_new(read, seen)
            before.weights += [item for item in read if all(item is not other for other in before.weights)]
            before.output = operation.outputs[0]
            giving[operation.name] = before
        elif (read and _gives_values(operation)) or operation.type in _POOLING:
            row = _raw_row(operation, read, seen)
            giving[operation.name] = _Layer(position, row, operation.outputs[0], list(read))
            layers.append(giving[operation.name])
    return layers


def _gives_values(operation: Any) -> bool:
    # An assignment has no output; the first output of a loop around the layer is the loop counter.
    return bool(operation.outputs) and operation.outputs[0].shape.rank != 0


def _finishes(operation: Any, read: list[tf.Variable], before: _Layer) -> bool:
    # Scaling by weights of another scope, such as batch normalization, is a separate layer.
    is_apart = operation.type == "Mul" and _without_model(_scope(read[0].name)) != before.row["name"]
    return operation.type in _FINISHING and not is_apart


class _Weights:
    """Tracks weights in a graph: decay, clipping, averaging and scaling of weights are not layers.

    ``handles`` returns the variable behind an input of the graph, or None.
    """

    def __init__(self, handles: dict[str, tf.Variable | None]) -> None:
        self._known = {name: [] if handle is None else [handle] for name, handle in handles.items()}
        self._of_input: set[str] = set()

    def read(self, operation: Any) -> list[tf.Variable]:
        """Return the variables that ``operation`` reads. Must be called for all operations, in order."""
        if operation.name in self._known:
            return self._known[operation.name]
        names = [item.op.name for item in operation.inputs]
        handles = {id(item): item for name in names for item in self._known.get(name, ())}
        if operation.type == "Placeholder" or any(name in self._of_input for name in names):
            self._of_input.add(operation.name)
        if operation.name not in self._of_input or _is_small(operation):
            self._known[operation.name] = list(handles.values())
        return list(handles.values())

    def are_computed(self, operation: Any) -> bool:
        """Return whether ``operation`` depends on weights and batch statistics, but not on the images."""
        return operation.name in self._known


def _is_small(operation: Any) -> bool:
    """Return whether its output is a scalar or vector independent of the batch size, such as a moving average."""
    shapes = [output.shape for output in operation.outputs]
    return all(shape.rank is not None and shape.rank < 2 and shape.is_fully_defined() for shape in shapes)


# for example model/gradients/model/fc/MatMul_grad/MatMul_1.
_GRADIENT = re.compile(r"(^|/)gradients(_\d+)?/")


def _raw_row(operation: Any, read: list[tf.Variable], seen: set[int]) -> LayerRow:
    name = _scope(read[0].name) if read else operation.name
    if name in ("", MODEL_SCOPE):
        name = operation.name
    return {
        "name": _without_model(name),
        "type": _SHOWN_TYPES.get(operation.type, operation.type),
        "shape": _shape(operation.outputs[0]),
        "parameters": _count_new(read, seen),
    }


def _count_new(variables: list[Any], seen: set[int]) -> int:
    """Return the number of parameters in ``variables`` that no previous row has counted."""
    new = {id(item.handle): item for item in variables if id(item.handle) not in seen}
    seen.update(new)
    return sum(count(item) for item in new.values())


def _shape(tensor: tf.Tensor) -> list[int | None]:
    return tensor.shape.as_list() if tensor.shape.rank is not None else []


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _without_model(name: str) -> str:
    return name.removeprefix(f"{MODEL_SCOPE}/") or name
