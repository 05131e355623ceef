"""Keras operations that compute the same as TensorFlow functions, so that networks calling these are Keras models.

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
from numpy.typing import NDArray

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


def _dtype(dtype: Any) -> str:
    return str(tf.as_dtype(dtype).name)


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


def _reduce(function: Any) -> Any:
    def reduced(
        input_tensor: Any,
        axis: Any = None,
        keepdims: bool = False,
        reduction_indices: Any = None,
        keep_dims: bool = False,
    ) -> Any:
        over = _integers(reduction_indices if axis is None else axis)
        return function(
            input_tensor, axis=tuple(over) if isinstance(over, list) else over, keepdims=keepdims or keep_dims
        )

    return reduced


def _find(function: Any) -> Any:
    def found(input: Any, axis: int = 0, output_type: Any = tf.int64, dimension: int | None = None) -> Any:
        return ops.cast(function(input, axis=axis if dimension is None else dimension), _dtype(output_type))

    return found


def _pool(function: Any) -> Any:
    def pooled(ksize: Any, strides: Any, padding: str, input: Any = None, value: Any = None) -> Any:
        window, steps = _of_plane(ksize), _of_plane(strides)
        return function(value if input is None else input, window, steps, padding.lower(), "channels_last")

    return pooled


def _of_plane(sizes: Any) -> tuple[int, int]:
    """Return the height and width of a window, given as one number, as both, or as the sizes of all dimensions."""
    plane = _integers(sizes)
    if isinstance(plane, list) and len(plane) == 4 and plane[0] == plane[3] == 1:
        plane = plane[1:3]
    height, width = plane if isinstance(plane, list) else (plane, plane)
    return height, width


def _normalize_over_channels(
    input: Any, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5
) -> Any:
    edges = [[0, 0], [0, 0], [0, 0], [depth_radius, depth_radius]]
    channels = input.shape[3]
    squares = ops.pad(ops.square(input), edges)
    near = [squares[..., start : start + channels] for start in range(2 * depth_radius + 1)]
    return input / ops.power(bias + alpha * functools.reduce(ops.add, near), beta)


def _gather(
    params: Any, indices: Any, axis: Any = 0, batch_dims: int = 0, validate_indices: Any = None
) -> Any:
    if not batch_dims:
        return ops.take(params, indices, axis=axis)
    if batch_dims != 1 or axis not in (0, 1) or len(indices.shape) != 2:
        raise ValueError("unsupported batch dimensions")
    for size in params.shape[2:]:
        indices = ops.repeat(ops.expand_dims(indices, -1), size, axis=-1)
    return ops.take_along_axis(params, indices, axis=1)


def _split(value: Any, num_or_size_splits: Any, axis: int = 0) -> Any:
    sizes = _integers(num_or_size_splits)
    if not isinstance(sizes, list):
        return ops.split(value, sizes, axis)
    if -1 in sizes:
        raise ValueError("a size is unknown")
    return ops.split(value, np.cumsum(sizes)[:-1].tolist(), axis)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        raise TypeError("the number of results is unknown")
    return ops.where(condition, x, y)


def _one_hot(indices: Any, depth: Any, dtype: Any = tf.float32, axis: int = -1) -> Any:
    return ops.one_hot(indices, _integers(depth), axis=axis, dtype=_dtype(dtype))


def _l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, dim: Any = None) -> Any:
    over = dim if axis is None else axis
    length = ops.sum(ops.square(x), axis=over, keepdims=True)
    return x * ops.rsqrt(ops.maximum(length, epsilon))


def _matmul(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    left = ops.swapaxes(a, -1, -2) if transpose_a else a
    return ops.matmul(left, ops.swapaxes(b, -1, -2) if transpose_b else b)


def _resize(images: Any, size: Any, method: Any = "bilinear", antialias: bool = False) -> Any:
    return ops.image.resize(
        images, _integers(size), interpolation=str(method), antialias=antialias, data_format="channels_last"
    )


def _resize_as_before(
    images: Any, size: Any, method: Any = 0, align_corners: bool = False, preserve_aspect_ratio: bool = False
) -> Any:
    """Resize as TensorFlow 1 does, which samples the corners of pixels instead of their centers."""
    is_nearest = {0: False, "bilinear": False, 1: True, "nearest": True}.get(method)
    if is_nearest is None or preserve_aspect_ratio or None in images.shape[1:3]:
        raise ValueError("unsupported method or sizes")
    sizes = _integers(size)
    weights = [
        _sampling(before, after, is_nearest, align_corners)
        for before, after in zip(images.shape[1:3], sizes, strict=True)
    ]
    return ops.einsum("yh,xw,bhwc->byxc", *weights, images)


def _sampling(before: int, after: int, is_nearest: bool, align_corners: bool) -> NDArray[np.float32]:
    """Return the weights of the ``before`` pixels of a row in each of the ``after`` pixels, [after, before]."""
    is_aligned = align_corners and after > 1
    places = np.arange(after) * np.float32((before - 1) / (after - 1) if is_aligned else before / after)
    if is_nearest:
        places = np.minimum(np.floor(places + 0.5) if align_corners else np.floor(places), before - 1)
    low = np.minimum(np.floor(places), before - 1).astype(int)
    weights, rows = np.zeros((after, before), np.float32), np.arange(after)
    np.add.at(weights, (rows, low), 1 - (places - low))
    np.add.at(weights, (rows, np.minimum(low + 1, before - 1)), places - low)
    return weights


def _like(value: float) -> Any:
    def filled(tensor: Any = None, input: Any = None, dtype: Any = None) -> Any:
        like = input if tensor is None else tensor
        return ops.full_like(like, value, dtype=_dtype(dtype) if dtype is not None else None)

    return filled


# Functions of the tensors alone, in the same order.
_SIMPLE: dict[str, Any] = {
    **{
        name: getattr(ops, name)
        for name in (
            "relu relu6 elu selu silu softplus softsign sigmoid tanh exp log log1p sqrt rsqrt square abs floor ceil "
            "round sin cos sign erf reciprocal stop_gradient "
            "add subtract multiply divide maximum minimum equal not_equal greater greater_equal less less_equal "
            "logical_and logical_or logical_not"
        ).split()
    },
    "_add_dispatch": ops.add,  # the operator + of tensors
    "swish": ops.silu,
    "truediv": ops.true_divide,
    "real_div": ops.true_divide,
    "floordiv": ops.floor_divide,
    "floor_div": ops.floor_divide,
    "floormod": ops.mod,
    "floor_mod": ops.mod,
    "pow": ops.power,
    "neg": ops.negative,
    "negative": ops.negative,
    "div_no_nan": ops.divide_no_nan,
    "divide_no_nan": ops.divide_no_nan,
    "squared_difference": lambda x, y: ops.square(x - y),
    "add_n": lambda inputs: functools.reduce(ops.add, inputs),
    "identity": lambda input: input,
    "convert_to_tensor_v2_with_dispatch": lambda value: value,
    "convert_to_tensor_with_dispatch": lambda value: value,
}

_TRANSLATIONS: dict[str, Any] = {
    "leaky_relu": lambda features, alpha=0.2: ops.leaky_relu(features, alpha),
    "gelu": lambda features, approximate=False: ops.gelu(features, approximate),
    "softmax": lambda logits, axis=-1, dim=-1: ops.softmax(logits, dim if axis == -1 else axis),
    "log_softmax": lambda logits, axis=-1, dim=-1: ops.log_softmax(logits, dim if axis == -1 else axis),
    "l2_normalize": _l2_normalize,
    "lrn": _normalize_over_channels,
    "local_response_normalization": _normalize_over_channels,
    "max_pool2d": _pool(ops.max_pool),
    "max_pool": _pool(ops.max_pool),
    "avg_pool2d": _pool(ops.average_pool),
    "avg_pool": _pool(ops.average_pool),
    "reduce_sum": _reduce(ops.sum),
    "reduce_mean": _reduce(ops.mean),
    "reduce_max": _reduce(ops.max),
    "reduce_min": _reduce(ops.min),
    "reduce_prod": _reduce(ops.prod),
    "reduce_any": _reduce(ops.any),
    "reduce_all": _reduce(ops.all),
    "reduce_std": _reduce(ops.std),
    "reduce_variance": _reduce(ops.var),
    "reduce_logsumexp": _reduce(ops.logsumexp),
    "argmax": _find(ops.argmax),
    "argmin": _find(ops.argmin),
    "top_k": lambda input, k=1, sorted=True: ops.top_k(input, _integers(k), sorted),
    "shape": lambda input, out_type=None: ops.shape(input),
    "rank": lambda input: len(input.shape),
    "cast": lambda x, dtype: ops.cast(x, _dtype(dtype)),
    "reshape": _reshape,
    "transpose": lambda a, perm=None: ops.transpose(a, _integers(perm)),
    "expand_dims": lambda input, axis=None, dim=None: ops.expand_dims(input, dim if axis is None else axis),
    "squeeze": lambda input, axis=None, squeeze_dims=None: ops.squeeze(
        input, _integers(squeeze_dims if axis is None else axis)
    ),
    "concat": lambda values, axis: ops.concatenate(values, axis),
    "stack": lambda values, axis=0: ops.stack(values, axis),
    "unstack": lambda value, num=None, axis=0: ops.unstack(value, num, axis),
    "split": _split,
    "pad": lambda tensor, paddings, mode="CONSTANT", constant_values=None: ops.pad(
        tensor, _integers(paddings), mode.lower(), constant_values
    ),
    "tile": lambda input, multiples: ops.tile(input, _integers(multiples)),
    "repeat": lambda input, repeats, axis=None: ops.repeat(input, _integers(repeats), axis),
    "reverse": lambda tensor, axis: ops.flip(tensor, _integers(axis)),
    "gather": _gather,
    "where": _where,
    "one_hot": _one_hot,
    "clip_by_value": lambda t, clip_value_min, clip_value_max: ops.clip(t, clip_value_min, clip_value_max),
    "ensure_shape": lambda x, shape: x,
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "matmul": _matmul,
    "einsum": lambda equation, inputs: ops.einsum(equation, *inputs),
    "resize_images_v2": _resize,
    "resize_images": _resize_as_before,
}
