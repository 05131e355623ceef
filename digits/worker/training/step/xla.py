"""Compiling a step with XLA, and explaining why that fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from digits.worker.training.step.tracing import Facts

# Lines of TensorFlow's messages that contain a location in the graph and no reason.
_LOCATION = re.compile(r"Graph execution error|Detected at node|File |<stack traces|\[\[|$")
# A variable in the memory of another device.
_ELSEWHERE = re.compile(r"Trying to access resource (\S+?)(?:/\d+)? .*located in device")


def compiled(
    build: Callable[..., tuple[tf.Tensor, Facts]], signature: Sequence[tf.TensorSpec]
) -> Callable[..., tuple[tf.Tensor, Facts]]:
    """Trace ``build``, which returns a tensor and facts, and compile it for arguments of the given types.

    Raises whatever ``build`` raises, and TensorFlow's errors if XLA cannot compile it.
    """
    facts: list[Facts] = []

    def row(*arguments: tf.Tensor) -> tf.Tensor:
        result, more = build(*arguments)
        facts.append(more)
        return result

    # XLA rejects unsupported operations even if nothing uses their results, such as the text of a summary.
    # In a nested function those are pruned.
    nested = tf.function(row, autograph=False)
    function = tf.function(lambda *arguments: nested(*arguments), autograph=False, jit_compile=True)
    function.experimental_get_compiler_ir(*signature)(stage="hlo")
    traced = function.get_concrete_function(*signature)

    def run(*arguments: Any) -> tuple[tf.Tensor, Facts]:
        for argument, known in zip(arguments, signature, strict=True):
            argument.set_shape(known.shape)  # prevents another trace
        return traced(*arguments), facts[-1]

    return run


def warning(error: Exception) -> str:
    """The warning about a step that cannot be compiled, with the unsupported operations or the first line."""
    reason = ", ".join(dict.fromkeys(re.findall(r"XLA_\w+_JIT: (\w+)", str(error))))
    if variable := _ELSEWHERE.search(str(error)):
        reason = (
            f"the variable {variable[1]} is in the memory of another device. TensorFlow keeps "
            "int32 variables off GPUs; use int64 instead"
        )
    lines = [line.strip() for line in str(error).splitlines()]
    reason = reason or next((line for line in lines if not _LOCATION.match(line)), "")[:300]
    return f"XLA cannot compile this network: {reason}. It is trained without XLA."
