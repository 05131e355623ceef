"""The functions that run on the device: training steps and evaluation, many batches per call.

A call takes a chunk of batches and loops over them inside the function, because returning to Python after
every step costs a small network a third of its throughput. It returns the metrics of every step.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.worker.input import targets
from digits.worker.input.feeds import Chunk, Preparation, gather_records
from digits.worker.input.targets import Targets
from digits.worker.network import tower
from digits.worker.network.network import Built, Network
from digits.worker.network.summaries import Recorded
from digits.worker.network.variables import VariableStore, make_state, plain_name
from digits.worker.precision import autocast
from digits.worker.randomness.streams import Randomness
from digits.worker.training import label_flow, replication
from digits.worker.training.device_config import DeviceConfig
from digits.worker.training.label_flow import LabelFlow
from digits.worker.training.loss_scale import LossScale
from digits.worker.training.optimizers import Optimizer
from digits.worker.training.replication import ReplicaResult
from digits.worker.training.update_statistics import UpdateStatistics

Rows = NDArray[np.float32]

# The metric that `Training` adds with ``measures_labels``: the mean cross-entropy over the classes.
CROSS_ENTROPY = "cross-entropy of the classes"


class Evaluation:
    """The metrics of the validation network.

    ``names`` are those of the metrics; `trace` or the first call sets them, and ``record_width``, the number of
    values that the kind's metrics need of each record.
    """

    stage = tower.VALIDATION

    def __init__(
        self,
        network: Network,
        store: VariableStore,
        prepare: Preparation,
        randomness: Randomness,
        config: DeviceConfig | None = None,
    ) -> None:
        self._network, self._store, self._prepare = network, store, prepare
        self._randomness = randomness
        self._config = config or DeviceConfig()
        self._batches = make_state("batches", [], 0, tf.int64)
        self.names: list[str] = []
        self.record_width = 0
        self._function = tf.function(self._loop, autograph=False, input_signature=self.signature)

    def trace(self) -> None:
        """Build the network now. Raises UserFault for its mistakes, and whatever its code raises."""
        self._function.get_concrete_function()

    def begin(self, step: int) -> None:
        """Begin a pass over the records after ``step`` training steps; each pass draws the same random numbers."""
        self._network.step.set(step)
        self._batches.assign(0)
        self._randomness.reset()

    def __call__(self, chunk: Chunk) -> tuple[Rows, Rows]:
        """The metrics of each batch of ``chunk``, float32 [batches, names], and values of its records.

        The latter are float32 [records, record_width], for `summarize`.
        """
        rows = self._function(*chunk).numpy()
        metrics, values = np.split(rows, [len(self.names)], axis=1)
        return metrics, values.reshape(np.asarray(chunk[2]).size, self.record_width)

    def summarize(self, means: Iterable[float], values: Rows | None = None) -> dict[str, float]:
        """The metrics by name, from the ``means`` of the columns ``names`` and the ``values`` of all records."""
        return self._network.summarize(dict(zip(self.names, means, strict=True)), values)

    @property
    def metric_names(self) -> list[str]:
        """The names of the metrics that `summarize` returns."""
        return list(self.summarize([0.0] * len(self.names), np.zeros((0, self.record_width), np.float32)))

    @property
    def graph(self) -> tf.Graph:
        """The graph of the traced function."""
        return self._function.get_concrete_function().graph

    @property
    def signature(self) -> list[tf.TensorSpec]:
        """The types of the arguments: decoded images, targets, and the positions [batches, size] of batches."""
        target = self._network.target
        return [
            tf.TensorSpec((None, *self._prepare.image_shape), self._prepare.image_dtype, name="images"),
            tf.TensorSpec([None, *target.shape], target.decoded_dtype, name="targets"),
            tf.TensorSpec([None, None], tf.int64, name="positions"),
        ]

    def _loop(
        self, images: tf.Tensor, labels: tf.Tensor, positions: tf.Tensor, *more: tf.Tensor
    ) -> tf.Tensor:
        # Every device evaluates whole batches, so the metrics do not depend on the number of devices.
        devices, count = self._config.devices, tf.shape(positions)[0]
        first = self._batches.read_value()

        def rows(turn: tf.Tensor) -> tf.Tensor:
            found = []
            for number, device in enumerate(devices):
                # In the last turn, surplus devices repeat the last batch; their rows are dropped.
                place = tf.minimum(turn * len(devices) + number, count - 1)
                with tf.device(device if len(devices) > 1 else None):
                    batch = _batch(images, labels, positions[place])
                    found.append(self._metrics(*batch, first + tf.cast(place, tf.int64)))
            return tf.concat(found, 0)

        turns = replication.stack_rows((count + len(devices) - 1) // len(devices), rows)
        self._batches.assign_add(tf.cast(count, tf.int64))
        return tf.reshape(turns, [tf.shape(turns)[0] * len(devices), -1])[:count]

    def _metrics(self, images: tf.Tensor, labels: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
        x, y = self._prepare.for_validation(images, labels)
        with self._randomness.draw_for(self.stage, batch):
            built = self._network.build(self._store, self.stage, x, y)
        self.names = list(built.metrics)
        row = tf.stack(list(built.metrics.values()))
        if built.record_values is None:
            return row
        self.record_width = built.record_values.shape[1]
        return tf.concat([row, tf.reshape(tf.cast(built.record_values, tf.float32), [-1])], 0)


@dataclass(frozen=True)
class Phase:
    """A part of a training, from ``first_step`` on.

    The variables named in ``trunk`` are trained at the learning rate times ``trunk_factor``, and not at all, which
    saves their gradients, if it is 0.
    """

    first_step: int = 0
    trunk: Container[str] = ()
    trunk_factor: float = 1.0

    def restrict(self, built: Built) -> Built:
        """Return ``built`` without the variables that this phase does not train."""
        if self.trunk_factor:
            return built
        objectives = [
            dataclasses.replace(
                item, variables=[each for each in item.variables if plain_name(each) not in self.trunk]
            )
            for item in built.objectives
        ]
        return dataclasses.replace(built, objectives=objectives)

    def factor(self, variable: tf.Variable) -> float:
        """Return the factor by which the learning rate of ``variable`` is multiplied."""
        return self.trunk_factor if plain_name(variable) in self.trunk else 1.0


class Training(Evaluation):
    """Training steps of a ``phase``: compute the metrics, then update the weights.

    `trace` or the first steps set ``trained``, the names of the trained variables; ``pictures``, the network's
    histograms, images and texts; and ``label_flow``, the losses' use of the labels. ``warn`` is called if XLA cannot
    compile the steps. With ``measures_labels``, classification losses add the metric `CROSS_ENTROPY`. With
    ``measures_updates``, `extended_step` measures gradients and updates.
    """

    stage = tower.TRAIN

    def __init__(
        self,
        network: Network,
        store: VariableStore,
        prepare: Preparation,
        optimizer: Optimizer,
        seed: int,
        randomness: Randomness,
        config: DeviceConfig | None = None,
        measures_labels: bool = False,
        phase: Phase = Phase(),
        measures_updates: bool = False,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        super().__init__(network, store, prepare, randomness, config)
        self._optimizer, self._phase = optimizer, phase
        self._measures_labels, self._measures_updates = measures_labels, measures_updates
        self._seed, self._warn = seed & 0x7FFFFFFF, warn
        self._loss_scale = LossScale(optimizer.scope) if self._config.scales_loss else None
        if self._loss_scale:
            optimizer.state.update(self._loss_scale.state)
        self.pictures: list[Recorded] = []
        self.trained: set[str] = set()
        self.label_flow = LabelFlow()
        self._one_step: Any = self._row_of_step
        self._is_proven = True  # False while compiled steps have not run yet
        self._extended = tf.function(self._extended_step, autograph=False, input_signature=self.signature)

    def trace(self) -> None:
        """Build the network now, and compile a step if the configuration requests XLA."""
        fault = self._compile() if self._config.compiled else None
        super().trace()  # raises the network's own mistakes
        if fault:
            self._warn(_without_xla(fault))

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiles the steps."""
        return bool(self._one_step != self._row_of_step)

    def _compile(self) -> Exception | None:
        """Compile a step with XLA; return the exception if that fails."""
        # XLA rejects unsupported operations even if nothing uses their results, such as the text of a summary.
        # In a nested function those are pruned.
        row_of_step = tf.function(self._row_of_step, autograph=False)
        compiled = tf.function(lambda *batch: row_of_step(*batch), autograph=False, jit_compile=True)
        images, labels, _, rates, step = self.signature
        size = self._config.batch_size * self._config.batches
        example = [
            tf.TensorSpec((size, *images.shape[1:]), images.dtype),
            tf.TensorSpec((size, *labels.shape[1:]), labels.dtype),
            tf.TensorSpec([], rates.dtype),
            step,
        ]
        try:
            compiled.experimental_get_compiler_ir(*example)(stage="hlo")
        except Exception as error:
            return error
        traced = compiled.get_concrete_function(*example)

        def one_step(images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
            for batch, known in zip((images, labels), example, strict=False):
                batch.set_shape(known.shape)  # prevents another trace
            return traced(images, labels, rate, step)

        self._one_step, self._is_proven = one_step, False
        return None

    def seen(self, chunk: Chunk, step: int) -> tuple[NDArray[np.float32], dict[str, NDArray[Any]]]:
        """The network's input in ``step`` for a chunk of one batch: float32 [N, H, W, C], and the targets."""
        # XLA draws different random numbers: compile this if the steps are compiled.
        prepared = tf.function(self._prepared, autograph=False, jit_compile=self.is_compiled)
        images, labels, positions = chunk
        x, y = prepared(*_batch(images, labels, positions[0]), tf.constant(step, tf.int64))
        return x.numpy(), {name: value.numpy() for name, value in y.items()}

    def steps(self, chunk: Chunk, rates: Sequence[float], first_step: int) -> Rows:
        """Train on each batch of ``chunk`` in turn, with the learning rate at the same index of ``rates``.

        Returns the metrics of each step, float32 [steps, names].
        """
        arguments = (*chunk, *_settings(rates, first_step))
        try:
            rows = self._function(*arguments).numpy()
        except tf.errors.OpError as error:
            if self._is_proven:
                raise
            # Some programs only fail on the device. The network's own mistakes also fail without XLA.
            self._one_step = self._row_of_step
            self._function = tf.function(self._loop, autograph=False, input_signature=self.signature)
            rows = self._function(*arguments).numpy()
            self._warn(_without_xla(error))
        self._is_proven = True
        return rows

    def extended_step(self, chunk: Chunk, rate: float, step: int) -> tuple[Rows, list[Any], dict[str, float]]:
        """One step on a chunk of one batch: its metrics, float32 [1, names], the values of `pictures`, and, by name,
        the statistics of the updates.
        """
        row, values, statistics = self._extended(*chunk, *_settings([rate], step))
        numbers = {name: float(value) for name, value in statistics.items()}
        return row.numpy()[None], [value.numpy() for value in values], numbers

    @property
    def signature(self) -> list[tf.TensorSpec]:
        return [
            *super().signature,
            tf.TensorSpec([None], tf.float32, name="rates"),
            tf.TensorSpec([], tf.int64, name="first_step"),
        ]

    def _loop(
        self, images: tf.Tensor, labels: tf.Tensor, positions: tf.Tensor, *more: tf.Tensor
    ) -> tf.Tensor:
        rates, first_step = more

        def step(index: tf.Tensor) -> tf.Tensor:
            batch = _batch(images, labels, positions[index])
            return self._one_step(*batch, rates[index], first_step + tf.cast(index, tf.int64))

        return replication.stack_rows(tf.shape(positions)[0], step)

    def _extended_step(self, *given: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor], dict[str, tf.Tensor]]:
        result = self.build_step(*given)
        pictures = [tf.convert_to_tensor(item.tensor) for item in result.built.pictures]
        return result.row, pictures, result.statistics

    def build_step(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        positions: tf.Tensor,
        rates: tf.Tensor,
        first_step: tf.Tensor,
        changes_weights: bool = True,
    ) -> ReplicaResult:
        """Build a step on a chunk of one batch in the current graph, from tensors as in `signature`."""
        batch = _batch(images, labels, positions[0])
        return self._step(*batch, rates[0], first_step, with_pictures=True, changes_weights=changes_weights)

    def _row_of_step(
        self, images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, step: tf.Tensor
    ) -> tf.Tensor:
        return self._step(images, labels, rate, step).row

    def _step(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        rate: tf.Tensor,
        step: tf.Tensor,
        with_pictures: bool = False,
        changes_weights: bool = True,
    ) -> ReplicaResult:
        x, y = self._prepared(images, labels, step)
        result = self._metrics_and_gradients(x, y, step, with_pictures)
        built = result.built
        self.names, self.pictures = list(built.metrics), built.pictures
        self.trained = {plain_name(variable) for item in built.objectives for variable in item.variables}
        if changes_weights:
            with tf.name_scope("train"):
                statistics = self._update_weights(
                    result, rate, step, with_pictures and self._measures_updates
                )
            result = dataclasses.replace(result, statistics=statistics)
        return result

    def _prepared(self, images: tf.Tensor, labels: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, Targets]:
        seed = tf.cast(tf.stack([tf.constant(self._seed, tf.int64), step]), tf.int32)
        return self._prepare.for_training(images, labels, seed)

    def _metrics_and_gradients(
        self, x: tf.Tensor, y: Any, step: tf.Tensor, with_pictures: bool
    ) -> ReplicaResult:
        """The metrics and gradients of the records, combined over all devices and batches of the step."""
        batches, devices = self._config.batches, self._config.devices
        scale = self._loss_scale.value if self._loss_scale else None

        def batch(number: Any, x: tf.Tensor, y: Any) -> ReplicaResult:
            draw = step * batches + tf.cast(number, tf.int64)

            def replica(number: int, x: tf.Tensor, y: Any) -> ReplicaResult:
                stage = f"{self.stage}/{number}" if number else self.stage
                with self._randomness.draw_for(stage, draw), targets.use_targets(y) as labels:
                    built = self._network.build(self._store, self.stage, x, labels, step)
                built = self._phase.restrict(self._with_label_flow(built, x, labels))
                with autocast.casting(self._store.compute_type):
                    return replication.compute(built, scale)

            return replication.on_devices(replica, devices, x, y)

        if batches == 1:
            return batch(0, x, y)
        return replication.in_sequence(batch, batches, x, y, keep_first=with_pictures)

    def _with_label_flow(self, built: Built, x: tf.Tensor, labels: tf.Tensor) -> Built:
        losses = [item.loss for item in built.objectives]
        classes = len(self._network.target.labels)
        self.label_flow = label_flow.follow(x, labels, losses, built.metrics.values(), classes)
        if not (self._measures_labels and self.label_flow.cross_entropies):
            return built
        means = [tf.cast(tf.reduce_mean(item), tf.float32) for item in self.label_flow.cross_entropies]
        metrics = {**built.metrics, CROSS_ENTROPY: tf.add_n(means) / len(means)}
        return dataclasses.replace(built, metrics=metrics)

    def _update_weights(
        self, result: ReplicaResult, rate: tf.Tensor, step: tf.Tensor, is_measured: bool
    ) -> dict[str, tf.Tensor]:
        """Update the weights, and return the statistics of the updates if they are to be measured."""
        # All gradients are computed before the first update; the updates keep their order.
        with (
            self._randomness.draw_for(f"{self.stage}/update", step),
            self._network.continue_build(result.built, self._store, step),
        ):
            updates = replication.updates(result)
        statistics = UpdateStatistics(updates) if is_measured else None

        def apply() -> None:
            for pairs in updates:
                for gradient, variable in pairs:
                    factor = self._phase.factor(variable)
                    self._optimizer.apply(gradient, variable, rate * factor, step - self._phase.first_step)

        if self._loss_scale is None:
            apply()
        else:
            gradients = [gradient for found in result.gradients for gradient in found if gradient is not None]
            self._loss_scale.guard(gradients, apply)
        return statistics.measure() if statistics else {}


# Lines of TensorFlow's messages that contain a location in the graph and no reason.
_PLACE = re.compile(r"Graph execution error|Detected at node|File |<stack traces|\[\[|$")


# A variable in the memory of another device.
_ELSEWHERE = re.compile(r"Trying to access resource (\S+?)(?:/\d+)? .*located in device")


def _without_xla(error: Exception) -> str:
    """The warning about a step that cannot be compiled, with the unsupported operations or the first line."""
    found = ", ".join(dict.fromkeys(re.findall(r"XLA_\w+_JIT: (\w+)", str(error))))
    if variable := _ELSEWHERE.search(str(error)):
        found = (
            f"the variable {variable[1]} is in the memory of another device. TensorFlow keeps "
            "int32 variables off GPUs; use int64 instead"
        )
    lines = [line.strip() for line in str(error).splitlines()]
    reason = found or next((line for line in lines if not _PLACE.match(line)), "")[:300]
    return f"XLA cannot compile this network: {reason}. It is trained without XLA."


def _settings(rates: Sequence[float], first_step: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant(rates, tf.float32), tf.constant(first_step, tf.int64)


def _batch(images: tf.Tensor, labels: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return gather_records(images, positions), gather_records(labels, positions)
