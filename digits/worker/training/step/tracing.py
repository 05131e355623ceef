"""Traced functions whose Python code returns facts beside tensors, such as the names of a network's metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

Facts = TypeVar("Facts")

# Lines of TensorFlow's messages that contain a location in the graph and no reason.
_LOCATION = re.compile(r"Graph execution error|Detected at node|File |<stack traces|\[\[|$")
# Operations whose types say little.
_PURPOSES = {"PyFunc": "PyFunc, which calls Python, as synchronized batch normalization does"}
# A variable in the memory of another device.
_ELSEWHERE = re.compile(r"Trying to access resource (\S+?)(?:/\d+)? .*located in device")


def trace(build: Callable[..., tuple[Any, Facts]], signature: Sequence[tf.TensorSpec]) -> tuple[Any, Facts]:
    """Trace ``build``, which returns tensors and facts; return the function that computes the tensors, and the facts.

    Raises whatever ``build`` raises.
    """
    tensors, facts = _separated(build)
    function = tf.function(tensors, autograph=False, input_signature=signature)
    function.get_concrete_function()
    return function, facts[-1]


def compiled(
    build: Callable[..., tuple[Any, Facts]], signature: Sequence[tf.TensorSpec], device: str = ""
) -> Callable[..., tuple[Any, Facts]]:
    """Return ``build`` compiled with XLA for arguments of the given types, and for ``device`` if it is given.

    Raises whatever ``build`` raises, and TensorFlow's errors if XLA cannot compile it.
    """
    tensors, facts = _separated(build)
    # XLA rejects unsupported operations even if nothing uses their results, such as the text of a summary.
    # In a nested function those are pruned.
    nested = tf.function(tensors, autograph=False)
    function = tf.function(lambda *arguments: nested(*arguments), autograph=False, jit_compile=True)
    with tf.device(device or None):
        function.experimental_get_compiler_ir(*signature)(stage="hlo")
        traced = function.get_concrete_function(*signature)

    def run(*arguments: Any) -> tuple[Any, Facts]:
        for argument, known in zip(arguments, signature, strict=True):
            argument.set_shape(known.shape)  # prevents another trace
        return traced(*arguments), facts[-1]

    return run


def _separated(build: Callable[..., tuple[Any, Facts]]) -> tuple[Callable[..., Any], list[Facts]]:
    """Return ``build`` without its facts, and the list to which each call adds them."""
    facts: list[Facts] = []

    def tensors(*arguments: Any) -> Any:
        result, more = build(*arguments)
        facts.append(more)
        return result

    return tensors, facts


def stack_rows(
    count: tf.Tensor, row: Callable[[tf.Tensor], tuple[tf.Tensor, Facts]]
) -> tuple[tf.Tensor, Facts]:
    """Compute ``row(0)`` … ``row(count - 1)`` in sequence, in a loop that calls ``row`` once to trace it.

    Returns the rows, float32 [count, n], and the facts.
    """
    values, facts = _separated(row)

    def body(index: tf.Tensor, rows: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return index + 1, rows.write(index, values(index))

    rows = tf.TensorArray(tf.float32, size=count, element_shape=[None])
    _, rows = tf.while_loop(
        lambda index, _: index < count, body, (tf.constant(0), rows), parallel_iterations=1
    )
    return rows.stack(), facts[0]


def xla_warning(error: Exception) -> str:
    """The warning about a step that cannot be compiled, with the unsupported operations or the first line."""
    operations = dict.fromkeys(re.findall(r"XLA_\w+_JIT: (\w+)", str(error)))
    reason = ", ".join(_PURPOSES.get(name, name) for name in operations)
    if variable := _ELSEWHERE.search(str(error)):
        reason = (
            f"the variable {variable[1]} is in the memory of another device. TensorFlow keeps "
            "int32 variables off GPUs; use int64 instead"
        )
    lines = [line.strip() for line in str(error).splitlines()]
    reason = reason or next((line for line in lines if not _LOCATION.match(line)), "")[:300]
    return f"XLA cannot compile this network: {reason}. It is trained without XLA."
