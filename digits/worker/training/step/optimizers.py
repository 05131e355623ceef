"""The optimizers of the model form, built on TensorFlow's fused update operations.

Keras' optimizers differ from those of TensorFlow 1 in details (how the momentum uses the learning rate, where
epsilon is added), so published settings would have another effect. TensorFlow 1 used these operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits.core.recipe import Solver
from digits.worker.network.variables import make_state

STATE_SCOPE = "optimizer"

raw = tf.raw_ops


@dataclass(frozen=True)
class _Algorithm:
    """``slots`` are the states of a variable and their first value; ``apply`` changes the variable."""

    slots: dict[str, float]
    apply: Callable[..., Any]


class Optimizer:
    """Owns the state of an optimizer: variables called ``<scope>/<slot>/<variable>``."""

    def __init__(self, solver: Solver, scope: str = STATE_SCOPE) -> None:
        self._algorithm, self._settings, self.scope = ALGORITHMS[solver.type], solver, scope
        self.state: dict[str, tf.Variable] = {}

    def apply(
        self, gradient: tf.Tensor, variable: tf.Variable, rate: tf.Tensor, step: tf.Tensor
    ) -> tf.Operation:
        """Update ``variable`` with ``gradient`` at the learning ``rate``, then its constraint; ``step`` starts at 0."""
        gradient = tf.convert_to_tensor(gradient)  # densify the slices of an embedding
        slots = {slot: self._slot(slot, variable).handle for slot in self._algorithm.slots}
        rate = tf.cast(rate, gradient.dtype)
        changed = self._algorithm.apply(variable.handle, slots, gradient, rate, self._settings, step)
        if variable.constraint is None:
            return changed
        with tf.control_dependencies([changed]):
            return variable.assign(variable.constraint(variable.read_value()), read_value=False)

    def _slot(self, slot: str, variable: tf.Variable) -> tf.Variable:
        name = f"{self.scope}/{slot}/{variable.name.removesuffix(':0')}"
        if name not in self.state:
            first = self._algorithm.slots[slot]
            with tf.device(variable.device):
                self.state[name] = make_state(name, variable.shape, first, variable.dtype)
        return self.state[name]


def _sgd(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    return raw.ResourceApplyGradientDescent(var=var, alpha=lr, delta=grad)


def _momentum(nesterov: bool) -> Callable[..., Any]:
    def apply(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
        return raw.ResourceApplyMomentum(
            var=var,
            accum=slots["momentum"],
            lr=lr,
            grad=grad,
            momentum=tf.constant(settings.momentum, grad.dtype),
            use_nesterov=nesterov,
        )

    return apply


def _adagrad(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    return raw.ResourceApplyAdagrad(var=var, accum=slots["accumulator"], lr=lr, grad=grad)


def _adagrad_da(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    # The fused operation does not run on GPUs.
    total = raw.ReadVariableOp(resource=slots["gradient_accumulator"], dtype=grad.dtype) + grad
    squares = raw.ReadVariableOp(resource=slots["gradient_squared_accumulator"], dtype=grad.dtype)
    squares += tf.square(grad)
    raw.AssignVariableOp(resource=slots["gradient_accumulator"], value=total)
    raw.AssignVariableOp(resource=slots["gradient_squared_accumulator"], value=squares)
    return raw.AssignVariableOp(resource=var, value=-lr * total / tf.sqrt(squares))


def _adadelta(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    return raw.ResourceApplyAdadelta(
        var=var,
        accum=slots["accumulator"],
        accum_update=slots["accumulated_updates"],
        lr=lr,
        rho=tf.constant(0.95, grad.dtype),
        epsilon=tf.constant(1e-8, grad.dtype),
        grad=grad,
    )


def _adam(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    beta1, beta2 = tf.constant(settings.beta_1, grad.dtype), tf.constant(settings.beta_2, grad.dtype)
    count = tf.cast(step, grad.dtype) + 1
    return raw.ResourceApplyAdam(
        var=var,
        m=slots["m"],
        v=slots["v"],
        beta1_power=tf.pow(beta1, count),
        beta2_power=tf.pow(beta2, count),
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        epsilon=tf.constant(1e-8, grad.dtype),
        grad=grad,
    )


def _adamw(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    """Adam with decoupled weight decay (I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", 2019)."""
    with tf.control_dependencies([_decay(var, grad, lr, settings)]):
        return _adam(var, slots, grad, lr, settings, step)


def _lion(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    """Sign of interpolated momentum (X. Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023)."""
    momentum = raw.ReadVariableOp(resource=slots["momentum"], dtype=grad.dtype)
    direction = tf.sign(settings.beta_1 * momentum + (1 - settings.beta_1) * grad)
    changed = [
        raw.AssignVariableOp(
            resource=slots["momentum"], value=settings.beta_2 * momentum + (1 - settings.beta_2) * grad
        ),
        _decay(var, grad, lr, settings),
    ]
    with tf.control_dependencies(changed):
        return raw.AssignSubVariableOp(resource=var, value=lr * direction)


def _decay(var: Any, grad: Any, lr: Any, settings: Solver) -> Any:
    value = raw.ReadVariableOp(resource=var, dtype=grad.dtype)
    return raw.AssignSubVariableOp(resource=var, value=lr * settings.weight_decay * value)


def _rmsprop(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    return raw.ResourceApplyRMSProp(
        var=var,
        ms=slots["mean_square"],
        mom=slots["momentum"],
        lr=lr,
        rho=tf.constant(settings.rms_decay, grad.dtype),
        momentum=tf.constant(settings.momentum, grad.dtype),
        epsilon=tf.constant(1e-10, grad.dtype),
        grad=grad,
    )


def _ftrl(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    return raw.ResourceApplyFtrl(
        var=var,
        accum=slots["accumulator"],
        linear=slots["linear"],
        grad=grad,
        lr=lr,
        l1=tf.constant(0.0, grad.dtype),
        l2=tf.constant(0.0, grad.dtype),
        lr_power=tf.constant(-0.5, grad.dtype),
    )


ALGORITHMS: dict[str, _Algorithm] = {
    "SGD": _Algorithm({}, _sgd),
    "MOMENTUM": _Algorithm({"momentum": 0.0}, _momentum(nesterov=False)),
    "NESTEROV": _Algorithm({"momentum": 0.0}, _momentum(nesterov=True)),
    "ADAGRAD": _Algorithm({"accumulator": 0.1}, _adagrad),
    "ADAGRADDA": _Algorithm({"gradient_accumulator": 0.0, "gradient_squared_accumulator": 0.1}, _adagrad_da),
    "ADADELTA": _Algorithm({"accumulator": 0.0, "accumulated_updates": 0.0}, _adadelta),
    "ADAM": _Algorithm({"m": 0.0, "v": 0.0}, _adam),
    "ADAMW": _Algorithm({"m": 0.0, "v": 0.0}, _adamw),
    "LION": _Algorithm({"momentum": 0.0}, _lion),
    "RMSPROP": _Algorithm({"mean_square": 1.0, "momentum": 0.0}, _rmsprop),
    "FTRL": _Algorithm({"accumulator": 0.1, "linear": 0.0}, _ftrl),
}
