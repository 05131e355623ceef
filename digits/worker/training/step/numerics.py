"""Finding NaN and infinity: in losses, and the operation that yields them first.

Every operation that is built inside `checked` is followed by a check. The first check that fails names the
operation that is the cause, because its inputs were finite.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.framework import op_callbacks

from digits.worker import user_text
from digits.worker.failure import NETWORK_FILE, UserFault
from digits.worker.network.variables import MODEL_SCOPE

# Operations that only forward values, that may contain infinities on purpose (masks), or that call functions,
# whose operations are checked themselves.
_FORWARDING = re.compile(
    r"Arg|Cast|Concat|Const|Empty|Enter|Exit|ExpandDims|Fill|Gather|Identity|If|Maximum|Merge|Minimum|NextIteration"
    r"|NoOp|Pack|Partitioned|Placeholder|ReadVariable|Reshape|Select|Slice|Squeeze|Stateful|Stateless|StopGradient"
    r"|StridedSlice|Switch|TensorList|Transpose|Unpack|Where|While|CheckNumerics|ArgMax"
)
# The other outputs of this operation are reserved for its gradient.
_FIRST_ONLY = "FusedBatchNorm"

# The scope of the loop over the steps of a call.
_LOOP_SCOPE = re.compile(r"^(while(_\d+)?/)+")

_MARK = re.compile(r"no-number (\S+) (\S+) (\d+) : Tensor had (.*?) values")


@contextmanager
def checked() -> Iterator[None]:
    """Make operations of graphs that are built inside fail when they yield NaN or infinity."""
    op_callbacks.add_op_callback(_check)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(_check)


@contextmanager
def explained(step: int, rate: float) -> Iterator[None]:
    """Convert the error of a failed check inside to a UserFault that names the operation.

    ``step`` is the number of the step, the first being 1, and ``rate`` its learning rate, for the message.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        mark = _MARK.search(str(error))
        if mark is None:
            raise
        op_type, name, line, value = mark.groups()
        raise _fault(op_type, name, int(line), value, step, rate) from None


def check_losses(
    losses: NDArray[np.float32], first_step: int, rates: Sequence[float], has_snapshots: bool
) -> None:
    """Raise UserFault if one of the ``losses`` [steps] is NaN or infinite; they begin after ``first_step`` steps.

    ``has_snapshots``: the training has saved some.
    """
    bad = np.flatnonzero(~np.isfinite(losses))
    if bad.size:
        first = int(bad[0])
        raise _diverged("loss", float(losses[first]), first_step + first + 1, rates[first], has_snapshots)


def check_validation_loss(loss: float, step: int, rate: float, has_snapshots: bool) -> None:
    """Like `check_losses` for the validation loss after ``step`` steps, which may be infinite.

    A single image whose class gets the probability 0 makes it so, but the training can continue.
    """
    if math.isnan(loss):
        raise _diverged("validation loss", loss, step, rate, has_snapshots)


def _diverged(metric: str, loss: float, step: int, rate: float, has_snapshots: bool) -> UserFault:
    value = "not a number (NaN)" if math.isnan(loss) else "infinite"
    if step == 1:
        return UserFault(
            f"The {metric} is {value} at the first step, before any weight has changed.",
            "Look for a division by zero or the logarithm of zero in the network, and for NaN in the initial weights "
            "and the data: training with “Detect NaN/Inf” names the operation where it begins.",
            remedy={"numerics_checks": "true"},
        )
    return UserFault(
        f"The {metric} became {value} at step {step}, at the learning rate {rate:g}.",
        "Lower the learning rate, or begin with a warm-up. If it also happens at a low rate, look in the network for "
        "a division by zero or the logarithm of zero: training with “Detect NaN/Inf” names the operation where it "
        "begins." + " Earlier snapshots are still valid." * has_snapshots,
        remedy={"rate_factor": "0.1"},
    )


def _fault(op_type: str, operation: str, line: int, value: str, step: int, rate: float) -> UserFault:
    """The error that reports the ``operation`` that is the first to yield ``value``, NaN or Inf.

    ``line`` is that of the network that creates it, 0 for none.
    """
    name = _LOOP_SCOPE.sub("", operation)
    layer = name.rpartition("/")[0].removeprefix(f"{MODEL_SCOPE}/")
    where = f" in {layer}" if layer and "gradients" not in layer else ""
    backwards = " while gradients were computed" if "gradients" in name else ""
    return UserFault(
        f"The operation {name} ({op_type}){where} is the first to return {value} values{backwards}, "
        f"at step {step}, at the learning rate {rate:g}.",
        "All of its inputs were finite. Check it for a division by zero, the logarithm or "
        "root of a value that is not positive, or values that grow without bound.",
        line or None,
    )


def _line_of(name: str, graph: Any) -> int:
    """The line of the network that is creating the operation ``name``; 0 for none.

    For the gradient of an operation, it is the line that created that operation.
    """
    if line := user_text.running_line():
        return line
    forward = _GRADIENT_OF.search(name)
    return line_that_created(graph, forward[1]) if forward else 0


# Such as gradients/model/fc/MatMul_grad/MatMul_1.
_GRADIENT_OF = re.compile(r"gradients(?:_\d+)?/(.+)_grad/")


def line_that_created(graph: Any, name: str) -> int:
    """The line of the network that created the operation ``name`` of ``graph``; 0 for none."""
    try:
        frames = graph.get_operation_by_name(name).traceback
    except KeyError:
        return 0
    return next((frame.lineno for frame in reversed(frames) if frame.filename == NETWORK_FILE), 0)


def _check(
    op_type: str, inputs: Any, attrs: Any, outputs: Any, op_name: str | None = None, graph: Any = None
) -> list[Any] | None:
    if graph is None or _FORWARDING.match(op_type):
        return None
    checked = list(outputs)
    for slot, output in enumerate(checked[: 1 if op_type.startswith(_FIRST_ONLY) else None]):
        if output.dtype.is_floating:
            message = f"no-number {op_type} {op_name} {_line_of(str(op_name), graph)}"
            checked[slot] = tf.raw_ops.CheckNumerics(tensor=output, message=message, name="checked")
    return checked
