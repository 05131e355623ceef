"""The inference graph of a network, from images to output."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from tensorflow.python.util import deprecation

from digits.core.events import Layer as LayerRow
from digits.kinds.network.targets import channels_last
from digits.worker.network import layer_table, tower
from digits.worker.network.network import Built, Network
from digits.worker.network.variables import VariableStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inference:
    """A traced inference network. ``function`` maps float32 [N, H, W, C] to its output.

    ``build`` builds it again, in the current graph, for images [N, H, W, C] of that graph. If the network generates
    images from latent vectors, ``latent`` is their size, and [H, W, C] is [1, 1, latent]; otherwise, it is 0.
    """

    function: Any
    built: Built
    build: Callable[[tf.Tensor], Built]
    latent: int = 0

    @property
    def layers(self) -> list[LayerRow]:
        """The layer table of the network."""
        return layer_table.layers(self.function.graph, self.built)

    def count_flops(self) -> int | None:
        """Return the floating-point operations for one image, with a multiplication and an addition as two.

        TensorFlow's profiler counts them in the graph. None if it knows none of the operations, or if the network
        cannot be built for a single image.
        """
        signature = [tf.TensorSpec((1, *self.function.inputs[0].shape[1:]), tf.float32)]
        builder = tf.compat.v1.profiler.ProfileOptionBuilder
        try:
            function = tf.function(lambda x: self.build(x).output, autograph=False, input_signature=signature)
            graph = function.get_concrete_function().graph
            options = builder(builder.float_operation()).with_empty_output().build()
            with deprecation.silence():
                profile = tf.compat.v1.profiler.profile(graph, options=options)
        except Exception as fault:  # whatever the network raises
            log.debug("The operations cannot be counted: %s", fault)
            return None
        return int(profile.total_float_ops) or None if profile else None


def trace(network: Network, store: VariableStore, shape: tuple[int | None, ...] | None = None) -> Inference:
    """Build the inference network and create its variables if necessary.

    By default, the input are images, or latent vectors if the network reads ``is_inference``, reshapes the images
    to [N, size] of another size, and returns images; ``shape`` is that of any other input. There are no targets; a
    network that requires targets receives zeros.
    """
    if shape:
        return _trace_for(network, store, shape)
    traced = _trace_for(network, store, network.shape)
    size = _latent_size(network, traced)
    if size:
        # A network that cannot be built for such vectors expects images.
        with contextlib.suppress(Exception):
            generator = _trace_for(network, store, (1, 1, size))
            if generated_images(generator.built.output):
                return replace(generator, latent=size)
    return traced


def generated_images(output: Any) -> list[tf.Tensor]:
    """Return the images [N, H, W, C], of one or three channels, among all outputs of a network.

    Those in the order [N, C, H, W] are transposed.
    """
    tensors = [tf.convert_to_tensor(item) for item in tf.nest.flatten(output) if item is not None]
    for channels in (1, 3):
        tensors = [item if _ends_with_channels(item) else channels_last(item, channels) for item in tensors]
    return [
        tensor
        for tensor in tensors
        if tensor.shape.rank == 4
        and tensor.shape[1:].is_fully_defined()
        and min(tensor.shape[1:3]) > 1
        and _ends_with_channels(tensor)
    ]


def _ends_with_channels(tensor: tf.Tensor) -> bool:
    return tensor.shape.rank == 4 and tensor.shape[3] in (1, 3)


def _latent_size(network: Network, traced: Inference) -> int:
    """Return the size of the vectors to which the inference network reshapes its images, or 0."""
    if not network.may_depend_on("is_inference"):
        return 0
    pixels = math.prod(network.shape)
    waiting: list[Any] = [traced.function.inputs[0]]
    while waiting:
        for operation in waiting.pop().consumers():
            if operation.type in ("Cast", "Identity"):
                waiting += operation.outputs
            elif operation.type == "Reshape":
                sizes: Sequence[int | None] = operation.outputs[0].shape[1:].as_list()
                if len(sizes) == 1 and sizes[0] not in (None, pixels):
                    return int(sizes[0] or 0)
    return 0


def _trace_for(network: Network, store: VariableStore, shape: tuple[int | None, ...]) -> Inference:
    try:
        return _trace(network, store, shape, tower.INFERENCE, lambda x: None)
    except Exception:
        if not network.may_depend_on("y"):
            raise
        # If missing labels are not the cause, this raises the same error again.
        return _trace(network, store, shape, tower.INFERENCE, _zeros(network))


def trace_for_display(network: Network, store: VariableStore) -> tuple[Inference, Exception | None]:
    """Build a network for display: for inference or, if that fails, for validation.

    Also returns the error of the inference network, or None.
    """
    try:
        return trace(network, store), None
    except Exception as fault:
        if not network.may_depend_on("is_inference"):
            raise
        return _trace(network, store, network.shape, tower.VALIDATION, _zeros(network)), fault


def _zeros(network: Network) -> Callable[[tf.Tensor], tf.Tensor]:
    target = network.target
    return lambda x: tf.zeros(
        tf.concat([tf.shape(x)[:1], tf.constant(target.shape, tf.int32)], 0), target.dtype
    )


def _trace(
    network: Network,
    store: VariableStore,
    shape: tuple[int | None, ...],
    stage: str,
    labels: Callable[[tf.Tensor], tf.Tensor | None],
) -> Inference:
    def build(x: tf.Tensor) -> Built:
        return network.build(store, stage, x, labels(x))

    built: list[Built] = []

    def infer(x: tf.Tensor) -> Any:
        built.append(build(x))
        return built[-1].output

    signature = [tf.TensorSpec((None, *shape), tf.float32, name="x")]
    function = tf.function(infer, autograph=False, input_signature=signature).get_concrete_function()
    return Inference(function, built[-1], build)
