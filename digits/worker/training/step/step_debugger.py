"""Runs a step operation by operation: while the network is built, its tensors have values.

The network is built in a graph as usual, so that networks for TensorFlow 1 can be debugged like others. Each
operation is also executed immediately on the values of its inputs. So ``print(net)`` and ``net.numpy()`` show
numbers, breakpoints can inspect them, and if the loss or a weight becomes NaN or infinite, the error names the
first operation that returned such a value and its line.

Tensors inside a loop, branch or function of the network represent many values and have none; the loop, branch or
function is executed as one operation.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import func_graph, op_callbacks, ops
from tensorflow.python.framework.tensor import Tensor

from digits.worker.failure import UserFault
from digits.worker.input.preparation import Chunk
from digits.worker.network import layer_table
from digits.worker.network.variables import VariableStore
from digits.worker.patched_names import replace
from digits.worker.training.step import numerics, step_function
from digits.worker.training.step.training_step import BuiltStep, Traced, TrainingStep

MAX_CHARACTERS = 20_000
# Larger tensors show their first and last values.
SHOWN_NUMBERS = 64


@dataclass(frozen=True)
class Step:
    """The output of a step: its ``metrics``, a row for each layer, and what the network ``printed``.

    A row contains ``name``, ``shape`` and statistics of the layer's output: ``min``, ``mean``, ``max``, the
    standard deviation ``std``, and ``zero_fraction``.
    """

    traced: Traced
    metrics: dict[str, float]
    layers: list[dict[str, Any]]
    printed: str


def take(step: TrainingStep, store: VariableStore, chunk: Chunk, rate: float, number: int) -> Step:
    """Run ``step`` after ``number`` steps on a ``chunk`` of one batch; the weights are updated as usual.

    Raises UserFault if the loss or a weight is NaN or infinite afterwards, or whatever the network raises.
    """
    with _captured_output() as captured:
        built, values = _executed_step(step, chunk, rate, number)
    row = values.of(built.row).numpy().tolist()
    # NaN is harmless behind `tf.where` or in a chart.
    if values.fault and not _are_numbers([row[0], *store.variables.values()]):
        raise values.fault
    outputs = layer_table.activations(values.graph, built.network, store.variables.values())
    layers = [_numbers(name, values.of(output).numpy()) for name, output in outputs.items()]
    metrics = step.network.summarize(dict(zip(built.traced.names, row, strict=True)))
    return Step(built.traced, metrics, layers, captured.text)


def make_variables(step: TrainingStep, chunk: Chunk) -> Traced:
    """Make the network create all of its variables, as the first training step would."""
    return _executed_step(step, chunk, 0.0, 0, changes_weights=False)[0].traced


def _executed_step(
    step: TrainingStep, chunk: Chunk, rate: float, number: int, changes_weights: bool = True
) -> tuple[BuiltStep, Values]:
    values = Values(func_graph.FuncGraph("step"), number + 1, rate)
    arguments = (*chunk, tf.constant([rate], tf.float32), tf.constant(number, tf.int64))
    with values.graph.as_default(), values.computed():
        given = map(values.given, step_function.signature(step), arguments)
        built = step_function.build_extended(step, *given, changes_weights=changes_weights)
        values.compute_the_rest()
    return built, values


class Values:
    """The values of the tensors of ``graph``, computed while it is being built."""

    def __init__(self, graph: Any, step: int, rate: float) -> None:
        self.graph, self._step, self._rate = graph, step, rate
        self._values: dict[str, Any] = {}  # by tensor name
        self._done: set[str] = set()  # operation names
        self.fault: UserFault | None = None  # the first operation that returned NaN or infinity

    def given(self, spec: tf.TensorSpec, value: Any) -> Tensor:
        """Return a new input of the graph with ``value``."""
        tensor = tf.compat.v1.placeholder(spec.dtype, spec.shape)
        self._values[tensor.name] = value
        return tensor

    def of(self, tensor: Tensor) -> Any:
        """Return the value of a tensor of the graph."""
        if tensor.name not in self._values:
            if tensor.op.type == "Placeholder":  # a variable, for example
                self._values.update((inner.name, outer) for outer, inner in self.graph.captures)
                if tensor.name not in self._values:
                    raise UserFault(
                        f"Nothing feeds the placeholder {tensor.op.name!r}.",
                        "Take self.x, self.y or self.is_training, or give it a value by tf.placeholder_with_default.",
                    )
            else:
                # Added to the graph without a callback, or a loop or function that received further outputs for its
                # gradient: compute it again.
                self._done.discard(tensor.op.name)
                self._compute(tensor.op)
        return self._values[tensor.name]

    def has(self, tensor: Tensor) -> bool:
        return tensor.graph is self.graph

    @contextlib.contextmanager
    def computed(self) -> Iterator[None]:
        """Compute everything that is built inside."""
        create = self.graph._create_op_internal

        def created(op_type: str, *args: Any, **kwargs: Any) -> Any:
            operation = create(op_type, *args, **kwargs)
            if op_type in ("PartitionedCall", "StatefulPartitionedCall"):
                self._compute(operation)  # callbacks do not report calls, which may modify a variable
            return operation

        op_callbacks.add_op_callback(self._built)
        self.graph._create_op_internal = created
        try:
            with _showing_values(self):
                yield
        finally:
            op_callbacks.remove_op_callback(self._built)
            del self.graph._create_op_internal

    def compute_the_rest(self) -> None:
        """Compute operations that were added to the graph without a callback."""
        for operation in self.graph.get_operations():
            self._compute(operation)

    def _built(
        self,
        op_type: str,
        inputs: Any,
        attrs: Any,
        outputs: Any,
        op_name: str | None = None,
        graph: Any = None,
    ) -> None:
        if graph is self.graph:
            named = outputs[0].op if outputs else graph.get_operation_by_name(str(op_name).rstrip("/"))
            self._compute(named)

    def _compute(self, operation: Any) -> None:
        if operation.type == "Placeholder" or operation.name in self._done:
            return
        self._done.add(operation.name)
        inputs = [self.of(tensor) for tensor in operation.inputs]
        with tf.init_scope(), tf.device(operation.device or None):
            values = _executed(operation, inputs)
            self._values.update(
                (tensor.name, value) for tensor, value in zip(operation.outputs, values, strict=True)
            )
            if self.fault is None and not numerics.is_unchecked(operation.type):
                self._check(operation, inputs, values)

    def _check(self, operation: Any, inputs: list[Any], outputs: Sequence[Any]) -> None:
        for output in outputs[: numerics.checked_outputs(operation.type)]:
            if not output.dtype.is_floating or tf.reduce_all(tf.math.is_finite(output)):
                continue
            value = "NaN" if tf.reduce_any(tf.math.is_nan(output)) else "Inf"
            given = ", ".join(_range(value.numpy()) for value in inputs if value.dtype.is_floating)
            self.fault = numerics.fault(
                operation.type,
                operation.name,
                numerics.line_of(operation.name, self.graph),
                value,
                self._step,
                self._rate,
                f"Its inputs were {given}." if given else "",
            )
            return


def _are_numbers(values: list[Any]) -> bool:
    tensors = (tf.convert_to_tensor(value) for value in values)
    return all(bool(tf.reduce_all(tf.math.is_finite(item))) for item in tensors if item.dtype.is_floating)


def _executed(operation: Any, inputs: list[Any]) -> Sequence[Any]:
    """Execute ``operation`` on the values ``inputs``."""
    if operation.type == "Const":
        return [tf.constant(tf.make_ndarray(operation.get_attr("value")), operation.get_attr("dtype"))]
    if operation.type == "PrintV2":  # tf.print, which would bypass Python's streams
        text = inputs[0].numpy() + operation.get_attr("end")
        sys.stdout.write(text.decode(errors="replace"))
        return []
    try:
        # Not `execute.execute`, which calls the callbacks.
        return execute.quick_execute(
            operation.type.encode(),
            len(operation.outputs),
            inputs,
            tuple(part for name in operation.op_def.attr for part in _attribute(operation, name.name)),
            context.context(),
        )
    except tf.errors.FailedPreconditionError:
        return _executed_in_a_graph(operation, inputs)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
        # Custom gradients of Defun, and layouts that TensorFlow replaces in a graph.
        if not isinstance(error, tf.errors.NotFoundError) and "only supports NHWC" not in error.message:
            raise
        raise UserFault(
            f"{operation.name} ({operation.type}) cannot be executed on its own.",
            "Training can run it: turn off “Run eagerly” and check the network again.",
            numerics.line_of(operation.name, operation.graph) or None,
        ) from error


def _executed_in_a_graph(operation: Any, inputs: list[Any]) -> Sequence[Any]:
    """Replace features that exist only in graphs, such as the Switch operations of TensorFlow 1 in a loop."""

    def built(*values: tf.Tensor) -> list[tf.Tensor]:
        graph = tf.compat.v1.get_default_graph()
        types = [output.dtype for output in operation.outputs]
        attributes = dict(operation.node_def.attr)
        return list(graph._create_op_internal(operation.type, values, types, attrs=attributes).outputs)

    outputs: Sequence[Any] = tf.function(built, autograph=False)(*inputs)
    return outputs


def _attribute(operation: Any, name: str) -> tuple[str, Any]:
    value = operation.node_def.attr[name]
    field = value.WhichOneof("value")
    if field == "list":
        filled = [items for _, items in value.list.ListFields()]
        return name, [_plain(item) for item in filled[0]] if filled else []
    return name, _plain(getattr(value, field))


def _plain(value: Any) -> Any:
    """Convert the value of an attribute for an operation that is executed immediately."""
    if hasattr(value, "unknown_rank"):
        return None if value.unknown_rank else [item.size for item in value.dim]
    # Functions are passed by name.
    return value.name if hasattr(value, "attr") else value


@contextlib.contextmanager
def _showing_values(values: Values) -> Iterator[None]:
    """Make tensors of the graph display their values and return them from ``numpy()``."""
    tensors = ops.SymbolicTensor

    def text(tensor: Any) -> str:
        if not values.has(tensor):
            return before(tensor)
        numbers = np.array2string(values.of(tensor).numpy(), threshold=SHOWN_NUMBERS, precision=5)
        return f"<tf.Tensor {tensor.name!r} shape={tensor.shape} dtype={tensor.dtype.name}\n{numbers}>"

    def numpy(tensor: Any) -> Any:
        if not values.has(tensor):
            # Keras checks whether tensors of a function have this attribute.
            raise AttributeError(f"{tensor.name} is inside a function and has no value.")
        return values.of(tensor).numpy

    before = tensors.__repr__
    with (
        replace(tensors, "__repr__", text),
        replace(tensors, "__str__", text),
        replace(tensors, "numpy", property(numpy)),
    ):
        yield


class _CapturedOutput(io.TextIOBase):
    """Forwards what is written, and stores the beginning of it as ``text``."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.text = stream, ""

    def write(self, text: str) -> int:
        if len(self.text) < MAX_CHARACTERS:
            self.text += text
            if len(self.text) >= MAX_CHARACTERS:
                self.text = f"{self.text[:MAX_CHARACTERS]}\n… The rest is in the log.\n"
        return int(self._stream.write(text))

    def flush(self) -> None:
        self._stream.flush()


@contextlib.contextmanager
def _captured_output() -> Iterator[_CapturedOutput]:
    """Capture printed text inside. Terminals are not captured, because a user may be debugging."""
    captured = _CapturedOutput(sys.stdout)
    with contextlib.nullcontext() if sys.stdout.isatty() else contextlib.redirect_stdout(captured):
        yield captured


def _numbers(name: str, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    numbers = values.astype(np.float64)
    return {
        "name": name,
        "shape": list(numbers.shape),
        "min": float(numbers.min(initial=np.inf)),
        "mean": float(numbers.mean()),
        "max": float(numbers.max(initial=-np.inf)),
        "std": float(numbers.std()),
        "zero_fraction": float((numbers == 0).mean()),
    }


def _range(numbers: np.ndarray[Any, Any]) -> str:
    numbers = numbers.astype(np.float64)
    return f"numbers from {numbers.min():.4g} to {numbers.max():.4g}" if numbers.size else "no numbers"
