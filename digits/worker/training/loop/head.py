"""The head phase of fine-tuning, on features: the outputs of the layers that are not trained, computed only once.

These layers take nearly all the time of a step, and their outputs would be the same in every epoch but for the random
augmentation. So they are computed for a few variants of each image, when a step first needs them, and the epochs take
turns to use them. Features depend only on the records, the seed and the size of a step: a resumed training computes
the same ones again.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import humanize
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.kinds.advice import training_time
from digits.worker.input import feeds, memory
from digits.worker.input.preparation import chunk_signature
from digits.worker.training.loop.resources import Resources
from digits.worker.training.loop.timeline import max_steps
from digits.worker.training.step.graph_cut import Cut, Uncuttable
from digits.worker.training.step.step_function import Rows, StepFunction, settings
from digits.worker.training.step.tracing import stack_rows, trace
from digits.worker.training.step.training_step import Traced, TrainingStep

# The maximum part of the free disk space.
DISK_SHARE = 0.5
# Largest difference of the features of an image in different batches, relative to the largest one.
ROUNDING = 0.02

log = logging.getLogger(__name__)


class Head:
    """The first ``count`` steps of a fine-tuning with ``resources``, as ``step``, which train only the head.

    ``function`` runs them: on features, or on images where that is impossible, for a reason in the log.
    """

    def __init__(
        self, resources: Resources, step: TrainingStep, count: int, warn: Callable[[str], None]
    ) -> None:
        self.steps = count
        self._resources, self._step, self._warn = resources, step, warn
        self._data = resources.data
        self._features: Features | None = None
        self._done = [0] * self._variants  # batches of each variant
        self._begun: dict[int, _Variant] = {}
        try:
            self.function: StepFunction = self._on_features()
        except Uncuttable as reason:
            self._train_on_images(reason)

    def feed(self, first_step: int, report: Callable[[int, int], None]) -> Any:
        """Return the feed of the steps from ``first_step`` on, ready for the first one; see `prepare`."""
        try:
            self.prepare(first_step, 1, report)
        except Uncuttable as reason:
            self._train_on_images(reason)
        if self._features is None:
            return self._data.train.feed(self._order(first_step))
        return _FeatureFeed(self._features, self._order(first_step), self._data.step_records, first_step)

    def prepare(self, first_step: int, count: int, report: Callable[[int, int], None]) -> None:
        """Compute the features that ``count`` steps from ``first_step`` on need, unless they are there.

        Calls ``report`` after each batch with the number of batches that are done and that of all, and before the
        first one.
        """
        if not isinstance(self.function, FeatureSteps) or self.is_computed:
            return
        size = self._data.step_records
        records = np.concatenate(list(itertools.islice(self._order(first_step), count)))
        variants = (first_step * size + np.arange(len(records))) // len(self._data.train) % self._variants
        for number in np.unique(variants).tolist():
            if self._done[number] < self._batches_per_variant:
                variant = self._begun.get(number) or self._begin(number)
                last = variant.places[records[variants == number]].max() // size
                while self._done[number] <= last:
                    self._compute(self.function, number, variant, report)

    def close(self) -> None:
        """Close the feeds of the images whose features are being computed."""
        while self._begun:
            self._begun.popitem()[1].feed.close()

    @property
    def is_computed(self) -> bool:
        """Whether no features are left to compute."""
        return not self.is_on_features or sum(self._done) == self.batches

    @property
    def batches(self) -> int:
        """The number of batches whose features are computed; 0 if the head is trained on images."""
        return self._variants * self._batches_per_variant if self.is_on_features else 0

    @property
    def is_on_features(self) -> bool:
        return isinstance(self.function, FeatureSteps)

    @property
    def max_steps_per_call(self) -> int:
        """The most steps that a call may run on the feed."""
        if self._features is None:
            return self._resources.max_steps_per_call
        return max_steps(False, self._features.bytes_per_record * self._data.step_records)

    @property
    def _batches_per_variant(self) -> int:
        return math.ceil(self._data.steps_per_epoch)

    @property
    def _variants(self) -> int:
        epochs = self.steps / self._data.steps_per_epoch
        return training_time.variants(epochs, self._data.preparation.is_random)

    def _on_features(self) -> FeatureSteps:
        """Raise Uncuttable if features would save nothing, or if this training needs the images in each step."""
        config = self._step.options.config
        if self.steps < 2 * self._data.steps_per_epoch:
            raise Uncuttable("the phase has fewer than two epochs")
        if self._step.is_divided or config.batches > 1:
            raise Uncuttable("each step is divided among devices, workers or batches")
        if config.compiled:
            raise Uncuttable("steps are compiled with XLA")
        if self._resources.recipe.numerics_checks or self._resources.measures_updates:
            raise Uncuttable("all layers are measured")
        function = FeatureSteps(self._step)
        if self._data.val and function.traced.pictures:
            raise Uncuttable("the network draws histograms, images or texts of its layers")
        return function

    def _train_on_images(self, reason: Uncuttable) -> None:
        log.info("The head is trained on images, not on features that are computed once, because %s.", reason)
        self.function = StepFunction(self._step, self._warn)

    def _order(self, first_step: int) -> feeds.Order:
        return self._data.order(self._resources.seed, first_step)

    def _begin(self, number: int) -> _Variant:
        """Return the variant with this ``number``, in the order of the first epoch that uses it."""
        size, count = self._data.step_records, len(self._data.train)
        step, skip = divmod(number * count, size)
        epoch = np.concatenate(list(itertools.islice(self._order(step), count // size + 2)))[skip:][:count]
        # Balanced epochs repeat some records and leave out others.
        records, places = np.unique(np.concatenate([epoch, np.arange(count)]), return_index=True)
        order = records[np.argsort(places)]
        # Each batch has the same size, on which networks may rely: the last one ends with the first records.
        batches = np.resize(order, (self._batches_per_variant, size))
        feed = self._data.train.feed(iter(batches[self._done[number] :]))
        self._begun[number] = _Variant(order, np.argsort(order), feed)
        return self._begun[number]

    def _compute(
        self, function: FeatureSteps, number: int, variant: _Variant, report: Callable[[int, int], None]
    ) -> None:
        """Compute the features of the next batch of a ``variant``."""
        size, count, done = self._data.step_records, len(variant.order), self._done[number]
        if not any(self._done):
            report(0, self.batches)
        values = function.compute(*variant.feed.take(1).batch(0), number * self._batches_per_variant + done)
        if self._features is None:
            self._features = Features.allocate(values, self._variants, count, self._resources.job_folder)
            log.info(
                "The head is trained on features that are computed once: %s of each of %d variants of %d images, %s.",
                humanize.naturalsize(self._features.bytes_per_record),
                self._variants,
                count,
                self._features.place,
            )
        self._features.put(number * count + variant.order[done * size : (done + 1) * size], values)
        self._done[number] += 1
        if self._done[number] == self._batches_per_variant:
            self._begun.pop(number).feed.close()
        if self.is_computed:
            self._features.claim.end()
        report(sum(self._done), self.batches)


@dataclass(frozen=True)
class _Variant:
    """A variant of all images: the ``order`` in which their features are computed, and their ``places`` in it."""

    order: NDArray[np.int64]
    places: NDArray[np.int64]
    feed: feeds.Feed


@dataclass(frozen=True)
class Features:
    """Features and targets of records: ``columns`` [variants · count, values], in ``place``.

    The ``claim`` of memory ends when they are computed.
    """

    columns: list[NDArray[Any]]
    variants: int
    count: int
    place: str
    claim: memory.Claim

    @classmethod
    def allocate(
        cls,
        values: Sequence[NDArray[Any]],
        variants: int,
        count: int,
        folder: Path,
    ) -> Features:
        """Allocate the columns for ``values`` of a batch: in memory if they fit, otherwise in a file in ``folder``.

        The file has no name, so it ends with the process. Raises Uncuttable if there is no room.
        """
        shapes = [(variants * count, item.shape[1]) for item in values]
        sizes = [math.prod(shape) * item.dtype.itemsize for shape, item in zip(shapes, values, strict=True)]
        claim = memory.Claim(sum(sizes))
        if sum(sizes) <= memory.budget(None).budget:
            columns = [np.zeros(shape, item.dtype) for shape, item in zip(shapes, values, strict=True)]
            return cls(columns, variants, count, "in memory", claim)
        claim.end()
        columns = []
        try:
            if sum(sizes) > DISK_SHARE * shutil.disk_usage(folder).free:
                raise OSError
            for shape, size, item in zip(shapes, sizes, values, strict=True):
                with tempfile.TemporaryFile(dir=folder) as file:
                    # Writing to a hole of a full disk would end the process.
                    os.posix_fallocate(file.fileno(), 0, size)
                    columns.append(np.memmap(file, item.dtype, "r+", shape=shape))
        except OSError as error:
            size = humanize.naturalsize(sum(sizes))
            raise Uncuttable(f"they take {size}, for which there is no room in memory or on disk") from error
        return cls(columns, variants, count, "on disk", claim)

    @property
    def bytes_per_record(self) -> int:
        return sum(column.shape[1] * column.itemsize for column in self.columns)

    def put(self, rows: NDArray[np.int64], values: Sequence[NDArray[Any]]) -> None:
        """Set ``rows`` to the first rows of ``values``."""
        for column, value in zip(self.columns, values, strict=True):
            column[rows] = value[: len(rows)]


class _FeatureFeed:
    """Provides the features of the records in ``order``; its first step has the number ``first_step``."""

    def __init__(self, features: Features, order: feeds.Order, size: int, first_step: int) -> None:
        self._features, self._order = features, order
        self._size, self._step = size, first_step

    def take(self, batches: int) -> list[tf.Tensor]:
        """Return the columns [batches, size, values] of the next batches."""
        records = np.stack(list(itertools.islice(self._order, batches)))
        epochs = (self._step * self._size + np.arange(records.size)) // self._features.count
        self._step += batches
        rows = epochs % self._features.variants * self._features.count + records.ravel()
        return [
            tf.constant(column[rows].reshape(batches, self._size, -1)) for column in self._features.columns
        ]

    def close(self) -> None:
        pass


class FeatureSteps(StepFunction):
    """Runs ``step`` on features: the constructor traces and cuts it. Raises Uncuttable, and what the network raises.

    Chunks for `steps` are lists of columns.
    """

    def __init__(self, step: TrainingStep) -> None:
        self.step, self.is_compiled = step, False
        images, labels, _ = chunk_signature(step.preparation, step.network.target)
        number = tf.TensorSpec([], tf.int64)
        self._prepare = tf.function(step.prepare, autograph=False, input_signature=[images, labels, number])
        prepared = self._prepare.get_concrete_function().structured_outputs
        x, y = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), prepared)
        facts: list[Traced] = []

        def whole(*given: Any) -> tf.Tensor:
            built = step.build_prepared(*given)
            facts.append(built.traced)
            return built.row

        traced = tf.function(whole, autograph=False).get_concrete_function(
            x, y, tf.TensorSpec([], tf.float32), number
        )
        self.traced, self._graph = facts[-1], traced.graph
        self._cut = Cut(self._graph, self._graph.inputs[0])
        self._trunk = tf.function(self._cut.trunk, autograph=False, input_signature=[x])
        self._shapes: list[tf.TensorShape] = []

    def compute(self, images: tf.Tensor, labels: tf.Tensor, number: int) -> list[NDArray[Any]]:
        """Return the features and targets of a batch, the augmentation of which has this ``number``.

        Each is [N, values]. Raises Uncuttable if the features of an image depend on the others.
        """
        x, y = self._prepare(images, labels, tf.constant(-1 - number, tf.int64))  # unlike those of steps
        features, constants = self._trunk(x)
        columns = [*features, *tf.nest.flatten(y)]
        rows = [_rows(column.numpy(), len(images)) for column in columns]
        if not self._shapes:
            self._check(x, rows)
            self._shapes = [column.shape for column in columns]
            self._function, _ = trace(self._loop_over(constants), self._signature(columns, rows))
        return rows

    def steps(self, chunk: Any, rates: Sequence[float], first_step: int) -> Rows:
        """Train on the features of ``chunk``; see `StepFunction.steps`."""
        return self._function(*chunk, *settings(rates, first_step)).numpy()

    def _check(self, x: tf.Tensor, rows: list[NDArray[Any]]) -> None:
        """Check that the features of the first image are the same among other images."""
        others, _ = self._trunk(tf.repeat(x[:1], x.shape[0], axis=0))
        for before, other in zip(rows, others, strict=False):
            now = _rows(other.numpy(), len(before))
            one, other = before[0].astype(np.float32), now[0].astype(np.float32)
            if not np.allclose(one, other, rtol=0, atol=ROUNDING * max(1e-6, np.abs(one).max(initial=0))):
                raise Uncuttable("they depend on the other images of a batch")

    def _signature(self, columns: list[tf.Tensor], rows: list[NDArray[Any]]) -> list[tf.TensorSpec]:
        return [
            *(
                tf.TensorSpec([None, *row.shape], column.dtype)
                for row, column in zip(rows, columns, strict=True)
            ),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([], tf.int64),
        ]

    def _loop_over(self, constants: list[tf.Tensor]) -> Callable[..., tuple[tf.Tensor, None]]:
        names = [item.name for item in self._graph.inputs]
        count = len(self._cut.features)

        def loop(*given: tf.Tensor) -> tuple[tf.Tensor, None]:
            *columns, rates, first_step = given

            def row(index: tf.Tensor) -> tuple[tf.Tensor, None]:
                values = [
                    tf.reshape(column[index], shape)
                    for column, shape in zip(columns, self._shapes, strict=True)
                ]
                of_step = [rates[index], first_step + tf.cast(index, tf.int64)]
                # Without the images; captured tensors follow.
                arguments = dict(zip(names[1:], [*values[count:], *of_step], strict=False))
                fixed = [tf.constant(item.numpy()) for item in constants]
                return self._cut.head(values[:count], fixed, arguments)[0], None

            return stack_rows(tf.shape(rates)[0], row)

        return loop


def _rows(values: NDArray[Any], count: int) -> NDArray[Any]:
    """Return ``values`` as [count, …], one row for each image. Raises Uncuttable if that is impossible."""
    if not values.ndim or len(values) % count:
        raise Uncuttable("they depend on the other images of a batch")
    return values.reshape(count, -1)
