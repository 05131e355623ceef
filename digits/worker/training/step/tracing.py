"""Traced functions whose Python code returns facts beside tensors, such as the names of a network's metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

Facts = TypeVar("Facts")


def trace(build: Callable[..., tuple[Any, Facts]], signature: Sequence[tf.TensorSpec]) -> tuple[Any, Facts]:
    """Trace ``build``, which returns tensors and facts; return the function that computes the tensors, and the facts.

    Raises whatever ``build`` raises.
    """
    facts: list[Facts] = []

    def tensors(*arguments: tf.Tensor) -> Any:
        result, more = build(*arguments)
        facts.append(more)
        return result

    function = tf.function(tensors, autograph=False, input_signature=signature)
    function.get_concrete_function()
    return function, facts[-1]


def stack_rows(
    count: tf.Tensor, row: Callable[[tf.Tensor], tuple[tf.Tensor, Facts]]
) -> tuple[tf.Tensor, Facts]:
    """Compute ``row(0)`` … ``row(count - 1)`` in sequence, in a loop that calls ``row`` once to trace it.

    Returns the rows, float32 [count, n], and the facts.
    """
    facts: list[Facts] = []

    def body(index: tf.Tensor, rows: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        values, more = row(index)
        facts.append(more)
        return index + 1, rows.write(index, values)

    rows = tf.TensorArray(tf.float32, size=count, element_shape=[None])
    _, rows = tf.while_loop(
        lambda index, _: index < count, body, (tf.constant(0), rows), parallel_iterations=1
    )
    return rows.stack(), facts[0]
