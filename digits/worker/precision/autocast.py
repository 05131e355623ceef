"""Automatic casts of mixed float32 and half-precision inputs while a network is built.

A network that computes in half precision also creates float32 tensors: constants, random numbers, states of
recurrent cells, explicit casts. TensorFlow rejects operations whose inputs differ in dtype. Inside `casting`, all
inputs of such an operation are cast to `autocast_variable.compute_type`: the half-precision dtype in ``inference``,
float32 in ``loss``. Operations without a half-precision kernel compute in float32. Operations whose inputs have the
same dtype are unchanged: an explicit cast to float32 remains effective until the result meets a half-precision
tensor.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow.core import Variable as KerasVariable
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels, op_def_library, op_def_registry
from tensorflow.python.framework.tensor import Tensor
from tensorflow.python.ops import (
    array_ops,
    check_ops,
    cond_v2,
    math_ops,
    nn_ops,
    resource_variable_ops,
    rnn,
    tensor_array_ops,
    while_v2,
)

from digits.worker import build_context
from digits.worker.patched_names import replace
from digits.worker.precision import autocast_variable
from digits.worker.precision.autocast_variable import AutocastVariable

FLOATS = (tf.float32, *autocast_variable.LOW)


@contextmanager
def casting(dtype: tf.DType) -> Iterator[None]:
    """Cast the inputs of operations built inside that mix float32 and ``dtype``."""
    if dtype == tf.float32:
        yield
        return
    with build_context.extend(compute_dtype=dtype), ExitStack() as stack:
        for owner, name, around in _REPLACED:
            stack.enter_context(replace(owner, name, _wrap_low(getattr(owner, name), around)))
        yield


def _wrap_low(function: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function`` in ``around``, which receives it as first argument, for builds in half precision."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not autocast_variable.is_low() or tf.executing_eagerly():
            return function(*args, **kwargs)
        return around(function, *args, **kwargs)

    return called


def match_dtypes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function`` to receive tensors of the same dtype in builds with half precision."""
    return _wrap_low(function, _match_dtypes)


def cast(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Cast a tensor, variable or array to ``dtype``; values beyond the range of float16 are clipped."""
    if isinstance(value, AutocastVariable | np.ndarray | np.generic):
        return tf.convert_to_tensor(value, dtype)
    value = tf.convert_to_tensor(value)
    # A mask of -1e9 must not become -inf: 0 · inf is NaN.
    is_narrower = dtype == tf.float16 and value.dtype == tf.float32
    return tf.saturate_cast(value, dtype) if is_narrower else tf.cast(value, dtype)


# Operations


def _operation(build: Callable[..., Any], op_type: str, name: Any = None, **given: Any) -> Any:
    definition = op_def_registry.get(op_type)
    if definition is None or op_type == "Cast":
        return build(op_type, name, **given)
    computed_in_full = _cast_inputs(definition, given)
    structure, is_stateful, operation, outputs = build(op_type, name, **given)
    if computed_in_full and len(outputs) == len(definition.output_arg):
        wanted = [computed_in_full.get(argument.type_attr) for argument in definition.output_arg]
        outputs = [
            tf.cast(output, dtype or output.dtype) for output, dtype in zip(outputs, wanted, strict=True)
        ]
    return structure, is_stateful, operation, outputs


def _cast_inputs(definition: Any, given: dict[str, Any]) -> dict[str, tf.DType]:
    """Cast all inputs that share a type attribute to one dtype.

    Returns the dtypes of attributes without a half-precision kernel, whose inputs are float32 now.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for argument in definition.input_arg:
        key = argument.name if argument.name in given else f"{argument.name}_"
        if argument.type_attr and not argument.is_ref:
            groups[argument.type_attr].append(key)
        elif argument.type == types_pb2.DT_FLOAT:
            _cast_each(given, [key], tf.float32)
    computed_in_full = {}
    for attribute, keys in groups.items():
        wanted = _common_dtype([value for key in keys for value in _flatten(given.get(key))])
        wanted = wanted and (_dtype_of_variable(definition, given) or wanted)
        if wanted in autocast_variable.LOW:
            if not _is_allowed(definition, attribute, wanted):
                wanted = tf.float32
            elif not _has_kernel(definition.name, attribute, wanted):
                computed_in_full[attribute], wanted = wanted, tf.float32
        if wanted:
            _cast_each(given, keys, wanted)
    return computed_in_full


def _common_dtype(values: Sequence[Any]) -> tf.DType | None:
    """Return the dtype in which an operation computes ``values``; None if none is floating-point."""
    types = {_dtype(value) for value in values if not isinstance(value, AutocastVariable)}
    types &= {*FLOATS}
    types = types or {value.dtype for value in values if isinstance(value, AutocastVariable)}
    return autocast_variable.compute_type() if len(types) > 1 else next(iter(types), None)


def _dtype(value: Any) -> tf.DType | None:
    """Return the dtype of a tensor or variable; other values adopt that of the tensors they meet."""
    if isinstance(value, tf.Tensor | tf.Variable):
        return value.dtype.base_dtype
    return tf.as_dtype(value.dtype) if isinstance(value, KerasVariable) else None


def _dtype_of_variable(definition: Any, given: dict[str, Any]) -> tf.DType | None:
    """Return the dtype of the variable that an operation modifies."""
    for argument in definition.input_arg:
        if argument.type == types_pb2.DT_RESOURCE:
            data = resource_variable_ops.get_eager_safe_handle_data(given[argument.name])
            if data is not None and len(data.shape_and_type) == 1:
                dtype = tf.as_dtype(data.shape_and_type[0].dtype)
                return dtype if dtype in FLOATS else None
    return None


def _cast_each(given: dict[str, Any], keys: Sequence[str], dtype: tf.DType) -> None:
    for key in keys:
        value = given.get(key)
        if isinstance(value, list | tuple):
            given[key] = [_as(item, dtype) for item in value]
        elif value is not None:
            given[key] = _as(value, dtype)


def _as(value: Any, dtype: tf.DType) -> Any:
    is_array = isinstance(value, np.ndarray | np.generic) and value.dtype == np.float32
    is_other = isinstance(value, AutocastVariable) or (_dtype(value) in FLOATS and _dtype(value) != dtype)
    return cast(value, dtype) if is_array or is_other else value


def _flatten(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _is_allowed(definition: Any, attribute: str, dtype: tf.DType) -> bool:
    allowed = next(item for item in definition.attr if item.name == attribute).allowed_values.list.type
    return not allowed or dtype.as_datatype_enum in allowed


def _has_kernel(op_type: str, attribute: str, dtype: tf.DType) -> bool:
    devices = ("GPU", "CPU") if tf.config.list_logical_devices("GPU") else ("CPU",)
    return _has_kernel_on(devices, op_type, attribute, dtype)


@functools.cache
def _has_kernel_on(devices: tuple[str, ...], op_type: str, attribute: str, dtype: tf.DType) -> bool:
    """Return whether the first of ``devices`` with a float32 kernel also has one for ``dtype``."""
    known = [item for item in kernels.get_registered_kernels_for_op(op_type).kernel if not item.label]
    for device in devices:
        types: set[int] = set()
        for kernel in known:
            if kernel.device_type in (device, "DEFAULT"):
                limits = [item for item in kernel.constraint if item.name == attribute]
                if not limits:
                    return True
                types.update(limits[0].allowed_values.list.type)
        if types_pb2.DT_FLOAT in types:
            return dtype.as_datatype_enum in types
    return True


# Functions that compare dtypes before an operation is created


def _conversion(convert: Callable[..., Any], value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Convert a tensor, or read a plain variable such as one of a Keras layer, with the requested dtype."""
    if dtype is not None and dtype != value.dtype and {dtype, value.dtype} <= {*FLOATS}:
        return cast(convert(value, None, *args, **kwargs), dtype)
    return convert(value, dtype, *args, **kwargs)


def _assignment(assign: Callable[..., Any], variable: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    return assign(
        variable,
        autocast_variable.in_float32(value) if variable.dtype == tf.float32 else value,
        *args,
        **kwargs,
    )


def _match_dtypes(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``function`` with tensors of the same dtype."""
    flat = tf.nest.flatten((args, kwargs))
    wanted = _common_dtype(flat)
    if wanted is not None:
        flat = [_as(value, wanted) for value in flat]
    args, kwargs = tf.nest.pack_sequence_as((args, kwargs), flat)
    return function(*args, **kwargs)


def _dropout(function: Callable[..., Any], x: Any, rate: Any, *args: Any, **kwargs: Any) -> Any:
    x = tf.convert_to_tensor(x)
    return function(x, _as(rate, x.dtype), *args, **kwargs)


def _pack(function: Callable[..., Any], values: Any, dtype: tf.DType, name: Any) -> Any:
    """Pack a nested list whose first tensor has ``dtype``."""
    wanted = _common_dtype(tf.nest.flatten(values))
    if wanted is not None:
        values, dtype = tf.nest.map_structure(lambda value: _as(value, wanted), values), wanted
    return function(values, dtype, name)


def _store(method: Callable[..., Any], array: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a method of a TensorArray with values of its dtype."""
    if array.dtype in FLOATS:
        args, kwargs = tf.nest.map_structure(lambda value: _as(value, array.dtype), (args, kwargs))
    return method(array, *args, **kwargs)


def _branches(check: Callable[..., None], op_type: Any, graphs: Sequence[Any]) -> None:
    for number, outputs in enumerate(zip(*(graph.outputs for graph in graphs), strict=False)):
        wanted = _common_dtype(outputs)
        for graph in graphs:
            _cast_output(graph, number, wanted)
    check(op_type, graphs)


def _loop(check: Callable[..., None], body: Any, variables: Any) -> None:
    for number, entered in enumerate(body.inputs[: len(body.outputs)]):
        _cast_output(body, number, entered.dtype)
    check(body, variables)


def _cast_output(graph: Any, number: int, dtype: tf.DType | None) -> None:
    output = graph.outputs[number]
    if dtype in FLOATS and output.dtype in FLOATS and output.dtype != dtype:
        with graph.as_default():
            graph.outputs[number] = cast(output, dtype)
        flat = tf.nest.flatten(graph.structured_outputs, expand_composites=True)
        places = [index for index, item in enumerate(flat) if item is not None]
        flat[places[number]] = graph.outputs[number]
        graph.structured_outputs = tf.nest.pack_sequence_as(
            graph.structured_outputs, flat, expand_composites=True
        )


def _skip_check(check: Callable[..., Any], *args: Any) -> Any:
    """Skip a comparison of dtypes: the operations that follow cast."""
    types = {getattr(item, "dtype", item) for item in tf.nest.flatten(args) if _is_typed(item)}
    return autocast_variable.compute_type() if len(types) > 1 and types <= {*FLOATS} else check(*args)


def _is_typed(item: Any) -> bool:
    return isinstance(item, tf.DType) or _dtype(item) is not None


def _state_type(infer: Callable[..., Any], explicit: Any, state: Any) -> Any:
    return infer(explicit or _common_dtype(tf.nest.flatten(state)), state)


# Owner, name, and the wrapper.
_REPLACED: list[tuple[Any, str, Callable[..., Any]]] = [
    (op_def_library, "_apply_op_helper", _operation),
    (Tensor, "__tf_tensor__", _conversion),
    (resource_variable_ops.BaseResourceVariable, "_dense_var_to_tensor", _conversion),
    *(
        (resource_variable_ops.ResourceVariable, name, _assignment)
        for name in ("assign", "assign_add", "assign_sub")
    ),
    (math_ops, "_truediv_python3", _match_dtypes),
    (math_ops, "_div_python2", _match_dtypes),
    (
        math_ops,
        "matmul",
        _match_dtypes,
    ),  # would create an operation without GPU kernel from bfloat16 and float32
    (nn_ops, "_dropout", _dropout),
    (array_ops, "_autopacking_helper", _pack),
    *((tensor_array_ops.TensorArray, name, _store) for name in ("write", "unstack", "scatter", "split")),
    (cond_v2, "_check_same_outputs", _branches),
    (while_v2, "_check_inputs_outputs_types_match", _loop),
    (check_ops, "_assert_same_base_type", _skip_check),
    (rnn, "_infer_state_dtype", _state_type),
]
