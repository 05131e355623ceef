"""The functions that run on the device: training steps and evaluation, many batches a call.

A call takes a chunk of batches and loops over them inside the function, because
going back to Python for every step costs a small network a third of its speed. The
metrics of every single step come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.worker import tower
from digits.worker.failure import UserFault
from digits.worker.input import Chunk, Preparation
from digits.worker.network import Built, Network, Objective
from digits.worker.optimizers import Optimizer
from digits.worker.randomness import Randomness
from digits.worker.summaries import Recorded
from digits.worker.variables import VariableStore, make_state

Rows = NDArray[np.float32]


class Evaluation:
    """Metrics of the validation network. ``names`` are known once it is `trace`d."""

    stage = tower.VALIDATION

    def __init__(
        self, network: Network, store: VariableStore, prepare: Preparation, randomness: Randomness
    ) -> None:
        self._network, self._store, self._prepare = network, store, prepare
        self._randomness = randomness
        self._batches = make_state("batches", [], 0, tf.int64)
        self.names: list[str] = []
        self._function = tf.function(self._loop, autograph=False, input_signature=self._signature())

    def trace(self) -> None:
        """Build the network now. What is wrong with it, is raised here."""
        self._function.get_concrete_function()

    def begin(self) -> None:
        """Begin a pass over the records: each pass draws the same random numbers."""
        self._batches.assign(0)
        self._randomness.reset()

    def __call__(self, chunk: Chunk) -> Rows:
        """The metrics of each batch of ``chunk``, float32 [batches, names]."""
        return self._function(*chunk).numpy()

    def _signature(self) -> list[tf.TensorSpec]:
        return [
            tf.TensorSpec((None, *self._prepare.image_shape), tf.uint8, name="images"),
            tf.TensorSpec([None], tf.int64, name="labels"),
            tf.TensorSpec([None, None], tf.int64, name="positions"),
        ]

    def _loop(self, images: tf.Tensor, labels: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        def metrics(index: tf.Tensor) -> tf.Tensor:
            x, y = _batch(images, labels, positions[index])
            with self._randomness.drawn(self.stage, self._batches.assign_add(1, read_value=True)):
                built = self._network.build(self._store, self.stage, self._prepare(x), y)
            return self._row(built)

        return _each(tf.shape(positions)[0], metrics)

    def _row(self, built: Built) -> tf.Tensor:
        self.names = list(built.metrics)
        return tf.stack(list(built.metrics.values()))


class Training(Evaluation):
    """Training steps: metrics before the step, then the change of the weights."""

    stage = tower.TRAIN

    def __init__(
        self,
        network: Network,
        store: VariableStore,
        prepare: Preparation,
        optimizer: Optimizer,
        seed: int,
        randomness: Randomness,
    ) -> None:
        super().__init__(network, store, prepare, randomness)
        self._optimizer = optimizer
        self._seed = seed & 0x7FFFFFFF
        self.pictures: list[Recorded] = []
        self._with_pictures = tf.function(
            self._step_with_pictures, autograph=False, input_signature=self._signature()
        )

    def steps(self, chunk: Chunk, rates: Sequence[float], first_step: int) -> Rows:
        """Train on each batch of ``chunk`` in turn, at the learning rate of the same place."""
        return self._function(*chunk, *_settings(rates, first_step)).numpy()

    def step_with_pictures(self, chunk: Chunk, rate: float, step: int) -> tuple[Rows, list[Any]]:
        """One step on a chunk of one batch, and the values of its histograms and images."""
        row, values = self._with_pictures(*chunk, *_settings([rate], step))
        return row.numpy()[None], [value.numpy() for value in values]

    def _signature(self) -> list[tf.TensorSpec]:
        return [
            *super()._signature(),
            tf.TensorSpec([None], tf.float32, name="rates"),
            tf.TensorSpec([], tf.int64, name="first_step"),
        ]

    def _loop(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        positions: tf.Tensor,
        rates: tf.Tensor,
        first_step: tf.Tensor,
    ) -> tf.Tensor:
        def step(index: tf.Tensor) -> tf.Tensor:
            batch = _batch(images, labels, positions[index])
            built = self._step(*batch, rates[index], first_step + tf.cast(index, tf.int64))
            return self._row(built)

        return _each(tf.shape(positions)[0], step)

    def _step_with_pictures(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        positions: tf.Tensor,
        rates: tf.Tensor,
        first_step: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        built = self._step(*_batch(images, labels, positions[0]), rates[0], first_step)
        return self._row(built), [tf.convert_to_tensor(item.tensor) for item in built.pictures]

    def _step(self, images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, step: tf.Tensor) -> Built:
        window_seed = tf.stack([tf.constant(self._seed, tf.int64), step])
        x = self._prepare(images, tf.cast(window_seed, tf.int32))
        with self._randomness.drawn(self.stage, step):
            built = self._network.build(self._store, self.stage, x, labels)
        self.pictures = built.pictures
        with tf.name_scope("train"):
            # All gradients are taken before the first weight changes; the changes keep their order.
            for pairs in _gradients(built):
                for gradient, variable in pairs:
                    self._optimizer.apply(gradient, variable, rate, step)
        return built


def _settings(rates: Sequence[float], first_step: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant(rates, tf.float32), tf.constant(first_step, tf.int64)


def _batch(images: tf.Tensor, labels: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.gather(images, positions), tf.gather(labels, positions)


def _each(count: tf.Tensor, row: Any) -> tf.Tensor:
    """``row(0)`` … ``row(count - 1)``, one after the other, as float32 [count, n]."""

    def body(index: tf.Tensor, rows: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return index + 1, rows.write(index, row(index))

    rows = tf.TensorArray(tf.float32, size=count, element_shape=[None])
    _, rows = tf.while_loop(
        lambda index, _: index < count, body, (tf.constant(0), rows), parallel_iterations=1
    )
    return rows.stack()


def _gradients(built: Built) -> list[list[tuple[tf.Tensor, tf.Variable]]]:
    """For each loss its gradients with their variables, as the network's gradientUpdate wants them."""
    regularisation = _regularisation_gradients(built)
    found = []
    for objective in built.objectives:
        pairs = []
        for variable, gradient in zip(objective.variables, _loss_gradients(objective), strict=True):
            # A variable of several losses is held back by its regularisation once.
            extra = regularisation.pop(id(variable), None)
            terms = [tf.convert_to_tensor(term) for term in (gradient, extra) if term is not None]
            pairs.append(
                (tf.add_n(terms) if len(terms) > 1 else gradient if extra is None else extra, variable)
            )
        updated = built.tower.gradientUpdate(pairs)
        found.append([(gradient, variable) for gradient, variable in updated if gradient is not None])
    if not any(found):
        raise UserFault(
            "The loss does not depend on any variable that can be trained.",
            "Compute the loss from self.inference.",
        )
    return found


def _loss_gradients(objective: Objective) -> list[Any]:
    return tf.gradients(objective.loss, objective.variables) if objective.variables else []


def _regularisation_gradients(built: Built) -> dict[int, tf.Tensor]:
    variables = {id(variable): variable for item in built.objectives for variable in item.variables}
    if built.regularisation is None or not variables:
        return {}
    gradients = tf.gradients(built.regularisation, list(variables.values()))
    return {key: gradient for key, gradient in zip(variables, gradients, strict=True) if gradient is not None}
