"""Keras operations for the TensorFlow functions that networks of Keras layers call between them.

The standard networks call them. Networks of other functions, such as those of TensorFlow 1, become a SavedModel.
A function has a translation if `_SIMPLE` or `_TRANSLATIONS` contains its name. A translation takes the arguments of the
TensorFlow function under their names there, but not those that have their default value. It raises TypeError or
ValueError for arguments that Keras cannot represent.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import KerasTensor, ops

from digits.worker import patched_names
from digits.worker.exporting.exported import NotExportable
from digits.worker.network import functional_models
from digits.worker.network.functional_models import TensorFlowOperation

HINT = (
    "A .keras file can contain only layers and operations of Keras: use keras.layers and keras.ops in inference, "
    "or export the network as a SavedModel."
)

Sizes = Sequence[Any]


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """Translate TensorFlow functions of symbolic Keras tensors inside the block, and let them meet lists and arrays."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(patched_names.replace(functional_models, "call_on_symbols", translate))
        # NumPy's operators would otherwise compute with the elements of the array one by one.
        stack.enter_context(patched_names.replace(KerasTensor, "__array_ufunc__", None))
        for name in _OPERATORS:
            wrapped = _accept_arrays(getattr(KerasTensor, name))
            stack.enter_context(patched_names.replace(KerasTensor, name, wrapped))
        yield


def translate(function: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of a TensorFlow ``function``, from Keras operations or else a `TensorFlowOperation`.

    Raises NotExportable if that cannot be part of a Keras model at all.
    """
    with contextlib.suppress(NotImplementedError):
        return _translate(function, args, kwargs)
    operation = TensorFlowOperation(function)
    try:
        return operation(*args, **kwargs)
    except Exception as error:  # functions raise anything
        raise refuse(operation) from error


def refuse(operation: TensorFlowOperation) -> NotExportable:
    """Return the error for a function that has no translation, with its line."""
    return NotExportable(
        f"The network cannot be exported as a Keras model: it calls the TensorFlow function {operation.title}, which "
        "Keras does not have.",
        HINT,
        operation.line or None,
    )


def _translate(function: Any, args: Any, kwargs: Any) -> Any:
    name = str(getattr(function, "__name__", ""))
    if name not in _TRANSLATIONS:
        name = name.removesuffix("_v2")
    if name not in _SIMPLE and name not in _TRANSLATIONS:
        raise NotImplementedError
    signature = inspect.signature(function)
    given = {
        key: tf.nest.map_structure(_constant, value)
        for key, value in signature.bind(*args, **kwargs).arguments.items()
        if key != "name" and not _is_default(value, signature.parameters[key].default)
    }
    try:
        if name in _SIMPLE:
            return _SIMPLE[name](*given.values())
        return _TRANSLATIONS[name](**given)
    except (TypeError, ValueError) as error:
        raise NotImplementedError from error


def _is_default(value: Any, default: Any) -> bool:
    return value is None or (type(value) is type(default) and value == default)


def _constant(value: Any) -> Any:
    """Convert tensors and variables to arrays, which a .keras file can contain."""
    return value.numpy() if isinstance(value, (tf.Tensor, tf.Variable)) else value


_OPERATORS = [
    f"__{side}{name}__"
    for name in ("add", "sub", "mul", "matmul", "truediv", "pow", "floordiv", "mod")
    for side in ("", "r")
] + [f"__{name}__" for name in ("lt", "le", "gt", "ge", "ne")]


def _accept_arrays(method: Any) -> Any:
    """Wrap an operator of Keras tensors to accept lists and arrays, in the type of the tensor as in TensorFlow."""

    @functools.wraps(method)
    def accepting(self: Any, other: Any) -> Any:
        if isinstance(other, (list, tuple, np.ndarray, np.generic)):
            other = np.asarray(other, self.dtype)
        return method(self, _constant(other))

    return accepting


def _integers(values: Any) -> Any:
    """Convert numbers that may be scalar tensors or arrays to nested lists of int; None remains."""
    if isinstance(values, (list, tuple)) or np.ndim(values):
        return [_integers(value) for value in values]
    return None if values is None else operator.index(np.asarray(values).item())


def _reshape(tensor: Any, shape: Sizes) -> Any:
    """Reshape; ``None`` in ``shape`` is the unknown size of the batch, which only one -1 can stand for."""
    sizes = _integers(shape)
    if None in sizes and -1 in sizes:
        batch, *known = tensor.shape
        if batch is not None or sizes.index(None) != 0:
            raise ValueError("several unknown sizes")
        others = math.prod(size for size in sizes if size not in (None, -1))
        sizes[sizes.index(-1)] = math.prod(known) // others
    return ops.reshape(tensor, [-1 if size is None else size for size in sizes])


def _normalize_over_channels(
    input: Any, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5
) -> Any:
    edges = [[0, 0], [0, 0], [0, 0], [depth_radius, depth_radius]]
    channels = input.shape[3]
    squares = ops.pad(ops.square(input), edges)
    near = [squares[..., start : start + channels] for start in range(2 * depth_radius + 1)]
    return input / ops.power(bias + alpha * functools.reduce(ops.add, near), beta)


def _reduce(function: Any) -> Any:
    def reduced(input_tensor: Any, axis: Any = None, keepdims: bool = False) -> Any:
        over = _integers(axis)
        return function(input_tensor, axis=tuple(over) if isinstance(over, list) else over, keepdims=keepdims)

    return reduced


def _max_pool(input: Any, ksize: int, strides: int, padding: str) -> Any:
    return ops.max_pool(input, ksize, strides, padding.lower(), "channels_last")


def _gather_in_batch(params: Any, indices: Any, batch_dims: int) -> Any:
    if batch_dims != 1 or len(indices.shape) != 2:
        raise ValueError("unsupported batch dimensions")
    for size in params.shape[2:]:
        indices = ops.repeat(ops.expand_dims(indices, -1), size, axis=-1)
    return ops.take_along_axis(params, indices, axis=1)


def _split(value: Any, num_or_size_splits: Any, axis: int = 0) -> Any:
    sizes = _integers(num_or_size_splits)
    return ops.split(value, np.cumsum(sizes)[:-1].tolist() if isinstance(sizes, list) else sizes, axis)


def _resize(images: Any, size: Any, method: Any = "bilinear", antialias: bool = False) -> Any:
    return ops.image.resize(
        images, _integers(size), interpolation=str(method), antialias=antialias, data_format="channels_last"
    )


# Functions of the tensors alone, in the same order.
_SIMPLE: dict[str, Any] = {
    **{
        name: getattr(ops, name)
        for name in (
            "relu relu6 elu selu silu softplus softsign sigmoid tanh exp log sqrt rsqrt square abs stop_gradient "
            "add subtract multiply divide maximum minimum"
        ).split()
    },
    "_add_dispatch": ops.add,  # the operator + of tensors
    "swish": ops.silu,
    "truediv": ops.true_divide,
    "pow": ops.power,
    "neg": ops.negative,
    "negative": ops.negative,
    "add_n": lambda inputs: functools.reduce(ops.add, inputs),
    "identity": lambda input: input,
}

_TRANSLATIONS: dict[str, Any] = {
    "leaky_relu": lambda features, alpha=0.2: ops.leaky_relu(features, alpha),
    "gelu": lambda features, approximate=False: ops.gelu(features, approximate),
    "softmax": lambda logits, axis=-1: ops.softmax(logits, axis),
    "log_softmax": lambda logits, axis=-1: ops.log_softmax(logits, axis),
    "lrn": _normalize_over_channels,
    "local_response_normalization": _normalize_over_channels,
    "matmul": lambda a, b: ops.matmul(a, b),
    "reduce_sum": _reduce(ops.sum),
    "reduce_mean": _reduce(ops.mean),
    "reduce_max": _reduce(ops.max),
    "reduce_min": _reduce(ops.min),
    "reduce_prod": _reduce(ops.prod),
    "reduce_any": _reduce(ops.any),
    "max_pool2d": _max_pool,
    "top_k": lambda input, k: ops.top_k(input, _integers(k)),
    "shape": lambda input, out_type=None: ops.shape(input),
    "ensure_shape": lambda x, shape: x,
    "cast": lambda x, dtype: ops.cast(x, str(tf.as_dtype(dtype).name)),
    "reshape": _reshape,
    "transpose": lambda a, perm=None: ops.transpose(a, _integers(perm)),
    "expand_dims": lambda input, axis: ops.expand_dims(input, axis),
    "squeeze": lambda input, axis=None: ops.squeeze(input, _integers(axis)),
    "concat": lambda values, axis: ops.concatenate(values, axis),
    "stack": lambda values, axis=0: ops.stack(values, axis),
    "unstack": lambda value, axis=0: ops.unstack(value, axis=axis),
    "split": _split,
    "gather": _gather_in_batch,
    "where": lambda condition, x, y: ops.where(condition, x, y),
    "pad": lambda tensor, paddings, mode="CONSTANT": ops.pad(tensor, _integers(paddings), mode.lower()),
    "repeat": lambda input, repeats, axis=None: ops.repeat(input, _integers(repeats), axis),
    "reverse": lambda tensor, axis: ops.flip(tensor, _integers(axis)),
    "clip_by_value": lambda t, clip_value_min, clip_value_max: ops.clip(t, clip_value_min, clip_value_max),
    "resize_images_v2": _resize,
}
