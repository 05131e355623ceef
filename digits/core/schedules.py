"""Learning-rate schedules: the rate at every step, for the form's preview and for training.

A schedule is called a policy, as in DIGITS' form, and each is a struct with its settings:

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

Every policy has a ``warmup`` (%): until then its rate is multiplied by a factor that
grows evenly from nearly 0 to 1.

Cosine: I. Loshchilov, F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017,
without restarts. One cycle: L. N. Smith, N. Topin, "Super-Convergence", 2018.

p is the completed part of the training in percent. Settings in percent are percents of the
whole training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct

from digits.core import schema
from digits.core.schema import LARGEST_NUMBER, Fraction, NonNegative, Percent

PREVIEW_POINTS = 101
MAX_STEPS = 100

Steps = Annotated[
    tuple[Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)], ...],
    Meta(min_length=1, max_length=MAX_STEPS),
]


class Schedule(
    Struct, frozen=True, kw_only=True, tag_field="policy", tag=str.lower, forbid_unknown_fields=True
):
    """Base of all policies. In JSON, ``policy`` is the name of the class in lower case."""

    warmup: Percent = 0.0

    def factor(self, training: Training, step: float) -> float:
        """The factor by which the policy multiplies the base rate at ``step``, counted from 0."""
        raise NotImplementedError

    def warmup_factor(self, training: Training, step: float) -> float:
        """The factor by which the warm-up multiplies the base rate at ``step``, counted from 0."""
        return min(1.0, (step + 1) / training.steps(self.warmup)) if self.warmup > 0 else 1.0


class Fixed(Schedule, frozen=True):
    def factor(self, training: Training, step: float) -> float:
        return 1.0


class Step(Schedule, frozen=True):
    size: NonNegative = 33.0
    gamma: NonNegative = 0.1

    def factor(self, training: Training, step: float) -> float:
        return _power(self.gamma, step // training.steps(self.size))


class Multistep(Schedule, frozen=True):
    values: Steps = (50.0, 85.0)
    gamma: NonNegative = 0.5

    def factor(self, training: Training, step: float) -> float:
        return _power(self.gamma, sum(step > training.steps(value) for value in self.values))


class Exp(Schedule, frozen=True):
    gamma: NonNegative = 0.95

    def factor(self, training: Training, step: float) -> float:
        return _power(self.gamma, training.percent(step))


class Inv(Schedule, frozen=True):
    gamma: NonNegative = 0.1
    power: NonNegative = 0.5

    def factor(self, training: Training, step: float) -> float:
        return _power(1 + self.gamma * training.percent(step), -self.power)


class Poly(Schedule, frozen=True):
    power: NonNegative = 3.0

    def factor(self, training: Training, step: float) -> float:
        # The last step may lie slightly past the end, because whole epochs are seldom whole batches.
        return _power(max(0.0, 1 - training.percent(step) / 100), self.power)


class Sigmoid(Schedule, frozen=True):
    step: NonNegative = 50.0
    gamma: NonNegative = 0.1

    def factor(self, training: Training, step: float) -> float:
        exponent = self.gamma * (training.percent(step) - self.step)
        return 1 / (1 + math.exp(min(exponent, 700.0)))


class Cosine(Schedule, frozen=True):
    final: Fraction = 0.0

    def factor(self, training: Training, step: float) -> float:
        return _half_cosine(1.0, self.final, training.percent(step) / 100)


class OneCycle(Schedule, frozen=True):
    peak: Percent = 30.0
    start: Fraction = 0.04
    final: Fraction = 0.0001

    def factor(self, training: Training, step: float) -> float:
        done, peak = training.percent(step), self.peak
        if done < peak:
            return _half_cosine(self.start, 1.0, done / peak)
        return _half_cosine(1.0, self.final, (done - peak) / (100 - peak) if peak < 100 else 1.0)


AnySchedule = Fixed | Step | Multistep | Exp | Inv | Poly | Sigmoid | Cosine | OneCycle
TITLES: dict[type[Schedule], str] = {
    Fixed: "Fixed",
    Step: "Step decay",
    Multistep: "Multi-step decay",
    Exp: "Exponential decay",
    Inv: "Inverse decay",
    Poly: "Polynomial decay",
    Sigmoid: "Sigmoid decay",
    Cosine: "Cosine decay",
    OneCycle: "One cycle",
}
POLICIES = {kind.__name__.lower(): kind for kind in TITLES}


@dataclass(frozen=True)
class Training:
    """A training of ``max_steps`` steps (may be a fraction)."""

    max_steps: float

    def percent(self, step: float) -> float:
        """The completed part of the training before ``step``, 0 to 100."""
        return 100 * step / self.max_steps if self.max_steps > 0 else 0.0

    def steps(self, percent: float) -> int:
        """The number of steps in ``percent`` of the training, at least 1."""
        return max(1, round(self.max_steps * percent / 100))


class LearningRate:
    """The learning rate as a function of the step, in a training of ``max_steps`` steps."""

    def __init__(self, schedule: Schedule, base: float, max_steps: float) -> None:
        self.schedule, self.base, self._training = schedule, base, Training(max_steps)

    def at(self, step: float) -> float:
        """The rate at ``step``, counted from 0."""
        factor, warmup = self.factors(step)
        return self.base * factor * warmup

    def factors(self, step: float) -> tuple[float, float]:
        """The factors by which the policy and the warm-up multiply the base rate at ``step``."""
        return self.schedule.factor(self._training, step), self.schedule.warmup_factor(self._training, step)


class TwoPhaseRate:
    """The learning rate of fine-tuning: from ``head_rate`` along half a cosine to 0 in ``head_steps`` steps, then
    that of ``rest``, from its first step on.
    """

    def __init__(self, head_rate: float, head_steps: int, rest: LearningRate) -> None:
        self._head_rate, self._head_steps, self._rest = head_rate, head_steps, rest

    def at(self, step: float) -> float:
        """The rate at ``step``, counted from 0."""
        if step < self._head_steps:
            return _half_cosine(self._head_rate, 0.0, step / self._head_steps)
        return self._rest.at(step - self._head_steps)


def from_settings(policy: str, **settings: Any) -> AnySchedule:
    """The schedule ``policy`` with ``settings``; missing ones take their default. Raises ValueError."""
    schedule: AnySchedule = schema.convert({"policy": policy, **settings}, AnySchedule)  # type: ignore[arg-type]
    return schedule


def preview(
    schedule: Schedule, bases: Sequence[float], head_rate: float = 0.0, head_fraction: float = 0.0
) -> list[list[float]]:
    """Return, for each of ``bases``, the rates after 0, 1, … 100 percent of a training. Evaluates the policy once.

    The first ``head_fraction`` (0 to 1) of fine-tuning is its head phase; see `TwoPhaseRate`.
    """
    steps = PREVIEW_POINTS - 1
    head_steps = min(1.0, head_fraction) * steps
    # A training that ends with its head phase takes no step of the rest.
    head = [percent for percent in range(PREVIEW_POINTS) if percent < head_steps or head_steps == steps]
    rate = LearningRate(schedule, 1.0, steps - head_steps)
    factors = [rate.factors(percent - head_steps) for percent in range(len(head), PREVIEW_POINTS)]
    start = [_half_cosine(head_rate, 0.0, percent / head_steps) for percent in head]
    return [[*start, *(base * factor * warmup for factor, warmup in factors)] for base in bases]


def _half_cosine(begin: float, end: float, part: float) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * min(1.0, part))) / 2


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except (OverflowError, ZeroDivisionError):
        return math.inf
