"""Eager execution of a step: Python runs the network's code on values, without a graph."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.keras.legacy_tf_layers import base as legacy_base
from tensorflow.python.ops import gradients_util, variable_scope
from tensorflow.python.ops.losses import util as losses_util

from digits.worker import user_text
from digits.worker.failure import RUN_AS_GRAPH, UserFault
from digits.worker.input.preparation import Chunk
from digits.worker.patched_names import replace
from digits.worker.training.step.training_step import BuiltStep, TrainingStep


def run(
    step: TrainingStep, chunk: Chunk, rate: float, number: int, changes_weights: bool = True
) -> BuiltStep:
    """Run ``step`` after ``number`` steps on a ``chunk`` of one batch; raises whatever the network raises."""
    with _executed_eagerly():
        images, labels = chunk.batch(0)
        settings = tf.constant(rate, tf.float32), tf.constant(number, tf.int64)
        return step.build(images, labels, *settings, changes_weights=changes_weights)


@contextlib.contextmanager
def _executed_eagerly() -> Iterator[None]:
    """Execute operations and functions inside immediately; a graph without operations holds scopes and collections.

    Three features of TensorFlow 1 that exist only in graphs are replaced: ``tf.gradients``, the collections of losses,
    and the names of tensors.
    """
    tape = tf.GradientTape(persistent=True)

    def gradients(ys: Any, xs: Any, grad_ys: Any, *options: Any) -> Any:
        *_, stop_gradients, unconnected = options
        sources = tf.nest.flatten(xs)
        given = None if grad_ys is None else tf.nest.flatten(grad_ys)
        found = tape.gradient(tf.nest.flatten(ys), sources, given)
        if user_text.running_line():
            if stop_gradients is not None or unconnected not in ("none", tf.UnconnectedGradients.NONE):
                raise UserFault("tf.gradients has no such options in eager execution.", RUN_AS_GRAPH)
            # The tape follows nothing else.
            trained = (getattr(source, "trainable", False) for source in sources)
            if any(value is None and not known for value, known in zip(found, trained, strict=True)):
                raise UserFault("tf.gradients only knows trained variables in eager execution.", RUN_AS_GRAPH)
        return found

    def add_loss(loss: Any, loss_collection: Any = tf.compat.v1.GraphKeys.LOSSES) -> None:
        if loss_collection:
            tape.watch(loss)
            tf.compat.v1.add_to_collection(loss_collection, loss)

    def add_layer_losses(layer: Any, losses: Any, inputs: Any = None) -> None:
        values = [loss() if callable(loss) else loss for loss in tf.nest.flatten(losses)]
        for value in (value for value in values if value is not None):
            add_loss(value, tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES)

    were_eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        with (
            tf.Graph().as_default(),
            context.eager_mode(),
            variable_scope.EagerVariableStore().as_default(),
            replace(gradients_util, "_GradientsHelper", gradients),
            replace(losses_util, "add_loss", add_loss),
            replace(legacy_base.Layer, "add_loss", add_layer_losses),
            replace(ops.EagerTensor, "op", property(lambda tensor: _Operation())),
            replace(ops.EagerTensor, "name", property(lambda tensor: f"{_Operation.name}:0")),
            replace(ops.EagerTensor, "__hash__", object.__hash__),
            tape,
        ):
            yield
    finally:
        tf.config.run_functions_eagerly(were_eager)


class _Operation:
    """The ``op`` of a value, for networks that name a summary after it."""

    name = "value"

    def __getattr__(self, name: str) -> Any:
        raise _GraphOnly(f"An operation has no {name!r} in eager execution.")


class _GraphOnly(AttributeError):
    hint = RUN_AS_GRAPH


class Printed(io.StringIO):
    """Stands in for the standard output: keeps what is written, and forwards it."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = sys.stdout

    def write(self, text: str) -> int:
        super().write(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()
