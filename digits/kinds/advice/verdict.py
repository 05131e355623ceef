"""Judge a finished training: how good the model is, why, and the one thing to do next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from digits.data.sources.plan import count_of
from digits.kinds.views import Baseline, Metric

Level = Literal["good", "fair", "poor", "none"]
Action = Literal["use", "more_images", "fix_labels", "train_longer", "other_network", "fix_network"]

# As fractions of the way from the baseline to a perfect value.
_NOTHING = 0.05
_OTHERWISE_GAP = 0.25
_MEMORIZED_GAP = 0.15
# Relative to the smallest loss.
_RISEN_LOSS = 1.3
_FALLING_LOSS = 0.98
# The improvement in the last quarter of a training, as a share of that in all of it, from which it was too short.
_STILL_IMPROVING = 0.05
# Wrong labels are few in most datasets: fewer than these are not the most important problem.
_MIN_SUSPECTS, _SUSPECT_SHARE = 3, 0.01
# A class is the problem if its score is this much lower than the mean.
_WEAK_CLASS = 0.15
# The probability of such a score by chance.
_MOST_CHANCE = 0.05
# With more images in all, another network or other settings help more than some further images.
_FEW_IMAGES = 1000
_WIDE_INTERVAL = 0.2


@dataclass(frozen=True)
class ClassScore:
    """The class with the lowest ``score``, from 0 to 1, the ``mean`` of all, and its ``word``, such as *recall*.

    ``support`` is the number of its records that were evaluated, if it is known.
    """

    name: str
    score: float
    mean: float
    word: str
    support: int | None = None

    @property
    def is_far_below(self) -> bool:
        """Whether it is much lower than the others, and not by chance among few records."""
        return self.score < self.mean - _WEAK_CLASS and self._chance < _MOST_CHANCE

    @property
    def _chance(self) -> float:
        """An upper bound of the probability of a score as low or lower if the true one is the mean (Chernoff, 1952)."""
        pairs = ((self.score, self.mean), (1 - self.score, 1 - self.mean))
        divergence = sum(share * math.log(share / true) for share, true in pairs if share > 0 < true)
        return math.exp(-divergence * self.support) if self.support else 0.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The facts about a finished training.

    ``value`` is the kind's ``metric`` on ``records`` records, called ``noun``, with its 95% ``interval``. ``baseline``
    is what a model without any skill reaches. ``trained`` is the same metric on the training records at the end, if the
    network reports it, and ``recalled`` is that on some of them as validations compute it. ``history`` are its
    validation values, and ``losses`` the validation losses, in order. ``training_loss`` is the loss at the end.
    ``suspects`` are evaluated records whose label is probably wrong.
    """

    metric: Metric
    value: float
    records: int
    training_records: int
    noun: str = "image"
    interval: tuple[float, float] | None = None
    baseline: Baseline | None = None
    trained: float | None = None
    recalled: float | None = None
    history: Sequence[float] = ()
    losses: Sequence[float] = ()
    training_loss: float | None = None
    weakest: ClassScore | None = None
    suspects: int = 0

    def skill(self, value: float) -> float | None:
        """Return how much of the way from the baseline to a perfect model ``value`` is; None if that is unknown."""
        if self.baseline is None or self.metric.perfect is None:
            return None
        span = self.metric.perfect - self.baseline.value
        return (value - self.baseline.value) / span if span > 0 else None

    @property
    def class_to_extend(self) -> str:
        """The class that needs more records before the others; empty if none does."""
        weakest = self.weakest
        return weakest.name if weakest and weakest.is_far_below and not self.is_guessing else ""

    @property
    def is_guessing(self) -> bool:
        """Whether the model is not known to be better than the baseline."""
        skill = self.skill(self.value)
        if skill is None or self.baseline is None:
            return False
        low = self.interval[0] if self.interval else self.value
        return skill < _NOTHING or (self.baseline.value > 0 and low <= self.baseline.value)

    @property
    def learned(self) -> float | None:
        """The metric on the training records; None if it is unknown."""
        return self.recalled if self.trained is None else self.trained

    @property
    def memorizes(self) -> bool:
        """Whether it is much better on the training records than on others."""
        learned = None if self.learned is None else self.skill(self.learned)
        skill = self.skill(self.value)
        if learned is not None and skill is not None:
            return learned - skill >= _MEMORIZED_GAP
        if not self.losses or self.training_loss is None:
            return False
        end = self.losses[-1]
        return end > _RISEN_LOSS * min(self.losses) and self.training_loss < end / _RISEN_LOSS

    @property
    def predicts_otherwise(self) -> bool:
        """Whether it is much worse on its training records when it predicts than when it trains."""
        trained, recalled = (
            None if value is None else self.skill(value) for value in (self.trained, self.recalled)
        )
        return trained is not None and recalled is not None and trained - recalled >= _OTHERWISE_GAP

    @property
    def underfits(self) -> bool:
        """Whether it is not good on the training records either, so that more of them would not help."""
        learned = None if self.learned is None else self.skill(self.learned)
        return learned is not None and learned < self.metric.grades[1]

    @property
    def is_improving(self) -> bool:
        """Whether the metric was still improving at the end, or without any skill, whether the loss was falling.

        Without any skill, the metric changes by chance, unless chance reaches 0.
        """
        is_known = not self.is_guessing or (self.baseline is not None and self.baseline.value == 0)
        if is_known and improves(self.history, lower_is_better=self.metric.best == "lowest"):
            return True
        return self.is_guessing and self.is_loss_falling

    @property
    def is_loss_falling(self) -> bool:
        """Whether the loss was still falling in the last quarter of the training."""
        quarter = max(1, len(self.losses) // 4)
        earlier, last = self.losses[:-quarter], self.losses[-quarter:]
        return bool(earlier) and min(last) < _FALLING_LOSS * min(earlier)

    @property
    def lacks_images(self) -> bool:
        """Whether a class is far below the others, or there are too few records to be good."""
        if self.weakest and self.weakest.is_far_below:
            return True
        return self.level != "good" and self.is_graded and self.training_records < _FEW_IMAGES

    @property
    def has_suspects(self) -> bool:
        """Whether many labels are suspect. A network that memorizes is sure of its mistakes, too."""
        enough = max(_MIN_SUSPECTS, _SUSPECT_SHARE * self.records)
        return self.level != "poor" and self.suspects >= enough and not self.memorizes

    @property
    def is_graded(self) -> bool:
        """Whether it is known what would be good."""
        return self.skill(self.value) is not None

    @property
    def level(self) -> Level:
        skill = self.skill(self.value)
        if skill is None:
            return "fair"
        if self.is_guessing:
            return "none"
        fair, good = self.metric.grades
        return "good" if skill >= good else "fair" if skill >= fair else "poor"


@dataclass(frozen=True)
class Verdict:
    """A ``title`` such as *Good*, the ``reason`` in one or two sentences, and the ``action`` with its ``label``.

    The title is empty if it is unknown what would be good.
    """

    level: Level
    title: str
    reason: str
    action: Action
    label: str


@dataclass(frozen=True)
class Rule:
    """What to say about an outcome to which it ``applies``: a ``title``, the ``reason`` and the ``action``."""

    applies: Callable[[Outcome], bool]
    action: Action
    reason: Callable[[Outcome], str]
    title: Callable[[Outcome], str]


def judge(outcome: Outcome) -> Verdict:
    """Return the verdict on ``outcome``: the first one of `RULES` that applies."""
    rule = next(rule for rule in RULES if rule.applies(outcome))
    reasons = [rule.reason(outcome)]
    if outcome.is_guessing and outcome.baseline:
        reasons.insert(0, outcome.baseline.words)
    if outcome.interval and _is_wide(outcome):
        reasons.append(f"With only {count_of(outcome.records, outcome.noun)}, the interval is wide.")
    reason, label = " ".join(filter(None, reasons)), _label(rule.action, outcome)
    return Verdict(outcome.level, rule.title(outcome), reason, rule.action, label)


def improves(values: Sequence[float], *, lower_is_better: bool) -> bool:
    """Return whether ``values`` still improved in their last quarter by a notable part of the whole improvement.

    Its mean counts besides its best value, which single values may reach by chance.
    """
    if len(values) < 2:
        return False
    ordered = [-value for value in values] if lower_is_better else list(values)
    quarter = max(1, len(ordered) // 4)
    earlier, last = ordered[:-quarter], ordered[-quarter:]
    total = max(ordered) - ordered[0]
    gain = min(max(last) - max(earlier), mean(last) - mean(earlier[-quarter:]))
    return total > 0 and gain > _STILL_IMPROVING * total


def _grade(outcome: Outcome) -> str:
    titles = {"good": "Good", "fair": "Fair", "poor": "Weak"}
    return titles.get(outcome.level, "") if outcome.is_graded else ""


def _guessed_title(outcome: Outcome) -> str:
    return outcome.baseline.title if outcome.baseline else ""


def _guessed(outcome: Outcome) -> str:
    if (outcome.skill(outcome.value) or 0) < _NOTHING:
        return "The training did not learn from these images."
    return "The interval contains this value: the model may be no better."


def _improving(outcome: Outcome) -> str:
    if outcome.is_guessing and outcome.is_loss_falling:
        return "The loss was still falling when the training ended."
    changed = "fell" if outcome.metric.best == "lowest" else "rose"
    return f"The validation {outcome.metric.word} still {changed} in the last quarter of the training."


def _memorized(outcome: Outcome) -> str:
    if outcome.learned is None or outcome.skill(outcome.learned) is None:
        return "The validation loss rose while the training loss fell."
    learned, value = map(outcome.metric.format, (outcome.learned, outcome.value))
    return f"{learned} on the training {outcome.noun}s, but {value} on others."


def _predicted_otherwise(outcome: Outcome) -> str:
    assert outcome.trained is not None and outcome.recalled is not None
    trained, recalled = map(outcome.metric.format, (outcome.trained, outcome.recalled))
    return (
        f"{trained} on its training {outcome.noun}s while it trains, but {recalled} on them when it predicts: the "
        "moving averages of its normalization are still far from the statistics of its batches, so lower their "
        "momentum (decay) or train for more steps, or a layer does something else in training."
    )


def _underfitted(outcome: Outcome) -> str:
    assert outcome.learned is not None
    return (
        f"It has not learned its training {outcome.noun}s either: {outcome.metric.format(outcome.learned)}."
    )


def _few(outcome: Outcome) -> str:
    return _weakest(outcome) or f"It has seen {_training(outcome)}."


def _suspected(outcome: Outcome) -> str:
    return f"{count_of(outcome.suspects, outcome.noun)} with another label than the model is almost sure of."


def _weakest(outcome: Outcome) -> str:
    """Name the class with the lowest score, unless all are perfect."""
    weakest = outcome.weakest
    if not weakest or round(100 * weakest.score) >= 100:
        return ""
    return f"The weakest class is “{weakest.name}”: {weakest.word} {100 * weakest.score:.0f}%."


def _training(outcome: Outcome) -> str:
    return count_of(outcome.training_records, f"training {outcome.noun}")


def _is_wide(outcome: Outcome) -> bool:
    assert outcome.interval
    low, high = (outcome.skill(end) for end in outcome.interval)
    return low is not None and high is not None and abs(high - low) > _WIDE_INTERVAL


def _label(action: Action, outcome: Outcome) -> str:
    of_class = f" of “{outcome.class_to_extend}”" if outcome.class_to_extend else ""
    return {
        "use": "Use it",
        "more_images": f"Get more {outcome.noun}s{of_class}",
        "fix_labels": f"Check {count_of(outcome.suspects, 'suspect label')}",
        "train_longer": "Train longer",
        "other_network": "Choose another network",
        "fix_network": "Change the network",
    }[action]


# In the order of the table in docs/evaluation.md.
RULES = (
    Rule(
        lambda outcome: outcome.level != "good" and outcome.predicts_otherwise,
        "fix_network",
        _predicted_otherwise,
        lambda _: "Predicts otherwise than it trains",
    ),
    Rule(
        lambda outcome: outcome.level == "none" and not (outcome.is_improving or outcome.memorizes),
        "other_network",
        _guessed,
        _guessed_title,
    ),
    Rule(
        lambda outcome: outcome.level != "good" and outcome.is_improving,
        "train_longer",
        _improving,
        lambda _: "Still improving",
    ),
    Rule(
        lambda outcome: outcome.level != "good" and outcome.memorizes,
        "more_images",
        _memorized,
        lambda outcome: f"Memorizes its {_training(outcome)}",
    ),
    Rule(
        lambda outcome: outcome.level != "good" and outcome.underfits,
        "other_network",
        _underfitted,
        _grade,
    ),
    Rule(lambda outcome: outcome.lacks_images, "more_images", _few, _grade),
    Rule(lambda outcome: outcome.has_suspects, "fix_labels", _suspected, _grade),
    Rule(lambda outcome: outcome.level != "good" and outcome.is_graded, "other_network", _weakest, _grade),
    Rule(lambda _: True, "use", _weakest, _grade),
)
