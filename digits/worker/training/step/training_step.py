"""A training step, as it is built into a graph: prepare, build, gradients, reduce, the network's hook, apply.

Up to the gradients, each of several replicas computes its share of the records; the rest is done once by each worker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tensorflow as tf

from digits.kinds.network.targets import in_order
from digits.worker import build_context
from digits.worker.failure import UserFault
from digits.worker.gang.share import Share
from digits.worker.input import target_tensors
from digits.worker.input.preparation import Preparation
from digits.worker.input.target_tensors import Targets
from digits.worker.network import tower
from digits.worker.network.network import Built, Network, Objective
from digits.worker.network.summaries import Recorded
from digits.worker.network.variables import VariableStore, plain_name
from digits.worker.randomness.streams import Randomness
from digits.worker.training.step import label_flow
from digits.worker.training.step.device_config import DeviceConfig
from digits.worker.training.step.label_flow import LabelFlow
from digits.worker.training.step.optimizers import LossScale, Optimizer
from digits.worker.training.step.replication import (
    Gradients,
    Part,
    Reduction,
    Replica,
    mean_of_batches,
    replicas,
)
from digits.worker.training.step.update_statistics import Updates, UpdateStatistics

# The metric that ``measures_labels`` adds: the mean cross-entropy over the classes.
CROSS_ENTROPY = "cross-entropy of the classes"


@dataclass(frozen=True)
class Phase:
    """A part of a training, from ``first_step`` on, with its ``optimizer``.

    The variables named in ``trunk`` are trained at the learning rate times ``trunk_factor``, and not at all, which
    saves their gradients, if it is 0. The ``frozen_layers`` behave as in inference.
    """

    optimizer: Optimizer
    first_step: int = 0
    trunk: Container[str] = ()
    trunk_factor: float = 1.0
    frozen_layers: Container[tuple[str, ...]] = ()

    def restrict(self, objectives: list[Objective]) -> list[Objective]:
        """Return ``objectives`` without the variables that this phase does not train."""
        if self.trunk_factor:
            return objectives
        return [
            Objective(item.loss, [each for each in item.variables if plain_name(each) not in self.trunk])
            for item in objectives
        ]

    def factor(self, variable: tf.Variable) -> float:
        """Return the factor by which the learning rate of ``variable`` is multiplied."""
        return self.trunk_factor if plain_name(variable) in self.trunk else 1.0


@dataclass(frozen=True)
class StepOptions:
    """How a step trains: in which ``phase``, with random numbers from ``seed``, on the devices of ``config``.

    With ``measures_labels``, classification losses add the metric `CROSS_ENTROPY`. With ``measures_updates``, extended
    steps measure gradients and updates.
    """

    phase: Phase
    seed: int
    config: DeviceConfig = field(default_factory=DeviceConfig)
    measures_labels: bool = False
    measures_updates: bool = False


@dataclass(frozen=True)
class Traced:
    """What building a step reveals about the network.

    ``names`` are those of its metrics, ``pictures`` its histograms, images and texts, ``trained`` the names of the
    variables that the whole training trains, and ``label_flow`` is the losses' use of the labels.
    """

    names: list[str]
    pictures: list[Recorded]
    trained: Set[str]
    label_flow: LabelFlow


@dataclass(frozen=True)
class BuiltStep:
    """The tensors of a step: its metrics, a float32 ``row`` [names], and the ``statistics`` of its updates by name."""

    row: tf.Tensor
    statistics: dict[str, tf.Tensor]
    traced: Traced


class TrainingStep:
    """A step that trains ``network``: computes the metrics, then updates the weights in ``store``."""

    def __init__(
        self,
        network: Network,
        store: VariableStore,
        prepare: Preparation,
        randomness: Randomness,
        options: StepOptions,
    ) -> None:
        self.network, self.preparation, self.options = network, prepare, options
        self._store, self._randomness, self._phase = store, randomness, options.phase
        self.replicas = replicas(options.config, prepare.share, prepare.blends, store)
        self._reduction = Reduction(self.replicas)
        if prepare.share and options.config.averaging_interval == 1:
            self._reduction = Reduction(self.replicas, options.config.gang, prepare.share.fraction)
        self._loss_scale: LossScale | None = None
        if options.config.scales_loss:
            self._loss_scale = LossScale(self._phase.optimizer.scope)
            self._phase.optimizer.state.update(self._loss_scale.state)

    def build(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        rate: tf.Tensor,
        number: tf.Tensor,
        is_extended: bool = False,
        changes_weights: bool = True,
    ) -> BuiltStep:
        """Build the step in the current graph.

        ``images`` [N, H, W, C] are decoded, with targets ``labels`` [N, …]; the scalars are the learning ``rate`` and
        the ``number`` of steps before this one, int64. An extended step measures its updates, and the tensors of its
        network can be used, which costs memory. Raises UserFault for mistakes of the network, and whatever it raises.
        """
        parts = self.compute(images, labels, number, partial(self.compute_replica, is_extended=is_extended))
        return self.finish(parts, rate, number, is_extended, changes_weights)

    def build_prepared(self, x: tf.Tensor, y: Targets, rate: tf.Tensor, number: tf.Tensor) -> BuiltStep:
        """Like `build`, for what `prepare` returns; the step must not be divided."""
        return self.finish([self._micro_batch(self.replicas[0], number, 0, x, y)], rate, number)

    @property
    def is_divided(self) -> bool:
        """Whether several replicas compute parts of the step. Then only `compute_replica` can be compiled."""
        return not self._reduction.is_trivial

    def compute(
        self, images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor, compute_replica: Callable[..., Part]
    ) -> list[Part]:
        """Build the first part of the step: metrics and gradients of each replica of this worker."""
        for replica in self.replicas:
            replica.refresh()
        parts = []
        for replica in self.replicas:
            with tf.device(replica.device or None):
                parts.append(compute_replica(replica, replica.take(images), replica.take(labels), number))
        return parts

    def finish(
        self,
        parts: Sequence[Part],
        rate: tf.Tensor,
        number: tf.Tensor,
        is_extended: bool = False,
        changes_weights: bool = True,
    ) -> BuiltStep:
        """Build the rest of the step after `compute`: average over the replicas, and update the weights."""
        states = {**self._store.variables, **self._store.local}.values()
        part = self._reduction(parts, [item for item in states if not item.trainable])
        statistics = self._update_weights(part, rate, number, is_extended) if changes_weights else {}
        return BuiltStep(part.row, statistics, _facts(part))

    def compute_replica(
        self,
        replica: Replica,
        images: tf.Tensor,
        labels: tf.Tensor,
        number: tf.Tensor,
        is_extended: bool = False,
    ) -> Part:
        """Build the network on the records of ``replica``, and compute metrics and gradients."""
        x, y = self._prepare(replica.share, images, labels, number)
        compute = partial(self._micro_batch, replica, number)
        return mean_of_batches(self.options.config.batches, compute, x, y, keep_first=is_extended)

    def prepare(self, images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, Targets]:
        """Augment the images to the network's input, float32 [N, H, W, C]; also return the targets for the loss."""
        return self._prepare(self.preparation.share, images, labels, number)

    def _prepare(
        self, share: Share | None, images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, Targets]:
        seed = tf.cast(tf.stack([tf.constant(self.options.seed & 0x7FFFFFFF, tf.int64), number]), tf.int32)
        return dataclasses.replace(self.preparation, share=share).for_training(images, labels, seed)

    def _micro_batch(self, replica: Replica, number: tf.Tensor, batch: Any, x: tf.Tensor, y: Targets) -> Part:
        """Build the network on some records of the step, and compute their gradients."""
        stage = f"{tower.TRAIN}/{replica.number}" if replica.number else tower.TRAIN
        draw = number * self.options.config.batches + tf.cast(batch, tf.int64)
        rank = self.options.config.gang.rank
        reduction = (
            self._reduction if self.options.config.synchronized_batch_norm and self.is_divided else None
        )
        with (
            self._randomness.draw_for(stage, draw, rank),
            target_tensors.use_targets(y) as labels,
            build_context.extend(reduction=reduction, frozen_layers=self._phase.frozen_layers),
        ):
            built = self.network.build(replica.store, tower.TRAIN, x, labels, number)
        losses, classes = [item.loss for item in built.objectives], len(self.network.target.labels)
        outputs = in_order(built.output) if classes and self.network.kind_metrics.scores_classes else ()
        flow = LabelFlow()
        if not tf.executing_eagerly():  # the flow is read from the graph
            flow = label_flow.follow(x, labels, losses, built.metrics.values(), classes, outputs)
        metrics = {**built.metrics, **(_cross_entropy(flow) if self.options.measures_labels else {})}
        trained = {plain_name(variable) for item in built.objectives for variable in item.variables}
        built = dataclasses.replace(built, metrics=metrics, objectives=self._phase.restrict(built.objectives))
        scale = self._loss_scale.value if self._loss_scale else None
        return Part(tf.stack(list(metrics.values())), gradients_of(built, scale), built, flow, trained)

    def _update_weights(
        self, part: Part, rate: tf.Tensor, number: tf.Tensor, is_extended: bool
    ) -> dict[str, tf.Tensor]:
        """Apply the gradients as the network's hook returns them; return the statistics of the updates."""
        with tf.name_scope("train"):
            # All gradients are computed before the first update; the updates keep their order.
            updates = self._gradient_update(part, number)
            is_measured = is_extended and self.options.measures_updates
            statistics = UpdateStatistics(updates) if is_measured else None
            apply = partial(self._apply, updates, rate, number)
            if self._loss_scale is None:
                apply()
            else:
                gradients = [item for of_loss in part.gradients for item in of_loss if item is not None]
                self._loss_scale.guard(gradients, apply)
            return statistics.measure() if statistics else {}

    def _gradient_update(self, part: Part, number: tf.Tensor) -> Updates:
        """Return pairs of gradients and variables for each loss, as the network's gradientUpdate returns them."""
        updates = []
        with (
            self._randomness.draw_for(f"{tower.TRAIN}/update", number),
            self.network.continue_build(part.built, self._store, number),
        ):
            for objective, gradients in zip(part.built.objectives, part.gradients, strict=True):
                pairs = part.built.tower.gradientUpdate(
                    list(zip(gradients, objective.variables, strict=True))
                )
                updates.append([pair for pair in pairs if pair[0] is not None])
        if not any(updates):
            raise UserFault(
                "The loss does not depend on any variable that can be trained.",
                "Compute the loss from self.inference.",
            )
        return updates

    def _apply(self, updates: Updates, rate: tf.Tensor, number: tf.Tensor) -> None:
        phase = self._phase
        for gradient, variable in (pair for pairs in updates for pair in pairs):
            phase.optimizer.apply(
                gradient, variable, rate * phase.factor(variable), number - phase.first_step
            )


def _facts(part: Part) -> Traced:
    return Traced(list(part.built.metrics), part.built.pictures, part.trained, part.label_flow)


def _cross_entropy(flow: LabelFlow) -> dict[str, tf.Tensor]:
    # The same mean as in the loss would become one with it, which changes the last digit of the loss.
    means = [tf.cast(tf.reduce_mean(tf.cast(item, tf.float64)), tf.float32) for item in flow.cross_entropies]
    return {CROSS_ENTROPY: tf.add_n(means) / len(means)} if means else {}


def gradients_of(built: Built, scale: tf.Tensor | None = None) -> Gradients:
    """Return the gradients of the losses and the regularization; ``scale`` keeps those of half precision from zero."""
    regularization = _regularization_gradients(built)
    of_losses = []
    for objective in built.objectives:
        gradients = []
        for variable, gradient in zip(objective.variables, _loss_gradients(objective, scale), strict=True):
            # The regularization of a variable in several losses counts once.
            extra = regularization.pop(id(variable), None)
            terms = [tf.convert_to_tensor(term) for term in (gradient, extra) if term is not None]
            gradients.append(tf.add_n(terms) if len(terms) > 1 else gradient if extra is None else extra)
        of_losses.append(gradients)
    return of_losses


def _loss_gradients(objective: Objective, scale: tf.Tensor | None) -> Sequence[Any]:
    if not objective.variables:
        return []
    if scale is None:
        return tf.gradients(objective.loss, objective.variables)
    # Scaled gradients do not underflow in half precision.
    loss = tf.cast(objective.loss, tf.float32)
    gradients = tf.gradients(loss, objective.variables, grad_ys=tf.reshape(scale, tf.shape(loss)))
    return [None if gradient is None else tf.convert_to_tensor(gradient) / scale for gradient in gradients]


def _regularization_gradients(built: Built) -> dict[int, tf.Tensor]:
    variables = {id(variable): variable for item in built.objectives for variable in item.variables}
    if built.regularization is None or not variables:
        return {}
    gradients = tf.gradients(built.regularization, list(variables.values()))
    return {key: gradient for key, gradient in zip(variables, gradients, strict=True) if gradient is not None}
