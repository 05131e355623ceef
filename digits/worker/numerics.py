"""Names the operation that first gives no number, for a training whose loss becomes NaN.

Every operation that is built inside of `checked` gets a check behind it, so the first
one that fails is where it began: what it was given were numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.variables import MODEL_SCOPE

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


def fault(error: tf.errors.InvalidArgumentError, step: int, rate: float) -> UserFault | None:
    """What to tell the user about ``error``; None when it is about something else."""
    found = _MARK.search(str(error))
    if found is None:
        return None
    kind, name, line, value = found.groups()
    name = _OF_THE_LOOP.sub("", name)
    layer = name.rpartition("/")[0].removeprefix(f"{MODEL_SCOPE}/")
    where = f" in {layer}" if layer and "gradients" not in layer else ""
    backwards = " while gradients were computed" if "gradients" in name else ""
    return UserFault(
        f"The operation {name} ({kind}){where} is the first to give {value} values{backwards}, "
        f"at step {step}, at the learning rate {rate:g}.",
        "Everything it was given were numbers. Look there for a division by zero, the logarithm or root of "
        "what is not positive, or values that grow without bound.",
        int(line) or None,
    )


def _check(
    op_type: str, inputs: Any, attrs: Any, outputs: Any, op_name: str | None = None, graph: Any = None
) -> list[Any] | None:
    if graph is None or _HANDED_ON.match(op_type):
        return None
    return [_checked(op_type, op_name, slot, output) for slot, output in enumerate(outputs)]


def _checked(op_type: str, op_name: str | None, slot: int, output: Any) -> Any:
    if not output.dtype.is_floating or (slot and op_type.startswith(_FIRST_ONLY)):
        return output
    message = f"no-number {op_type} {op_name} {_line()}"
    return tf.raw_ops.CheckNumerics(tensor=output, message=message, name="checked")


def _line() -> int:
    """The line of the network that is being run; 0 for none."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == NETWORK_FILE:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0
