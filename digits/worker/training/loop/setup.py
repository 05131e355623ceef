"""Setting up a training: data, network, optimizer, and the functions of its steps.

The preflight and the training share this, so that the preflight checks exactly what the training runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.events import Built as NetworkBuilt
from digits.core.events import EventLog, Warned
from digits.core.schedules import LearningRate, TwoPhaseRate
from digits.kinds.advice import training_time
from digits.worker.failure import describe, in_a_sentence
from digits.worker.network import inference
from digits.worker.network.network import Built
from digits.worker.randomness.streams import Randomness
from digits.worker.training.loop.activations import Activations
from digits.worker.training.loop.head import Head
from digits.worker.training.loop.resources import Resources
from digits.worker.training.loop.tensorboard_log import TensorBoardLog, readable_graph
from digits.worker.training.loop.timeline import TimeLeft
from digits.worker.training.loop.validation import Evaluation
from digits.worker.training.step import device_config, numerics
from digits.worker.training.step.device_config import DeviceConfig
from digits.worker.training.step.step_function import StepFunction
from digits.worker.training.step.training_step import Phase, Traced, TrainingStep
from digits.worker.training.weights import checkpoints


@dataclass(frozen=True)
class Steps:
    """The functions of a training's steps, and the network ``shown`` on its page.

    ``build`` builds `training` once, and ``build_evaluation`` `evaluation`. ``activations`` are None unless their
    histograms are wanted. For fine-tuning, ``head`` is the first phase, and ``trunk`` lists the pretrained variables.
    The work after the last step, which builds the network ``shown`` again, is expected to take ``closing_seconds``.
    """

    build: Callable[[], StepFunction]
    build_evaluation: Callable[[], Evaluation | None]
    shown: inference.Inference
    learning_rate: LearningRate | TwoPhaseRate
    activations: Activations | None = None
    head: Head | None = None
    trunk: Sequence[str] = ()
    checks_numerics: bool = False
    closing_seconds: float = 0.0

    @property
    def training(self) -> StepFunction:
        """The function of the steps that train all layers. It takes seconds to build, if it is not built yet."""
        return self.build()

    @property
    def evaluation(self) -> Evaluation | None:
        """The validation; None without one. It takes seconds to build, if it is not built yet."""
        return self.build_evaluation()

    @property
    def first(self) -> StepFunction:
        """The function of the first steps; what it reveals about the network holds for all."""
        return self.head.function if self.head else self.training

    @property
    def head_steps(self) -> int:
        return self.head.steps if self.head else 0

    @property
    def writes_pictures(self) -> bool:
        """Whether the step after each validation computes the network's histograms, images and texts."""
        return bool(self.first.traced.pictures) and not self.checks_numerics and self.evaluation is not None


def build(
    resources: Resources, board: TensorBoardLog, *, measures_labels: bool = False, trunk: Sequence[str] = ()
) -> Steps:
    """Build the network for all stages, write its graph to ``board``, and return the functions of the steps.

    A resumed training knows its ``trunk``. With ``measures_labels``, the steps also measure the cross-entropy over the
    classes. Raises UserFault for mistakes of the network, and whatever its code raises.
    """
    recipe, store, data = resources.recipe, resources.store, resources.data
    net = resources.network()
    began = time.monotonic()
    shown, fault = inference.trace_for_display(net, store)
    closing_seconds = time.monotonic() - began
    if resources.standard and shown.built.calls:
        resources.weights.application = shown.built.calls.keras_model
    config = _config_for(resources, shown)
    is_resumed = bool(trunk)
    trunk = (trunk or resources.weights.trunk(store)) if recipe.fine_tune else ()
    store.trunk = frozenset(trunk)
    head_steps = _head_steps(resources)
    factor = recipe.fine_tune.trunk_factor if recipe.fine_tune else 1.0
    warn, head = _warn_once(resources.events), None

    @functools.cache
    def build_training() -> StepFunction:
        phase = Phase(resources.optimizer, head_steps, store.trunk, factor)
        with _checked_numerics(recipe):
            return StepFunction(resources.step(net, phase, config, measures_labels=measures_labels), warn)

    if head_steps:
        frozen_layers = shown.built.layers_up_to(store.trunk)
        phase = Phase(resources.head_optimizer, 0, store.trunk, 0.0, frozen_layers)
        with _checked_numerics(recipe):
            step = resources.step(net, phase, config, measures_labels=measures_labels)
            head = Head(resources, step, head_steps, warn)
    if head is None or not head.is_on_features:
        build_training()
    warn_of_labels(resources.events, (head.function if head else build_training()).traced)
    if fault:
        warn(f"The network cannot predict from images. {in_a_sentence(describe(fault))}")
    store.lock("in validation but not in training")
    warn_of_freeze_patterns(resources)

    @functools.cache
    def build_evaluation() -> Evaluation | None:
        evaluation = None
        if data.val:
            with _checked_numerics(recipe):
                randomness = Randomness(resources.seed)
                evaluation = Evaluation(net, store, data.preparation, randomness, config.devices)
        checkpoints.check_watched_metrics(recipe, evaluation.metric_names if evaluation else [])
        return evaluation

    # A standard network makes no mistakes in validation, so its first step does not wait.
    if is_resumed or not (resources.standard and head and head.is_on_features):
        build_evaluation()
    resources.randomness.begin()
    activations = _activations(resources, shown) if recipe.histograms else None
    resources.events.append(
        NetworkBuilt(layers=shown.layers, parameters=store.parameters, latent=shown.latent)
    )
    board.graph(readable_graph(shown.function))

    return Steps(
        build_training,
        build_evaluation,
        shown,
        learning_rate(resources, head_steps),
        activations,
        head,
        trunk,
        recipe.numerics_checks,
        closing_seconds,
    )


def eager_step(resources: Resources) -> TrainingStep:
    """Return a step on one device, for `digits.worker.training.step.eager`."""
    config = dataclasses.replace(resources.config, devices=resources.config.devices[:1])
    return resources.step(resources.network(), Phase(resources.optimizer), config, measures_labels=False)


def _config_for(resources: Resources, shown: inference.Inference) -> DeviceConfig:
    """Return the configuration that suits the network and the checks of the recipe."""
    config = resources.config.supported_by(shown.built.tower)
    if resources.recipe.numerics_checks and config.compiled:
        reason = "it skips the checks for NaN and Inf"
        device_config.report_no_xla(resources.recipe, resources.events, reason)
        return dataclasses.replace(config, compiled=False)
    return config


def _head_steps(resources: Resources) -> int:
    """Return the number of steps that train only the variables that are not pretrained."""
    fine_tune, store = resources.recipe.fine_tune, resources.store
    trained = {name for name, item in store.variables.items() if item.trainable}
    in_trunk = {name for name in trained if name in store.trunk}
    if fine_tune is None or trained == in_trunk:
        return 0
    total = resources.timeline.total_steps
    if in_trunk:
        if fine_tune.head_epochs >= resources.recipe.epochs:
            message = "Only the head is trained: its phase takes all epochs. More epochs train all layers."
            resources.events.append(Warned(message, is_remark=True))
            return total  # not a step less by rounding, which would change all layers at the full rate
        return min(round(fine_tune.head_epochs * resources.data.steps_per_epoch), total)
    models = ", ".join(sorted(store.pretrained.frozen))
    reason = f"{models} cannot be trained further" if models else "all of them are frozen"
    resources.events.append(
        Warned(f"The pretrained layers are not trained, because {reason}: the head is trained in all epochs.")
    )
    return total


def _shares(resources: Resources, steps: Steps) -> tuple[float, float]:
    """Return the expected times of a batch of features and of a step of the head, as shares of that of other steps."""
    forward, head = training_time.shares(resources.standard.id if resources.standard else "")
    return forward, head if steps.head and steps.head.batches else forward + head


def time_left(resources: Resources, steps: Steps, first_step: int) -> TimeLeft:
    """Return the estimate of the time that the steps from ``first_step`` on take."""
    batch_share, head_share = _shares(resources, steps)
    batches = steps.head.batches if steps.head and first_step < steps.head_steps else 0
    return TimeLeft(
        first_step,
        resources.timeline.total_steps,
        steps.head_steps,
        head_share,
        batches,
        batch_share,
        steps.closing_seconds,
    )


def saved_steps(resources: Resources, steps: Steps) -> float:
    """Return the number of steps whose time the head phase saves."""
    batch_share, head_share = _shares(resources, steps)
    batches = steps.head.batches if steps.head else 0
    return steps.head_steps * (1 - head_share) - batches * batch_share


def learning_rate(resources: Resources, head_steps: int = 0) -> LearningRate | TwoPhaseRate:
    """Return the learning rate as a function of the step."""
    recipe = resources.recipe
    steps = recipe.epochs * resources.data.steps_per_epoch - head_steps
    rate = LearningRate(recipe.lr_policy, recipe.solver.learning_rate, steps)
    if recipe.fine_tune and head_steps:
        return TwoPhaseRate(recipe.fine_tune.head_rate, head_steps, rate)
    return rate


def _activations(resources: Resources, shown: inference.Inference) -> Activations:
    """Return histograms of the activations for the first validation batch, or training batch without validation.

    Those of a generator are for random vectors.
    """
    data = resources.data

    def build(x: tf.Tensor) -> Built:
        return shown.build(tf.random.normal([tf.shape(x)[0], 1, 1, shown.latent]) if shown.latent else x)

    first = data.read_first(data.val or data.train)
    return Activations(build, resources.store, data.preparation, Randomness(resources.seed), first.images)


def _checked_numerics(recipe: recipes.Train) -> contextlib.AbstractContextManager[None]:
    return numerics.checked() if recipe.numerics_checks else contextlib.nullcontext()


def _warn_once(events: EventLog) -> Callable[[str], None]:
    """Return a function that logs a warning, but not the same one again, such as for both phases of fine-tuning."""
    messages: set[str] = set()

    def warn(message: str) -> None:
        if message not in messages:
            messages.add(message)
            events.append(Warned(message))

    return warn


def warn_of_labels(events: EventLog, traced: Traced) -> None:
    """Warn about labels that the loss misinterprets."""
    events.append(*map(Warned, traced.label_flow.warnings))


def warn_of_freeze_patterns(resources: Resources) -> None:
    """Warn about freeze patterns that match no variable."""
    for pattern in resources.frozen.unmatched:
        resources.events.append(Warned(f"No variable is called {pattern!r}, so it freezes none."))
