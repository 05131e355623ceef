"""The optimizers of the model form, built on TensorFlow's fused update operations.

Keras' optimizers differ from those of TensorFlow 1 in details (how the momentum uses the learning rate, where
epsilon is added), so published settings would have another effect. TensorFlow 1 used these operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits.core.recipe import Solver
from digits.worker.network.variables import make_state

STATE_SCOPE = "optimizer"

FIRST_SCALE = 2.0**15
STEPS_BEFORE_LARGER = 2000

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


def _fused(
    operation: Callable[..., Any],
    slots: dict[str, tuple[str, float]],
    constants: Callable[[Solver], dict[str, float]] = lambda settings: {},
    **flags: bool,
) -> _Algorithm:
    """Return the algorithm of an ``operation``: its ``slots`` by argument, and its other arguments."""

    def apply(var: Any, states: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
        inputs = {argument: states[slot] for argument, (slot, _) in slots.items()}
        inputs |= {name: tf.constant(value, grad.dtype) for name, value in constants(settings).items()}
        return operation(var=var, grad=grad, lr=lr, **inputs, **flags)

    return _Algorithm(dict(slots.values()), apply)


def _sgd(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    return raw.ResourceApplyGradientDescent(var=var, alpha=lr, delta=grad)


def _adagrad_da(var: Any, slots: Any, grad: Any, lr: Any, settings: Solver, step: Any) -> Any:
    # The fused operation does not run on GPUs.
    total = raw.ReadVariableOp(resource=slots["gradient_accumulator"], dtype=grad.dtype) + grad
    squares = raw.ReadVariableOp(resource=slots["gradient_squared_accumulator"], dtype=grad.dtype)
    squares += tf.square(grad)
    raw.AssignVariableOp(resource=slots["gradient_accumulator"], value=total)
    raw.AssignVariableOp(resource=slots["gradient_squared_accumulator"], value=squares)
    return raw.AssignVariableOp(resource=var, value=-lr * total / tf.sqrt(squares))


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


_MOMENTUM = {"accum": ("momentum", 0.0)}

ALGORITHMS: dict[str, _Algorithm] = {
    "SGD": _Algorithm({}, _sgd),
    "MOMENTUM": _fused(
        raw.ResourceApplyMomentum, _MOMENTUM, lambda settings: {"momentum": settings.momentum}
    ),
    "NESTEROV": _fused(
        raw.ResourceApplyMomentum,
        _MOMENTUM,
        lambda settings: {"momentum": settings.momentum},
        use_nesterov=True,
    ),
    "ADAGRAD": _fused(raw.ResourceApplyAdagrad, {"accum": ("accumulator", 0.1)}),
    "ADAGRADDA": _Algorithm({"gradient_accumulator": 0.0, "gradient_squared_accumulator": 0.1}, _adagrad_da),
    "ADADELTA": _fused(
        raw.ResourceApplyAdadelta,
        {"accum": ("accumulator", 0.0), "accum_update": ("accumulated_updates", 0.0)},
        lambda settings: {"rho": 0.95, "epsilon": 1e-8},
    ),
    "ADAM": _Algorithm({"m": 0.0, "v": 0.0}, _adam),
    "ADAMW": _Algorithm({"m": 0.0, "v": 0.0}, _adamw),
    "LION": _Algorithm({"momentum": 0.0}, _lion),
    "RMSPROP": _fused(
        raw.ResourceApplyRMSProp,
        {"ms": ("mean_square", 1.0), "mom": ("momentum", 0.0)},
        lambda settings: {"rho": settings.rms_decay, "momentum": settings.momentum, "epsilon": 1e-10},
    ),
    "FTRL": _fused(
        raw.ResourceApplyFtrl,
        {"accum": ("accumulator", 0.1), "linear": ("linear", 0.0)},
        lambda settings: {"l1": 0.0, "l2": 0.0, "lr_power": -0.5},
    ),
}


class LossScale:
    """The factor by which losses in float16 are multiplied before backpropagation, and gradients divided after it.

    A step whose gradients overflow is skipped and halves the factor, down to 1; it doubles after ``patience``
    consecutive steps without overflow. ``state`` contains its variables by name, which begins with ``scope``, for
    snapshots. P. Micikevicius et al., "Mixed Precision Training", 2018.
    """

    def __init__(
        self, scope: str = STATE_SCOPE, first: float = FIRST_SCALE, patience: int = STEPS_BEFORE_LARGER
    ) -> None:
        self._patience = patience
        scale, steps = f"{scope}/loss_scale", f"{scope}/loss_scale_steps"
        self._scale = make_state(scale, [], first)
        self._good_steps = make_state(steps, [], 0, tf.int64)
        self.state = {scale: self._scale, steps: self._good_steps}

    @property
    def value(self) -> tf.Tensor:
        """The current factor, a float32 scalar."""
        return self._scale.read_value()

    def guard(self, gradients: Sequence[tf.Tensor], apply: Callable[[], Any]) -> None:
        """Call ``apply`` in steps whose gradients are all finite, and update the factor in every step."""
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

        def step() -> tf.Tensor:
            apply()
            return tf.constant(0)

        tf.cond(finite, step, lambda: tf.constant(0))
        good_steps = tf.where(finite, self._good_steps.read_value() + 1, tf.constant(0, tf.int64))
        is_enough = good_steps >= self._patience
        scale = self._scale.read_value()
        larger = tf.where(is_enough, scale * 2, scale)
        self._scale.assign(tf.where(finite, larger, tf.maximum(scale / 2, 1.0)))
        self._good_steps.assign(tf.where(is_enough, tf.constant(0, tf.int64), good_steps))
