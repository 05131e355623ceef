"""Learning-rate policies: the rate at every step, the same in the form's preview and in training.

A policy is a dictionary ``{"policy": name, …}`` with the settings of its kind:

    fixed                                   base
    step       size (%), gamma              base · gamma ^ ⌊step / size⌋
    multistep  values (%), gamma            base · gamma ^ (values passed)
    exp        gamma                        base · gamma ^ p
    inv        gamma, power                 base · (1 + gamma · p) ^ -power
    poly       power                        base · (1 - step / max) ^ power
    sigmoid    step (%), gamma              base / (1 + exp(gamma · (p - step)))
    cosine     final                        from base to base · final along half a cosine
    onecycle   peak (%), start, final       from base · start up to base at the peak, then
                                            down to base · final, along half cosines

Every policy may have a ``warmup`` (%): until then its rate is multiplied by a factor
that grows evenly from nearly 0 to 1.

Cosine: I. Loshchilov, F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017,
without restarts. One cycle: L. N. Smith, N. Topin, "Super-Convergence", 2018.

p is the part of the training that is done, in percent. Settings in percent are
percents of the whole training. Missing settings take the form's defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PREVIEW_POINTS = 101

DEFAULTS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "step": {"size": 33.0, "gamma": 0.1},
    "multistep": {"values": [50.0, 85.0], "gamma": 0.5},
    "exp": {"gamma": 0.95},
    "inv": {"gamma": 0.1, "power": 0.5},
    "poly": {"power": 3.0},
    "sigmoid": {"step": 50.0, "gamma": 0.1},
    "cosine": {"final": 0.0},
    "onecycle": {"peak": 30.0, "start": 0.04, "final": 0.0001},
}
WARM_UP = "warmup"
POLICIES = tuple(DEFAULTS)


@dataclass(frozen=True)
class LearningRate:
    """The rate as a function of the step, in a training of ``max_steps`` steps (may be a fraction).

    Raises ValueError for an unknown policy, an unknown setting, or a setting of the wrong kind.
    """

    base: float
    max_steps: float
    policy: str = "fixed"
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.policy not in DEFAULTS:
            raise ValueError(f"There is no learning-rate policy called {self.policy!r}.")
        unknown = sorted(set(self.settings) - {*DEFAULTS[self.policy], WARM_UP})
        if unknown:
            raise ValueError(f"The policy {self.policy!r} has no setting called {unknown[0]!r}.")
        settings = {WARM_UP: 0.0, **DEFAULTS[self.policy], **self.settings}
        object.__setattr__(self, "settings", {name: _number(name, value) for name, value in settings.items()})

    @classmethod
    def of(cls, policy: Mapping[str, Any], base: float, max_steps: float) -> LearningRate:
        """The rate that the dictionary ``policy`` of a recipe describes."""
        settings = {name: value for name, value in policy.items() if name != "policy"}
        return cls(base, max_steps, str(policy.get("policy", "fixed")), settings)

    def at(self, step: int) -> float:
        """The rate for the step number ``step``, counted from 0."""
        factor, warm_up = self.factors(step)
        return self.base * factor * warm_up

    def factors(self, step: int) -> tuple[float, float]:
        """The factors by which the policy and the warm-up multiply the base rate."""
        return _FACTORS[self.policy](self, step), self._warm_up(step)

    def percent(self, step: float) -> float:
        """How much of the training is done before ``step``, 0 to 100."""
        return 100 * step / self.max_steps if self.max_steps > 0 else 0.0

    def steps(self, percent: float) -> int:
        """The number of steps that ``percent`` of the training take, at least 1."""
        return max(1, round(self.max_steps * percent / 100))

    def _warm_up(self, step: int) -> float:
        percent = self.settings[WARM_UP]
        return min(1.0, (step + 1) / self.steps(percent)) if percent > 0 else 1.0


def preview(policy: Mapping[str, Any], base: float) -> list[float]:
    """The rate after 0, 1, … 100 percent of a training, for the form's chart."""
    return previews(policy, [base])[0]


def previews(policy: Mapping[str, Any], bases: Sequence[float]) -> list[list[float]]:
    """The result of `preview` for each of ``bases``; the policy is evaluated once."""
    rate = LearningRate.of(policy, 1.0, PREVIEW_POINTS - 1)
    factors = [rate.factors(percent) for percent in range(PREVIEW_POINTS)]
    return [[base * factor * warm_up for factor, warm_up in factors] for base in bases]


def _number(name: str, value: Any) -> Any:
    try:
        return [float(item) for item in value] if name == "values" else float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The learning-rate setting {name!r} cannot be {value!r}.") from error


def _step(rate: LearningRate, step: int) -> float:
    return _power(rate.settings["gamma"], step // rate.steps(rate.settings["size"]))


def _multistep(rate: LearningRate, step: int) -> float:
    passed = sum(step > rate.steps(value) for value in rate.settings["values"])
    return _power(rate.settings["gamma"], passed)


def _exp(rate: LearningRate, step: int) -> float:
    return _power(rate.settings["gamma"], rate.percent(step))


def _inv(rate: LearningRate, step: int) -> float:
    return _power(1 + rate.settings["gamma"] * rate.percent(step), -rate.settings["power"])


def _poly(rate: LearningRate, step: int) -> float:
    # Whole epochs seldom are whole batches: the last step may lie a little past the end.
    return _power(max(0.0, 1 - rate.percent(step) / 100), rate.settings["power"])


def _sigmoid(rate: LearningRate, step: int) -> float:
    exponent = rate.settings["gamma"] * (rate.percent(step) - rate.settings["step"])
    return 1 / (1 + math.exp(min(exponent, 700.0)))


def _cosine(rate: LearningRate, step: int) -> float:
    return _half_cosine(1.0, rate.settings["final"], rate.percent(step) / 100)


def _onecycle(rate: LearningRate, step: int) -> float:
    done, peak = rate.percent(step), rate.settings["peak"]
    if done < peak:
        return _half_cosine(rate.settings["start"], 1.0, done / peak)
    return _half_cosine(1.0, rate.settings["final"], (done - peak) / (100 - peak) if peak < 100 else 1.0)


def _half_cosine(begin: float, end: float, part: float) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * min(1.0, part))) / 2


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except (OverflowError, ZeroDivisionError):
        return math.inf


_FACTORS: dict[str, Callable[[LearningRate, int], float]] = {
    "fixed": lambda rate, step: 1.0,
    "step": _step,
    "multistep": _multistep,
    "exp": _exp,
    "inv": _inv,
    "poly": _poly,
    "sigmoid": _sigmoid,
    "cosine": _cosine,
    "onecycle": _onecycle,
}
