"""The functions that run on the device: training steps and evaluation, many batches a call.

A call takes a chunk of batches and loops over them inside the function, because
going back to Python for every step costs a small network a third of its speed. The
metrics of every single step come back.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.worker.input import targets
from digits.worker.input.feeds import Chunk, Preparation, gathered
from digits.worker.input.targets import Targets
from digits.worker.network import tower
from digits.worker.network.network import Built, Network
from digits.worker.network.summaries import Recorded
from digits.worker.network.variables import VariableStore, make_state, plain_name
from digits.worker.precision import autocast
from digits.worker.precision.loss_scale import LossScale
from digits.worker.randomness.streams import Randomness
from digits.worker.training import label_flow, replication
from digits.worker.training.device_config import Execution
from digits.worker.training.label_flow import LabelFlow
from digits.worker.training.optimizers import Optimizer
from digits.worker.training.replication import Part

Rows = NDArray[np.float32]

# Metric of a training that `measures_labels`: the mean cross-entropy over the classes.
CROSS_ENTROPY = "cross-entropy of the classes"


class Evaluation:
    """Metrics of the validation network. ``names`` are known once it is `trace`d."""

    stage = tower.VALIDATION

    def __init__(
        self,
        network: Network,
        store: VariableStore,
        prepare: Preparation,
        randomness: Randomness,
        execution: Execution | None = None,
    ) -> None:
        self._network, self._store, self._prepare = network, store, prepare
        self._randomness = randomness
        self._execution = execution or Execution()
        self._batches = make_state("batches", [], 0, tf.int64)
        self.names: list[str] = []
        self._function = tf.function(self._loop, autograph=False, input_signature=self.signature)

    def trace(self) -> None:
        """Build the network now. What is wrong with it, is raised here."""
        self._function.get_concrete_function()

    def begin(self, step: int) -> None:
        """Begin a pass over the records, after ``step`` steps: each pass draws the same random numbers."""
        self._network.step.tell(step)
        self._batches.assign(0)
        self._randomness.reset()

    def __call__(self, chunk: Chunk) -> Rows:
        """The metrics of each batch of ``chunk``, float32 [batches, names]."""
        return self._function(*chunk).numpy()

    @property
    def signature(self) -> list[tf.TensorSpec]:
        return [
            tf.TensorSpec((None, *self._prepare.image_shape), tf.uint8, name="images"),
            tf.TensorSpec([None], tf.int64, name="labels"),
            tf.TensorSpec([None, None], tf.int64, name="positions"),
        ]

    def _loop(self, images: tf.Tensor, labels: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        # Every device takes whole batches: so the number of devices changes no metric.
        devices, count = self._execution.devices, tf.shape(positions)[0]
        first = self._batches.read_value()

        def rows(turn: tf.Tensor) -> tf.Tensor:
            found = []
            for number, device in enumerate(devices):
                # In the last turn some devices compute the last batch once more; those rows are dropped.
                place = tf.minimum(turn * len(devices) + number, count - 1)
                with tf.device(device if len(devices) > 1 else None):
                    batch = _batch(images, labels, positions[place])
                    found.append(self._metrics(*batch, first + tf.cast(place, tf.int64)))
            return tf.concat(found, 0)

        turns = replication.rows_of((count + len(devices) - 1) // len(devices), rows)
        self._batches.assign_add(tf.cast(count, tf.int64))
        return tf.reshape(turns, [-1, len(self.names)])[:count]

    def _metrics(self, images: tf.Tensor, labels: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
        with self._randomness.drawn(self.stage, batch):
            built = self._network.build(self._store, self.stage, self._prepare(images), labels)
        self.names = list(built.metrics)
        return tf.stack(list(built.metrics.values()))


class Training(Evaluation):
    """Training steps: compute the metrics, then update the weights.

    ``trained`` contains the names of the trained variables, ``label_flow`` the losses' use of the labels, and
    ``remark`` a warning about unsupported settings; they are set by `trace` or by the first steps.
    With ``measures_labels``, classification losses add the metric `CROSS_ENTROPY`.
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
        execution: Execution | None = None,
        measures_labels: bool = False,
    ) -> None:
        super().__init__(network, store, prepare, randomness, execution)
        self._optimizer = optimizer
        self._measures_labels = measures_labels
        self._seed = seed & 0x7FFFFFFF
        self._loss_scale = LossScale() if self._execution.scales_loss else None
        if self._loss_scale:
            optimizer.state.update(self._loss_scale.state)
        self.pictures: list[Recorded] = []
        self.trained: set[str] = set()
        self.label_flow = LabelFlow()
        self.remark = ""
        self._one_step: Any = self._row_of_step
        self._is_proven = True  # unless it is compiled and has never run
        self._with_pictures = tf.function(
            self._step_with_pictures, autograph=False, input_signature=self.signature
        )

    def trace(self) -> None:
        if self._execution.compiled:
            self._compile()
        super().trace()

    def _compile(self) -> None:
        """Let XLA make one program of a step; where it cannot, `remark` tells the reason."""
        # XLA refuses operations that it has no use for too, such as the text of a summary;
        # of a function that is called in the one to compile they are left out.
        row_of_step = tf.function(self._row_of_step, autograph=False)
        compiled = tf.function(lambda *batch: row_of_step(*batch), autograph=False, jit_compile=True)
        images, labels, _, rates, step = self.signature
        size = self._execution.batch_size * self._execution.batches
        example = [
            tf.TensorSpec((size, *images.shape[1:]), images.dtype),
            tf.TensorSpec([size], labels.dtype),
            tf.TensorSpec([], rates.dtype),
            step,
        ]
        try:
            compiled.experimental_get_compiler_ir(*example)(stage="hlo")
        except Exception as error:  # a mistake of the network is raised by the trace that follows
            self.remark = _without_xla(error)
            return
        traced = compiled.get_concrete_function(*example)

        def one_step(images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
            for batch, known in zip((images, labels), example, strict=False):
                batch.set_shape(known.shape)  # so that the network is not traced once more
            return traced(images, labels, rate, step)

        self._one_step, self._is_proven = one_step, False

    def seen(self, chunk: Chunk, step: int) -> tuple[NDArray[np.float32], dict[str, NDArray[Any]]]:
        """What the network sees in ``step`` of a chunk of one batch: float32 [N, H, W, C] and its targets."""
        # XLA draws other numbers than the rest of TensorFlow: compile this too where steps are.
        is_compiled = self._one_step != self._row_of_step
        prepared = tf.function(self._prepared, autograph=False, jit_compile=is_compiled)
        images, labels, positions = chunk
        x, y = prepared(*_batch(images, labels, positions[0]), tf.constant(step, tf.int64))
        return x.numpy(), {name: value.numpy() for name, value in y.items()}

    def steps(self, chunk: Chunk, rates: Sequence[float], first_step: int) -> Rows:
        """Train on each batch of ``chunk`` in turn, at the learning rate of the same place."""
        arguments = (*chunk, *_settings(rates, first_step))
        try:
            rows = self._function(*arguments).numpy()
        except tf.errors.OpError as error:
            if self._is_proven:
                raise
            # Some programs are refused as late as by the device. A mistake of the network shows without XLA too.
            self._one_step = self._row_of_step
            self._function = tf.function(self._loop, autograph=False, input_signature=self.signature)
            rows = self._function(*arguments).numpy()
            self.remark = _without_xla(error)
        self._is_proven = True
        return rows

    def step_with_pictures(self, chunk: Chunk, rate: float, step: int) -> tuple[Rows, list[Any]]:
        """One step on a chunk of one batch, and the values of its histograms and images."""
        row, values = self._with_pictures(*chunk, *_settings([rate], step))
        return row.numpy()[None], [value.numpy() for value in values]

    @property
    def signature(self) -> list[tf.TensorSpec]:
        return [
            *super().signature,
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
            return self._one_step(*batch, rates[index], first_step + tf.cast(index, tf.int64))

        return replication.rows_of(tf.shape(positions)[0], step)

    def _step_with_pictures(self, *given: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        part = self.part(*given)
        return part.row, [tf.convert_to_tensor(item.tensor) for item in part.built.pictures]

    def part(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        positions: tf.Tensor,
        rates: tf.Tensor,
        first_step: tf.Tensor,
        changes_weights: bool = True,
    ) -> Part:
        """A step on a chunk of one batch, built in the current graph; its tensors can be used. As in `signature`."""
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
    ) -> Part:
        x, y = self._prepared(images, labels, step)
        part = self._part(x, y, step, with_pictures)
        self.names, self.pictures = list(part.built.metrics), part.built.pictures
        self.trained = {plain_name(variable) for item in part.built.objectives for variable in item.variables}
        if changes_weights:
            with tf.name_scope("train"):
                self._change_weights(part, rate, step)
        return part

    def _prepared(self, images: tf.Tensor, labels: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, Targets]:
        seed = tf.cast(tf.stack([tf.constant(self._seed, tf.int64), step]), tf.int32)
        return self._prepare.for_training(images, labels, seed)

    def _part(self, x: tf.Tensor, y: Any, step: tf.Tensor, with_pictures: bool) -> Part:
        """The metrics and gradients of the records, from all devices and batches of the step."""
        batches, devices = self._execution.batches, self._execution.devices
        scale = self._loss_scale.value if self._loss_scale else None

        def batch(number: Any, x: tf.Tensor, y: Any) -> Part:
            draw = step * batches + tf.cast(number, tf.int64)

            def replica(number: int, x: tf.Tensor, y: Any) -> Part:
                stage = f"{self.stage}/{number}" if number else self.stage
                with self._randomness.drawn(stage, draw), targets.given(y) as labels:
                    built = self._network.build(self._store, self.stage, x, labels, step)
                built = self._with_label_flow(built, x, labels)
                with autocast.casting(self._store.compute_type):
                    return replication.part_of(built, scale)

            return replication.on_devices(replica, devices, x, y)

        if batches == 1:
            return batch(0, x, y)
        return replication.in_turn(batch, batches, x, y, keep_first=with_pictures)

    def _with_label_flow(self, built: Built, x: tf.Tensor, labels: tf.Tensor) -> Built:
        losses = [item.loss for item in built.objectives]
        classes = self._network.nclasses
        self.label_flow = label_flow.follow(x, labels, losses, built.metrics.values(), classes)
        if not (self._measures_labels and self.label_flow.cross_entropies):
            return built
        means = [tf.cast(tf.reduce_mean(item), tf.float32) for item in self.label_flow.cross_entropies]
        metrics = {**built.metrics, CROSS_ENTROPY: tf.add_n(means) / len(means)}
        return dataclasses.replace(built, metrics=metrics)

    def _change_weights(self, part: Part, rate: tf.Tensor, step: tf.Tensor) -> None:
        # All gradients are taken before the first weight changes; the changes keep their order.
        with (
            self._randomness.drawn(f"{self.stage}/update", step),
            self._network.continued(part.built, self._store, step),
        ):
            updates = replication.updates(part)

        def apply() -> None:
            for pairs in updates:
                for gradient, variable in pairs:
                    self._optimizer.apply(gradient, variable, rate, step)

        if self._loss_scale is None:
            apply()
            return
        gradients = [gradient for found in part.gradients for gradient in found if gradient is not None]
        self._loss_scale.guard(gradients, apply)


# Lines of TensorFlow's messages that tell where in the graph something was, and not what.
_PLACE = re.compile(r"Graph execution error|Detected at node|File |<stack traces|\[\[|$")


# A variable in another memory than that of the device which computes.
_ELSEWHERE = re.compile(r"Trying to access resource (\S+?)(?:/\d+)? .*located in device")


def _without_xla(error: Exception) -> str:
    """What to tell of a step that could not be compiled: with the operations that XLA names, or its first line."""
    found = ", ".join(dict.fromkeys(re.findall(r"XLA_\w+_JIT: (\w+)", str(error))))
    if variable := _ELSEWHERE.search(str(error)):
        found = (
            f"the variable {variable[1]} does not lie on the device that computes. TensorFlow keeps "
            "variables of the type int32 off GPUs; of the type int64 it can be compiled"
        )
    lines = [line.strip() for line in str(error).splitlines()]
    reason = found or next((line for line in lines if not _PLACE.match(line)), "")[:300]
    return f"XLA cannot compile this network: {reason}. It is trained without XLA."


def _settings(rates: Sequence[float], first_step: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant(rates, tf.float32), tf.constant(first_step, tf.int64)


def _batch(images: tf.Tensor, labels: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return gathered(images, positions), tf.gather(labels, positions)
