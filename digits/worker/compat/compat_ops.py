"""Functions of TensorFlow 1 that were removed or changed their meaning.

Before TensorFlow 1.0, some functions took their arguments in a different order (``tf.concat(axis, values)``); the
types of the arguments show which one is meant. Functions that change TensorFlow's global behavior do nothing here:
a network is not the program.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import rnn_cell

from digits.core.network.tensor_expressions import IS_IN, VALUE
from digits.worker import patched_names, user_text
from digits.worker.failure import UserFault
from digits.worker.network import summaries, tower

v1 = tf.compat.v1


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or (
        isinstance(value, tf.Tensor) and value.dtype.is_integer and value.shape.rank == 0
    )


def concat(values: Any = None, axis: Any = None, name: str = "concat", concat_dim: Any = None) -> Any:
    """Implement ``tf.concat(values, axis)`` and, from before 1.0, ``tf.concat(axis, values)``."""
    axis = concat_dim if axis is None else axis
    if _is_number(values) and isinstance(axis, (list, tuple, tf.Tensor)):
        values, axis = axis, values
    return tf.concat(values, axis, name=name)


def split(
    value: Any = None,
    num_or_size_splits: Any = None,
    axis: Any = 0,
    num: Any = None,
    name: str = "split",
    split_dim: Any = None,
    num_split: Any = None,
) -> Any:
    """Implement ``tf.split(value, n, axis)`` and, from before 1.0, ``tf.split(axis, n, value)``."""
    if split_dim is not None:
        # Keyword arguments work in any order: split(value=x, split_dim=0, num_split=2).
        value, axis = (axis if value is None else value), split_dim
    elif _is_number(value) and isinstance(axis, (tf.Tensor, tf.Variable, list)):
        value, axis = axis, value
    sizes = num_split if num_or_size_splits is None else num_or_size_splits
    return tf.split(value, sizes, axis, num, name)


def _labels_first(function: Callable[..., Any], labels_type: str) -> Callable[..., Any]:
    """Accept positional (logits, labels), the order before 1.0; later versions require keywords."""

    def cross_entropy(*args: Any, labels: Any = None, logits: Any = None, **kwargs: Any) -> Any:
        kwargs.pop("_sentinel", None)
        given = [item for item in args if item is not None]
        if logits is None and given:
            logits = given.pop(0)
        if labels is None and given:
            labels = given.pop(0)
        if given:
            raise TypeError("after logits and labels, arguments are passed by keyword")
        if labels_type == "sparse" and not tf.convert_to_tensor(labels).dtype.is_integer:
            labels, logits = (
                (logits, labels) if tf.convert_to_tensor(logits).dtype.is_integer else (labels, logits)
            )
        return function(labels=labels, logits=logits, **kwargs)

    return cross_entropy


def reverse(tensor: Any, axis: Any = None, name: Any = None, dims: Any = None) -> Any:
    """Implement ``tf.reverse(x, axes)`` and, from before 1.0, one with a bool per axis."""
    axis = dims if axis is None else axis
    if isinstance(axis, (list, tuple)) and axis and all(isinstance(item, bool) for item in axis):
        axis = [number for number, wanted in enumerate(axis) if wanted]
    return tf.reverse(tensor, axis, name)


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: int = 100, dtype: Any = tf.int32, name: Any = None
) -> Any:
    """Compute the histogram of ``values``; also accept float dtypes, which TensorFlow 2 rejects."""
    return tf.cast(v1.histogram_fixed_width(values, value_range, nbins, tf.int32, name), dtype)


def resize_images(images: Any, size: Any, *args: Any, **kwargs: Any) -> Any:
    """Implement ``tf.image.resize_images(x, [h, w])`` and, from before 1.0, one with ``(x, h, w)``."""
    if _is_number(size):
        size, args = [size, args[0]], args[1:]
    return v1.image.resize_images(images, size, *args, **kwargs)


# The methods that TensorFlow 1 numbered.
_RESIZE_METHODS = ("bilinear", "nearest", "bicubic", "area")


def resize(images: Any, size: Any, method: Any = "bilinear", *args: Any, **kwargs: Any) -> Any:
    """Implement ``tf.image.resize`` of TensorFlow 2; that of TensorFlow 1 when ``align_corners`` is
    passed.
    """
    if "align_corners" in kwargs:
        return v1.image.resize(images, size, method, *args, **kwargs)
    if isinstance(method, int):
        method = _RESIZE_METHODS[method]
    return tf.image.resize(images, size, method, *args, **kwargs)


def _prefer_v1(module: str, name: str) -> Callable[..., Any]:
    """Return a function of TensorFlow 1 that falls back to TensorFlow 2 for keyword arguments it does not
    have.
    """
    old, new = (operator.attrgetter(f"{module}{name}")(tensorflow) for tensorflow in (v1, tf))
    known = inspect.signature(old).parameters.keys()

    @functools.wraps(old)
    def function(*args: Any, **kwargs: Any) -> Any:
        return (old if kwargs.keys() <= known else new)(*args, **kwargs)

    return function


def device(name: Any = None) -> Any:
    """Implement ``tf.device`` for networks: honor the CPU; DIGITS chooses among GPUs.

    GPUs other than the first are used if they exist. Device functions and job names of clusters are ignored.
    """
    words = name.lower() if isinstance(name, str) else ""
    if "cpu:" in words or words.endswith("cpu"):
        return tf.device("/CPU:0")
    number = re.search(r"gpu:(\d+)", words)
    if number and 0 < int(number.group(1)) < len(tf.config.list_logical_devices("GPU")):
        return tf.device(f"/GPU:{number.group(1)}")
    return contextlib.nullcontext()


def global_step(graph: Any = None) -> Any:
    """Return the number of the training step, an int64 tensor; the trainer updates it."""
    return tower.global_step()


class ExponentialMovingAverage:
    """Moving averages of variables and tensors, stored in non-trainable variables.

    The average of ``x`` is named ``<name of x>/<name>``. It starts at the value of a variable, and at zero for a
    tensor. See https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/ExponentialMovingAverage.
    """

    def __init__(
        self, decay: Any, num_updates: Any = None, *, name: str = "ExponentialMovingAverage"
    ) -> None:
        self._decay, self._updates, self._name = decay, num_updates, name
        self._averages: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return self._name

    def apply(self, var_list: Any = None) -> Any:
        """Return an operation that updates the averages."""
        values = list(v1.trainable_variables() if var_list is None else var_list)
        decay = self._decay
        if self._updates is not None:
            updates = tf.cast(self._updates, tf.float32)
            decay = tf.minimum(tf.cast(decay, tf.float32), (1.0 + updates) / (10.0 + updates))
        moves = []
        for value in values:
            average = self.average(value)
            rate = 1 - tf.cast(decay, average.dtype)
            moves.append(average.assign_sub((average - tf.cast(value, average.dtype)) * rate))
        return tf.group(*moves)

    def average(self, var: Any) -> Any:
        """Return the variable that stores the average of ``var``."""
        name = self.average_name(var)
        if name not in self._averages:
            with v1.variable_scope(
                v1.VariableScope(reuse=v1.AUTO_REUSE, name=""), auxiliary_name_scope=False
            ):
                self._averages[name] = v1.get_variable(
                    name,
                    var.shape,
                    var.dtype.base_dtype,
                    initializer=_initial_value(var),
                    trainable=False,
                    collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.MOVING_AVERAGE_VARIABLES],
                )
        return self._averages[name]

    def average_name(self, var: Any) -> str:
        return f"{var.op.name}/{self._name}"


def _initial_value(var: Any) -> Any:
    def value(shape: Any, dtype: Any = tf.float32, **kwargs: Any) -> Any:
        if isinstance(var, tf.Variable) and tf.executing_eagerly():
            return var.read_value()
        return tf.zeros(shape, dtype)

    return value


_Session: Any = v1.Session


class Session(_Session):
    """A session that evaluates only tensors that do not depend on the network's input."""

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        if isinstance(fetches, tf.Operation) and fetches.type == "NoOp":
            return None
        try:
            return super().run(fetches, feed_dict, options, run_metadata)
        except (ValueError, TypeError, RuntimeError, tf.errors.OpError) as error:
            raise UserFault(
                "tf.Session cannot run this while the network is being built.",
                "DIGITS runs the network: compute the output in inference and the loss in loss, without a session.",
            ) from error


class InteractiveSession(Session):
    """A session that does not install itself as the default."""


class _VariableType(type):
    """Creates variables with the arguments of TensorFlow 1; every variable is an instance."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return v1.Variable(*args, **kwargs)

    def __instancecheck__(cls, item: Any) -> bool:
        return isinstance(item, tf.Variable)

    def __getattr__(cls, name: str) -> Any:
        return getattr(v1.Variable, name)


class Variable(metaclass=_VariableType):
    """``tf.Variable``."""


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    """Ignore a global setting, which a network must not change."""


def _initializer(*args: Any, **kwargs: Any) -> Any:
    return tf.no_op(name="init")


def old_summaries() -> dict[str, Any]:
    """Return the summary functions of versions before 1.0."""
    functions = summaries.SummaryFunctions()

    def scalar_summary(tags: Any, values: Any, collections: Any = None) -> Any:
        return functions.scalar(tags, values, collections)

    def histogram_summary(tag: Any, values: Any, collections: Any = None) -> Any:
        return functions.histogram(tag, values, collections)

    def image_summary(tag: Any, tensor: Any, max_images: int = 3, collections: Any = None) -> Any:
        return functions.image(tag, tensor, max_images, collections)

    return {
        "scalar_summary": scalar_summary,
        "histogram_summary": histogram_summary,
        "image_summary": image_summary,
        "merge_summary": functions.merge,
        "merge_all_summaries": functions.merge_all,
    }


def top() -> dict[str, Any]:
    """Return the names in ``tf`` that replace TensorFlow's."""
    aliases = {
        "pack": tf.stack,
        "unpack": tf.unstack,
        "mul": tf.multiply,
        "sub": tf.subtract,
        "neg": tf.negative,
        "select": v1.where,
    }
    switches = (
        "disable_v2_behavior enable_v2_behavior disable_eager_execution enable_eager_execution "
        "disable_v2_tensorshape enable_v2_tensorshape disable_resource_variables enable_resource_variables "
        "disable_control_flow_v2 enable_control_flow_v2 disable_tensor_equality enable_tensor_equality "
        "reset_default_graph"
    ).split()
    initializers = (
        "global_variables_initializer initialize_all_variables variables_initializer initialize_variables "
        "local_variables_initializer initialize_local_variables tables_initializer initialize_all_tables"
    ).split()
    return {
        **aliases,
        **dict.fromkeys(switches, _do_nothing),
        **dict.fromkeys(initializers, _initializer),
        "concat": concat,
        "split": split,
        "reverse": reverse,
        "histogram_fixed_width": histogram_fixed_width,
        "device": device,
        "zeros_like": _prefer_v1("", "zeros_like"),
        "ones_like": _prefer_v1("", "ones_like"),
        "Session": Session,
        "InteractiveSession": InteractiveSession,
        "Variable": Variable,
        **old_summaries(),
        "function": tf.function,
    }


def nn() -> dict[str, Any]:
    """Return the names in ``tf.nn`` that replace TensorFlow's."""
    return {
        "dilation2d": _prefer_v1("nn.", "dilation2d"),
        "rnn": v1.nn.static_rnn,
        "bidirectional_rnn": v1.nn.static_bidirectional_rnn,
        "softmax_cross_entropy_with_logits": _labels_first(v1.nn.softmax_cross_entropy_with_logits, "dense"),
        "sigmoid_cross_entropy_with_logits": _labels_first(v1.nn.sigmoid_cross_entropy_with_logits, "dense"),
        "sparse_softmax_cross_entropy_with_logits": _labels_first(
            v1.nn.sparse_softmax_cross_entropy_with_logits, "sparse"
        ),
    }


def train() -> dict[str, Any]:
    """Return the names in ``tf.train`` that replace TensorFlow's."""
    return {
        "get_or_create_global_step": global_step,
        "get_global_step": global_step,
        "create_global_step": global_step,
        "ExponentialMovingAverage": ExponentialMovingAverage,
        "SummaryWriter": summaries.SummaryFunctions.FileWriter,
    }


def image() -> dict[str, Any]:
    """Return the names in ``tf.image`` that replace TensorFlow's."""
    return {
        "resize_image_with_crop_or_pad": tf.image.resize_with_crop_or_pad,
        "resize_images": resize_images,
        "resize": resize,
        "ResizeMethod": tf.image.ResizeMethod,  # a superset of the old one
    }


_CELLS = ("BasicRNNCell", "GRUCell", "BasicLSTMCell", "LSTMCell")
_OTHERS = ("DeviceWrapper", "DropoutWrapper", "LSTMStateTuple", "RNNCell", "ResidualWrapper")


def rnn_cells() -> dict[str, Any]:
    """Return the cells and their wrappers by name."""
    cells = {name: _check_units(getattr(rnn_cell, name)) for name in _CELLS}
    return cells | {name: getattr(rnn_cell, name) for name in _OTHERS} | {"MultiRNNCell": MultiRNNCell}


@functools.cache
def _check_units(cell: Any) -> Any:
    """Let the constructor of ``cell`` check the number of units, which TensorFlow does when the cell is called."""

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        units: Any = args[0] if args else kwargs.get("num_units")
        try:
            is_valid = int(units) == units and units > 0
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise ValueError(f"num_units of {cell.__name__} must be a positive integer, not {units!r}")
        cell.__init__(self, *args, **kwargs)

    return type(cell.__name__, (cell,), {"__init__": initialize})


class MultiRNNCell(rnn_cell.MultiRNNCell):
    """Cells on top of each other. Errors of one that is used several times name the line that creates this."""

    def __init__(self, cells: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cells, *args, **kwargs)
        self._line = user_text.running_line()

    def call(self, inputs: Any, state: Any) -> Any:
        try:
            return super().call(inputs, state)
        except ValueError as error:
            if len({id(cell) for cell in self._cells}) == len(self._cells):
                raise
            raise UserFault(
                "MultiRNNCell contains a cell several times, which shares its weights, but the inputs of the layers "
                "have different sizes.",
                "Make one cell for each layer: MultiRNNCell([LSTMCell(units) for layer in range(layers)]).",
                self._line,
            ) from error


def make_tensors_hashable() -> None:
    """Make graph tensors hashable, for dict keys such as ``{placeholder: value}`` and sets.

    TensorFlow forbids it because ``==`` compares tensors element-wise; dicts compare identity first.
    """
    patched_names.install(ops.SymbolicTensor, "__hash__", object.__hash__)


def expressions() -> dict[str, Any]:
    """Return the functions that rewritten text calls, and ``xrange``, which is common in old networks."""
    return {VALUE: _value, IS_IN: _is_in, "xrange": range}


def _value(owner: Any) -> Any:
    if owner is None or (
        isinstance(owner, int) and not isinstance(owner, bool) and not hasattr(owner, "value")
    ):
        return owner
    return owner.value


def _is_in(item: Any, container: Any) -> Any:
    if not isinstance(container, (list, tuple)) or not any(map(_is_tensor, (item, *container))):
        return item in container
    if not _is_tensor(item):
        return any(other == item for other in container if not _is_tensor(other))
    return any(other is item for other in container)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (tf.Tensor, tf.Variable))
