"""Two steps of every optimizer, compared with its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from digits.core.recipe import Solver
from tests.worker.lazily import optimizers, tf

GRADIENTS = (np.array([0.5, -2.0]), np.array([0.1, 1.0]))
START = np.array([1.0, -1.0])
RATE = 0.1


def momentum(nesterov: bool) -> np.ndarray:
    value, accumulated = START.copy(), np.zeros(2)
    for gradient in GRADIENTS:
        accumulated = 0.9 * accumulated + gradient
        value -= RATE * (gradient + 0.9 * accumulated if nesterov else accumulated)
    return value


def adam() -> np.ndarray:
    value, m, v = START.copy(), np.zeros(2), np.zeros(2)
    for number, gradient in enumerate(GRADIENTS, 1):
        m, v = 0.7 * m + 0.3 * gradient, 0.95 * v + 0.05 * gradient**2
        rate = RATE * np.sqrt(1 - 0.95**number) / (1 - 0.7**number)
        value -= rate * m / (np.sqrt(v) + 1e-8)
    return value


def adamw() -> np.ndarray:
    value, m, v = START.copy(), np.zeros(2), np.zeros(2)
    for number, gradient in enumerate(GRADIENTS, 1):
        m, v = 0.7 * m + 0.3 * gradient, 0.95 * v + 0.05 * gradient**2
        unbiased_m, unbiased_v = m / (1 - 0.7**number), v / (1 - 0.95**number)
        value = value - RATE * (unbiased_m / (np.sqrt(unbiased_v) + 1e-8) + 0.2 * value)
    return value


def lion() -> np.ndarray:
    value, m = START.copy(), np.zeros(2)
    for gradient in GRADIENTS:
        value = value - RATE * (np.sign(0.7 * m + 0.3 * gradient) + 0.2 * value)
        m = 0.95 * m + 0.05 * gradient
    return value


def adagrad() -> np.ndarray:
    value, accumulated = START.copy(), np.full(2, 0.1)
    for gradient in GRADIENTS:
        accumulated += gradient**2
        value -= RATE * gradient / np.sqrt(accumulated)
    return value


def adagrad_da() -> np.ndarray:
    value, total, squares = START.copy(), np.zeros(2), np.full(2, 0.1)
    for gradient in GRADIENTS:
        total, squares = total + gradient, squares + gradient**2
        value = -RATE * total / np.sqrt(squares)
    return value


def rmsprop() -> np.ndarray:
    value, square, moved = START.copy(), np.ones(2), np.zeros(2)
    for gradient in GRADIENTS:
        square = 0.8 * square + 0.2 * gradient**2
        moved = 0.9 * moved + RATE * gradient / np.sqrt(square + 1e-10)
        value -= moved
    return value


def adadelta() -> np.ndarray:
    value, squares, updates = START.copy(), np.zeros(2), np.zeros(2)
    for gradient in GRADIENTS:
        squares = 0.95 * squares + 0.05 * gradient**2
        update = np.sqrt(updates + 1e-8) / np.sqrt(squares + 1e-8) * gradient
        updates = 0.95 * updates + 0.05 * update**2
        value -= RATE * update
    return value


def ftrl() -> np.ndarray:
    value, squares, linear = START.copy(), np.full(2, 0.1), np.zeros(2)
    for gradient in GRADIENTS:
        new = squares + gradient**2
        linear += gradient - (np.sqrt(new) - np.sqrt(squares)) / RATE * value
        squares = new
        value = -linear / (np.sqrt(squares) / RATE)
    return value


FORMULAS = {
    "SGD": START - RATE * sum(GRADIENTS),
    "MOMENTUM": momentum(nesterov=False),
    "NESTEROV": momentum(nesterov=True),
    "ADAM": adam(),
    "ADAMW": adamw(),
    "LION": lion(),
    "ADAGRAD": adagrad(),
    "ADAGRADDA": adagrad_da(),
    "RMSPROP": rmsprop(),
    "ADADELTA": adadelta(),
    "FTRL": ftrl(),
}


def test_two_steps_follow_the_formula(in_child: Any) -> None:
    for kind, (value, _) in in_child(_two_steps, list(FORMULAS)).items():
        assert value == pytest.approx(FORMULAS[kind], rel=1e-4), kind


def test_state_is_named_after_slot_and_variable(in_child: Any) -> None:
    _, names = in_child(_two_steps, ["RMSPROP"])["RMSPROP"]
    assert names == ["optimizer/mean_square/model/w", "optimizer/momentum/model/w"]


def test_every_optimizer_of_the_form_exists(in_child: Any) -> None:
    assert in_child(_kinds) == list(FORMULAS_IN_FORM)


FORMULAS_IN_FORM = "SGD MOMENTUM NESTEROV ADAGRAD ADAGRADDA ADADELTA ADAM ADAMW LION RMSPROP FTRL".split()


def _kinds() -> list[str]:
    return list(optimizers.ALGORITHMS)


def _two_steps(kinds: list[str]) -> dict[str, Any]:
    found = {}
    for kind in kinds:
        solver = {"momentum": 0.9, "rms_decay": 0.8, "beta_1": 0.7, "beta_2": 0.95, "weight_decay": 0.2}
        optimizer = optimizers.Optimizer(Solver(type=kind, learning_rate=RATE, **solver))
        variable = tf.Variable(START.astype(np.float32), name="model/w")
        for step, gradient in enumerate(GRADIENTS):
            optimizer.apply(
                tf.constant(gradient, tf.float32), variable, tf.constant(RATE), tf.constant(step, tf.int64)
            )
        found[kind] = (variable.numpy(), sorted(optimizer.state))
    return found
