"""The interface of Keras 1 and 2 on top of Keras 3.

`install` makes the layers of Keras 3 accept former arguments: initializers and regularizers of TensorFlow 1,
weights with the name first, tensors as inputs of a functional model, and TensorFlow operations between layers.
`names` are those that Keras has removed.
"""

from __future__ import annotations

import functools
import inspect
import traceback
import types
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.keras_tensor import KerasTensor
from tensorflow.python.ops import init_ops
from tensorflow.python.util import dispatch

from digits.worker.network import tower
from digits.worker.user_text import NETWORK_FILE


@functools.cache
def install() -> None:
    """Make the layers of Keras 3 accept former arguments, once per process."""
    initializers, regularizers, layers = keras.src.initializers, keras.src.regularizers, keras.src.layers
    initializers.get = _add_dtypes(initializers.get)
    regularizers.get = _pass_tensors(regularizers.get)
    layers.Input = keras.layers.Input = tf.keras.layers.Input = _accept_tensors(layers.Input)
    keras.Input = tf.keras.Input = layers.Input
    layers.Layer.add_weight = layers.Layer.add_variable = _accept_name_first(layers.Layer.add_weight)
    layer_type: Any
    for layer_type in {item for item in vars(keras.layers).values() if isinstance(item, type)}:
        if issubclass(layer_type, layers.Layer) and "__init__" in vars(layer_type):
            layer_type.__init__ = _accept_old_arguments(layer_type.__init__)
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
        frames = (frame for frame, _ in traceback.walk_stack(None))
        self.line = next((frame.f_lineno for frame in frames if frame.f_code.co_filename == NETWORK_FILE), 0)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return keras.src.backend.compute_output_spec(self.call, *args, **kwargs)


def _add_dtypes(get: Any) -> Any:
    """Wrap ``initializers.get`` so that initializers of TensorFlow 1 receive TensorFlow dtypes."""

    @functools.wraps(get)
    def typed(identifier: Any) -> Any:
        found = get(identifier)
        is_old = isinstance(found, init_ops.Initializer) or "partition_info" in getattr(
            getattr(found, "__code__", None), "co_varnames", ()
        )
        if not is_old:
            return found
        return lambda shape, dtype=None, **kwargs: found(shape, dtype=tf.as_dtype(dtype or "float32"))

    return typed


def _pass_tensors(get: Any) -> Any:
    """Wrap ``regularizers.get`` so that functions of TensorFlow 1 receive a tensor instead of a Keras
    variable.
    """

    @functools.wraps(get)
    def on_tensors(identifier: Any) -> Any:
        found = get(identifier)
        if found is None or isinstance(found, keras.regularizers.Regularizer):
            return found
        return lambda weight: found(tf.convert_to_tensor(weight))

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


def _accept_name_first(add_weight: Any) -> Any:
    """Wrap ``add_weight`` to accept the name as first argument."""

    @functools.wraps(add_weight)
    def named_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            names = ("name", "shape", "dtype", "initializer", "regularizer", "trainable")
            kwargs.update(zip(names, args, strict=False))
            args = ()
        return add_weight(self, *args, **kwargs)

    return named_first


# Arguments of Keras 1 and their current names.
_RENAMED = {
    "border_mode": "padding",
    "subsample": "strides",
    "init": "kernel_initializer",
    "inner_init": "recurrent_initializer",
    "W_regularizer": "kernel_regularizer",
    "b_regularizer": "bias_regularizer",
    "W_constraint": "kernel_constraint",
    "b_constraint": "bias_constraint",
    "bias": "use_bias",
    "output_dim": "units",
    "nb_filter": "filters",
    "p": "rate",
    "dim_ordering": "data_format",
}
_DIMENSIONS = {"tf": "channels_last", "th": "channels_first"}
# Arguments of Keras 2 and earlier that selected an implementation.
_DROPPED = ("fused", "virtual_batch_size", "mode", "implementation", "consume_less")


def _accept_old_arguments(init: Any) -> Any:
    """Wrap a layer's constructor ``init`` to accept former argument names."""
    signature = inspect.signature(init)
    known = signature.parameters

    @functools.wraps(init)
    def constructor(self: Any, *args: Any, **kwargs: Any) -> None:
        old = {name for name in kwargs if name in _RENAMED and name not in known and _RENAMED[name] in known}
        if "kernel_size" in known and old and len(args) == 3:
            args = (args[0], tuple(args[1:]))  # Convolution2D(filters, rows, columns)
        for name in old:
            value = kwargs.pop(name)
            kwargs[_RENAMED[name]] = _DIMENSIONS.get(value, value) if name == "dim_ordering" else value
        for name in _DROPPED:
            if name not in known:
                kwargs.pop(name, None)
        if "pool_size" in known and not args:
            kwargs.setdefault("pool_size", 2)  # the merge layer's axis has no default anymore
        init(self, *args, **kwargs)

    # Keras inspects a layer's arguments to serialize it.
    constructor.__signature__ = signature  # type: ignore[attr-defined]  # functions may have any attribute
    return constructor


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


def _is_training(*args: Any) -> int:
    built = tower.current_tower()
    return int(bool(built is not None and built.is_training))


def _select_phase(x: Any, alt: Any, training: Any = None) -> Any:
    """Return ``x`` in training, else ``alt``; either may be a function that returns the value."""
    chosen = x if (_is_training() if training is None else training) else alt
    return chosen() if callable(chosen) else chosen


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    """Ignore a global setting: session, learning phase or image data format."""


def names(module: str, compat_tf: Any) -> dict[str, Any]:
    """Return the names of the Keras module ``module`` that neither `keras` nor `tf.keras` has."""
    if module == "layers":
        return {"CuDNNLSTM": keras.layers.LSTM, "CuDNNGRU": keras.layers.GRU}
    if module == "backend":
        ignored = (
            "set_learning_phase",
            "set_session",
            "get_session",
            "clear_session",
            "set_image_dim_ordering",
        )
        return {
            **dict.fromkeys(ignored, _do_nothing),
            "learning_phase": _is_training,
            "in_train_phase": _select_phase,
            "in_test_phase": lambda x, alt, training=None: _select_phase(alt, x, training),
            "image_dim_ordering": lambda: "tf",
            "tf": compat_tf,
        }
    if module == "losses":
        names = {"NONE": "none", "SUM": "sum", "AUTO": "sum_over_batch_size"}
        names["SUM_OVER_BATCH_SIZE"] = names["AUTO"]
        return {"Reduction": types.SimpleNamespace(**names)}
    if module == "utils":
        # Clearing the session would discard the state that tracks the network's variables.
        return {"multi_gpu_model": lambda model, *args, **kwargs: model, "clear_session": _do_nothing}
    return {}
