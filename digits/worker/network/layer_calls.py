"""Records the calls of layers while a network is built: Keras 3 layers, tf.layers and tf_slim.

The trainer needs them for losses that are stored in Keras layers, the layer table for names and shapes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.tensorflow.core import Variable as KerasVariable
from tensorflow.python.keras.legacy_tf_layers.base import Layer as LegacyLayer

from digits.worker import build_context
from digits.worker.failure import UserFault
from digits.worker.network.variables import plain, remember, set_once
from digits.worker.patched_names import replace


@dataclass
class Call:
    """A call of ``layer``: the operations numbered from ``first`` up to ``last`` belong to it.

    ``path`` contains the names of the layers around it and its own: the same ones in all traces of a network.
    """

    layer: Any
    path: tuple[str, ...]
    first: int
    last: int = 0
    outputs: Any = None
    has_inner: bool = False

    @property
    def depth(self) -> int:
        return len(self.path) - 1

    @property
    def is_keras(self) -> bool:
        return isinstance(self.layer, keras.layers.Layer)


@dataclass
class Calls:
    """The calls of layers in one trace, in the current ``graph``, in order.

    Operations of the graph from number ``last`` on do not belong to the network.
    """

    graph: tf.Graph = field(default_factory=tf.compat.v1.get_default_graph)
    calls: list[Call] = field(default_factory=list)
    last: int = 0
    _open: list[Call] = field(default_factory=list)
    _begun: set[int] = field(default_factory=set)
    _regularization: dict[int, tf.Tensor] = field(default_factory=dict)

    @property
    def keras_model(self) -> keras.Model | None:
        """The Keras model that the network calls; None unless it is the only one."""
        models = [
            call.layer for call in self.calls if call.depth == 0 and isinstance(call.layer, keras.Model)
        ]
        return models[0] if len(models) == 1 else None

    def keras_losses(self) -> list[tf.Tensor]:
        """Return the regularization and other losses that Keras layers collected in this trace, each once."""
        layers = {id(call.layer): call.layer for call in self.calls if call.is_keras and call.depth == 0}
        losses = [loss for layer in layers.values() for loss in layer.losses]
        return list({id(loss): loss for loss in losses}.values())

    def regularization_of(self, variable: KerasVariable) -> tf.Tensor:
        """Return the regularization loss of ``variable``: always the same tensor."""
        if tf.compat.v1.get_default_graph() is not self.graph:
            return variable.regularizer(variable)
        if id(variable) not in self._regularization:
            self._regularization[id(variable)] = variable.regularizer(variable)
        return self._regularization[id(variable)]

    def frozen_variables(self) -> set[int]:
        """Return the ids of the TensorFlow variables in Keras layers that are not trainable."""
        return {id(item._value) for item in self._keras_variables() if not item.trainable}

    def copy_constraints(self) -> None:
        """Copy the constraints of Keras variables to the TensorFlow variables that the optimizer updates."""
        for item in self._keras_variables():
            item._value._constraint = item.constraint

    def _keras_variables(self) -> list[KerasVariable]:
        layers = {id(call.layer): call.layer for call in self.calls if call.is_keras}
        return [item for layer in layers.values() for item in layer.variables]

    def around(self, layer: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        elsewhere = tf.compat.v1.get_default_graph() is not self.graph
        if elsewhere and isinstance(layer, keras.layers.Layer):
            return function(layer, *args, **kwargs)  # Keras calls the layer to infer shapes
        around = self._open[-1].path if self._open else ()
        call = Call(layer, (*around, getattr(layer, "name", "")), self.graph.version)
        if self._open:
            self._open[-1].has_inner = True
        elif call.is_keras:
            self._begin(layer)
        self.calls.append(call)
        self._open.append(call)
        try:
            with contextlib.ExitStack() as stack:
                if call.is_keras and call.path in build_context.current().frozen_layers:
                    stack.enter_context(_keras_stage(is_training=False))
                    kwargs = {**kwargs, **({"training": False} if "training" in kwargs else {})}
                call.outputs = function(layer, *args, **kwargs)
        finally:
            self._open.pop()
            call.last = self.graph.version
        if not elsewhere and not self._open:
            self._remember(layer)
        return call.outputs

    def _begin(self, layer: keras.layers.Layer) -> None:
        """Clear losses that other traces added to a layer and the layers inside it."""
        for item in layer._flatten_layers():
            if id(item) not in self._begun:
                self._begun.add(id(item))
                item._losses.clear()
                item._loss_ids.clear()

    def _remember(self, layer: Any) -> None:
        """Register the variables of a layer that was built in another trace."""
        key = tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
        known = {id(variable) for variable in self.graph.get_collection_ref(key)}
        for variable in map(plain, variables_of(layer)):
            if id(variable) not in known:
                remember(self.graph, variable)


def variables_of(layer: Any) -> list[Any]:
    """Return the variables of a layer, without tensors that a custom getter derived from them.

    Empty for a custom cell that did not call the constructor of its base class.
    """
    return [item for item in getattr(layer, "variables", ()) if not isinstance(item, tf.Tensor)]


@contextlib.contextmanager
def record_calls(is_training: bool) -> Iterator[Calls]:
    """Record the calls of layers inside; Keras layers use ``is_training`` by default."""
    calls = Calls()
    with contextlib.ExitStack() as stack:
        for layer_class in (keras.layers.Layer, LegacyLayer):
            stack.enter_context(_wrap(layer_class, calls))
        stack.enter_context(_keras_stage(is_training))
        stack.enter_context(_load_once())
        stack.enter_context(_regularize_once(calls))
        stack.enter_context(_refuse_running())
        yield calls
        calls.last = calls.graph.version


def _wrap(layer_class: Any, calls: Calls) -> contextlib.AbstractContextManager[None]:
    original = layer_class.__call__

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return calls.around(self, original, *args, **kwargs)

    return replace(layer_class, "__call__", wrapper)


def _load_once() -> contextlib.AbstractContextManager[None]:
    """Assign weights that the network itself loads into Keras layers immediately and only once.

    In a graph, every step and every build would assign them again.
    """
    original = KerasVariable.assign

    @functools.wraps(original)
    def assign(self: Any, value: Any) -> Any:
        if not isinstance(value, (np.ndarray, h5py.Dataset)) or tf.executing_eagerly():
            return original(self, value)
        with set_once(self._value) as is_first:
            if is_first:
                original(self, np.asarray(value))
        return self._value

    return replace(KerasVariable, "assign", assign)


def _regularize_once(calls: Calls) -> contextlib.AbstractContextManager[None]:
    """Make networks that add ``model.losses`` to their loss use the known tensors instead of copies."""

    def losses(layer: Any) -> list[tf.Tensor]:
        return [calls.regularization_of(item) for item in layer.trainable_weights if item.regularizer]

    return replace(keras.layers.Layer, "_get_regularization_losses", losses)


_TRAINED = "Remove this call: DIGITS trains and validates the results of inference and loss."
_CALLED = "Call the model itself: model(x)."
_RUNS = {
    **dict.fromkeys(("fit", "train_on_batch", "evaluate", "test_on_batch"), _TRAINED),
    **dict.fromkeys(("predict", "predict_on_batch"), _CALLED),
}


@contextlib.contextmanager
def _refuse_running() -> Iterator[None]:
    """Raise UserFault for ``fit``, ``predict`` etc. of a model that is part of the network: there is no batch
    yet.
    """
    with contextlib.ExitStack() as stack:
        for name in _RUNS:
            stack.enter_context(replace(keras.Model, name, _refuse(name)))
        yield


def _refuse(name: str) -> Any:
    original = getattr(keras.Model, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            return original(self, *args, **kwargs)
        raise UserFault(f"{name}() of a model cannot run while the network is being built.", _RUNS[name])

    return method


class _Stage:
    """Default values of arguments for calls of Keras layers."""

    entry_layer = None

    def __init__(self, training: bool) -> None:
        self.training = training

    def get_value(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)

    def set_value(self, name: str, value: Any) -> None:
        setattr(self, name, value)


@contextlib.contextmanager
def _keras_stage(is_training: bool) -> Iterator[None]:
    before = global_state.get_global_attribute("current_call_ctx")
    global_state.set_global_attribute("current_call_ctx", _Stage(is_training))
    try:
        yield
    finally:
        global_state.set_global_attribute("current_call_ctx", before)
