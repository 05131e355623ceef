"""Functional Keras models in networks of TensorFlow 1.

`install` makes Keras 3 accept initializers and regularizers of TensorFlow 1, tensors as inputs of a functional model,
and TensorFlow operations between layers.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.keras_tensor import KerasTensor
from tensorflow.python.ops import init_ops
from tensorflow.python.util import dispatch

from digits.worker import user_text
from digits.worker.patched_names import install as patch


@functools.cache
def install() -> None:
    """Make the layers of Keras 3 accept former arguments, once per process."""
    initializers, regularizers = keras.src.initializers, keras.src.regularizers
    patch(initializers, "get", _add_dtypes(initializers.get))
    patch(regularizers, "get", _pass_tensors(regularizers.get))
    accepting = _accept_tensors(keras.Input)
    for module in (keras.src.layers, keras.layers, tf.keras.layers, keras, tf.keras):
        patch(module, "Input", accepting)
    _BetweenLayers().register()


class _BetweenLayers(dispatch.GlobalOpDispatcher):
    """Turns a TensorFlow operation on a symbolic Keras tensor into a layer of the functional model."""

    def handle(self, op: Any, args: Any, kwargs: Any) -> Any:
        if any(isinstance(item, KerasTensor) for item in tf.nest.flatten((args, kwargs))):
            return call_on_symbols(op, args, kwargs)
        return self.NOT_SUPPORTED


def call_on_symbols(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a TensorFlow ``function`` on symbolic Keras tensors. Exports as Keras models replace this."""
    return TensorFlowOperation(function)(*args, **kwargs)


class TensorFlowOperation(keras.Operation):
    """A TensorFlow function as an operation of a functional model.

    ``title`` is its name, and ``line`` the line of the network that calls it, or 0.
    """

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function
        self.title = str(getattr(function, "__name__", function))
        self.line = user_text.running_line() or 0

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return keras.src.backend.compute_output_spec(self.call, *args, **kwargs)


def _add_dtypes(get: Any) -> Any:
    """Wrap ``initializers.get`` so that initializers of TensorFlow 1 receive TensorFlow dtypes."""

    @functools.wraps(get)
    def typed(identifier: Any) -> Any:
        initializer = get(identifier)
        is_old = isinstance(initializer, init_ops.Initializer) or "partition_info" in getattr(
            getattr(initializer, "__code__", None), "co_varnames", ()
        )
        if not is_old:
            return initializer
        return lambda shape, dtype=None, **kwargs: initializer(shape, dtype=tf.as_dtype(dtype or "float32"))

    return typed


def _pass_tensors(get: Any) -> Any:
    """Wrap ``regularizers.get`` so that functions of TensorFlow 1 receive a tensor instead of a Keras
    variable.
    """

    @functools.wraps(get)
    def on_tensors(identifier: Any) -> Any:
        regularizer = get(identifier)
        if regularizer is None or isinstance(regularizer, keras.regularizers.Regularizer):
            return regularizer
        return lambda weight: regularizer(tf.convert_to_tensor(weight))

    return on_tensors


def _accept_tensors(make: Any) -> Any:
    """Wrap ``Input`` to accept a TensorFlow ``tensor``, which `resolve_output` uses as its value."""

    @functools.wraps(make)
    def with_tensors(*args: Any, tensor: Any = None, **kwargs: Any) -> Any:
        if not isinstance(tensor, tf.Tensor):
            return make(*args, tensor=tensor, **kwargs)
        kept = {name: value for name, value in kwargs.items() if name == "name"}
        made = make(batch_shape=tensor.shape.as_list(), dtype=tensor.dtype.name, **kept)
        made.digits_tensor = tensor
        return made

    return with_tensors


def resolve_output(output: Any, x: Any) -> Any:
    """Compute the symbolic Keras tensors in ``output`` from ``x`` or from their own inputs."""
    leaves = tf.nest.flatten(output)
    promised = [leaf for leaf in leaves if isinstance(leaf, KerasTensor)]
    if not promised:
        return output
    sources = {id(source): source for leaf in promised for source in keras.utils.get_source_inputs(leaf)}
    model = keras.Model(list(sources.values()), promised)
    values = iter(tf.nest.flatten(model([getattr(item, "digits_tensor", x) for item in sources.values()])))
    if len(leaves) == 1 and all(hasattr(item, "digits_tensor") for item in sources.values()):
        return next(values)  # models used to return a single output without a list
    kept = [next(values) if isinstance(leaf, KerasTensor) else leaf for leaf in leaves]
    return tf.nest.pack_sequence_as(output, kept)
