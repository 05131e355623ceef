"""The inference graph of a network: images in, output out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from digits.core.events import Layer as LayerRow
from digits.worker.network import layer_table, tower
from digits.worker.network.network import Built, Network
from digits.worker.network.variables import VariableStore


@dataclass(frozen=True)
class Inference:
    """A traced inference network. ``function`` maps float32 [N, H, W, C] to its output.

    ``build`` builds it once more, in the current graph, for images [N, H, W, C] there.
    """

    function: Any
    built: Built
    build: Callable[[tf.Tensor], Built]

    @property
    def layers(self) -> list[LayerRow]:
        """The table of its layers."""
        return layer_table.layers(self.function.graph, self.built)


# Under these names networks with several outputs give that by which they classify.
_CLASSES = ("logits", "predictions", "probabilities", "output", "outputs")


def classes(outputs: Any, count: int) -> tf.Tensor:
    """Select the output [N, classes] used for classification from all outputs.

    In a dict, a key such as ``logits`` takes precedence; otherwise it is the first output with ``count`` numbers
    per image, else the first with more, else the first one.
    """
    tensors = [_flat(tensor) for tensor in _in_order(outputs)]
    sizes = [tensor.shape[1] if tensor.shape.rank == 2 else None for tensor in tensors]
    exact = [tensor for tensor, size in zip(tensors, sizes, strict=True) if size == count]
    wider = [tensor for tensor, size in zip(tensors, sizes, strict=True) if size is not None and size > count]
    return (exact or wider or tensors)[0]


def _in_order(outputs: Any) -> list[tf.Tensor]:
    if isinstance(outputs, dict):
        names = sorted(outputs, key=lambda name: name not in _CLASSES)
        return [tensor for name in names for tensor in _in_order(outputs[name])]
    if isinstance(outputs, (list, tuple)):
        return [tensor for item in outputs for tensor in _in_order(item)]
    return [] if outputs is None else [tf.convert_to_tensor(outputs)]


def _flat(tensor: tf.Tensor) -> tf.Tensor:
    # Fully convolutional networks give [N, 1, 1, classes].
    if tensor.shape.rank == 4 and tensor.shape[1:3].as_list() == [1, 1]:
        return tf.squeeze(tensor, [1, 2])
    return tensor


def trace(network: Network, store: VariableStore, shape: tuple[int | None, ...] | None = None) -> Inference:
    """Build the inference network; its variables are made, if they were not.

    ``shape`` of an input, where it is not that of the images: a generator of images takes other numbers.
    There are no labels. A network that cannot do without sees those of the first class.
    """
    shape = shape or network.shape
    try:
        return _traced(network, store, shape, tower.INFERENCE, lambda x: None)
    except Exception:
        if not network.may_depend_on("y"):
            raise
        # If labels are not what it lacked, this tells of the same fault.
        return _traced(network, store, shape, tower.INFERENCE, _first_labels)


def trace_shown(network: Network, store: VariableStore) -> tuple[Inference, Exception | None]:
    """A network to be looked at: that for inference or, if it takes no such images, that for validation.

    With it comes why it cannot be built for inference, if that is so.
    """
    try:
        return trace(network, store), None
    except Exception as fault:
        if not network.may_depend_on("is_inference"):
            raise
        return _traced(network, store, network.shape, tower.VALIDATION, _first_labels), fault


def _first_labels(x: tf.Tensor) -> tf.Tensor:
    return tf.zeros(tf.shape(x)[:1], tf.int64)


def _traced(
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
