"""Judge a finished training: how good the model is, why, and the one thing to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from digits.data.sources.plan import count_of
from digits.kinds.views import Baseline, Metric

Level = Literal["good", "fair", "poor", "none"]
Action = Literal["use", "more_images", "fix_labels", "train_longer", "other_network", "fix_network"]

# As fractions of the way from the baseline to a perfect value.
_NOTHING = 0.05
_MEMORIZED_GAP = 0.25
# Relative to the smallest loss.
_RISEN_LOSS = 1.3
_FALLING_LOSS = 0.98
# The improvement in the last quarter of a training, as a share of that in all of it, from which it was too short.
_STILL_IMPROVING = 0.05
# Wrong labels are few in most datasets: fewer than these are not the most important problem.
_MIN_SUSPECTS, _SUSPECT_SHARE = 3, 0.01
# A class is the problem if its score is this much lower than the mean.
_WEAK_CLASS = 0.15
# With more images in all, another network or other settings help more than some further images.
_FEW_IMAGES = 2000
_WIDE_INTERVAL = 0.2


@dataclass(frozen=True)
class ClassScore:
    """The class with the lowest ``score``, from 0 to 1, the ``mean`` of all, and its ``word``, such as *recall*."""

    name: str
    score: float
    mean: float
    word: str

    @property
    def is_far_below(self) -> bool:
        """Whether it is much lower than the others."""
        return self.score < self.mean - _WEAK_CLASS


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
    def is_guessing(self) -> bool:
        """Whether the model is not known to be better than the baseline."""
        skill = self.skill(self.value)
        if skill is None or self.baseline is None:
            return False
        low = self.interval[0] if self.interval else self.value
        return skill < _NOTHING or (self.baseline.value > 0 and low <= self.baseline.value)

    @property
    def memorizes(self) -> bool:
        """Whether it is much better on the training records than on others."""
        trained = None if self.trained is None else self.skill(self.trained)
        skill = self.skill(self.value)
        if trained is not None and skill is not None:
            return trained - skill >= _MEMORIZED_GAP
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
        return trained is not None and recalled is not None and trained - recalled >= _MEMORIZED_GAP

    @property
    def underfits(self) -> bool:
        """Whether it is not even fair on the training records, so that more of them would not help."""
        trained = None if self.trained is None else self.skill(self.trained)
        return trained is not None and trained < self.metric.grades[0]

    @property
    def is_improving(self) -> bool:
        """Whether the metric was still improving at the end, or without any skill, whether the loss was falling."""
        if not self.is_guessing:
            return improves(self.history, lower_is_better=self.metric.best == "lowest")
        quarter = max(1, len(self.losses) // 4)
        earlier, last = self.losses[:-quarter], self.losses[-quarter:]
        return bool(earlier) and min(last) < _FALLING_LOSS * min(earlier)

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


def improves(values: Sequence[float], *, lower_is_better: bool) -> bool:
    """Return whether ``values`` still improved in their last quarter by a notable part of the whole improvement."""
    if len(values) < 4:
        return False
    ordered = [-value for value in values] if lower_is_better else list(values)
    start = len(ordered) - max(1, len(ordered) // 4)
    total = max(ordered) - ordered[0]
    gain = max(ordered[start:]) - max(ordered[:start])
    return total > 0 and gain > _STILL_IMPROVING * total


def judge(outcome: Outcome) -> Verdict:
    """Return the verdict on ``outcome``: the first rule that applies decides."""
    level = outcome.level
    action: Action
    if level != "good" and outcome.predicts_otherwise:
        title, action = "Predicts otherwise than it trains", "fix_network"
        reasons = [_predicted_otherwise(outcome)]
    elif level == "none":
        assert outcome.baseline
        action = _after_guessing(outcome)
        title = outcome.baseline.title
        reasons = [outcome.baseline.words]
        if action == "train_longer":
            reasons.append("The loss was still falling when the training ended.")
        elif action == "more_images":
            reasons.append(f"It has seen only {_training(outcome)}.")
        else:
            reasons.append("The training did not learn from these images.")
    elif level != "good" and outcome.memorizes:
        title, action = f"Memorizes its {_training(outcome)}", "more_images"
        reasons = [_memorized(outcome)]
    elif level != "good" and outcome.is_improving:
        title, action = "Still improving", "train_longer"
        changed = "fell" if outcome.metric.best == "lowest" else "rose"
        reasons = [
            f"The validation {outcome.metric.word} still {changed} in the last quarter of the training."
        ]
    else:
        title, (action, reason) = _TITLES[level], _after_learning(outcome)
        if outcome.skill(outcome.value) is None:
            title = ""
        reasons = [reason]
    if outcome.interval and _is_wide(outcome):
        reasons.append(f"With only {count_of(outcome.records, outcome.noun)}, the interval is wide.")
    return Verdict(level, title, " ".join(filter(None, reasons)), action, _label(action, outcome))


_TITLES: dict[Level, str] = {"good": "Good", "fair": "Fair", "poor": "Weak"}


def _after_guessing(outcome: Outcome) -> Action:
    if outcome.memorizes:
        return "more_images"
    return "train_longer" if outcome.is_improving else "other_network"


def _after_learning(outcome: Outcome) -> tuple[Action, str]:
    """Return what helps a model that is better than its baseline, and why."""
    weakest, level = outcome.weakest, outcome.level
    enough = max(_MIN_SUSPECTS, _SUSPECT_SHARE * outcome.records)
    if level != "poor" and outcome.suspects >= enough:
        return "fix_labels", (
            f"{count_of(outcome.suspects, outcome.noun)} with another label than the model is almost sure of."
        )
    is_weak = weakest is not None and weakest.is_far_below
    worst = (
        f"The weakest class is “{weakest.name}”: {weakest.word} {100 * weakest.score:.0f}%."
        if weakest
        else ""
    )
    if level == "good":
        return ("more_images", worst) if is_weak else ("use", worst)
    if outcome.metric.perfect is None:
        return "use", ""
    if level == "poor" and outcome.underfits:
        assert outcome.trained is not None
        trained = outcome.metric.format(outcome.trained)
        return "other_network", f"It is no better on its training {outcome.noun}s: {trained}."
    if is_weak or outcome.training_records < _FEW_IMAGES:
        return "more_images", worst or f"It has seen {_training(outcome)}."
    return "other_network", worst


def _label(action: Action, outcome: Outcome) -> str:
    weakest = outcome.weakest
    if action == "more_images" and weakest and weakest.is_far_below and not outcome.is_guessing:
        return f"Get more {outcome.noun}s of “{weakest.name}”"
    return {
        "use": "Use it",
        "more_images": f"Get more {outcome.noun}s",
        "fix_labels": f"Check {count_of(outcome.suspects, 'suspect label')}",
        "train_longer": "Train longer",
        "other_network": "Choose another network",
        "fix_network": "Change the network",
    }[action]


def _memorized(outcome: Outcome) -> str:
    if outcome.trained is None:
        return "The validation loss rose while the training loss fell."
    trained, value = map(outcome.metric.format, (outcome.trained, outcome.value))
    return f"{trained} on the training {outcome.noun}s, but {value} on others."


def _predicted_otherwise(outcome: Outcome) -> str:
    assert outcome.trained is not None and outcome.recalled is not None
    trained, recalled = map(outcome.metric.format, (outcome.trained, outcome.recalled))
    return (
        f"{trained} on its training {outcome.noun}s while it trains, but {recalled} on them when it predicts: the "
        "moving averages of its normalization are still far from the statistics of its batches, so lower their "
        "momentum (decay) or train for more steps, or a layer does something else in training."
    )


def _training(outcome: Outcome) -> str:
    return count_of(outcome.training_records, f"training {outcome.noun}")


def _is_wide(outcome: Outcome) -> bool:
    assert outcome.interval
    low, high = (outcome.skill(end) for end in outcome.interval)
    return low is not None and high is not None and abs(high - low) > _WIDE_INTERVAL
