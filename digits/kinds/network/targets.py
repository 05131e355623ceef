"""Predictions: from the outputs of a network to values for the target. Runs in the worker only.

The module ``targets`` of a kind defines ``Targets``, a subclass of the class here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from digits.data.images.images import Geometry
from digits.data.targets.target import Target

# Networks with several outputs use these names for their prediction.
_PREDICTION_NAMES = ("logits", "predictions", "probabilities", "output", "outputs")


class UnsuitableOutput(ValueError):
    """The outputs of a network are no predictions for the target; ``message`` and ``hint`` are for the user."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class LossLabels(Protocol):
    """How the loss of a network uses the labels."""

    @property
    def is_used(self) -> bool:
        """Whether the loss depends on the labels."""

    @property
    def has_cross_entropy(self) -> bool:
        """Whether the loss contains a cross-entropy over as many scores as the output has columns."""


class Targets:
    """The predictions of networks for one ``target``."""

    output_hint = "Only networks trained for this kind of dataset can make predictions."
    # Whether the input of the network is one image, rather than two, a text, or an array.
    takes_image = True

    def __init__(self, target: Target) -> None:
        self.target = target

    @property
    def channels(self) -> int:
        """The number of channels if the network returns images, [N, H, W, channels] or [N, channels, H, W], else 0."""
        return 0

    @property
    def suitable_output(self) -> str:
        """Describe the output that a network must return, for `refuse`."""
        return f"one value for each of the {self.target.outputs} {'classes' if self.target.classes else 'targets'}"

    def predict(self, outputs: Any) -> tf.Tensor:
        """Select the predictions, float32 [N, …], from all ``outputs`` of a network, in its graph."""
        return tf.cast(select_output(outputs, self.target.outputs), tf.float32)

    def check(self, columns: int, loss: LossLabels | None) -> None:
        """Raise UnsuitableOutput if predictions [N, columns] are not for the target.

        ``columns`` is 0 for predictions of another rank. ``loss`` is None if the loss could not be built.
        """

    def remark(self, shape: Sequence[int | None]) -> str:
        """Return what limits predictions [N, …] of ``shape`` [...] on this dataset, for a warning; usually nothing."""
        return ""

    def class_probabilities(self, predicted: NDArray[Any]) -> NDArray[Any] | None:
        """Return the probability of each class, [N, classes], from predictions [N, …]; None if they have none."""
        return None

    def accepts(self, shape: Sequence[int]) -> bool:
        """Return whether predictions [N, …] of this ``shape`` [...] can be described."""
        return len(shape) == 1 and shape[0] >= self.target.outputs

    def agreement(self, predicted: NDArray[Any], others: NDArray[Any]) -> float | None:
        """Return the fraction of equal predictions, 0 to 1, of two models for the same images.

        Both are [N, …], as `predict` returns them. None if predictions are numbers, which are never equal.
        """
        return None

    def align(self, output: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
        """Return an output [N, …] of another model, ``other``, in the order of ``output``, for a comparison.

        Only kinds whose outputs are lists with an order that may depend on rounding override this.
        """
        return other

    def example(self, output: str) -> list[str]:
        """Return at most two lines of Python that print the prediction for one image.

        They use ``outputs``, a dict of arrays [1, …] whose item ``output`` is the prediction, ``labels``, a list, and
        NumPy as ``np``; Pillow's ``Image`` too if `takes_image`.
        """
        return [f'print(outputs["{output}"][0])']

    def describe(self, predicted: NDArray[Any], top: int, geometry: Geometry) -> Any:
        """The prediction for one image as JSON, for classes at most ``top`` entries.

        ``geometry`` maps the user's image to the network's input.
        """
        raise NotImplementedError

    def refuse(self, shape: Sequence[int | None]) -> UnsuitableOutput:
        """The error for an output of a different shape [N, …]."""
        words = ", ".join("N" if size is None else str(size) for size in (None, *shape))
        return UnsuitableOutput(
            f"The network's output has shape [{words}], not {self.suitable_output}.", self.output_hint
        )


def select_output(outputs: Any, count: int, rank: int = 2) -> tf.Tensor:
    """Select the prediction [N, count], or [N, …, count] of another ``rank``, from all outputs of a network.

    In a dict, a key such as ``logits`` takes precedence; otherwise it is the first output with ``count`` numbers
    in the last dimension, else the first with more, else the first one. Images [N, count, H, W] are transposed.
    """
    tensors = [_flat(item) if rank == 2 else channels_last(item, count) for item in in_order(outputs)]
    sizes = [tensor.shape[-1] if tensor.shape.rank == rank else None for tensor in tensors]
    exact = [tensor for tensor, size in zip(tensors, sizes, strict=True) if size == count]
    wider = [tensor for tensor, size in zip(tensors, sizes, strict=True) if size is not None and size > count]
    return (exact or wider or tensors)[0]


def select_columns(outputs: Any, count: int) -> tf.Tensor:
    """Select the prediction, float32 [N, count]; that of a single number may have the shape [N]."""
    columns = tf.cast(select_output(outputs, count), tf.float32)
    return columns[:, None] if columns.shape.rank == 1 else columns


def find_columns(outputs: Any, count: int) -> tf.Tensor | None:
    """Return the prediction like `select_columns`; None for a network with another purpose."""
    columns = select_columns(outputs, count)
    return columns if columns.shape.rank == 2 and columns.shape[1] == count else None


def is_channels_first(shape: Sequence[int | None], channels: int) -> bool:
    """Return whether images of this ``shape`` [N, ?, ?, ?] with a number of ``channels`` are [N, channels, H, W]."""
    return len(shape) == 4 and shape[1] == channels != shape[3]


def as_returned(predicted: NDArray[Any], outputs: Mapping[str, Any], channels: int) -> NDArray[Any]:
    """Return images ``predicted`` [N, H, W, channels] in the order of dimensions of a network's ``outputs``, tensors.

    Other predictions are unchanged.
    """
    shapes = [tensor.shape.as_list() for tensor in outputs.values() if tensor.shape.rank == 4]
    if predicted.ndim != 4 or not shapes or not all(is_channels_first(shape, channels) for shape in shapes):
        return predicted
    return np.moveaxis(predicted, -1, 1)


def channels_last(images: tf.Tensor, channels: int) -> tf.Tensor:
    """Return images [N, H, W, channels] from images in this order or [N, channels, H, W]; other tensors unchanged."""
    if images.shape.rank != 4 or not is_channels_first(images.shape.as_list(), channels):
        return images
    return tf.transpose(images, [0, 2, 3, 1])


def in_order(outputs: Any) -> list[tf.Tensor]:
    """Return all outputs of a network, those with the name of a prediction first."""
    if isinstance(outputs, dict):
        names = sorted(outputs, key=lambda name: name not in _PREDICTION_NAMES)
        return [tensor for name in names for tensor in in_order(outputs[name])]
    if isinstance(outputs, (list, tuple)):
        return [tensor for item in outputs for tensor in in_order(item)]
    return [] if outputs is None else [tf.convert_to_tensor(outputs)]


def _flat(tensor: tf.Tensor) -> tf.Tensor:
    # Fully convolutional networks return [N, 1, 1, columns].
    if tensor.shape.rank == 4 and tensor.shape[1:3].as_list() == [1, 1]:
        return tf.squeeze(tensor, [1, 2])
    return tensor
