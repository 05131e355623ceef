"""Names the operation that first gives no number, for a training whose loss becomes NaN.

Every operation that is built inside of `checked` gets a check behind it, so the first
one that fails is where it began: what it was given were numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.network.variables import MODEL_SCOPE

# They only hand on what others computed, or may hold infinities on purpose (masks); or they hold
# functions, whose operations are checked inside.
_HANDED_ON = re.compile(
    r"Arg|Cast|Concat|Const|Empty|Enter|Exit|ExpandDims|Fill|Gather|Identity|If|Maximum|Merge|Minimum|NextIteration"
    r"|NoOp|Pack|Partitioned|Placeholder|ReadVariable|Reshape|Select|Slice|Squeeze|Stateful|Stateless|StopGradient"
    r"|StridedSlice|Switch|TensorList|Transpose|Unpack|Where|While|CheckNumerics|ArgMax"
)
# Its other outputs are reserved for its own gradient.
_FIRST_ONLY = "FusedBatchNorm"

# The loop over the steps of a call.
_OF_THE_LOOP = re.compile(r"^(while(_\d+)?/)+")

_MARK = re.compile(r"no-number (\S+) (\S+) (\d+) : Tensor had (.*?) values")


@contextmanager
def checked() -> Iterator[None]:
    """Operations of graphs that are built inside fail when they give NaN or an infinity."""
    op_callbacks.add_op_callback(_check)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(_check)


@dataclass(frozen=True)
class Place:
    """The operation ``name`` of type ``kind``, and the line of the network that asks for it; 0 for none."""

    kind: str
    name: str
    line: int


def fault(error: tf.errors.InvalidArgumentError, step: int, rate: float) -> UserFault | None:
    """What to tell the user about ``error``; None when it is about something else."""
    found = _MARK.search(str(error))
    if found is None:
        return None
    kind, name, line, value = found.groups()
    return told(Place(kind, name, int(line)), value, step, rate)


def told(place: Place, value: str, step: int, rate: float, inputs: str = "") -> UserFault:
    """What to tell of the operation that is the first to give ``value``; ``inputs`` is a sentence about its inputs."""
    name = _OF_THE_LOOP.sub("", place.name)
    layer = name.rpartition("/")[0].removeprefix(f"{MODEL_SCOPE}/")
    where = f" in {layer}" if layer and "gradients" not in layer else ""
    backwards = " while gradients were computed" if "gradients" in name else ""
    return UserFault(
        f"The operation {name} ({place.kind}){where} is the first to give {value} values{backwards}, "
        f"at step {step}, at the learning rate {rate:g}.",
        f"{inputs or 'Everything it was given were numbers.'} Look there for a division by zero, the logarithm or "
        "root of what is not positive, or values that grow without bound.",
        place.line or None,
    )


def hands_on(kind: str) -> bool:
    """Whether operations of this type are left unchecked."""
    return bool(_HANDED_ON.match(kind))


def checked_outputs(kind: str) -> int | None:
    """How many outputs of an operation of this type are checked; None for all."""
    return 1 if kind.startswith(_FIRST_ONLY) else None


def line_of(name: str, graph: Any) -> int:
    """The line of the network that asks for the operation ``name``: the one that is being run; 0 for none.

    For a gradient it is the line of what the gradient is of.
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == NETWORK_FILE:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    forward = _GRADIENT_OF.search(name)
    return asked_at(graph, forward[1]) if forward else 0


# Such as gradients/model/fc/MatMul_grad/MatMul_1.
_GRADIENT_OF = re.compile(r"gradients(?:_\d+)?/(.+)_grad/")


def asked_at(graph: Any, name: str) -> int:
    """The line of the network in which an operation of ``graph`` was asked for; 0 for none."""
    try:
        frames = graph.get_operation_by_name(name).traceback
    except KeyError:
        return 0
    return next((frame.lineno for frame in reversed(frames) if frame.filename == NETWORK_FILE), 0)


def _check(
    op_type: str, inputs: Any, attrs: Any, outputs: Any, op_name: str | None = None, graph: Any = None
) -> list[Any] | None:
    if graph is None or hands_on(op_type):
        return None
    checked = list(outputs)
    for slot, output in enumerate(checked[: checked_outputs(op_type)]):
        if output.dtype.is_floating:
            message = f"no-number {op_type} {op_name} {line_of(str(op_name), graph)}"
            checked[slot] = tf.raw_ops.CheckNumerics(tensor=output, message=message, name="checked")
    return checked
