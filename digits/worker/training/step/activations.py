"""Find activations that limit the outputs of a network, by computing them for very small and large inputs."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

# Operations that compute each value from one value, and those of two operands.
_OF_ONE = set(
    "Abs Cast Elu Erf Erfc Exp Identity IdentityN LeakyRelu Log1p Neg Reciprocal Relu Relu6 Reshape Rsqrt Selu Sigmoid "
    "Softplus Softsign Sqrt Square Squeeze StopGradient Tanh".split()
)
_OF_SEVERAL = set(
    "Add AddV2 ClipByValue Maximum Minimum Mul Pow RealDiv Select SelectV2 Sub Greater GreaterEqual Less "
    "LessEqual".split()
)
_NAMES = {"Relu": "ReLU", "Relu6": "ReLU6", "Elu": "ELU", "Selu": "SELU"}
_REARRANGING = {"Identity", "IdentityN", "Reshape", "Squeeze", "Cast"}
# Inputs around zero, and far outside of the usual outputs of a layer.
_PROBES = np.array([-1e9, -1e3, -10, -3, -1, -0.5, 0, 0.5, 1, 3, 10, 1e3, 1e9], np.float32)
# Larger limits do not matter: the probability of logits that differ by 10 is almost 0 or 1.
_LIMIT = 9.0


@dataclass(frozen=True)
class Limited:
    """An activation, and the ``title`` of its results, such as *values that are never below 0*."""

    operation: Any
    title: str


def limits_of(tensor: Any) -> Limited | None:
    """Return the activation that limits the values of ``tensor`` on one side or both; None if there is none.

    It is the function of single values between the last layer and the tensor, whatever it is composed of.
    """
    source, last = _source(tensor)
    if source is None or source is tensor:
        return None
    try:
        results = _apply(source, tensor, _PROBES)
    except (ValueError, TypeError, KeyError, IndexError, tf.errors.OpError):
        return None
    if np.isnan(results).any():
        return None
    low, high = (round(float(each), 2) + 0.0 for each in (results.min(), results.max()))
    suffix = f", the results of an activation ({_NAMES.get(last.type, last.type)})"
    if low > -_LIMIT and high < _LIMIT:
        return Limited(last, f"values from {low:g} to {high:g}{suffix}")
    if low > -_LIMIT:
        return Limited(last, f"values that are never below {low:g}{suffix}")
    if high < _LIMIT:
        return Limited(last, f"values that are never above {high:g}{suffix}")
    return None


def _source(tensor: Any) -> tuple[Any, Any]:
    """Return the only tensor of which ``tensor`` is a function of single values, and the last operation of that."""
    last, waiting, sources, seen = None, [tensor], {}, set()
    while waiting:
        each = waiting.pop()
        if each.name in seen:
            continue
        seen.add(each.name)
        operation = each.op
        if operation.type in _OF_ONE or operation.type in _OF_SEVERAL:
            if operation.type not in _REARRANGING:
                last = last or operation
            parts = operation.inputs[:1] if operation.type in _OF_ONE else operation.inputs
            waiting += [part for part in parts if tf.get_static_value(part) is None]
        elif operation.type not in ("ZerosLike", "OnesLike"):
            sources[each.name] = each
    if len(sources) != 1 or last is None:
        return None, None
    return next(iter(sources.values())), last


def _apply(source: Any, tensor: Any, probes: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the values of ``tensor`` for those of ``source``, one by one."""
    known: dict[str, Any] = {}

    def value(each: Any) -> Any:
        if each.name not in known:
            constant = tf.get_static_value(each)
            known[each.name] = _run(each.op) if constant is None else constant.reshape(-1)[:1]
        return known[each.name]

    def _run(operation: Any) -> Any:
        if operation.type in _REARRANGING - {"Cast"}:
            return value(operation.inputs[0])
        function = getattr(tf.raw_ops, operation.type)
        arguments = [item.name for item in operation.op_def.input_arg]
        given = dict(zip(arguments, map(value, operation.inputs), strict=True))
        attributes = inspect.signature(function).parameters.keys() - given.keys() - {"name"}
        return function(**given, **{name: operation.get_attr(name) for name in attributes})

    with tf.init_scope():
        known[source.name] = tf.constant(probes, source.dtype)
        return np.broadcast_to(value(tensor).numpy().astype(np.float64), probes.shape)
