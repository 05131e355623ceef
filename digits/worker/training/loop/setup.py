"""Setting up a training: data, network, optimizer, and the functions of its steps.

The preflight and the training share this, so that the preflight checks exactly what the training runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import tensorflow as tf

from digits.core import recipe as recipes
from digits.core.events import Built as NetworkBuilt
from digits.core.events import EventLog, Warned
from digits.core.recipe import Solver
from digits.core.schedules import LearningRate, TwoPhaseRate
from digits.worker import network_loader
from digits.worker.failure import describe, in_a_sentence
from digits.worker.network import inference
from digits.worker.network.flops import count_flops
from digits.worker.network.network import Built, Network
from digits.worker.network.variables import VariableStore
from digits.worker.randomness.python_generators import PythonGenerators
from digits.worker.randomness.streams import Randomness
from digits.worker.training.loop import pace, training_data
from digits.worker.training.loop.activations import Activations
from digits.worker.training.loop.side_effects import SideEffects
from digits.worker.training.loop.tensorboard_log import TensorBoardLog, readable_graph
from digits.worker.training.loop.timeline import Timeline
from digits.worker.training.loop.validation import Evaluation
from digits.worker.training.step import device_config, numerics
from digits.worker.training.step.device_config import DeviceConfig
from digits.worker.training.step.optimizers import STATE_SCOPE, Optimizer
from digits.worker.training.step.step_function import StepFunction
from digits.worker.training.step.training_step import Phase, StepOptions, Traced, TrainingStep
from digits.worker.training.weights import checkpoints, restore
from digits.worker.training.weights.initial_weights import InitialWeights

log = logging.getLogger(__name__)


class Setup:
    """A training before its first step, as ``recipe`` describes it.

    The constructor opens the dataset. `build` then builds the network and sets ``step``, ``training``,
    ``evaluation`` (None without validation), ``activations`` (None unless their histograms are wanted) and
    ``generates_images`` (from latent vectors); `build_lazily` sets ``step`` only.

    For fine-tuning, ``head_training`` is that of the first ``head_steps`` steps, and ``trunk`` lists the pretrained
    variables, which a resumed training already knows.

    ``config`` describes devices, precision and batches; `build` may adapt it to the network. With
    ``measures_labels``, the steps also measure the cross-entropy over the classes. Raises UserFault for an unusable
    dataset or recipe.
    """

    step: TrainingStep
    training: StepFunction
    evaluation: Evaluation | None = None
    activations: Activations | None = None
    generates_images = False
    head_training: StepFunction | None = None
    head_steps = 0
    _shown: inference.Inference | None = None

    def __init__(
        self,
        recipe: recipes.Train,
        job_folder: Path,
        events: EventLog,
        config: DeviceConfig,
        seed: int,
        measures_labels: bool = False,
        trunk: Sequence[str] = (),
    ) -> None:
        self.recipe, self.job_folder, self.events = recipe, job_folder, events
        self.config, self.seed, self._measures_labels = config, seed, measures_labels
        self.data = training_data.load(recipe, config, events)
        self.timeline = Timeline(recipe.epochs, self.data.steps_per_epoch)
        self.trunk = list(trunk)
        self._weights = InitialWeights(recipe, events)
        self._frozen = restore.Frozen(self._weights.path, recipe.freeze)
        self.store = VariableStore(
            frozen=self._frozen, device=config.weights_device, compute_type=config.compute_type
        )
        self.optimizer = Optimizer(recipe.solver)
        self._head_optimizer = Optimizer(Solver(type="ADAM"), f"{STATE_SCOPE}/head")
        self.randomness = Randomness(seed)
        self.generators = PythonGenerators()
        self.side_effects = SideEffects(self.store, self.randomness, self.generators)
        self._xla_warnings: set[str] = set()

    @property
    def measures_updates(self) -> bool:
        """Whether some steps measure gradients and updates. Not with numerics checks, which already slow steps down."""
        return self.recipe.gradient_metrics and not self.recipe.numerics_checks

    @property
    def writes_pictures(self) -> bool:
        """Whether the step after each validation computes the network's histograms, images and texts."""
        is_validated = self.evaluation is not None and self.data.val is not None
        return is_validated and bool(self.training.traced.pictures) and not self.recipe.numerics_checks

    @property
    def max_steps_per_call(self) -> int:
        """The most steps that one call of `training` or `evaluation` may run."""
        if self.recipe.numerics_checks:
            return 1  # so that the step of a fault is known
        return pace.max_steps(self.data.is_resident, self.data.step_bytes)

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """All variables that the training modifies, by name."""
        return {
            **self.store.variables,
            **self.store.local,
            **self.optimizer.state,
            **self._head_optimizer.state,
            **self.randomness.variables,
        }

    def build(self, board: TensorBoardLog) -> None:
        """Build the network for all stages and write its graph to ``board``.

        Raises UserFault for mistakes of the network, and whatever its code raises.
        """
        with self.generators.record():
            self._build(board)

    def _build(self, board: TensorBoardLog) -> None:
        net = self._network()
        shown, fault = inference.trace_for_display(net, self.store)
        self._shown, self.generates_images = shown, shown.latent > 0
        self.config = self.config.supported_by(shown.built.tower)
        if self.recipe.numerics_checks and self.config.compiled:
            self.config = dataclasses.replace(self.config, compiled=False)
            device_config.report_no_xla(self.recipe, self.events, "it skips the checks for NaN and Inf")
        phase = self._fine_tuning_phase()
        self.step = self._training_step(net, phase)
        with self._checked_numerics():
            self.training = StepFunction(self.step, self._warn_of_xla)
            if self.head_steps:
                head = Phase(self._head_optimizer, 0, phase.trunk, trunk_factor=0.0)
                self.head_training = StepFunction(self._training_step(net, head), self._warn_of_xla)
        self.warn_of_labels(self.training.traced)
        if fault:
            reason = in_a_sentence(describe(fault))
            self.events.append(Warned(f"The network cannot predict from images. {reason}"))
        self.store.lock("in validation but not in training")
        self.warn_of_freeze_patterns()
        if self.data.val:
            with self._checked_numerics():
                self.evaluation = Evaluation(
                    net, self.store, self.data.preparation, Randomness(self.seed), self.config.devices
                )
        self.randomness.begin()
        if self.recipe.histograms:
            self.activations = self._activations(shown)
        checkpoints.check_watched_metrics(
            self.recipe, self.evaluation.metric_names if self.evaluation else []
        )
        self.events.append(
            NetworkBuilt(layers=shown.layers, parameters=self.store.parameters, latent=shown.latent)
        )
        board.graph(readable_graph(shown.function))

    def build_lazily(self) -> None:
        """Prepare steps that `digits.worker.training.step.step_debugger` builds when it runs them."""
        self.config = dataclasses.replace(self.config, devices=self.config.devices[:1], compiled=False)
        self.step = self._training_step(self._network(), Phase(self.optimizer))

    def load_weights(self, traced: Traced) -> None:
        """Load the weights that the recipe names, if any, and report them. Raises UserFault."""
        self._weights.load(self.store, self._frozen, traced.trained)

    def count_flops(self) -> int | None:
        """Return the floating-point operations for one image, None if unknown. Builds the network again."""
        with self.side_effects.undone():
            return count_flops(self._shown) if self._shown else None

    @property
    def max_steps(self) -> float:
        """The number of steps of the training, a fraction."""
        return self.recipe.epochs * self.data.steps_per_epoch

    @cached_property
    def learning_rate(self) -> LearningRate | TwoPhaseRate:
        """The learning rate as a function of the step; `build` determines the phases."""
        recipe, steps = self.recipe, self.max_steps - self.head_steps
        rate = LearningRate(recipe.lr_policy, recipe.solver.learning_rate, steps)
        if recipe.fine_tune and self.head_steps:
            return TwoPhaseRate(recipe.fine_tune.head_rate, self.head_steps, rate)
        return rate

    def _fine_tuning_phase(self) -> Phase:
        """Return the phase in which all variables are trained; sets ``trunk`` and ``head_steps`` for fine-tuning.

        The network must have been built before, for its variables. Raises UserFault if the weights do not fit it.
        """
        fine_tune = self.recipe.fine_tune
        if fine_tune is None:
            return Phase(self.optimizer)
        variables = self.store.variables
        self.trunk = self.trunk or self._weights.trunk(self.store)
        self.store.trunk = trunk = frozenset(self.trunk)
        trained = {name for name, item in variables.items() if item.trainable}
        if trained - trunk:
            steps = round(fine_tune.head_epochs * self.data.steps_per_epoch)
            total = self.timeline.total_steps
            self.head_steps = min(steps, total) if trained & trunk else total
            if not trained & trunk:
                self.warn_of_frozen_trunk()
        return Phase(self.optimizer, self.head_steps, trunk, fine_tune.trunk_factor)

    def _network(self) -> Network:
        file = self.job_folder / self.recipe.network
        dataset = Path(self.recipe.dataset)
        return network_loader.load_for(self.data.manifest, dataset, file, self.data.preparation.shape)

    def _training_step(self, net: Network, phase: Phase) -> TrainingStep:
        options = StepOptions(phase, self.seed, self.config, self._measures_labels, self.measures_updates)
        return TrainingStep(net, self.store, self.data.preparation, self.randomness, options)

    def _activations(self, shown: inference.Inference) -> Activations:
        """Histograms of the activations for the first validation batch, or training batch without validation.

        Those of a generator are for random vectors.
        """

        def build(x: tf.Tensor) -> Built:
            return shown.build(tf.random.normal([tf.shape(x)[0], 1, 1, shown.latent]) if shown.latent else x)

        first = self.data.read_first(self.data.val or self.data.train)
        return Activations(build, self.store, self.data.preparation, Randomness(self.seed), first.images)

    def _checked_numerics(self) -> contextlib.AbstractContextManager[None]:
        return numerics.checked() if self.recipe.numerics_checks else contextlib.nullcontext()

    # Warnings

    def _warn_of_xla(self, message: str) -> None:
        """Warn that XLA cannot compile the steps; only once for both phases of fine-tuning."""
        if message not in self._xla_warnings:
            self._xla_warnings.add(message)
            self.events.append(Warned(message))

    def warn_of_frozen_trunk(self) -> None:
        """Warn that fine-tuning trains only the head."""
        models = ", ".join(sorted(self.store.pretrained.frozen))
        reason = f"{models} cannot be trained further" if models else "all of them are frozen"
        self.events.append(
            Warned(
                f"The pretrained layers are not trained, because {reason}: the head is trained in all epochs."
            )
        )

    def warn_of_labels(self, traced: Traced) -> None:
        """Warn about labels that the loss misinterprets."""
        self.events.append(*map(Warned, traced.label_flow.warnings))

    def warn_of_freeze_patterns(self) -> None:
        """Warn about freeze patterns that match no variable."""
        for pattern in self._frozen.unmatched:
            self.events.append(Warned(f"No variable is called {pattern!r}, so it freezes none."))
