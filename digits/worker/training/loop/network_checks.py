"""Checks of a network by measuring it on a batch: predictions, moving averages, and the values that losses receive.

A network with such a fault trains without an error, and its numbers mislead. Each check returns warnings for the user,
with the line of the network that is the cause where it is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.kinds import kind_named
from digits.kinds.network.targets import Targets
from digits.worker.input.preparation import Chunk
from digits.worker.network import tower
from digits.worker.network.network import operations_behind
from digits.worker.network.variables import plain_name
from digits.worker.training.loop.resources import Resources
from digits.worker.training.loop.setup import Steps
from digits.worker.training.models.outputs import named
from digits.worker.training.step import label_flow, numerics

MAX_IMAGES = 8
# Differences of predictions, relative to the largest value, that rounding does not explain: of the same computation,
# and of another batch size.
_REPEATED, _REGROUPED = 1e-4, 2e-3
# On GPUs, and in half precision, sums are less exact.
_INEXACT = 10
# The fraction of a moving average that is still its initial value at the end of the training.
_KEPT = 0.5
# Steps to measure how fast a moving average moves.
_STEPS = 4
# Images are rescaled twice if a first layer gets less than this part of their variation.
_SCALED_TWICE = 1 / (8 * 255)
_SMALL = 0.01
_WEIGHTED = ("Conv2D", "DepthwiseConv2dNative", "Conv3D", "MatMul", "Einsum", "BatchMatMulV2")


def findings(resources: Resources, steps: Steps, chunk: Chunk) -> list[str]:
    """Return warnings about the network after its first steps, on the batch of ``chunk``."""
    images, labels = chunk.batch(0)
    images, labels = images[:MAX_IMAGES], labels[:MAX_IMAGES]
    x = resources.data.preparation(images)
    predictions = list(_of_predictions(resources, steps, x))
    return [
        *predictions,
        *_of_values(resources, steps, images, labels),
        # Predictions by the statistics of the batch do not use them.
        *(() if predictions else _of_averages(resources, steps, chunk)),
    ]


# Predictions


def _of_predictions(resources: Resources, steps: Steps, x: tf.Tensor) -> Iterator[str]:
    """Warn if the prediction for an image depends on chance, or on the other images of its batch."""
    shown, count = steps.shown, int(x.shape[0])
    if shown.latent or shown.built.objectives:
        return  # a network that cannot predict from images is shown as it validates
    targets = _targets(resources)
    predict = _predictions(targets, shown.function)
    with resources.save_state():
        try:
            first, again = predict(x), predict(x)
        except tf.errors.OpError:
            return  # a network for a certain batch size
        inexact = _INEXACT if resources.config.precision != "float32" or _has_gpu() else 1
        if _differ(targets, first, again, _REPEATED * inexact):
            line = _first_difference(shown.build, x, (x, x))
            yield (
                f"{_at(line)}the network predicts something else for the same image each time, because it draws "
                "random numbers while it predicts. Draw them only in training: pass training=self.is_training to Keras "
                "layers instead of training=True, and is_training=self.is_training to slim."
            )
            return
        try:
            alone = predict(x[:1])
        except tf.errors.OpError:
            return
        of_first = {name: each[:1] for name, each in first.items()}
        if count > 1 and _differ(targets, of_first, alone, _REGROUPED * inexact):
            line = _first_difference(shown.build, x, (x, x[:1]))
            yield (
                f"{_at(line)}the prediction for an image depends on the other images of its batch, so the validation "
                "and every use of the model give other results. Normalize by moving averages while predicting: pass "
                "training=self.is_training to Keras layers instead of training=True, is_training=self.is_training to "
                "slim, and compute no statistics over the first axis."
            )


def _predictions(targets: Targets, function: Any) -> Callable[[tf.Tensor], dict[str, NDArray[Any]]]:
    """Return a function that computes the outputs with a row for each image."""

    def predict(x: tf.Tensor) -> dict[str, NDArray[Any]]:
        found = {
            name: tensor.numpy()
            for name, tensor in named(function(x)).items()
            if tensor.dtype.is_floating and tensor.shape.rank and tensor.shape[0] == x.shape[0]
        }
        # Lists, such as boxes, are chosen by comparisons, which rounding changes: rather compare what they come from.
        lists = {name for name, each in found.items() if each.ndim == 3 and targets.accepts(each.shape[1:])}
        return {name: each for name, each in found.items() if name not in lists} or found

    return predict


def _differ(
    targets: Targets, one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]], tolerance: float
) -> bool:
    """Return whether values differ by more than ``tolerance``, relative to the largest one."""
    for name, values in one.items():
        if name not in other:
            continue
        exact = values.astype(np.float64)
        others = targets.align(values, other[name]).astype(np.float64)
        are_finite = exact.size and np.isfinite(exact).all() and np.isfinite(others).all()
        if are_finite and np.abs(exact - others).max() > tolerance * max(np.abs(exact).max(), 1e-30):
            return True
    return False


def _first_difference(build: Any, x: tf.Tensor, runs: tuple[tf.Tensor, tf.Tensor]) -> int:
    """Return the line of the first operation whose value for the first image differs between two ``runs``; or 0."""
    lines: list[int] = []

    def prints(images: tf.Tensor) -> list[tf.Tensor]:
        graph = tf.compat.v1.get_default_graph()
        known = len(graph.get_operations())
        build(images)
        chosen = []
        for operation in graph.get_operations()[known:]:
            line = numerics.line_that_created(graph, operation.name)
            for tensor in operation.outputs[:1]:
                shape = tensor.shape
                if line and tensor.dtype.is_floating and shape.rank and shape[0] is None:
                    chosen.append(_fingerprint(tensor))
                    lines.append(line)
        return chosen

    signature = [tf.TensorSpec([None, *x.shape[1:]], x.dtype)]
    function = tf.function(prints, autograph=False, input_signature=signature)
    try:
        one, other = (np.array(function(images)).reshape(-1, 2) for images in runs)
    except (tf.errors.OpError, ValueError):
        return 0
    differ = np.abs(one - other)[:, 0] > 1e-3 * one[:, 1]
    return lines[int(np.argmax(differ))] if differ.any() else 0


def _fingerprint(tensor: tf.Tensor) -> tf.Tensor:
    """Return a number that differs if the values for the first image do, except for rounding, and their norm."""
    values = tf.cast(tf.reshape(tensor[:1], [-1]), tf.float32)
    places = tf.range(tf.cast(tf.size(values), tf.float32))
    noise = tf.math.floormod(43758.5453 * tf.sin(12.9898 * places), 1.0) - 0.5
    return tf.stack([tf.reduce_sum(values * noise), tf.norm(values)])


# Moving averages


def _of_averages(resources: Resources, steps: Steps, chunk: Chunk) -> Iterator[str]:
    """Warn of moving averages that predictions use, and that the planned steps hardly change.

    They are measured in steps with the learning rate 0, on the same batch: the distance to its statistics shrinks by
    the same factor in each step.
    """
    total = resources.timeline.total_steps
    if resources.recipe.weights or steps.shown.latent:
        return
    used = {plain_name(item) for item in steps.shown.function.variables}
    averages = {
        name: item
        for name, item in resources.store.variables.items()
        if name in used and not item.trainable and item.dtype.is_floating and name not in steps.trunk
    }
    if not averages:
        return
    with resources.save_all():
        slow = _slow_averages(resources, steps, chunk, averages)
    if slow:
        name = max(slow, key=lambda each: slow[each])
        line = _line_of_variable(steps.shown.function.graph, averages[name])
        usual = min(0.99, max(0.5, round(0.02 ** (1 / max(1, total)), 2)))
        yield (
            f"{_at(line)}moving averages such as {name} keep {slow[name]:.4g} of their value in each step, so after "
            f"the {total:,} steps of this training, {100 * slow[name] ** total:.0f}% of them are still their initial "
            "values: validation and predictions will be much worse than training. Lower the momentum (in slim: decay) "
            f"to about {usual:g}, or train for more steps."
        )


def _slow_averages(
    resources: Resources, steps: Steps, chunk: Chunk, averages: Mapping[str, tf.Variable]
) -> dict[str, float]:
    """Return what ``averages`` keep in each step, for those that are too slow."""
    total = resources.timeline.total_steps
    for name, item in resources.optimizer.state.items():
        if "mom" in name:
            item.assign(tf.zeros_like(item))
    trained = [item for item in resources.store.variables.values() if item.trainable]
    weights = [item.numpy() for item in trained[:MAX_IMAGES]]
    seen = []
    for turn in range(3):
        for _ in range(_STEPS if turn else 0):
            steps.training.steps(chunk, [0.0], total)
        seen.append({name: item.numpy().astype(np.float64) for name, item in averages.items()})
    if not all(np.array_equal(before, item.numpy()) for before, item in zip(weights, trained, strict=False)):
        return {}  # an optimizer that changes weights at the learning rate 0
    return {
        name: kept
        for name in averages
        if (kept := _kept_per_step(*(values[name] for values in seen))) is not None and kept**total > _KEPT
    }


def _kept_per_step(*values: NDArray[np.float64]) -> float | None:
    """Return the fraction of its value that a moving average keeps in a step, from ``values`` after equal steps."""
    first, second = values[1] - values[0], values[2] - values[1]
    moved = np.abs(first) > 1e-5 * np.abs(values[0]) + 1e-12
    if not moved.any():
        return None
    ratios = second[moved] / first[moved]
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    if not 0 < middle <= 1.001 or high - low > 0.2 * (1 - middle) + 0.02:
        return None
    return float(min(middle, 1.0) ** (1 / _STEPS))


def _line_of_variable(graph: Any, variable: tf.Variable) -> int:
    handle = graph.capture(variable.handle).name
    readers = (item for item in graph.get_operations() if any(each.name == handle for each in item.inputs))
    return next(filter(None, (numerics.line_that_created(graph, item.name) for item in readers)), 0)


# The values of tensors


def _of_values(resources: Resources, steps: Steps, images: tf.Tensor, labels: tf.Tensor) -> Iterator[str]:
    """Warn about images that are rescaled twice, losses of other values, and outputs that limit predictions."""
    network, store, data = steps.first.step.network, resources.store, resources.data
    targets = _targets(resources)
    facts: list[Any] = []

    def build(images: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
        x, y = data.preparation.for_validation(images, labels)
        built = network.build(store, tower.VALIDATION, x, y)
        losses = [item.loss for item in built.objectives]
        suspects = label_flow.suspects(x, y, losses)
        layers = _first_layers(x, losses)
        shape = targets.predict(built.output).shape[1:].as_list()
        facts.extend([suspects, layers, shape])
        return [*(item.tensor for item in suspects), *(layer.inputs[0] for layer in layers)]

    signature = [tf.TensorSpec([None, *item.shape[1:]], item.dtype) for item in (images, labels)]
    function = tf.function(build, autograph=False, input_signature=signature)
    with resources.save_state():
        try:
            values = [item.numpy().astype(np.float32) for item in function(images, labels)]
        except (tf.errors.OpError, ValueError, TypeError, IndexError):
            return
    suspects, layers, shape = facts[-3:]
    for suspect, value in zip(suspects, values, strict=False):
        if message := suspect.judge(value):
            yield message
    if layers and (message := _scaled_twice(layers[0], values[len(suspects)], images.numpy())):
        yield message
    if message := targets.remark(shape):
        yield message


def _first_layers(x: tf.Tensor, losses: list[Any]) -> list[Any]:
    """Return the first operation that combines values of the images ``x`` by weights, if any."""
    reached = {x.name}
    for operation in operations_behind(losses):
        names = [tensor.name for tensor in operation.inputs]
        if not reached.intersection(names):
            continue
        if operation.type in _WEIGHTED and names[0] in reached:
            return [operation]
        reached.update(tensor.name for tensor in operation.outputs)
    return []


def _scaled_twice(layer: Any, values: NDArray[np.float32], images: NDArray[Any]) -> str:
    """Return a warning if the ``values`` that a first layer gets vary much less than images scaled to 0 to 1 do."""
    # The channels may have other means.
    of_channels = values.std(axis=tuple(range(values.ndim - 1))) if values.ndim == 4 else values.std()
    before, after = float(images.std()), float(np.max(of_channels))
    if images.dtype != np.uint8 or before < 1 or not math.isfinite(after):
        return ""
    if after >= _SMALL or after >= _SCALED_TWICE * before:
        return ""
    line = numerics.line_that_created(layer.graph, layer.name)
    return (
        f"{_at(line)}the first layer gets values with a standard deviation of {after:.2g} from images with one of "
        f"{before:.0f}: they are scaled twice, for example by / 255 and a Rescaling layer, which some pretrained "
        "networks contain. The network learns slowly, or not at all. Scale them once."
    )


def _targets(resources: Resources) -> Targets:
    manifest = resources.data.manifest
    targets: Targets = kind_named(manifest.kind).load("network.targets").Targets(manifest.target)
    return targets


def _has_gpu() -> bool:
    return bool(tf.config.list_logical_devices("GPU"))


def _at(line: int) -> str:
    return f"Line {line}: " if line else "In the network "
